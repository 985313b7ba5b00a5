/* SPDX-License-Identifier: Apache-2.0
 *
 * The largest numbers of lines, and adding them: all tables against the plain definition, bit by
 * bit; equal numbers, zeros, NaN and infinities among them, rows and columns, one number of a line
 * and all.
 */
#include <string.h>

#include "kernel/trial.h"

enum { MOST = 7000 };

static const ech_kernels *table_of(int k)
{
    const ech_kernels *tables[] = {ech_kernels_ref(ECH_F64), ech_kernels_ref(ECH_F32),
                                   ech_kernels_fast(ECH_F32), ech_kernels_fast(ECH_F64)};
    return tables[k];
}
enum { TABLES = 4 };

enum { ORDINARY, EQUAL, ZEROS, GROWING, BAD, KINDS };

/* In fp32 exact. */
static double number(int kind, int64_t i)
{
    double own = (double)(float)sin(1.7 * (double)i + 0.3 * (double)(i * i % 101));
    if (kind == EQUAL) return i % 5 < 3 ? (i % 2 ? 0.5 : -0.5) : i % 7 ? own / 4 : 2 * own;
    if (kind == ZEROS) return i % 11 ? 0 : own;
    if (kind == GROWING) return (double)(i % 2 ? -i : i);
    if (kind == BAD && i % 13 == 5) return i % 3 ? (double)INFINITY : (double)NAN;
    return own;
}

/* Whether number i comes before number j of a line. */
static bool comes_before(double a, double b, int64_t i, int64_t j)
{
    if (isnan(a) != isnan(b)) return isnan(a);
    if (!isnan(a) && fabs(a) > fabs(b)) return true;
    return (isnan(a) || fabs(a) >= fabs(b)) && i < j;
}

typedef struct choice {
    int64_t R, C, K;
    bool columns;
    double x[MOST], values[MOST], indices[MOST], y[MOST];
} choice;

static int64_t lines_of(const choice *c)
{
    return c->columns ? c->C : c->R;
}

static int64_t place_of(const choice *c, int64_t line, int64_t i)
{
    return c->columns ? i * c->C + line : line * c->C + i;
}

static void define(choice *c)
{
    int64_t n = c->columns ? c->R : c->C;
    for (int64_t l = 0; l < lines_of(c); l++) {
        int64_t taken = 0;
        for (int64_t i = 0; i < n; i++) {
            int64_t before = 0;
            double own = c->x[place_of(c, l, i)];
            for (int64_t j = 0; j < n; j++)
                before += comes_before(c->x[place_of(c, l, j)], own, j, i);
            if (before >= c->K) continue;
            c->values[l * c->K + taken] = own;
            c->indices[l * c->K + taken++] = (double)i;
        }
        assert_int_equal(taken, c->K);
    }
    for (int64_t i = 0; i < lines_of(c) * c->K; i++)
        c->y[place_of(c, i / c->K, (int64_t)c->indices[i])] -= c->values[i];
}

static void compute(const ech_kernels *k, int threads, choice *c)
{
    int64_t L = lines_of(c), n = c->R * c->C;
    char *memory = calloc((size_t)(2 * n + 2 * L * c->K), sizeof(double));
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(threads, &context), ECH_OK);
    ech_tensor x = ech_tensor_2d(memory, k->dtype, c->R, c->C);
    ech_tensor y = ech_tensor_2d(memory + ech_tensor_bytes(&x), k->dtype, c->R, c->C);
    ech_tensor values = ech_tensor_2d(memory + 2 * ech_tensor_bytes(&x), k->dtype, L, c->K);
    ech_tensor indices = values;
    indices.data = (char *)values.data + ech_tensor_bytes(&values);
    for (int64_t i = 0; i < n; i++) {
        trial_set(&x, i, c->x[i]);
        trial_set(&y, i, c->y[i]);
    }
    k->choose(context, &x, c->columns, &values, &indices);
    k->add_chosen(context, &values, &indices, c->columns, -1, &y);
    for (int64_t i = 0; i < n; i++) c->y[i] = trial_get(&y, i);
    for (int64_t i = 0; i < L * c->K; i++) {
        c->values[i] = trial_get(&values, i);
        c->indices[i] = trial_get(&indices, i);
    }
    ech_kernel_context_destroy(context);
    free(memory);
}

static void assert_same(const double *a, const double *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (isnan(a[i]) || isnan(b[i]))
            assert_true(isnan(a[i]) && isnan(b[i]));
        else
            assert_true(a[i] >= b[i] && a[i] <= b[i]);
}

TEST(tables_choose_by_definition)
{
    static const int64_t sizes[][3] = {{1, 1, 1},   {5, 1, 1},   {3, 17, 17}, {17, 3, 2},
                                       {40, 64, 5}, {64, 40, 9}, {7, 900, 3}, {2, 600, 599}};
    static choice wanted, found;
    static double sums[MOST];
    for (size_t s = 0; s < TRIAL_COUNT(sizes); s++)
        for (int kind = 0; kind < KINDS; kind++)
            for (int columns = 0; columns < 2; columns++) {
                choice *c = &wanted;
                if (!share_takes()) continue;
                *c = (choice){.R = sizes[s][columns], .C = sizes[s][1 - columns], .K = sizes[s][2]};
                c->columns = columns == 1;
                for (int64_t i = 0; i < c->R * c->C; i++) {
                    c->x[i] = number(kind, i);
                    c->y[i] = (double)(i % 3);
                }
                found = wanted;
                define(c);
                for (int t = 0; t < TABLES; t++)
                    for (int threads = 1; threads < 3; threads++) {
                        choice *f = &found;
                        for (int64_t i = 0; i < c->R * c->C; i++) f->y[i] = (double)(i % 3);
                        compute(table_of(t), threads, f);
                        assert_same(c->values, f->values, lines_of(c) * c->K);
                        assert_same(c->indices, f->indices, lines_of(c) * c->K);
                        for (int64_t i = 0; i < c->R * c->C; i++)
                            sums[i] =
                                table_of(t)->dtype == ECH_F32 ? (double)(float)c->y[i] : c->y[i];
                        assert_same(sums, f->y, c->R * c->C);
                    }
            }
}

/* What is taken away of itself is zero where it is chosen, and elsewhere what it was. */
TEST(what_is_taken_is_gone)
{
    static choice c;
    for (int t = 0; t < TABLES; t++)
        for (int columns = 0; columns < 2; columns++) {
            c = (choice){.R = 50, .C = 60, .K = 7, .columns = columns == 1};
            for (int64_t i = 0; i < c.R * c.C; i++) c.y[i] = c.x[i] = number(ORDINARY, i + 1);
            compute(table_of(t), 2, &c);
            int64_t gone = 0;
            for (int64_t i = 0; i < c.R * c.C; i++) {
                bool is = fabs(c.y[i]) <= 0;
                gone += is;
                assert_true(is || (c.y[i] >= c.x[i] && c.y[i] <= c.x[i]));
            }
            assert_int_equal(gone, lines_of(&c) * c.K);
        }
}
