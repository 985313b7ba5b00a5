/* SPDX-License-Identifier: Apache-2.0
 *
 * Scalars of a training step, in every table: sums and maxima in order, what counts, when an update is withheld.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "kernel/kernel.h"

static ech_kernel_context context = {.threads = 1};
static const ech_kernels *tables[ECH_DTYPES + 1]; /* then NULL */

static ech_tensor number(double *at)
{
    return ech_tensor_view(at, ECH_F64, 0, NULL);
}

/* Whether both are NaN, or the same bits but for the sign of zero. */
static bool is_same(double a, double b)
{
    return isnan(a) ? isnan(b) : a >= b && a <= b;
}

static double total_of(const ech_kernels *kernels, double *x, int64_t n, double scale, bool counts)
{
    double sum = 5;
    ech_tensor from = ech_tensor_1d(x, ECH_F64, n), by = number(&scale), to = number(&sum);
    kernels->total(&context, &from, scale > 0 ? &by : NULL, counts, &to);
    return sum;
}

/* 1 + 2^-53 + 2^-53 is 1 in this order and more in any other. */
static void totals_are_in_order(void **state)
{
    (void)state;
    double x[] = {1, 0x1p-53, 0x1p-53}, bad[] = {1, INFINITY}, worse[] = {NAN, 1};
    for (const ech_kernels **k = tables; *k; k++) {
        assert_true(is_same(total_of(*k, x, 3, 0, true), 1));
        assert_true(is_same(total_of(*k, x, 3, 4, true), 0.0625));
        assert_true(is_same(total_of(*k, x, 0, 0, true), 0));
        assert_true(is_same(total_of(*k, x, 3, 0, false), 0));
        assert_true(is_same(total_of(*k, bad, 2, 2, false), INFINITY));
        assert_true(is_same(total_of(*k, worse, 2, 0, false), NAN));
    }
}

/* Rows lie apart; a NaN wins wherever it is. */
static void folds_are_in_order(void **state)
{
    (void)state;
    enum { ROWS = 3, COLUMNS = 4, STRIDE = 6 };
    double x[ROWS * STRIDE] = {1,  2, NAN, -1,           7, 7, /**/ 0x1p-53, 5, 1,
                               -2, 7, 7,   /**/ 0x1p-53, 3, 2, -3,           7, 7};
    const double sums[] = {1, 10, NAN, -6}, maxima[] = {1, 5, NAN, -1};
    double y[COLUMNS + 1] = {9, 9, 9, 9, 9};
    ech_tensor from = ech_tensor_2d(x, ECH_F64, ROWS, COLUMNS),
               to = ech_tensor_1d(y, ECH_F64, COLUMNS);
    from.stride[0] = STRIDE;
    for (const ech_kernels **k = tables; *k; k++)
        for (int maximum = 0; maximum < 2; maximum++) {
            (*k)->fold(&context, &from, maximum, &to);
            for (int i = 0; i < COLUMNS; i++)
                assert_true(is_same(y[i], (maximum ? maxima : sums)[i]));
            assert_true(is_same(y[COLUMNS], 9));
        }
}

typedef struct clipped {
    double squares, loss, scale, limit, withheld; /* before; loss -1: none */
    double norm, withheld_after, factor;
} clipped;

static void clipping_withholds(void **state)
{
    (void)state;
    static const clipped cases[] = {
        {4, 3, 1, 0, 0, 2, 0, 1},
        {4, 3, 8, 0, 0, 2, 0, 0.125},
        {4, 3, 8, 1, 0, 2, 0, 1 / (2 + 1e-6) / 8},
        {4, 3, 1, 5, 1, 2, 1, 0}, /* withheld before */
        {NAN, 3, 1, 1, 0, NAN, 1, 0},
        {INFINITY, 3, 1, 1, 0, INFINITY, 1, 0},
        {4, NAN, 1, 1, 0, 2, 1, 0},
        {4, -1, 1, 0, 0, 2, 0, 1},
    };
    for (const ech_kernels **k = tables; *k; k++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            clipped c = cases[i];
            double norm = 5, factor = 5;
            ech_tensor squares = number(&c.squares), loss = number(&c.loss),
                       scale = number(&c.scale);
            ech_tensor n = number(&norm), w = number(&c.withheld), f = number(&factor);
            (*k)->clip(&context, &squares, c.loss < 0 ? NULL : &loss, &scale, c.limit, &n, &w, &f);
            assert_true(is_same(norm, c.norm) && is_same(c.withheld, c.withheld_after));
            assert_true(is_same(factor, c.factor));
        }
}

static int find_tables(void **state)
{
    (void)state;
    static const ech_dtype types[] = {ECH_F32, ECH_F64, ECH_BF16, ECH_F16};
    for (int i = 0; i < 4; i++) tables[i] = ech_kernels_ref(types[i]);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(totals_are_in_order),
                                       cmocka_unit_test(folds_are_in_order),
                                       cmocka_unit_test(clipping_withholds)};
    return cmocka_run_group_tests(tests, find_tables, NULL);
}
