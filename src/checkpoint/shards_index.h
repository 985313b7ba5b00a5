/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to checkpoint: model.safetensors.index.json, which maps tensors to files, called shards
 * as in shards.h.
 */
#ifndef ECH_CHECKPOINT_SHARDS_INDEX_H
#define ECH_CHECKPOINT_SHARDS_INDEX_H

#include "base/json.h"

typedef struct ech_shards_index {
    json_t *root;   /* all of the file */
    json_t *map;    /* weight_map: tensor -> name of its shard; borrowed from root */
    json_t *shards; /* name of a shard -> number of its tensors, at least 1; owned */
} ech_shards_index;

/* Parses the file's text, which is untrusted; `path` is its name in errors. A shard's name must be
 * a file in the same folder: not empty, without '/', not "." or "..". Release with
 * ech_shards_index_free, also after failures. */
ech_status ech_shards_index_parse(const char *path, const char *text, size_t n,
                                  ech_shards_index *out);
void ech_shards_index_free(ech_shards_index *index);

#endif
