/* SPDX-License-Identifier: Apache-2.0
 *
 * Checking that a folder has a model's weights: names, shapes and dtypes, and a tied head.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "checkpoint/box.h"
#include "checkpoint/shards_parts.h"
#include "tensor/convert.h"

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
    ECH_FREED_TEXT is = {0}, must = {0};
    ech_shape_print(stored->dims, stored->shape, &is);
    ech_shape_print(want->dims, want->shape, &must);
    return ech_fail_at(__FILE__, __LINE__, ECH_EINPUT,
                       "%s: tensor '%s' has shape %s; by the model section it is %s",
                       weights->folder, stored->name, is.at, must.at);
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

ech_status ech_shards_demand(const ech_shards *weights, const ech_saved_tensor *want,
                             ech_shards_location *out)
{
    ech_shards_location at = ech_shards_find_tensor(weights, want->name);
    if (at.file < 0) return fail_missing(weights, want->name);
    ech_saved_tensor stored = ech_safetensors_get(weights->file.at[at.file], at.tensor);
    ECH_TRY(check_one(weights, &stored, want));
    *out = at;
    return ECH_OK;
}

/* ---- all tensors ---- */

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
        ech_shards_location at;
        ECH_TRY(ech_shards_demand(weights, &tensors[i], &at));
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

/* ---- a tied head ---- */

/* Rows [first, first + rows) of a matrix, as fp64. */
static ech_status read_rows(const ech_shards *weights, ech_shards_location at, int64_t first,
                            int64_t rows, double *to)
{
    const ech_safetensors *file = weights->file.at[at.file];
    ech_saved_tensor tensor = ech_safetensors_get(file, at.tensor);
    ech_tensor part = ech_tensor_2d(to, ECH_F64, rows, tensor.shape[1]);
    tensor.dtype = ECH_F64;
    ech_saved_add(&tensor, (const int64_t[]){first, 0}, &part);
    return ech_safetensors_read(file, at.tensor, &tensor);
}

static ech_status compare_rows(const ech_shards *weights, ech_shards_location head,
                               ech_shards_location table, int64_t first, int64_t rows,
                               int64_t width, double *room)
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
    ech_shards_location head = ech_shards_find_exactly(weights, weights->names.head);
    if (head.file < 0) return ECH_OK;
    ech_shards_location table = ech_shards_find_tensor(weights, weights->names.table);
    ech_saved_tensor is = ech_safetensors_get(weights->file.at[head.file], head.tensor);
    ech_saved_tensor must = ech_safetensors_get(weights->file.at[table.file], table.tensor);
    ECH_TRY(check_one(weights, &is, &must));
    int64_t V = must.shape[0], width = must.shape[1];
    int64_t rows = width < ELEMENTS ? ELEMENTS / width : 1;
    ECH_FREED double *room = ech_calloc((size_t)(2 * rows * width), sizeof *room);
    ech_status st = ECH_OK;
    for (int64_t first = 0; first < V && st == ECH_OK; first += rows)
        st = compare_rows(weights, head, table, first, V - first < rows ? V - first : rows, width,
                          room);
    return st;
}
