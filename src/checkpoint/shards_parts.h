/* SPDX-License-Identifier: Apache-2.0
 *
 * What an open folder of weights consists of. Private to this room.
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

/* Where a tensor is; file -1: nowhere. */
typedef struct ech_shards_location {
    int file, tensor;
} ech_shards_location;

/* ---- shards.c ---- */

ech_shards_location ech_shards_find_exactly(const ech_shards *weights, const char *name);
/* By our name, or by that without the family's prefix. */
ech_shards_location ech_shards_find_tensor(const ech_shards *weights, const char *name);

/* Compares a folder that is the model/ of a checkpoint with the manifest beside it: sizes and texts, and
 * the weights' hashes if `all`. Other folders have no hashes, and are taken as they are. */
ech_status ech_shards_verify(const char *folder, bool all);

/* ---- shards_check.c ---- */

/* Where this tensor is, in this shape and of a floating-point type; else an error. */
ech_status ech_shards_demand(const ech_shards *weights, const ech_saved_tensor *want,
                             ech_shards_location *out);

#endif
