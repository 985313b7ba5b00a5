/* SPDX-License-Identifier: Apache-2.0
 *
 * All ranks write one safetensors file of a checkpoint: first its layout is planned, then one rank
 * creates the empty file, then each rank writes its boxes. None is collective: callers wait for
 * each other in between.
 */
#ifndef ECH_CHECKPOINT_STORED_H
#define ECH_CHECKPOINT_STORED_H

#include "checkpoint/checkpoint.h"

typedef struct ech_stored {
    /* [n] in the file's order, parts of one tensor one after the other; names and boxes' memory
     * are borrowed */
    ech_saved_tensor *tensors;
    int n;
    int64_t *offsets; /* [n] where each tensor of the file begins; parts of one have the same */
    ech_text header;  /* 8 bytes of length and the JSON */
    int64_t bytes;    /* of the file */
    uint64_t *sums;   /* checksums by range (ech_sum_bytes) of the bytes that this rank wrote */
} ech_stored;

/* Lays out the file of the tensors of `file`. Larger dtypes come first and the header is padded to
 * a multiple of 4,096 bytes, so that all data is aligned. The same on all ranks if their tensors
 * are, whatever their boxes. base: the hash of the weights that adapters belong to, for
 * ech_safetensors_base; NULL or "": none. Errors: a name twice, except for parts that make up one
 * tensor; a name that is not UTF-8; 2^63 elements or more; a box that ech_transfer_check refuses.
 * Release with ech_stored_free, also after failures. */
ech_status ech_stored_plan(const ech_saved_tensor *tensors, int n, ech_checkpoint_file file,
                           const char *base, ech_stored *out);
void ech_stored_free(ech_stored *stored);

/* Called by one rank: creates the file with its header and at its full size, so that a full disk is
 * an error before any data is written; syncs and closes it. */
ech_status ech_stored_create(const ech_stored *stored, const char *path);
/* Writes this rank's boxes into the created file and syncs it. Does not open it if all boxes are
 * empty. */
ech_status ech_stored_write(const ech_stored *stored, const char *path);

/* For a file that one process writes alone: creates it and opens it for ech_safetensors_write. */
ech_status ech_stored_begin(const ech_stored *stored, const char *path, int *fd);
/* Syncs and closes the file. Returns `st`, the status of its writing, if that is an error, else the
 * errors of these. */
ech_status ech_stored_finish(int fd, const char *path, ech_status st);

#endif
