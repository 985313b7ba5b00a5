/* SPDX-License-Identifier: Apache-2.0
 *
 * Boxes: the runs of every box of small shapes against loops over its elements.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "checkpoint/box.h"

/* The whole tensor's index of the box's element number k, the slow way. */
static int64_t element(int dims, const int64_t *shape, const int64_t *begin, const int64_t *size,
                       int64_t k)
{
    int64_t at = 0, stride = 1;
    for (int d = dims - 1; d >= 0; d--) {
        at += (begin[d] + k % size[d]) * stride;
        k /= size[d];
        stride *= shape[d];
    }
    return at;
}

/* The box in memory whose dimension d has `wider` more elements than the box. */
static ech_saved_box make_box(int dims, const int64_t *begin, const int64_t *size, int wide_dim,
                              int64_t wider)
{
    ech_saved_box box = {0};
    int64_t stride = 1;
    for (int d = dims - 1; d >= 0; d--) {
        box.begin[d] = begin[d];
        box.size[d] = size[d];
        box.stride[d] = stride;
        stride *= size[d] + (d == wide_dim ? wider : 0);
    }
    return box;
}

static int64_t in_memory(int dims, const ech_saved_box *box, int64_t k)
{
    int64_t at = 0;
    for (int d = dims - 1; d >= 0; d--) {
        at += k % box->size[d] * box->stride[d];
        k /= box->size[d];
    }
    return at;
}

static void check_runs(int dims, const int64_t *shape, const ech_saved_box *box)
{
    assert_true(ech_box_is_inside(dims, shape, box));
    ech_box_runs runs = ech_box_split(dims, shape, box);
    int64_t count = ech_box_count(dims, box->size);
    assert_true(count == 0 || ech_box_is_apart(dims, box));
    assert_int_equal(runs.count * runs.length, count);
    for (int64_t k = 0; k < count; k++) {
        ech_box_offset at = ech_box_run_at(&runs, k / runs.length);
        assert_int_equal(at.in_whole + k % runs.length,
                         element(dims, shape, box->begin, box->size, k));
        assert_int_equal(at.in_memory + k % runs.length, in_memory(dims, box, k));
    }
}

static void check_box(int dims, const int64_t *shape, const int64_t *begin, const int64_t *size)
{
    for (int d = 0; d < dims; d++) {
        for (int64_t wider = 0; wider < 3; wider++) {
            ech_saved_box box = make_box(dims, begin, size, d, wider);
            check_runs(dims, shape, &box);
        }
    }
}

/* Calls check_box for every box of the shape, dimension d and following. */
static void check_boxes(int d, int dims, const int64_t *shape, int64_t *begin, int64_t *size)
{
    if (d == dims || d == ECH_MAX_DIMS) {
        check_box(dims, shape, begin, size);
        return;
    }
    for (begin[d] = 0; begin[d] <= shape[d]; begin[d]++) {
        for (size[d] = 0; size[d] <= shape[d] - begin[d]; size[d]++) {
            check_boxes(d + 1, dims, shape, begin, size);
        }
    }
}

static void test_every_small_box(void **state)
{
    (void)state;
    static const struct {
        int dims;
        int64_t shape[ECH_MAX_DIMS];
    } cases[] = {{1, {5}},       {2, {3, 4}},       {2, {1, 4}},
                 {3, {2, 3, 2}}, {4, {2, 2, 3, 2}}, {2, {0, 3}}};
    int64_t begin[ECH_MAX_DIMS], size[ECH_MAX_DIMS];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_boxes(0, cases[i].dims, cases[i].shape, begin, size);
    }
}

static ech_box_runs split(const int64_t *shape, int wide_dim, const int64_t *begin,
                          const int64_t *size)
{
    ech_saved_box box = make_box(3, begin, size, wide_dim, 1);
    return ech_box_split(3, shape, &box);
}

