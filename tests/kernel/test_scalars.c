/* SPDX-License-Identifier: Apache-2.0
 *
 * Scalars of a training step, in every table: sums and maxima in order, what counts, when an update
 * is withheld; and what updates read of them.
 */

#include <math.h>
#include <string.h>

#include "kernel/kernel.h"
#include "kernel/total.h"
#include "unit.h"

static _Alignas(64) char scratch[1 << 20];
static ech_kernel_context context = {
    .threads = 1, .scratch = scratch, .scratch_bytes = sizeof scratch};
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
TEST(totals_are_in_order)
{
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

/* Number i goes to sum i mod ECH_TOTAL_SUMS. */
TEST(long_totals_are_alike)
{
    enum { LONG = 3 * ECH_TOTAL_SUMS + 70 };
    double x[LONG], sums[ECH_TOTAL_SUMS] = {0}, wanted = 0;
    for (int i = 0; i < LONG; i++) x[i] = 1 / (double)(1 + i * 37 % 101);
    for (int i = 0; i < LONG; i++) sums[i % ECH_TOTAL_SUMS] += x[i];
    for (int i = 0; i < ECH_TOTAL_SUMS; i++) wanted += sums[i];
    for (const ech_kernels **k = tables; *k; k++)
        assert_true(is_same(total_of(*k, x, LONG, 0, true), wanted));
}

/* Of more columns than a block has threads. */
TEST(wide_folds_are_alike)
{
    enum { HEIGHT = 2, WIDTH = 700 };
    double x[HEIGHT * WIDTH], y[WIDTH + 1];
    ech_tensor from = ech_tensor_2d(x, ECH_F64, HEIGHT, WIDTH),
               to = ech_tensor_1d(y, ECH_F64, WIDTH);
    for (int i = 0; i < HEIGHT * WIDTH; i++) x[i] = i;
    for (const ech_kernels **k = tables; *k; k++) {
        for (int i = 0; i <= WIDTH; i++) y[i] = -1;
        (*k)->fold(&context, &from, false, &to);
        for (int i = 0; i <= WIDTH; i++) assert_true(is_same(y[i], i < WIDTH ? 2 * i + WIDTH : -1));
    }
}

/* Rows have gaps between them. A NaN wins wherever it is. */
TEST(folds_are_in_order)
{
    enum { HEIGHT = 3, WIDTH = 4, STRIDE = 6 };
    double x[HEIGHT * STRIDE] = {1,  2, NAN, -1,           7, 7, /**/ 0x1p-53, 5, 1,
                                 -2, 7, 7,   /**/ 0x1p-53, 3, 2, -3,           7, 7};
    const double sums[] = {1, 10, NAN, -6}, maxima[] = {1, 5, NAN, -1};
    double y[WIDTH + 1] = {9, 9, 9, 9, 9};
    ech_tensor from = ech_tensor_2d(x, ECH_F64, HEIGHT, WIDTH),
               to = ech_tensor_1d(y, ECH_F64, WIDTH);
    from.stride[0] = STRIDE;
    for (const ech_kernels **k = tables; *k; k++)
        for (int maximum = 0; maximum < 2; maximum++) {
            (*k)->fold(&context, &from, maximum, &to);
            for (int i = 0; i < WIDTH; i++)
                assert_true(is_same(y[i], (maximum ? maxima : sums)[i]));
            assert_true(is_same(y[WIDTH], 9));
        }
}

typedef struct clipped {
    double squares, loss, scale, limit, withheld; /* before; loss -1: none */
    double norm, withheld_after, factor;
} clipped;

TEST(clipping_withholds)
{
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

/* ---- updates ---- */

enum { ROWS = 3, COLUMNS = 5, N = ROWS * COLUMNS, TENSORS = 9, STATE_BLOCK = 4, BLOCKS = 2 };

/* Tensors of any row; what is of 16 bits and of 8 is in numbers' memory, too. */
typedef struct updated {
    double memory[TENSORS][N];
} updated;

typedef void (*update_call)(const ech_kernels *kernels, const ech_update *update, updated *u);

static ech_tensor in(updated *u, int which, ech_dtype dtype, int64_t rows, int64_t columns)
{
    return ech_tensor_2d(u->memory[which], dtype, rows, columns);
}

/* Parameter, gradient, two states, and in 16 bits the rounded copy. */
#define UPDATED                                                                                    \
    ech_dtype wide = ech_dtype_wide(k->dtype);                                                     \
    ech_tensor p = in(u, 0, wide, ROWS, COLUMNS), g = in(u, 1, wide, ROWS, COLUMNS);               \
    ech_tensor a = in(u, 2, wide, ROWS, COLUMNS), b = in(u, 3, wide, ROWS, COLUMNS);               \
    ech_tensor narrow = in(u, 4, k->dtype, ROWS, COLUMNS);                                         \
    const ech_tensor *rounded = k->dtype == wide ? NULL : &narrow;                                 \
    (void)a, (void)b, (void)p, (void)g, (void)rounded
#define OF_ROWS(which, dtype)    ech_tensor_1d(u->memory[which], dtype, ROWS)
#define OF_COLUMNS(which, dtype) ech_tensor_1d(u->memory[which], dtype, COLUMNS)

static void adamw(const ech_kernels *k, const ech_update *update, updated *u)
{
    UPDATED;
    k->adamw(&context, &p, &g, &a, &b, update, rounded);
}

static void adamw8(const ech_kernels *k, const ech_update *update, updated *u)
{
    UPDATED;
    a.dtype = b.dtype = ECH_U8;
    ech_tensor c = in(u, 5, wide, ROWS, BLOCKS), d = in(u, 6, wide, ROWS, BLOCKS);
    k->adamw8(&context, &p, &g, &a, &b, &c, &d, update, rounded);
}

static void sgd(const ech_kernels *k, const ech_update *update, updated *u)
{
    UPDATED;
    k->sgd(&context, &p, &g, &a, update, rounded);
}

static void adafactor(const ech_kernels *k, const ech_update *update, updated *u)
{
    UPDATED;
    ech_tensor r = OF_ROWS(5, wide), c = OF_COLUMNS(6, wide), s = number(u->memory[7]);
    k->adafactor(&context, &p, &g, &r, &c, &a, &s, &s, &s, N, update, rounded);
}

static void adafactor_sums(const ech_kernels *k, const ech_update *update, updated *u)
{
    UPDATED;
    ech_tensor r = OF_ROWS(5, ECH_F64), c = OF_COLUMNS(6, ECH_F64), s = number(u->memory[7]);
    k->adafactor_sums(&context, &p, &g, update, &r, &c, &s);
}

static void adafactor_factors(const ech_kernels *k, const ech_update *update, updated *u)
{
    UPDATED;
    ech_tensor sums = OF_ROWS(5, ECH_F64), r = OF_ROWS(6, wide), f = OF_ROWS(7, wide);
    k->adafactor_factors(&context, &sums, update, &r, &f, NULL);
}

static void adafactor_squares(const ech_kernels *k, const ech_update *update, updated *u)
{
    UPDATED;
    ech_tensor r = OF_ROWS(5, wide), c = OF_COLUMNS(6, wide), s = number(u->memory[7]);
    k->adafactor_squares(&context, &g, &r, &c, update, &s);
}

static void sm3_maxima(const ech_kernels *k, const ech_update *update, updated *u)
{
    UPDATED;
    ech_tensor r = OF_ROWS(5, wide), c = OF_COLUMNS(6, wide);
    ech_tensor rows = OF_ROWS(7, ECH_F64), columns = OF_COLUMNS(8, ECH_F64);
    k->sm3_maxima(&context, &g, &r, &c, update, &rows, &columns);
}

static void sm3(const ech_kernels *k, const ech_update *update, updated *u)
{
    UPDATED;
    ech_tensor r = OF_ROWS(5, wide), c = OF_COLUMNS(6, wide);
    ech_tensor rows = OF_ROWS(7, ECH_F64), columns = OF_COLUMNS(8, ECH_F64);
    k->sm3(&context, &p, &g, &r, &c, &rows, &columns, &a, update, rounded);
}

static void scaled_sum(const ech_kernels *k, const ech_update *update, updated *u)
{
    UPDATED;
    ech_tensor s = number(u->memory[7]);
    k->scaled_sum(&context, &g, 0.5, 0.3, 0.1, &s, update, &a);
}

static void fill(updated *u, const ech_kernels *k)
{
    bool is_f64 = ech_dtype_wide(k->dtype) == ECH_F64;
    memset(u, 0, sizeof *u);
    for (int t = 0; t < TENSORS; t++)
        for (int i = 0; i < N; i++) {
            double x = 0.01 * (t + 1) * (i + 1);
            if (is_f64 || t > 6)
                u->memory[t][i] = x;
            else
                ((float *)u->memory[t])[i] = (float)x;
        }
}

static bool is_rounded(const ech_kernels *k, const updated *u)
{
    ech_dtype wide = ech_dtype_wide(k->dtype);
    char expected[N * sizeof(double)];
    ech_convert(u->memory[0], wide, expected, k->dtype, N);
    return memcmp(expected, u->memory[4], N * ech_dtype_bytes(k->dtype)) == 0;
}

/* The learning rate, the step's number and the factor of clipping are read from memory. A withheld
 * update changes only the rounded copy. */
static void check_update(const ech_kernels *k, update_call call, bool rounds)
{
    static updated plain, read, before, after;
    const int64_t number = 3;
    const double clip = 0.25, rate = 0.2;
    double withheld = 0;
    ech_update update = {.learning_rate = 0.1,
                         .beta1 = 0.9,
                         .beta2 = 0.99,
                         .eps = 1e-8,
                         .momentum = 0.5,
                         .block = STATE_BLOCK,
                         .count = number,
                         .grad_scale = clip};
    fill(&plain, k);
    fill(&read, k);
    fill(&before, k);
    call(k, &update, &plain);
    update.learning_rate = 0.25; /* times 0.2 times 2: exact */
    update.adjust = 2;
    update.count = 1;
    update.grad_scale = 1;
    update.rate = &rate;
    update.number = &number;
    update.clip = &clip;
    update.withheld = &withheld;
    call(k, &update, &read);
    assert_memory_equal(&plain, &read, sizeof plain);
    assert_memory_not_equal(&plain, &before, sizeof plain);
    withheld = 1;
    after = before;
    call(k, &update, &after);
    bool copies = rounds && k->dtype != ech_dtype_wide(k->dtype);
    if (copies) assert_true(is_rounded(k, &after));
    memcpy(before.memory[4], after.memory[4], copies ? sizeof before.memory[4] : 0);
    assert_memory_equal(&after, &before, sizeof after);
}

TEST(updates_are_withheld)
{
    static const update_call rounding[] = {adamw, adamw8, sgd, adafactor, sm3};
    static const update_call others[] = {adafactor_sums, adafactor_factors, adafactor_squares,
                                         sm3_maxima, scaled_sum};
    static const ech_dtype types[] = {ECH_F32, ECH_F64, ECH_BF16, ECH_F16};
    for (int t = 0; t < 4; t++)
        for (int fast = 0; fast < 2; fast++) {
            const ech_kernels *k = fast ? ech_kernels_fast(types[t]) : ech_kernels_ref(types[t]);
            for (int i = 0; i < 5; i++) check_update(k, rounding[i], true);
            for (int i = 0; i < 5; i++) check_update(k, others[i], false);
        }
}

static int find_tables(void **state)
{
    (void)state;
    static const ech_dtype types[] = {ECH_F32, ECH_F64, ECH_BF16, ECH_F16};
    for (int i = 0; i < 4; i++) tables[i] = ech_kernels_ref(types[i]);
    return 0;
}

ALL_TESTS(find_tables, NULL)
