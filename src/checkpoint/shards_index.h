/* SPDX-License-Identifier: Apache-2.0
 *
 * model.safetensors.index.json: which shard has which tensor. Private to this room.
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

/* `path` stands for the file in errors. A shard's name is one of a file in the same folder: not empty,
 * no '/', not "." or "..". Released with ech_shards_index_free, after failures too. */
ech_status ech_shards_index_parse(const char *path, const char *text, size_t n,
                                  ech_shards_index *out);
ech_status ech_shards_index_read(const char *path, ech_shards_index *out);
void ech_shards_index_free(ech_shards_index *index);
/* -1: not listed. */
int ech_shards_index_find(const ech_shards_index *index, const char *tensor);

#endif
