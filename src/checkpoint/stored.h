/* SPDX-License-Identifier: Apache-2.0
 *
 * One safetensors file on its way to disk: where each tensor goes, the empty file, then each rank's
 * boxes.
 */
#ifndef ECH_CHECKPOINT_STORED_H
#define ECH_CHECKPOINT_STORED_H

#include "checkpoint/checkpoint.h"

typedef struct ech_stored {
    ech_saved_tensor *tensors; /* in the file's order */
    int n;
    int64_t *offsets; /* where each begins in the file */
    ech_text header;
    int64_t bytes;  /* of the file */
    uint64_t *sums; /* of its ranges: what was handed over to be written (ech_sum_bytes) */
} ech_stored;

/* The file of those tensors of the list that are state, or that are not. Larger element types come
 * first, so that all data is aligned. Pure. Released with ech_stored_free, after failures too. */
ech_status ech_stored_plan(const ech_saved_tensor *tensors, int n, bool is_state, ech_stored *out);
void ech_stored_free(ech_stored *stored);

/* Creates the file at its full size, so that a full disk is found before anything is written, with
 * its header, and syncs it. */
ech_status ech_stored_create(const ech_stored *stored, const char *path);
/* Writes this rank's boxes into the file and syncs it. Touches nothing if all are empty. */
ech_status ech_stored_write(const ech_stored *stored, const char *path);

#endif
