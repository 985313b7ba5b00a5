/* SPDX-License-Identifier: Apache-2.0
 *
 * A folder of weights, open: its files, and where each tensor is.
 */
#include "checkpoint/shards.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "checkpoint/shards_index.h"
#include "tensor/convert.h"

struct ech_shards {
    char *folder;
    ech_shards_names names;
    ECH_LIST(ech_safetensors *) file;
};

/* Where a tensor is; file -1: nowhere. */
typedef struct spot {
    int file, tensor;
} spot;

/* ---- opening ---- */

static ech_status open_file(ech_shards *weights, const char *name, bool follow)
{
    ech_safetensors *file;
    char *path = ech_file_join(weights->folder, name);
    ech_status st = ech_safetensors_open_as(path, follow, &file);
    free(path);
    ECH_TRY(st);
    ECH_PUSH(weights->file, file);
    return ECH_OK;
}

/* listed: tensors that the map says are in it. */
static ech_status check_shard(const char *path, const ech_shards_index *index, int shard,
                              int listed, const ech_safetensors *file)
{
    for (int t = 0; t < ech_safetensors_count(file); t++) {
        const char *name = ech_safetensors_get(file, t).name;
        int at = ech_shards_index_find(index, name);
        if (at < 0 || index->shard_of[at] != shard)
            ECH_FAIL(ECH_EINPUT, "%s: its shard %s has the tensor '%s', %s", path,
                     index->shard.at[shard], name,
                     at < 0 ? "which weight_map does not list"
                            : "which weight_map says to be in another one");
    }
    if (listed == ech_safetensors_count(file)) return ECH_OK;
    for (size_t i = 0; i < index->tensor.n; i++)
        if (index->shard_of[i] == shard && ech_safetensors_find(file, index->tensor.at[i]) < 0)
            ECH_FAIL(ECH_EINPUT, "%s: tensor '%s' is not in its shard %s", path,
                     index->tensor.at[i], index->shard.at[shard]);
    return ECH_OK;
}

static ech_status check_shards(const ech_shards *weights, const char *path,
                               const ech_shards_index *index)
{
    int *listed = ech_calloc(index->shard.n, sizeof *listed);
    ech_status st = ECH_OK;
    for (size_t i = 0; i < index->tensor.n; i++) listed[index->shard_of[i]]++;
    for (size_t s = 0; s < index->shard.n && st == ECH_OK; s++)
        st = check_shard(path, index, (int)s, listed[s], weights->file.at[s]);
    free(listed);
    return st;
}

static ech_status open_shards(ech_shards *weights, const char *path, const ech_shards_index *index)
{
    for (size_t s = 0; s < index->shard.n; s++) {
        char *shard = ech_file_join(weights->folder, index->shard.at[s]);
        bool is_there = ech_file_exists(shard);
        free(shard);
        if (!is_there)
            ECH_FAIL(ECH_EINPUT, "%s: its shard %s is not there; copy all files of the model", path,
                     index->shard.at[s]);
        ECH_TRY(open_file(weights, index->shard.at[s], false));
    }
    return check_shards(weights, path, index);
}

static ech_status open_index(ech_shards *weights, const char *path)
{
    ech_shards_index index = {0};
    ech_status st = ech_shards_index_read(path, &index);
    if (st == ECH_OK) st = open_shards(weights, path, &index);
    ech_shards_index_free(&index);
    return st;
}

static bool has(const char *folder, const char *name)
{
    char *path = ech_file_join(folder, name);
    bool is_there = ech_file_exists(path);
    free(path);
    return is_there;
}

bool ech_shards_are_there(const char *folder)
{
    return has(folder, ECH_SHARDS_SINGLE) || has(folder, ECH_SHARDS_INDEX);
}

/* As transformers looks: one file before shards. Pickles run code when they are read. */
static ech_status open_all(ech_shards *weights)
{
    if (has(weights->folder, ECH_SHARDS_SINGLE)) return open_file(weights, ECH_SHARDS_SINGLE, true);
    if (has(weights->folder, ECH_SHARDS_INDEX)) {
        char *path = ech_file_join(weights->folder, ECH_SHARDS_INDEX);
        ech_status st = open_index(weights, path);
        free(path);
        return st;
    }
    if (has(weights->folder, "pytorch_model.bin") ||
        has(weights->folder, "pytorch_model.bin.index.json"))
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: has its weights as pytorch_model.bin, a pickle, which may run any code when "
                 "it is read; convert it where you trust it, in Python: AutoModelForCausalLM"
                 ".from_pretrained(DIR).save_pretrained(NEW, safe_serialization=True)",
                 weights->folder);
    ECH_FAIL(ECH_EINPUT, "%s: has neither " ECH_SHARDS_SINGLE " nor " ECH_SHARDS_INDEX,
             weights->folder);
}