static void test_runs_are_as_long_as_can_be(void **state)
{
    (void)state;
    const int64_t shape[] = {6, 4, 5}, origin[] = {2, 0, 0}, size[] = {3, 4, 5};
    ech_box_runs rows = split(shape, 0, origin, size);
    assert_int_equal(rows.count, 1);
    assert_int_equal(rows.length, 60);
    assert_int_equal(ech_box_run_at(&rows, 0).in_whole, 40);
    ech_box_runs columns = split(shape, 0, (int64_t[]){0, 0, 2}, (int64_t[]){6, 4, 2});
    assert_int_equal(columns.count, 24);
    assert_int_equal(columns.length, 2);
    /* the same rows in memory that is wider than they are */
    rows = split(shape, 1, origin, size);
    assert_int_equal(rows.count, 3);
    assert_int_equal(rows.length, 20);
    rows = split(shape, 2, origin, size);
    assert_int_equal(rows.count, 12);
    assert_int_equal(rows.length, 5);
    assert_int_equal(ech_box_run_at(&rows, 1).in_whole, 45);
    assert_int_equal(ech_box_run_at(&rows, 1).in_memory, 6);
}

static void test_scalars(void **state)
{
    (void)state;
    const int64_t none[1] = {0};
    const ech_saved_box box = {0};
    assert_true(ech_box_is_inside(0, none, &box));
    assert_true(ech_box_is_apart(0, &box));
    ech_box_runs runs = ech_box_split(0, none, &box);
    assert_int_equal(runs.count, 1);
    assert_int_equal(runs.length, 1);
    assert_int_equal(ech_box_run_at(&runs, 0).in_whole, 0);
    assert_int_equal(ech_box_run_at(&runs, 0).in_memory, 0);
}

static bool is_inside(int dims, const int64_t *shape, int64_t row, int64_t column, int64_t rows,
                      int64_t columns)
{
    const ech_saved_box box = {.begin = {row, column}, .size = {rows, columns}};
    return ech_box_is_inside(dims, shape, &box);
}

static void test_outside(void **state)
{
    (void)state;
    const int64_t shape[] = {3, 4}, huge[] = {INT64_MAX, 2};
    assert_true(is_inside(2, shape, 3, 4, 0, 0));
    assert_false(is_inside(2, shape, 0, 0, 4, 1));
    assert_false(is_inside(2, shape, 1, 3, 1, 2));
    assert_false(is_inside(2, shape, -1, 0, 1, 1));
    assert_false(is_inside(2, shape, 0, 0, 1, -1));
    assert_false(is_inside(2, shape, INT64_MAX, 0, 1, 1));
    assert_false(is_inside(2, huge, 0, 0, 1, 1));
    assert_false(is_inside(ECH_MAX_DIMS + 1, shape, 0, 0, 1, 1));
    int64_t n = 7;
    assert_false(ech_box_elements(1, (int64_t[]){-1}, &n));
    assert_int_equal(n, 7);
}

static bool is_apart(int64_t rows, int64_t columns, int64_t outer, int64_t inner)
{
    const ech_saved_box box = {.size = {rows, columns}, .stride = {outer, inner}};
    return ech_box_is_apart(2, &box);
}

static void test_strides_that_overlap(void **state)
{
    (void)state;
    assert_true(is_apart(3, 4, 4, 1));
    assert_true(is_apart(3, 1, 1, 7)); /* one column: its stride is not used */
    assert_true(is_apart(1, 4, 0, 1));
    assert_false(is_apart(3, 4, 3, 1));
    assert_false(is_apart(3, 4, 0, 1));
    assert_false(is_apart(3, 4, -4, 1));
    assert_false(is_apart(3, 4, 8, 2)); /* the last dimension is contiguous */
    assert_false(is_apart(3, 4, INT64_MAX, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_small_box),
        cmocka_unit_test(test_runs_are_as_long_as_can_be),
        cmocka_unit_test(test_scalars),
        cmocka_unit_test(test_outside),
        cmocka_unit_test(test_strides_that_overlap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
