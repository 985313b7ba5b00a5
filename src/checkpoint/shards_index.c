/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading model.safetensors.index.json.
 */
#include "checkpoint/shards_index.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"

enum {
    LARGEST = 16 << 20, /* bytes */
    ENTRY_BYTES = 6,    /* of the shortest: "":"a", */
    MOST_SHARDS = 10000
};

/* The shard's number; it is new if nobody has named it. known: name -> number. */
static ech_status find_shard(const char *path, const char *name, json_t *known,
                             ech_shards_index *index, int *out)
{
    const json_t *number = json_object_get(known, name);
    *out = number ? (int)json_integer_value(number) : (int)index->shard.n;
    if (number) return ECH_OK;
    if (!*name || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        ECH_FAIL(ECH_EINPUT,
                 "%s: weight_map names the shard '%.80s': must be a file's name in the same folder",
                 path, name);
    if (index->shard.n == MOST_SHARDS)
        ECH_FAIL(ECH_EINPUT, "%s: names more than %d shards", path, MOST_SHARDS);
    json_object_set_new(known, name, json_integer(*out));
    ECH_PUSH(index->shard, ech_pool_format(index->pool, "%s", name));
    return ECH_OK;
}

static ech_status fill_shards(const char *path, const json_t *map, ech_shards_index *index)
{
    json_auto_t *known = json_object();
    ech_status st = ECH_OK;
    index->shard_of = ech_calloc(index->tensor.n, sizeof *index->shard_of);
    for (size_t i = 0; i < index->tensor.n && st == ECH_OK; i++) {
        const char *name = json_string_value(json_object_get(map, index->tensor.at[i]));
        st = find_shard(path, name, known, index, &index->shard_of[i]);
    }
    return st;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static ech_status fill(const char *path, json_t *map, ech_shards_index *index)
{
    const char *name;
    json_t *value;
    if (!json_is_object(map))
        ECH_FAIL(ECH_EINPUT, "%s: has no object weight_map: no index of shards", path);
    json_object_foreach(map, name, value)
    {
        if (!json_is_string(value))
            ECH_FAIL(ECH_EINPUT, "%s: weight_map '%.200s' is no file's name", path, name);
        ECH_PUSH(index->tensor, ech_pool_format(index->pool, "%s", name));
    }
    if (index->tensor.n == 0) ECH_FAIL(ECH_EINPUT, "%s: weight_map is empty", path);
    qsort(index->tensor.at, index->tensor.n, sizeof *index->tensor.at, by_name);
    return fill_shards(path, map, index);
}

ech_status ech_shards_index_parse(const char *path, const char *text, size_t n,
                                  ech_shards_index *out)
{
    const ech_json_limits limits = {.depth = 4, .containers = 64, .values = n / ENTRY_BYTES + 64};
    json_auto_t *root = NULL;
    *out = (ech_shards_index){.pool = ech_pool_create()};
    ECH_TRY(ech_json_parse(path, text, n, limits, &root));
    return fill(path, json_object_get(root, "weight_map"), out);
}

ech_status ech_shards_index_read(const char *path, ech_shards_index *out)
{
    ECH_FREED char *text = NULL;
    size_t n;
    ECH_TRY(ech_file_read(path, LARGEST, &text, &n));
    return ech_shards_index_parse(path, text, n, out);
}

void ech_shards_index_free(ech_shards_index *index)
{
    free(index->shard.at);
    free(index->tensor.at);
    free(index->shard_of);
    ech_pool_destroy(index->pool);
    *index = (ech_shards_index){0};
}

int ech_shards_index_find(const ech_shards_index *index, const char *tensor)
{
    if (!index->tensor.n) return -1;
    char **found =
        bsearch(&tensor, index->tensor.at, index->tensor.n, sizeof *index->tensor.at, by_name);
    return found ? (int)(found - index->tensor.at) : -1;
}
