/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading model.safetensors.index.json.
 */
#include "checkpoint/shards_index.h"

#include <string.h>

enum { ENTRY_BYTES = 6, MOST_SHARDS = 10000 }; /* of the shortest entry: "":"a", */

#define DAMAGED ": damaged; download it again"

/* Counts a tensor of a shard, which is new if no tensor before was in it. */
static ech_status count(const char *path, const char *name, json_t *shards)
{
    json_t *tensors = json_object_get(shards, name);
    if (tensors) {
        json_integer_set(tensors, json_integer_value(tensors) + 1);
        return ECH_OK;
    }
    if (!*name || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        ECH_FAIL(ECH_EINPUT,
                 "%s: weight_map names the shard '%.80s': must be a file's name in the same "
                 "folder" DAMAGED,
                 path, name);
    if (json_object_size(shards) == MOST_SHARDS)
        ECH_FAIL(ECH_EINPUT,
                 "%s: names more than %d shards, the most that can be read; save it with a larger "
                 "max_shard_size",
                 path, MOST_SHARDS);
    json_object_set_new(shards, name, json_integer(1));
    return ECH_OK;
}

ech_status ech_shards_index_parse(const char *path, const char *text, size_t n,
                                  ech_shards_index *out)
{
    const ech_json_limits limits = {.depth = 4, .containers = 64, .values = n / ENTRY_BYTES + 64};
    const char *name;
    json_t *value;
    *out = (ech_shards_index){.shards = json_object()};
    ECH_TRY(ech_json_parse(path, text, n, limits, &out->root));
    out->map = json_object_get(out->root, "weight_map");
    if (!json_is_object(out->map))
        ECH_FAIL(ECH_EINPUT, "%s: has no object weight_map" DAMAGED, path);
    json_object_foreach(out->map, name, value)
    {
        if (!json_is_string(value))
            ECH_FAIL(ECH_EINPUT, "%s: weight_map '%.200s' is no file's name" DAMAGED, path, name);
        ECH_TRY(count(path, json_string_value(value), out->shards));
    }
    if (!json_object_size(out->map)) ECH_FAIL(ECH_EINPUT, "%s: weight_map is empty" DAMAGED, path);
    return ECH_OK;
}

void ech_shards_index_free(ech_shards_index *index)
{
    json_decref(index->shards);
    json_decref(index->root);
    *index = (ech_shards_index){0};
}
