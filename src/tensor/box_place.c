/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors that lie in larger ones.
 */
#include "tensor/box.h"

#include <string.h>

static void swap_last(const ech_box_place *place, int dims, int64_t *numbers)
{
    if (!place->transposed) return;
    int64_t last = numbers[dims - 1];
    numbers[dims - 1] = numbers[dims - 2];
    numbers[dims - 2] = last;
}

void ech_box_place_shape(const ech_box_place *place, int dims, const int64_t *shape,
                         int64_t out[ECH_MAX_DIMS])
{
    memcpy(out, shape, (size_t)dims * sizeof *out);
    if (!place->period) return;
    ECH_ASSERT(place->dim < dims && (dims > 1 || !place->transposed));
    out[place->dim] = shape[place->dim] / place->width * place->period;
    swap_last(place, dims, out);
}

/* The next run of indices of a range along the dimension: in part of a group, or whole groups. */
typedef struct group_run {
    int64_t group, groups; /* first one, how many */
    int64_t begin, size;   /* in each of them */
} group_run;

static group_run next_run(int64_t width, int64_t from, int64_t end)
{
    int64_t in = from % width, left = width - in;
    group_run next = {.group = from / width, .groups = 1, .begin = in};
    next.size = end - from < left ? end - from : left;
    if (in == 0 && end - from >= width) next.groups = (end - from) / width;
    return next;
}

/* A dimension of a box. */
static void set_dim(ech_box_placed *out, ech_box *box, int d, const ech_box *from, int of,
                    int64_t size)
{
    out->shape[d] = size;
    box->begin[d] = from->begin[of];
    box->size[d] = from->size[of];
    box->stride[d] = from->stride[of];
}

/* The box in that run, with a dimension of groups in front of `dim` if there are several. */
static void put_run(const ech_box_place *place, int dims, const int64_t *shape,
                    const ech_box *whole, group_run part, ech_box_placed *out)
{
    ech_box *box = &out->box[out->boxes++];
    int64_t groups = shape[place->dim] / place->width, stride = whole->stride[place->dim];
    int64_t from = part.group * place->width + part.begin - whole->begin[place->dim];
    int to = 0;
    *box = (ech_box){.at = whole->at + from * stride};
    for (int i = 0; i < dims; i++) {
        int d = place->transposed && i >= dims - 2 ? 2 * dims - 3 - i : i;
        if (d != place->dim) {
            set_dim(out, box, to++, whole, d, shape[d]);
            continue;
        }
        const ech_box placed = {.begin = {part.group, place->offset + part.begin},
                                .size = {part.groups, part.size},
                                .stride = {place->width * stride, stride}};
        if (groups > 1) set_dim(out, box, to++, &placed, 0, groups);
        set_dim(out, box, to++, &placed, 1, place->period);
    }
    out->dims = to;
}

ech_box_placed ech_box_place_in(const ech_box_place *place, int dims, const int64_t *shape,
                                const ech_box *box)
{
    ech_box_placed out = {.dims = dims};
    if (!place->period) {
        memcpy(out.shape, shape, (size_t)dims * sizeof *shape);
        out.box[out.boxes++] = *box;
        return out;
    }
    ECH_ASSERT(shape[place->dim] <= place->width || dims < ECH_MAX_DIMS);
    int64_t from = box->begin[place->dim], end = from + box->size[place->dim];
    while (from < end) {
        group_run part = next_run(place->width, from, end);
        put_run(place, dims, shape, box, part, &out);
        from += part.groups * part.size;
    }
    return out;
}
