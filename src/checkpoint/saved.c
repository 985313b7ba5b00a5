/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors of files, and the boxes of them that a rank saves or loads.
 */
#include "checkpoint/checkpoint.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

ech_dtype ech_saved_weight_dtype(const ech_param *param, ech_dtype dtype)
{
    bool stays = param->adapter || (param->type == ECH_TYPE_WIDE && param->shape.dims > 1);
    return stays ? ech_dtype_wide(dtype) : dtype;
}

ech_dtype ech_saved_dtype(const ech_saved_tensor *tensor)
{
    return tensor->narrowed ? tensor->narrow : tensor->dtype;
}

void ech_saved_shape(const ech_saved_tensor *tensor, int64_t out[ECH_MAX_DIMS])
{
    ech_box_place_shape(&tensor->place, tensor->dims, tensor->shape, out);
}

void ech_saved_add(ech_saved_tensor *tensor, const int64_t *begin, const ech_tensor *part)
{
    ECH_ASSERT(tensor->boxes < ECH_MOST_BOXES);
    ECH_ASSERT(part->dims == tensor->dims && part->dtype == tensor->dtype);
    size_t bytes = (size_t)tensor->dims * sizeof *begin;
    ech_box *box = &tensor->box[tensor->boxes++];
    if (tensor->boxes == 1) tensor->data = part->data;
    ptrdiff_t from_first = (char *)part->data - (char *)tensor->data;
    *box = (ech_box){.at = from_first / (ptrdiff_t)ech_dtype_bytes(part->dtype)};
    memcpy(box->begin, begin, bytes);
    memcpy(box->size, part->shape, bytes);
    memcpy(box->stride, part->stride, bytes);
}

/* ---- lists ---- */

/* The name with the number for "%d", and the suffix. */
static const char *name_of(ech_pool *pool, const char *pattern, int64_t number, const char *suffix)
{
    const char *place = strstr(pattern, "%d"), *rest = place ? place + strlen("%d") : "";
    ECH_FREED_TEXT name = {0};
    int before = (int)(place ? place - pattern : (ptrdiff_t)strlen(pattern));
    ech_text_append(&name, "%.*s", before, pattern);
    if (place) ech_text_append(&name, "%" PRId64 "%s", number, rest);
    if (suffix) ech_text_append(&name, ".%s", suffix);
    return ech_pool_format(pool, "%s", name.at);
}

/* Index `number` of the first dimension of a stack. */
static ech_saved_tensor one_of(const ech_saved_tensor *stack, int64_t number)
{
    ech_saved_tensor one = *stack;
    one.dims--;
    one.place.dim--;
    memmove(one.shape, one.shape + 1, (size_t)one.dims * sizeof *one.shape);
    one.boxes = 0;
    for (int b = 0; b < stack->boxes; b++) {
        ech_box box = stack->box[b];
        int64_t after = number - box.begin[0];
        if (after < 0 || after >= box.size[0]) continue;
        box.at += after * box.stride[0];
        memmove(box.begin, box.begin + 1, (size_t)one.dims * sizeof *box.begin);
        memmove(box.size, box.size + 1, (size_t)one.dims * sizeof *box.size);
        memmove(box.stride, box.stride + 1, (size_t)one.dims * sizeof *box.stride);
        one.box[one.boxes++] = box;
    }
    return one;
}

const char *ech_saved_name(ech_pool *pool, const ech_param *param, const char *suffix)
{
    return name_of(pool, param->name, 0, suffix);
}

void ech_saved_list_add(ech_saved_list *list, const ech_param *param, const char *suffix,
                        const ech_saved_tensor *whole)
{
    bool stacked = ech_shape_is_stack(&param->shape), fused = !suffix && param->file_name;
    bool adapts = !suffix && param->adapter;
    const char *name = fused ? param->file_name : param->name;
    ECH_ASSERT(stacked == (strstr(param->name, "%d") != NULL));
    ECH_ASSERT(!stacked || (whole->dims > 1 && whole->shape[0] == param->shape.size[0]));
    if (!list->pool) list->pool = ech_pool_create();
    ech_saved_tensor placed = *whole;
    if (adapts) placed.file = ECH_FILE_ADAPTER;
    if (adapts) name = ech_pool_format(list->pool, ECH_ADAPTER_PREFIX "%s", name);
    if (fused) placed.place = param->place;
    placed.by_token = !suffix && param->shape.axis[0] == ECH_AXIS_VOCAB;
    bool apart = strstr(name, "%d") != NULL;
    for (int64_t i = 0; i < (apart ? whole->shape[0] : 1); i++) {
        ech_saved_tensor tensor = apart ? one_of(&placed, i) : placed;
        tensor.name = name_of(list->pool, name, i, suffix);
        tensor.copier = list->copier;
        ECH_PUSH(list->tensor, tensor);
    }
}

void ech_saved_list_free(ech_saved_list *list)
{
    free(list->tensor.at);
    ech_pool_destroy(list->pool);
    *list = (ech_saved_list){0};
}

/* ---- shapes ---- */

static void print_shape(int dims, const int64_t *shape, ech_text *out)
{
    ech_text_append(out, "[");
    for (int d = 0; d < dims; d++) ech_text_append(out, "%s%" PRId64, d ? ", " : "", shape[d]);
    ech_text_append(out, "]");
}

ech_status ech_shape_check(const char *where, const ech_saved_tensor *have,
                           const ech_saved_tensor *want, const char *before, const char *after)
{
    size_t bytes = (size_t)want->dims * sizeof *want->shape;
    int64_t shape[ECH_MAX_DIMS];
    ech_saved_shape(want, shape);
    if (have->dims == want->dims && memcmp(have->shape, shape, bytes) == 0) return ECH_OK;
    ECH_FREED_TEXT is = {0}, must = {0};
    print_shape(have->dims, have->shape, &is);
    print_shape(want->dims, shape, &must);
    ECH_FAIL(ECH_EINPUT, "%s: tensor '%s' has shape %s%s%s%s", where, have->name, is.at, before,
             must.at, after);
}