ech_status ech_shards_open(const char *folder, const ech_shards_names *names, ech_shards **out)
{
    ech_shards *weights = ech_calloc(1, sizeof *weights);
    weights->folder = ech_strdup(folder);
    weights->names = *names;
    ech_status st = open_all(weights);
    if (st != ECH_OK) {
        ech_shards_close(weights);
        return st;
    }
    *out = weights;
    return ECH_OK;
}

void ech_shards_close(ech_shards *weights)
{
    if (!weights) return;
    for (size_t f = 0; f < weights->file.n; f++) ech_safetensors_close(weights->file.at[f]);
    free(weights->file.at);
    free(weights->folder);
    free(weights);
}

int ech_shards_count(const ech_shards *weights)
{
    int n = 0;
    for (size_t f = 0; f < weights->file.n; f++) n += ech_safetensors_count(weights->file.at[f]);
    return n;
}

/* ---- names ---- */

static spot find_exactly(const ech_shards *weights, const char *name)
{
    for (size_t f = 0; f < weights->file.n; f++) {
        int t = ech_safetensors_find(weights->file.at[f], name);
        if (t >= 0) return (spot){(int)f, t};
    }
    return (spot){-1, -1};
}

/* By our name, or by that without the family's prefix. */
static spot find(const ech_shards *weights, const char *name)
{
    size_t n = strlen(weights->names.prefix);
    spot at = find_exactly(weights, name);
    if (at.file < 0 && strncmp(name, weights->names.prefix, n) == 0)
        at = find_exactly(weights, name + n);
    return at;
}

ech_dtype ech_shards_dtype(const ech_shards *weights, const char *name)
{
    spot at = find(weights, name);
    ECH_ASSERT(at.file >= 0);
    return ech_safetensors_get(weights->file.at[at.file], at.tensor).dtype;
}

static bool is_buffer(const ech_shards *weights, const char *name)
{
    char *copy = ech_strdup(weights->names.buffers), *rest = NULL;
    bool found = false;
    for (char *end = strtok_r(copy, " ", &rest); end && !found; end = strtok_r(NULL, " ", &rest)) {
        size_t n = strlen(name), e = strlen(end);
        found = n >= e && strcmp(name + n - e, end) == 0;
    }
    free(copy);
    return found;
}

static bool is_tied_head(const ech_shards *weights, const char *name)
{
    return weights->names.table && strcmp(name, weights->names.head) == 0;
}

/* ---- checking ---- */

static void print_shape(const ech_saved_tensor *tensor, ech_text *out)
{
    ech_text_append(out, "[");
    for (int d = 0; d < tensor->dims; d++)
        ech_text_append(out, "%s%" PRId64, d ? ", " : "", tensor->shape[d]);
    ech_text_append(out, "]");
}

static ech_status check_one(const ech_shards *weights, const ech_saved_tensor *stored,
                            const ech_saved_tensor *want)
{
    if (!ech_dtype_is_real(stored->dtype))
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: tensor '%s' is of type %s; weights are F32, F64, BF16 or F16",
                 weights->folder, stored->name, ech_dtype_on_disk(stored->dtype));
    if (stored->dims == want->dims &&
        memcmp(stored->shape, want->shape, (size_t)want->dims * sizeof *want->shape) == 0)
        return ECH_OK;
    ech_text is = {0}, must = {0};
    print_shape(stored, &is);
    print_shape(want, &must);
    ech_status st = ech_fail_at(__FILE__, __LINE__, ECH_EINPUT,
                                "%s: tensor '%s' has shape %s; by the model section it is %s",
                                weights->folder, stored->name, is.at, must.at);
    ech_text_free(&is);
    ech_text_free(&must);
    return st;
}

static ech_status fail_missing(const ech_shards *weights, const char *name)
{
    ECH_LIST(const char *) names = {0};
    for (size_t f = 0; f < weights->file.n; f++)
        for (int t = 0; t < ech_safetensors_count(weights->file.at[f]); t++)
            ECH_PUSH(names, ech_safetensors_get(weights->file.at[f], t).name);
    const char *nearest = ech_text_nearest(name, names.at, names.n);
    ech_status st =
        ech_fail_at(__FILE__, __LINE__, ECH_EINPUT, "%s: no tensor '%s' among its %zu%s%s%s",
                    weights->folder, name, names.n, nearest ? " (the nearest is '" : "",
                    nearest ? nearest : "", nearest ? "')" : "");
    free(names.at);
    return st;
}

