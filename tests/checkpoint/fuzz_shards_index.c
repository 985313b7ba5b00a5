/* SPDX-License-Identifier: Apache-2.0
 *
 * Arbitrary bytes as model.safetensors.index.json: refused, or names of files in the same folder,
 * each with the number of its tensors.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "checkpoint/shards_index.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void check(const ech_shards_index *index)
{
    const char *name;
    json_t *value;
    json_int_t tensors = 0;
    json_object_foreach(index->shards, name, value)
    {
        if (!*name || strchr(name, '/') || strcmp(name, "..") == 0) abort();
        tensors += json_integer_value(value);
    }
    if (tensors != (json_int_t)json_object_size(index->map)) abort();
    json_object_foreach(index->map, name, value)
    {
        if (!json_object_get(index->shards, json_string_value(value))) abort();
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
