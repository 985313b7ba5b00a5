/* SPDX-License-Identifier: Apache-2.0
 *
 * Orthonormal columns: fast against definition; and against what they are by themselves, also where
 * columns depend on each other or nearly do, of which a single Gram-Schmidt makes columns that are
 * far from orthogonal.
 */
#include <float.h>

#include "kernel/trial.h"

enum { R = 90, K = 6 };

static const ech_kernels *table_of(int k)
{
    const ech_kernels *tables[] = {ech_kernels_ref(ECH_F64), ech_kernels_ref(ECH_F32),
                                   ech_kernels_fast(ECH_F32), ech_kernels_fast(ECH_F64),
                                   ech_kernels_fast(ECH_BF16)};
    return tables[k];
}
enum { TABLES = 5 };

static double number(int64_t i)
{
    return sin(1.7 * (double)i + 0.3 * (double)(i * i % 101));
}

/* Columns c of x [R][K]: none of them in the span of others; all along one; along two, nearly; all
 * zero. */
enum { FREE, ALONG_ONE, NEARLY_TWO, ZERO, KINDS };

static double entry(int kind, int64_t r, int64_t c)
{
    double one = number(r), two = number(r + 1000), own = number(r * K + c + 5000);
    if (kind == FREE) return own;
    if (kind == ALONG_ONE) return one * (double)(c + 1);
    if (kind == NEARLY_TWO) return one * (double)(c + 1) + two * (double)(c * c) + 1e-9 * own;
    return 0;
}

static double inner(const double *a, const double *b, int i, int j)
{
    double sum = 0;
    for (int r = 0; r < R; r++) sum += a[r * K + i] * b[r * K + j];
    return sum;
}

/* Of rows x columns numbers. */
static void run_of(const ech_kernels *k, int64_t rows, int64_t columns, const double *x,
                   bool householder, double *p)
{
    size_t stride = (size_t)rows + ECH_ORTHOGONAL_ROOM;
    double *work = calloc((size_t)columns * stride, sizeof *work);
    double *memory = calloc((size_t)(rows * columns), sizeof *memory);
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
    ech_tensor view = ech_tensor_2d(memory, ech_dtype_wide(k->dtype), rows, columns);
    ech_tensor room = ech_tensor_2d(work, ECH_F64, columns, (int64_t)stride);
    for (int64_t i = 0; i < rows * columns; i++) trial_set(&view, i, x[i]);
    k->orthogonalize(context, &view, columns, householder, &room);
    for (int64_t i = 0; i < rows * columns; i++) p[i] = trial_get(&view, i);
    ech_kernel_context_destroy(context);
    free(memory);
    free(work);
}

static void run(const ech_kernels *k, const double *x, bool householder, double *p)
{
    run_of(k, R, K, x, householder, p);
}

TEST(tables_agree)
{
    static const int64_t sizes[][2] = {{1, 1}, {6, 6}, {40, 7}, {1500, 3}};
    for (size_t s = 0; s < TRIAL_COUNT(sizes); s++)
        for (int way = 0; way < 2; way++) {
            int64_t n = sizes[s][0] * sizes[s][1];
            double *x = calloc((size_t)n * 3, sizeof *x), *p = x + n, *q = p + n;
            for (int64_t i = 0; i < n; i++) x[i] = number(i);
            run_of(table_of(0), sizes[s][0], sizes[s][1], x, way == 1, p);
            for (int t = 1; t < TABLES; t++) {
                double apart = table_of(t)->dtype == ECH_F64 ? 1e-12 : 1e-5;
                run_of(table_of(t), sizes[s][0], sizes[s][1], x, way == 1, q);
                for (int64_t i = 0; i < n; i++) assert_true(fabs(p[i] - q[i]) < apart);
            }
            free(x);
        }
}

TEST(columns_are_orthonormal)
{
    for (int t = 0; t < TABLES; t++)
        for (int kind = 0; kind < KINDS; kind++)
            for (int way = 0; way < 2; way++) {
                double x[R * K], p[R * K];
                for (int i = 0; i < R * K; i++) x[i] = entry(kind, i / K, i % K);
                run(table_of(t), x, way == 1, p);
                for (int i = 0; i < K; i++)
                    for (int j = 0; j < K; j++)
                        assert_true(fabs(inner(p, p, i, j) - (i == j)) < 1e-6);
            }
}

/* A column is made of those up to it, and points along what it has beyond those before. */
TEST(spans_are_kept)
{
    for (int t = 0; t < TABLES; t++)
        for (int way = 0; way < 2; way++) {
            double x[R * K], p[R * K];
            for (int i = 0; i < R * K; i++) x[i] = entry(FREE, i / K, i % K);
            run(table_of(t), x, way == 1, p);
            for (int c = 0; c < K; c++) {
                double missing = inner(x, x, c, c);
                for (int j = 0; j <= c; j++) missing -= pow(inner(p, x, j, c), 2);
                assert_true(fabs(missing) < 1e-5 * inner(x, x, c, c));
                assert_true(inner(p, x, c, c) > 0);
            }
        }
}

