/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors in larger ones: the runs of every box of small tensors, against loops over elements.
 */

#include <string.h>

#include "tensor/box.h"
#include "unit.h"

enum { MOST = 512 };

/* The element of the larger tensor at the tensor's indices, the slow way. */
static int64_t element(const ech_box_place *place, int dims, const int64_t *shape,
                       const int64_t *index)
{
    int64_t whole[ECH_MAX_DIMS], at[ECH_MAX_DIMS], element = 0;
    memcpy(whole, shape, sizeof whole);
    memcpy(at, index, sizeof at);
    if (place->period) {
        int64_t i = index[place->dim], group = i / place->width, in = i % place->width;
        whole[place->dim] = shape[place->dim] / place->width * place->period;
        at[place->dim] = group * place->period + place->offset + in;
    }
    for (int d = 0; d < dims; d++) {
        int of = place->transposed && d == dims - 1   ? dims - 2
                 : place->transposed && d == dims - 2 ? dims - 1
                                                      : d;
        element = element * whole[of] + at[of];
    }
    return element;
}

/* All of the box's elements are in the runs, once, and each where it belongs. */
static void check_box(const ech_box_place *place, int dims, const int64_t *shape,
                      const ech_box *box)
{
    int64_t found[MOST], n = 0, count = ech_box_count(dims, box->size);
    for (int i = 0; i < MOST; i++) found[i] = -1;
    ech_box_placed placed = ech_box_place_in(place, dims, shape, box);
    assert_in_range(placed.boxes, 0, ECH_MOST_PLACED);
    for (int b = 0; b < placed.boxes; b++) {
        assert_true(ech_box_is_inside(placed.dims, placed.shape, &placed.box[b]));
        ech_box_runs runs = ech_box_split(placed.dims, placed.shape, &placed.box[b]);
        for (int64_t k = 0; k < runs.count * runs.length; k++, n++) {
            ech_box_offset at = ech_box_run_at(&runs, k / runs.length);
            int64_t memory = at.in_memory + k % runs.length;
            assert_in_range(memory, 0, MOST - 1);
            assert_int_equal(found[memory], -1);
            found[memory] = at.in_whole + k % runs.length;
        }
    }
    assert_int_equal(n, count);
    for (int64_t k = 0; k < count; k++) {
        int64_t index[ECH_MAX_DIMS] = {0}, left = k, memory = box->at;
        for (int d = dims - 1; d >= 0; d--) {
            index[d] = box->begin[d] + left % box->size[d];
            memory += left % box->size[d] * box->stride[d];
            left /= box->size[d];
        }
        assert_int_equal(found[memory], element(place, dims, shape, index));
    }
}

/* Every range of the dimension, with the others whole or without their first index. */
static int check_place(const ech_box_place *place, int dims, const int64_t *shape)
{
    int boxes = 0;
    int64_t n = shape[place->dim];
    for (int64_t begin = 0; begin <= n; begin++)
        for (int64_t size = 0; size <= n - begin; size++)
            for (int64_t less = 0; less < 2; less++) {
                ech_box box = {.at = 3};
                int64_t stride = 1;
                for (int d = dims - 1; d >= 0; d--) {
                    bool cut = d == place->dim;
                    box.begin[d] = cut ? begin : less;
                    box.size[d] = cut ? size : shape[d] - less;
                    box.stride[d] = stride;
                    stride *= box.size[d] + (d == dims - 1);
                }
                check_box(place, dims, shape, &box);
                boxes++;
            }
    return boxes;
}

TEST(every_box_in_larger_tensors)
{
    static const struct {
        int dims;
        int64_t shape[ECH_MAX_DIMS];
        ech_box_place place;
    } cases[] = {
        {2, {6, 3}, {0}},
        {2, {6, 3}, {.width = 6, .period = 11, .offset = 5}},
        {2, {6, 3}, {.width = 2, .period = 7, .offset = 3}},
        {2, {6, 3}, {.width = 1, .period = 2, .offset = 1}},
        {2, {6, 3}, {.width = 6, .period = 6, .transposed = true}},
        {2, {6, 3}, {.width = 2, .period = 5, .offset = 1, .transposed = true}},
        {2, {3, 6}, {.dim = 1, .width = 3, .period = 4, .offset = 1}},
        {1, {8}, {.width = 4, .period = 12, .offset = 8}},
        {1, {8}, {.width = 8, .period = 20, .offset = 4}},
        {3, {2, 6, 3}, {.dim = 1, .width = 6, .period = 9}},
        {3, {2, 6, 3}, {.dim = 1, .width = 3, .period = 4, .offset = 1}},
        {3, {2, 6, 3}, {.dim = 1, .width = 1, .period = 2, .transposed = true}},
        {3, {2, 6, 3}, {.dim = 1, .width = 6, .period = 8, .offset = 2, .transposed = true}},
        {4, {2, 2, 4, 3}, {.dim = 2, .width = 4, .period = 9, .offset = 2}}};
    int boxes = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        boxes += check_place(&cases[i].place, cases[i].dims, cases[i].shape);
    assert_true(boxes > 500);
}

TEST(shape_of_the_larger_tensor)
{
    int64_t out[ECH_MAX_DIMS];
    const int64_t shape[] = {2, 6, 3};
    ech_box_place_shape(&(ech_box_place){0}, 3, shape, out);
    assert_memory_equal(out, shape, sizeof shape);
    const ech_box_place place = {.dim = 1, .width = 2, .period = 5, .transposed = true};
    ech_box_place_shape(&place, 3, shape, out);
    assert_true(out[0] == 2 && out[1] == 3 && out[2] == 15);
}
