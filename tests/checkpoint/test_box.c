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

static void check_box(int dims, const int64_t *shape, const int64_t *begin, const int64_t *size)
{
    assert_true(ech_box_is_inside(dims, shape, begin, size));
    ech_box_runs runs = ech_box_split(dims, shape, begin, size);
    int64_t count = ech_box_count(dims, size);
    assert_int_equal(runs.count * runs.length, count);
    for (int64_t k = 0; k < count; k++) {
        int64_t at = ech_box_run_at(&runs, k / runs.length) + k % runs.length;
        assert_int_equal(at, element(dims, shape, begin, size, k));
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

static void test_contiguous_boxes_are_one_run(void **state)
{
    (void)state;
    const int64_t shape[] = {6, 4, 5};
    ech_box_runs rows = ech_box_split(3, shape, (int64_t[]){2, 0, 0}, (int64_t[]){3, 4, 5});
    assert_int_equal(rows.count, 1);
    assert_int_equal(rows.length, 60);
    assert_int_equal(ech_box_run_at(&rows, 0), 40);
    ech_box_runs columns = ech_box_split(3, shape, (int64_t[]){0, 0, 2}, (int64_t[]){6, 4, 2});
    assert_int_equal(columns.count, 24);
    assert_int_equal(columns.length, 2);
}

static void test_scalars(void **state)
{
    (void)state;
    const int64_t none[1] = {0}, one[1] = {1}, two[1] = {2};
    assert_true(ech_box_is_inside(0, none, none, one));
    assert_true(ech_box_is_inside(0, none, none, none));
    assert_false(ech_box_is_inside(0, none, none, two));
    ech_box_runs runs = ech_box_split(0, none, none, one);
    assert_int_equal(runs.count, 1);
    assert_int_equal(runs.length, 1);
    assert_int_equal(ech_box_run_at(&runs, 0), 0);
    assert_int_equal(ech_box_split(0, none, none, none).count, 0);
}

static void test_outside(void **state)
{
    (void)state;
    const int64_t shape[] = {3, 4};
    assert_false(ech_box_is_inside(2, shape, (int64_t[]){0, 0}, (int64_t[]){4, 1}));
    assert_false(ech_box_is_inside(2, shape, (int64_t[]){1, 3}, (int64_t[]){1, 2}));
    assert_false(ech_box_is_inside(2, shape, (int64_t[]){-1, 0}, (int64_t[]){1, 1}));
    assert_false(ech_box_is_inside(2, shape, (int64_t[]){0, 0}, (int64_t[]){1, -1}));
    assert_false(ech_box_is_inside(2, shape, (int64_t[]){INT64_MAX, 0}, (int64_t[]){1, 1}));
    const int64_t huge[] = {INT64_MAX, 2};
    assert_false(ech_box_is_inside(2, huge, (int64_t[]){0, 0}, (int64_t[]){1, 1}));
    assert_false(ech_box_is_inside(ECH_MAX_DIMS + 1, shape, shape, shape));
    int64_t n = 7;
    assert_false(ech_box_elements(1, (int64_t[]){-1}, &n));
    assert_int_equal(n, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_small_box),
        cmocka_unit_test(test_contiguous_boxes_are_one_run),
        cmocka_unit_test(test_scalars),
        cmocka_unit_test(test_outside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