/* What lies along one direction has it within the first column; by reflections to the last digit.
 * */
TEST(a_direction_is_kept)
{
    for (int way = 0; way < 2; way++) {
        double x[R * K], p[R * K], missing = 1;
        for (int i = 0; i < R * K; i++) x[i] = entry(ALONG_ONE, i / K, i % K);
        run(table_of(0), x, way == 1, p);
        for (int j = 0; j < K; j++) missing -= pow(inner(p, x, j, 0), 2) / inner(x, x, 0, 0);
        assert_true(fabs(missing) < (way == 1 ? 1e-14 : 1e-10));
    }
}

/* Columns of two directions but for rounding errors of their type: what the errors are is not seen.
 * */
TEST(rounding_is_not_seen)
{
    for (int t = 0; t < TABLES; t++) {
        bool fp64 = table_of(t)->dtype == ECH_F64;
        double error = fp64 ? DBL_EPSILON : (double)FLT_EPSILON, p[2][R * K];
        for (int other = 0; other < 2; other++) {
            double x[R * K];
            for (int i = 0; i < R * K; i++) {
                int r = i / K, c = i % K;
                x[i] = number(r) * (c + 1) + number(r + 1000) * c * c;
                x[i] *= 1 + error * number(i + 7000 * (other + 1));
            }
            run(table_of(t), x, true, p[other]);
        }
        for (int i = 0; i < R * K; i++)
            assert_true(fabs(p[0][i] - p[1][i]) < (fp64 ? 1e-12 : 1e-4));
    }
}

/* Three columns, twice: a row of zeros stays so in the three that are made of them, and the others
 * take what is left. */
TEST(empty_rows_stay)
{
    for (int t = 0; t < TABLES; t++) {
        double x[R * K], p[R * K];
        for (int i = 0; i < R * K; i++)
            x[i] = i / K % 3 == 1 ? 0 : number(i / K * K + i % K % 3 + 5000);
        run(table_of(t), x, true, p);
        for (int i = 0; i < R * K; i++)
            if (i / K % 3 == 1 && i % K < 3) assert_true(p[i] == 0);
        for (int c = 0; c < K; c++) assert_true(fabs(inner(p, p, c, c) - 1) < 1e-6);
    }
}

/* Columns of length 1, `least` x (1 -+ 1e-3), and of an infinite number, beside which nothing is
 * cleared. As many are counted as are left. */
TEST(rounding_is_cleared)
{
    enum { TERMS = 200 };
    for (int t = 0; t < TABLES; t++)
        for (int infinite = 0; infinite < 2; infinite++) {
            double x[R][4] = {{0}};
            ech_dtype wide = ech_dtype_wide(table_of(t)->dtype);
            double least = ech_rounding_error(wide, TERMS, 1);
            char memory[sizeof x];
            ech_tensor view = ech_tensor_2d(memory, wide, R, 4);
            ech_kernel_context *context;
            assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
            x[R - 1][0] = 1;
            x[3][1] = least * (1 - 1e-3);
            x[3][2] = least * (1 + 1e-3);
            x[0][3] = infinite ? (double)INFINITY : 0.5;
            for (int i = 0; i < R * 4; i++) trial_set(&view, i, x[i / 4][i % 4]);
            double sums[2][ECH_RANK_SUMS] = {{0}};
            for (int i = 0; i < 2; i++) { /* of what has a column to clear, then of what has none */
                ech_tensor found = ech_tensor_1d(sums[i], ECH_F64, ECH_RANK_SUMS);
                for (int k = 0; k <= i; k++)
                    table_of(t)->count_columns(context, &view, TERMS, &found);
                if (i == 0) table_of(t)->clear_columns(context, &view, TERMS);
            }
            for (int i = 0; i < 2; i++) {
                assert_true(sums[i][ECH_RANK_COLUMNS] == (infinite ? 4 : 3) * (i + 1));
                assert_true(sums[i][ECH_RANK_SHORT] == (infinite ? 0 : i + 1));
                assert_true(sums[i][ECH_RANK_MATRICES] == i + 1);
            }
            ech_kernel_context_destroy(context);
            for (int i = 0; i < R * 4; i++) {
                bool cleared = i % 4 == 1 && !infinite;
                double kept = wide == ECH_F64 ? x[i / 4][i % 4] : (float)x[i / 4][i % 4];
                assert_true(trial_get(&view, i) == (cleared ? 0 : kept));
            }
        }
}

TEST(a_bad_row_is_seen)
{
    static const double bad[] = {(double)NAN, (double)INFINITY};
    for (int t = 0; t < TABLES; t++)
        for (int which = 0; which < 2; which++)
            for (int way = 0; way < 2; way++)
                for (int row = 0; row < R; row += R - 1) {
                    double x[R * K], p[R * K];
                    for (int i = 0; i < R * K; i++)
                        x[i] = i / K == row ? bad[which] : entry(FREE, i / K, i % K);
                    run(table_of(t), x, way == 1, p);
                    for (int i = 0; i < R * K; i++)
                        assert_true(isnan(p[i]) || (which == 1 && i / K != row));
                }
}