static ech_status check_left_over(const ech_shards *weights, bool *const *used)
{
    for (size_t f = 0; f < weights->file.n; f++)
        for (int t = 0; t < ech_safetensors_count(weights->file.at[f]); t++) {
            const char *name = ech_safetensors_get(weights->file.at[f], t).name;
            if (used[f][t] || is_buffer(weights, name) || is_tied_head(weights, name)) continue;
            ECH_FAIL(ECH_EINPUT, "%s: tensor '%s' belongs to nothing in this model",
                     weights->folder, name);
        }
    return ECH_OK;
}

static ech_status check_tensors(const ech_shards *weights, const ech_saved_tensor *tensors, int n,
                                bool *const *used)
{
    for (int i = 0; i < n; i++) {
        spot at = find(weights, tensors[i].name);
        if (at.file < 0) return fail_missing(weights, tensors[i].name);
        ech_saved_tensor stored = ech_safetensors_get(weights->file.at[at.file], at.tensor);
        ECH_TRY(check_one(weights, &stored, &tensors[i]));
        used[at.file][at.tensor] = true;
    }
    return check_left_over(weights, used);
}

ech_status ech_shards_check(const ech_shards *weights, const ech_saved_tensor *tensors, int n)
{
    bool **used = ech_calloc(weights->file.n, sizeof *used);
    for (size_t f = 0; f < weights->file.n; f++)
        used[f] = ech_calloc((size_t)ech_safetensors_count(weights->file.at[f]) + 1, sizeof **used);
    ech_status st = check_tensors(weights, tensors, n, used);
    for (size_t f = 0; f < weights->file.n; f++) free(used[f]);
    free(used);
    return st;
}

/* ---- reading ---- */

/* Rows [first, first + rows) of a matrix, as fp64. */
static ech_status read_rows(const ech_shards *weights, spot at, int64_t first, int64_t rows,
                            double *to)
{
    const ech_safetensors *file = weights->file.at[at.file];
    ech_saved_tensor tensor = ech_safetensors_get(file, at.tensor);
    ech_tensor part = ech_tensor_2d(to, ECH_F64, rows, tensor.shape[1]);
    tensor.dtype = ECH_F64;
    ech_saved_add(&tensor, (const int64_t[]){first, 0}, &part);
    return ech_safetensors_read(file, at.tensor, &tensor);
}

static ech_status compare_rows(const ech_shards *weights, spot head, spot table, int64_t first,
                               int64_t rows, int64_t width, double *room)
{
    ECH_TRY(read_rows(weights, head, first, rows, room));
    ECH_TRY(read_rows(weights, table, first, rows, room + rows * width));
    for (int64_t i = 0; i < rows * width; i++)
        if (memcmp(&room[i], &room[rows * width + i], sizeof *room) != 0)
            ECH_FAIL(ECH_EINPUT,
                     "%s: tensor '%s' differs from '%s' at row %" PRId64
                     ", but tie_word_embeddings says they are one; one of them is wrong",
                     weights->folder, weights->names.head, weights->names.table, first + i / width);
    return ECH_OK;
}

ech_status ech_shards_check_head(const ech_shards *weights)
{
    enum { ELEMENTS = 1 << 16 };
    if (!weights->names.table) return ECH_OK;
    spot head = find_exactly(weights, weights->names.head);
    if (head.file < 0) return ECH_OK;
    spot table = find(weights, weights->names.table);
    ech_saved_tensor is = ech_safetensors_get(weights->file.at[head.file], head.tensor);
    ech_saved_tensor must = ech_safetensors_get(weights->file.at[table.file], table.tensor);
    ECH_TRY(check_one(weights, &is, &must));
    int64_t V = must.shape[0], width = must.shape[1];
    int64_t rows = width < ELEMENTS ? ELEMENTS / width : 1;
    double *room = ech_calloc((size_t)(2 * rows * width), sizeof *room);
    ech_status st = ECH_OK;
    for (int64_t first = 0; first < V && st == ECH_OK; first += rows)
        st = compare_rows(weights, head, table, first, V - first < rows ? V - first : rows, width,
                          room);
    free(room);
    return st;
}

ech_status ech_shards_load(const ech_shards *weights, const ech_saved_tensor *tensors, int n)
{
    for (int i = 0; i < n; i++) {
        spot at = find(weights, tensors[i].name);
        if (at.file < 0) return fail_missing(weights, tensors[i].name);
        ech_saved_tensor stored = ech_safetensors_get(weights->file.at[at.file], at.tensor);
        ECH_TRY(check_one(weights, &stored, &tensors[i]));
        ECH_TRY(ech_safetensors_read(weights->file.at[at.file], at.tensor, &tensors[i]));
    }
    return ECH_OK;
}
