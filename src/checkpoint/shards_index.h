/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to checkpoint: model.safetensors.index.json, which maps tensors to shards (files).
 */
#ifndef ECH_CHECKPOINT_SHARDS_INDEX_H
#define ECH_CHECKPOINT_SHARDS_INDEX_H

#include "base/memory.h"
#include "base/status.h"

#define ECH_SHARDS_SINGLE "model.safetensors"
#define ECH_SHARDS_INDEX  "model.safetensors.index.json"

typedef struct ech_shards_index {
    ech_pool *pool;          /* of all texts */
    ECH_LIST(char *) shard;  /* file names, each once */
    ECH_LIST(char *) tensor; /* names, sorted */
    int *shard_of;           /* [tensor.n] */
} ech_shards_index;

/* Parses the file's text, which is untrusted; `path` is its name in errors. A shard's name must be a file in the same
 * folder: not empty, without '/', not "." or "..". Release with ech_shards_index_free, also after failures. */
ech_status ech_shards_index_parse(const char *path, const char *text, size_t n,
                                  ech_shards_index *out);
ech_status ech_shards_index_read(const char *path, ech_shards_index *out);
void ech_shards_index_free(ech_shards_index *index);
/* The tensor's index in `tensor`; -1: not listed. */
int ech_shards_index_find(const ech_shards_index *index, const char *tensor);

#endif
