/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to checkpoint: the structure of an open folder of weights.
 */
#ifndef ECH_CHECKPOINT_SHARDS_PARTS_H
#define ECH_CHECKPOINT_SHARDS_PARTS_H

#include "base/memory.h"
#include "checkpoint/shards.h"

struct ech_shards {
    char *folder;
    ech_shards_names names;
    ECH_LIST(ech_safetensors *) file;
};

/* Where a tensor is: index of the file, and of the tensor in it. file -1: not found. */
typedef struct ech_shards_location {
    int file, tensor;
} ech_shards_location;

/* ---- shards.c ---- */

ech_shards_location ech_shards_find_exactly(const ech_shards *weights, const char *name);
/* By our name, or by our name without the family's prefix. */
ech_shards_location ech_shards_find_tensor(const ech_shards *weights, const char *name);

/* If the folder is the model/ of a checkpoint, compares it with the manifest: sizes and texts, with `all` also the
 * weights' hashes. Other folders have no hashes: ECH_OK. */
ech_status ech_shards_verify(const char *folder, bool all);

/* ---- shards_check.c ---- */

/* Finds a tensor. Errors: it is missing, has another shape, or is of no floating-point type. */
ech_status ech_shards_demand(const ech_shards *weights, const ech_saved_tensor *want,
                             ech_shards_location *out);

#endif
