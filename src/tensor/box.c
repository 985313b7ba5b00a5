/* SPDX-License-Identifier: Apache-2.0
 *
 * Boxes from cuts, and as runs of contiguous elements.
 */
#include "tensor/box.h"

/* ---- cutting ---- */

int64_t ech_cut_local(const ech_cut *cut)
{
    return cut->parts * ((cut->size / cut->parts + cut->shards - 1) / cut->shards);
}

typedef struct cutting {
    int dims;
    const ech_cut *cut;
    int64_t first;                                /* element that memory begins with */
    int64_t stride[ECH_MAX_DIMS];                 /* of the shard */
    int64_t low[ECH_MAX_DIMS], end[ECH_MAX_DIMS]; /* indices of the shard: low .. end - 1 */
    int boxes;
    ech_box *box;
} cutting;

/* From the shard's indices to the whole's, from dimension d on: a box for each part that they
 * meet. */
static void place(cutting *c, int d, ech_box box)
{
    if (d == c->dims || d == ECH_MAX_DIMS) {
        ECH_ASSERT(c->boxes < ECH_MOST_BOXES);
        c->box[c->boxes++] = box;
        return;
    }
    const ech_cut *cut = &c->cut[d];
    int64_t whole = cut->size / cut->parts, local = ech_cut_local(cut) / cut->parts;
    int64_t shard = local * cut->shard, valid = whole - shard < local ? whole - shard : local;
    for (int64_t part = 0; part < cut->parts; part++) {
        int64_t low = part * local, end = low + valid;
        low = low < c->low[d] ? c->low[d] : low;
        end = end < c->end[d] ? end : c->end[d];
        if (low >= end) continue;
        ech_box own = box;
        own.begin[d] = part * whole + shard + low - part * local;
        own.size[d] = end - low;
        own.stride[d] = c->stride[d];
        own.at += low * c->stride[d];
        place(c, d + 1, own);
    }
}

static void set_range(cutting *c, int d, int64_t low, int64_t end)
{
    c->low[d] = low;
    c->end[d] = end;
}

/* Elements first .. end - 1 of dimensions d and following: part of a row, whole rows, part of a
 * row. */
static void divide(cutting *c, int d, int64_t first, int64_t end)
{
    if (first >= end) return;
    if (d == c->dims || d == ECH_MAX_DIMS) {
        place(c, 0, (ech_box){.at = -c->first});
        return;
    }
    int64_t width = c->stride[d], row = first / width;
    if (first % width || end < first + width) {
        int64_t stop = end < (row + 1) * width ? end : (row + 1) * width;
        set_range(c, d, row, row + 1);
        divide(c, d + 1, first - row * width, stop - row * width);
        divide(c, d, stop, end);
        return;
    }
    set_range(c, d, row, end / width);
    for (int inner = d + 1; inner < c->dims; inner++)
        set_range(c, inner, 0, ech_cut_local(&c->cut[inner]));
    place(c, 0, (ech_box){.at = -c->first});
    divide(c, d, end / width * width, end);
}

int ech_box_cut(int dims, const ech_cut *cut, int64_t first, int64_t n, ech_box out[ECH_MOST_BOXES])
{
    cutting c = {.dims = dims, .cut = cut, .first = first, .box = out};
    int64_t stride = 1;
    for (int d = dims - 1; d >= 0; d--) {
        c.stride[d] = stride;
        stride *= ech_cut_local(&cut[d]);
    }
    ECH_ASSERT(first >= 0 && n >= 0 && first + n <= stride);
    divide(&c, 0, first, first + n);
    return c.boxes;
}

/* ---- as tensors ---- */

static ech_tensor as_rows(int dims, const int64_t *size, const int64_t *stride, char *data,
                          ech_dtype dtype)
{
    ECH_ASSERT(dims < ECH_MAX_DIMS);
    ech_tensor x = {.data = data,
                    .dtype = dtype,
                    .dims = ECH_MAX_DIMS,
                    .shape = {1, 1, 1, 1},
                    .stride = {1, 1, 1, 1}};
    for (int d = 0; d < dims; d++) {
        int to = d == dims - 1 ? ECH_MAX_DIMS - 1 : ECH_MAX_DIMS - 1 - dims + d;
        x.shape[to] = size[d];
        x.stride[to] = stride[d];
    }
    x.stride[ECH_MAX_DIMS - 2] = x.shape[ECH_MAX_DIMS - 1];
    return x;
}

ech_tensor ech_box_in_memory(int dims, const ech_box *box, void *data, ech_dtype dtype)
{
    char *begin = (char *)data + (size_t)box->at * ech_dtype_bytes(dtype);
    return as_rows(dims, box->size, box->stride, begin, dtype);
}

ech_tensor ech_box_in_whole(int dims, const int64_t *shape, const ech_box *box, void *data,
                            ech_dtype dtype)
{
    ech_tensor whole = ech_tensor_view(NULL, dtype, dims, shape);
    int64_t at = 0;
    for (int d = 0; d < dims; d++) at += box->begin[d] * whole.stride[d];
    return as_rows(dims, box->size, whole.stride,
                   (char *)data + (size_t)at * ech_dtype_bytes(dtype), dtype);
}

/* ---- runs ---- */

ech_box_runs ech_box_split(int dims, const int64_t *shape, const ech_box *box)
{
    ech_box_runs runs = {.in_memory = box->at};
    if (ech_box_count(dims, box->size) == 0) return runs;

    /* the run, from the right: up to the first dimension that is not whole, and as far as memory
     * has no gap */
    int d = dims;
    int64_t stride = 1;
    runs.length = 1;
    bool whole = true;
    while (d > 0 && whole && (box->size[d - 1] == 1 || box->stride[d - 1] == runs.length)) {
        d--;
        runs.length *= box->size[d];
        runs.in_whole += box->begin[d] * stride;
        stride *= shape[d];
        whole = box->size[d] == shape[d];
    }

    /* what is left steps from run to run */
    runs.count = 1;
    runs.outer = d;
    while (d > 0) {
        d--;
        runs.count *= box->size[d];
        runs.in_whole += box->begin[d] * stride;
        runs.size[d] = box->size[d];
        runs.whole_stride[d] = stride;
        runs.memory_stride[d] = box->stride[d];
        stride *= shape[d];
    }
    return runs;
}

ech_box_offset ech_box_run_at(const ech_box_runs *runs, int64_t i)
{
    ech_box_offset offset = {.in_whole = runs->in_whole, .in_memory = runs->in_memory};
    for (int d = runs->outer - 1; d >= 0; d--) {
        int64_t index = i % runs->size[d];
        offset.in_whole += index * runs->whole_stride[d];
        offset.in_memory += index * runs->memory_stride[d];
        i /= runs->size[d];
    }
    return offset;
}

/* ---- checks ---- */

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

bool ech_box_is_inside(int dims, const int64_t *shape, const ech_box *box)
{
    int64_t elements;
    if (dims < 0 || dims > ECH_MAX_DIMS || !ech_box_elements(dims, shape, &elements)) return false;
    for (int d = 0; d < dims; d++) {
        int64_t begin = box->begin[d], size = box->size[d];
        if (size < 0 || begin < 0 || begin > shape[d] || size > shape[d] - begin) return false;
    }
    return true;
}

bool ech_box_is_apart(int dims, const ech_box *box)
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
