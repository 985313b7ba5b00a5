/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing one safetensors file of a checkpoint by all ranks: its layout, then the empty file, then each rank's boxes.
 */
#ifndef ECH_CHECKPOINT_STORED_H
#define ECH_CHECKPOINT_STORED_H

#include "checkpoint/checkpoint.h"

typedef struct ech_stored {
    ech_saved_tensor *tensors; /* in the file's order */
    int n;
    int64_t *offsets; /* where each begins in the file */
    ech_text header;  /* 8 bytes of length and the JSON */
    int64_t bytes;    /* of the file */
    uint64_t *sums;   /* checksums by range (ech_sum_bytes) of the bytes that this rank wrote */
} ech_stored;

/* Lays out the file of the tensors whose is_state equals `is_state`. Larger dtypes come first and the header is padded
 * to a multiple of 4,096 bytes, so that all data is aligned. Errors: a duplicate name, or one that is no UTF-8; 2^63
 * elements or more. Pure. Release with ech_stored_free, also after failures. */
ech_status ech_stored_plan(const ech_saved_tensor *tensors, int n, bool is_state, ech_stored *out);
void ech_stored_free(ech_stored *stored);

/* Creates the file with its header and at its full size, so that a full disk is an error before any data is written;
 * syncs it. By one rank. */
ech_status ech_stored_create(const ech_stored *stored, const char *path);
/* For a file of one process: creates it and opens it for ech_safetensors_write. */
ech_status ech_stored_begin(const ech_stored *stored, const char *path, int *fd);
/* Syncs and closes the file. Returns `st`, the status of its writing, or else the errors of these. */
ech_status ech_stored_finish(int fd, const char *path, ech_status st);
/* Writes this rank's boxes into the file and syncs it. Does not open it if all are empty. */
ech_status ech_stored_write(const ech_stored *stored, const char *path);

#endif
