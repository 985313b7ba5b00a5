/* SPDX-License-Identifier: Apache-2.0
 *
 * Boxes as runs of contiguous elements.
 */
#include "checkpoint/box.h"

#include <inttypes.h>
#include <string.h>

bool ech_box_elements(int dims, const int64_t *shape, int64_t *out)
{
    int64_t product = 1;
    for (int d = 0; d < dims; d++) {
        if (shape[d] < 0 || __builtin_mul_overflow(product, shape[d], &product)) return false;
    }
    *out = product;
    return true;
}

int64_t ech_box_count(int dims, const int64_t *size)
{
    int64_t product = 1;
    for (int d = 0; d < dims; d++) product *= size[d];
    return product;
}

bool ech_box_is_inside(int dims, const int64_t *shape, const ech_saved_box *box)
{
    int64_t elements;
    if (dims < 0 || dims > ECH_MAX_DIMS || !ech_box_elements(dims, shape, &elements)) return false;
    for (int d = 0; d < dims; d++) {
        int64_t begin = box->begin[d], size = box->size[d];
        if (size < 0 || begin < 0 || begin > shape[d] || size > shape[d] - begin) return false;
    }
    return true;
}

bool ech_box_is_apart(int dims, const ech_saved_box *box)
{
    int64_t extent = 1; /* elements of memory from the first to the last of the inner dimensions */
    for (int d = dims - 1; d >= 0; d--) {
        int64_t step;
        if (box->size[d] <= 1) continue; /* its stride is not used */
        if (d == dims - 1 ? box->stride[d] != 1 : box->stride[d] < extent) return false;
        if (__builtin_mul_overflow(box->stride[d], box->size[d] - 1, &step)) return false;
        if (__builtin_add_overflow(extent, step, &extent)) return false;
    }
    return true;
}

ech_box_runs ech_box_split(int dims, const int64_t *shape, const ech_saved_box *box)
{
    ech_box_runs runs = {0};
    if (ech_box_count(dims, box->size) == 0) return runs;

    /* the run, from the right: up to the first dimension that is not whole, and as far as memory has no gap */
    int d = dims;
    int64_t stride = 1;
    runs.length = 1;
    bool whole = true;
    while (d > 0 && whole && (box->size[d - 1] == 1 || box->stride[d - 1] == runs.length)) {
        d--;
        runs.length *= box->size[d];
        runs.first += box->begin[d] * stride;
        stride *= shape[d];
        whole = box->size[d] == shape[d];
    }

    /* what is left steps from run to run */
    runs.count = 1;
    runs.outer = d;
    while (d > 0) {
        d--;
        runs.count *= box->size[d];
        runs.first += box->begin[d] * stride;
        runs.size[d] = box->size[d];
        runs.whole_stride[d] = stride;
        runs.memory_stride[d] = box->stride[d];
        stride *= shape[d];
    }
    return runs;
}

ech_box_offset ech_box_run_at(const ech_box_runs *runs, int64_t i)
{
    ech_box_offset offset = {.in_whole = runs->first};
    for (int d = runs->outer - 1; d >= 0; d--) {
        int64_t index = i % runs->size[d];
        offset.in_whole += index * runs->whole_stride[d];
        offset.in_memory += index * runs->memory_stride[d];
        i /= runs->size[d];
    }
    return offset;
}

/* ---- which boxes of a tensor are where ---- */

ech_dtype ech_saved_dtype(const ech_saved_tensor *tensor)
{
    return tensor->narrowed ? tensor->narrow : tensor->dtype;
}

void ech_saved_add(ech_saved_tensor *tensor, const int64_t *begin, const ech_tensor *part)
{
    ECH_ASSERT(tensor->boxes < ECH_MOST_BOXES);
    ECH_ASSERT(part->dims == tensor->dims && part->dtype == tensor->dtype);
    size_t bytes = (size_t)tensor->dims * sizeof *begin;
    ech_saved_box *box = &tensor->box[tensor->boxes++];
    *box = (ech_saved_box){.data = part->data};
    memcpy(box->begin, begin, bytes);
    memcpy(box->size, part->shape, bytes);
    memcpy(box->stride, part->stride, bytes);
}

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
    if (have->dims == want->dims && memcmp(have->shape, want->shape, bytes) == 0) return ECH_OK;
    ECH_FREED_TEXT is = {0}, must = {0};
    print_shape(have->dims, have->shape, &is);
    print_shape(want->dims, want->shape, &must);
    ECH_FAIL(ECH_EINPUT, "%s: tensor '%s' has shape %s%s%s%s", where, have->name, is.at, before,
             must.at, after);
}
