/* SPDX-License-Identifier: Apache-2.0
 *
 * Arbitrary bytes as model.safetensors.index.json: refused, or names of files in the same folder and
 * tensors that are found again.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "checkpoint/shards_index.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void check(const ech_shards_index *index)
{
    for (size_t s = 0; s < index->shard.n; s++) {
        const char *name = index->shard.at[s];
        if (!*name || strchr(name, '/') || strcmp(name, "..") == 0) abort();
    }
    for (size_t i = 0; i < index->tensor.n; i++) {
        if (ech_shards_index_find(index, index->tensor.at[i]) != (int)i) abort();
        if (index->shard_of[i] < 0 || (size_t)index->shard_of[i] >= index->shard.n) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    ech_log_set_quiet(true);
    ech_shards_index index = {0};
    if (ech_shards_index_parse("index", (const char *)bytes, n, &index) == ECH_OK) check(&index);
    ech_shards_index_free(&index);
    return 0;
}
