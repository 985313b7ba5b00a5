/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows and vocabularies in shares: what a share gets is its slice of what the whole gets, and parts
 * of sums add up to the whole.
 */
#include "kernel/places.h"
#include "kernel/trial.h"

enum { B = 3, T = 44, C = 37, FIRST_SAMPLE = 5, MOST_SHARES = 8 };

static const ech_kernels *table_of(int k)
{
    return k == 0   ? ech_kernels_ref(ECH_F64)
           : k == 1 ? ech_kernels_ref(ECH_F32)
                    : ech_kernels_fast(ECH_F32);
}

static ech_kernel_context *open_context(const ech_kernels *kernels, ech_op op, const int64_t *dims)
{
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(2, &context), ECH_OK);
    context->scratch_bytes = ech_kernel_scratch(kernels, op, context->threads, dims);
    context->scratch = malloc(context->scratch_bytes + 1);
    assert_non_null(context->scratch);
    return context;
}

static void close_context(ech_kernel_context *context)
{
    free(context->scratch);
    ech_kernel_context_destroy(context);
}

/* Drawn numbers; NaN for series 0. */
static ech_tensor make(ech_dtype dtype, int64_t rows, int64_t columns, uint32_t series)
{
    ech_tensor x = ech_tensor_2d(NULL, dtype, rows, columns);
    x.data = malloc(ech_tensor_bytes(&x) + 1);
    assert_non_null(x.data);
    for (int64_t i = 0; i < rows * columns; i++)
        trial_set(&x, i, series ? value_at(series, i, -1, 1) : (double)NAN);
    return x;
}

/* ---- rows ---- */

/* The shares of B samples' rows: of tokens, and of those rows again. Returns how many; n is the
 * rows of each. */
static int cut_rows(int way, ech_rows part[MOST_SHARES], int64_t n[MOST_SHARES])
{
    ech_rows tokens[] = {rows_uncut(FIRST_SAMPLE, T), rows_piece(FIRST_SAMPLE, T, 10, 34),
                         rows_pair(FIRST_SAMPLE, T, 3, 8, 30, 14),
                         rows_pair(FIRST_SAMPLE, T, 0, 11, 33, 11),
                         rows_piece(FIRST_SAMPLE, T, 43, 1)};
    int kinds = (int)TRIAL_COUNT(tokens), shares = 1 + way / kinds;
    if (shares > 4) return 0;
    int64_t rows = B * tokens[way % kinds].tokens, each = (rows + shares - 1) / shares;
    for (int s = 0; s < shares; s++) {
        part[s] = tokens[way % kinds];
        part[s].first = s * each < rows ? s * each : rows;
        n[s] = rows - part[s].first < each ? rows - part[s].first : each;
    }
    return shares;
}

/* Row r of a share in the whole (B x T) rows. */
static int64_t whole_row(const ech_rows *rows, int64_t r)
{
    return ech_row_whole(rows, r) - FIRST_SAMPLE * T;
}

static ech_tensor slice(const ech_tensor *whole, const ech_rows *rows, int64_t n)
{
    ech_tensor x = make(whole->dtype, n, C, 0);
    for (int64_t i = 0; i < n * C; i++)
        trial_set(&x, i, trial_get(whole, whole_row(rows, i / C) * C + i % C));
    return x;
}

static void same_slice(const ech_tensor *part, const ech_tensor *whole, const ech_rows *rows)
{
    for (int64_t i = 0; i < ech_tensor_count(part); i++)
        assert_true(trial_get(part, i) == trial_get(whole, whole_row(rows, i / C) * C + i % C));
}

TEST(positions_of_rows)
{
    static const ech_rows known[] = {
        {.first_sample = 7, .whole = 100, .tokens = 6, .first = 5, .split = 4, .start = {10, 50}}};
    static const int64_t positions[] = {51, 10, 11, 12, 13, 50, 51, 10};
    for (int64_t r = 0; r < 8; r++) {
        assert_int_equal(ech_row_position(known, r), positions[r]);
        assert_int_equal(ech_row_whole(known, r), (7 + (5 + r) / 6) * 100 + positions[r]);
    }
}

TEST(dropout_of_rows)
{
    const ech_dropout dropout = {.p = 0.4, .key = {1, 2, 3}};
    const ech_rows uncut = rows_uncut(FIRST_SAMPLE, T);
    ech_rows part[MOST_SHARES];
    int64_t n[MOST_SHARES];
    for (int k = 0; k < 3; k++) {
        const ech_kernels *kernels = table_of(k);
        ech_kernel_context *context = open_context(kernels, ECH_OP_dropout, NULL);
        ech_tensor x = make(kernels->dtype, B * T, C, 1), y = make(kernels->dtype, B * T, C, 0);
        kernels->dropout(context, &x, &dropout, &uncut, &y);
        int shares;
        for (int way = 0; (shares = cut_rows(way, part, n)) > 0; way++)
            for (int s = 0; s < shares; s++) {
                ech_tensor own = slice(&x, &part[s], n[s]);
                kernels->dropout(context, &own, &dropout, &part[s], &own);
                same_slice(&own, &y, &part[s]);
                free(own.data);
            }
        free(x.data);
        free(y.data);
        close_context(context);
    }
}

TEST(learned_positions_of_rows)
{
    const ech_rows uncut = rows_uncut(FIRST_SAMPLE, T);
    ech_rows part[MOST_SHARES];
    int64_t n[MOST_SHARES];
    for (int k = 0; k < 3; k++) {
        const ech_kernels *kernels = table_of(k);
        ech_kernel_context *context =
            open_context(kernels, ECH_OP_position_backward, (const int64_t[]){B * T, T + 2, C});
        ech_tensor x = make(kernels->dtype, B * T, C, 1), y = make(kernels->dtype, B * T, C, 0);
        ech_tensor table = make(kernels->dtype, T + 2, C, 2);
        ech_tensor sum = make(kernels->dtype, T + 2, C, 0);
        kernels->position_forward(context, &x, &table, &uncut, NULL, &y);
        int shares;
        for (int way = 0; (shares = cut_rows(way, part, n)) > 0; way++) {
            for (int s = 0; s < shares; s++) {
                ech_tensor own = slice(&x, &part[s], n[s]);
                kernels->position_backward(context, &own, &part[s], NULL, s > 0, &sum);
                kernels->position_forward(context, &own, &table, &part[s], NULL, &own);
                same_slice(&own, &y, &part[s]);
                free(own.data);
            }
            /* Shares after each other leave the sums over the samples, by position. */
            for (int64_t i = 0; i < (T + 2) * C; i++) {
                double wanted = 0;
                for (int s = 0; s < shares; s++)
                    for (int64_t r = 0; r < n[s]; r++)
                        if (ech_row_position(&part[s], r) == i / C)
                            wanted += trial_get(&x, whole_row(&part[s], r) * C + i % C);
                assert_true(fabs(trial_get(&sum, i) - wanted) <= 1e-6);
            }
        }
        free(x.data);
        free(y.data);
        free(table.data);
        free(sum.data);
        close_context(context);
    }
}

/* Rotary takes whole samples of T' tokens; angles of the fast rows depend on the position alone. */
TEST(rotary_of_tokens)
{
    enum { LONG = 300, H = 2, D = 10 };
    const ech_rows cuts[] = {rows_piece(0, LONG, 0, 130), rows_piece(0, LONG, 130, 170),
                             rows_pair(0, LONG, 20, 60, 200, 70), rows_piece(0, LONG, 299, 1),
                             rows_pair(0, LONG, 0, 0, 100, 150)};
    const ech_rows uncut = rows_uncut(0, LONG);
    const int64_t dims[] = {LONG, D};
    double frequency[D / 2];
    ech_rope_frequencies(&(ech_rope){.theta = 10000}, D, frequency);
    for (int k = 0; k < 3; k++)
        for (int inverse = 0; inverse < 2; inverse++) {
            const ech_kernels *kernels = table_of(k);
            ech_kernel_context *context = open_context(kernels, ECH_OP_rotary, dims);
            ech_tensor memory = make(kernels->dtype, B * LONG, H * D, 1);
            ech_tensor result = make(kernels->dtype, B * LONG, H * D, 0);
            ech_tensor x =
                ech_tensor_view(memory.data, kernels->dtype, 4, (const int64_t[]){B, LONG, H, D});
            ech_tensor y = x;
            y.data = result.data;
            kernels->rotary(context, &x, frequency, D, false, 1, &uncut, NULL, inverse, &y);
            for (size_t c = 0; c < TRIAL_COUNT(cuts); c++) {
                int64_t n = cuts[c].tokens;
                ech_tensor part = make(kernels->dtype, B * n, H * D, 0);
                for (int64_t i = 0; i < ech_tensor_count(&part); i++) {
                    int64_t row = ech_row_whole(&cuts[c], i / (H * D));
                    trial_set(&part, i, trial_get(&memory, row * H * D + i % (H * D)));
                }
                ech_tensor own =
                    ech_tensor_view(part.data, kernels->dtype, 4, (const int64_t[]){B, n, H, D});
                kernels->rotary(context, &own, frequency, D, false, 1, &cuts[c], NULL, inverse,
                                &own);
                for (int64_t i = 0; i < ech_tensor_count(&part); i++) {
                    int64_t row = ech_row_whole(&cuts[c], i / (H * D));
                    assert_true(trial_get(&part, i) ==
                                trial_get(&result, row * H * D + i % (H * D)));
                }
                free(part.data);
            }
            free(memory.data);
            free(result.data);
            close_context(context);
        }
}

/* ---- the vocabulary ---- */

enum { R = 60, V = 23, MANY = 700 };

/* t shares of ceil(V/t) ids, the last ones shorter or empty. */
static int64_t ids_of(int t, int share, int64_t *first)
{
    int64_t each = (V + t - 1) / t, left = V - share * each;
    *first = share * each;
    return left < 0 ? 0 : left < each ? left : each;
}

/* An id has many rows, whose sums are made in parts. */
TEST(embedding_shares)
{
    int32_t id[MANY];
    for (int64_t r = 0; r < MANY; r++) id[r] = r % 3 ? 17 : (int32_t)value_at(3, r, 0, V);
    ech_tensor ids = ech_tensor_1d(id, ECH_I32, MANY);
    for (int k = 0; k < 3; k++)
        for (int t = 1; t <= 8; t++) {
            const ech_kernels *kernels = table_of(k);
            ech_kernel_context *context =
                open_context(kernels, ECH_OP_embedding_backward, (const int64_t[]){MANY, V, C});
            int64_t each = (V + t - 1) / t, first;
            ech_tensor table = make(kernels->dtype, t * each, C, 1);
            ech_tensor dy = make(kernels->dtype, MANY, C, 2),
                       dtable = make(kernels->dtype, V, C, 0);
            kernels->embedding_backward(context, &dy, &ids, 0, false, &dtable);
            double sum[MANY * C] = {0};
            for (int share = 0; share < t; share++) {
                int64_t valid = ids_of(t, share, &first);
                ech_tensor own = ech_tensor_rows(&table, first, each); /* padding included */
                ech_tensor y = make(kernels->dtype, MANY, C, 0);
                ech_tensor down = make(kernels->dtype, each, C, 0);
                kernels->embedding_forward(context, &own, &ids, first, &y);
                for (int64_t i = 0; i < MANY * C; i++) sum[i] += trial_get(&y, i);
                kernels->embedding_backward(context, &dy, &ids, first, false, &down);
                for (int64_t i = 0; i < each * C; i++)
                    assert_true(trial_get(&down, i) ==
                                (i < valid * C ? trial_get(&dtable, first * C + i) : 0));
                free(y.data);
                free(down.data);
            }
            for (int64_t i = 0; i < MANY * C; i++)
                assert_true(sum[i] == trial_get(&table, id[i / C] * C + i % C));
            free(table.data);
            free(dy.data);
            free(dtable.data);
            close_context(context);
        }
}

/* Rows of weight 0 hold anything; targets of the others are somewhere in the vocabulary. */
typedef struct loss {
    int32_t target[R];
    float weight[R];
    double scale;
} loss;

static loss make_loss(void)
{
    loss made = {.scale = 0.25};
    for (int64_t r = 0; r < R; r++) {
        made.target[r] = (int32_t)value_at(4, r, 0, V);
        made.weight[r] = (float)value_at(5, r, 0, 2);
    }
    made.weight[7] = made.weight[30] = 0;
    made.target[30] = -1;
    return made;
}

/* Logits of t shares side by side in rows of t x each columns; sums of each share's call. */
static void run_shares(const ech_kernels *kernels, loss *given, int t, ech_tensor *logits,
                       bool gradient, double sums[MOST_SHARES][ECH_LOSS_SUMS])
{
    ech_kernel_context *context = open_context(kernels, ECH_OP_loss_gradient, NULL);
    ech_tensor targets = ech_tensor_1d(given->target, ECH_I32, R);
    ech_tensor weights = ech_tensor_1d(given->weight, ECH_F32, R);
    ech_tensor scale = ech_tensor_1d(&given->scale, ECH_F64, 1);
    double parts[MOST_SHARES][R * ECH_LOSS_STATS], stats[R * ECH_LOSS_STATS];
    int64_t first;
    for (int share = 0; share < t; share++) {
        int64_t n = ids_of(t, share, &first);
        ech_tensor own = ech_tensor_narrow(logits, logits->dims - 1, n > 0 ? first : 0, n);
        ech_tensor known = ech_tensor_2d(parts[share], ECH_F64, R, ECH_LOSS_STATS);
        kernels->loss_statistics(context, &own, &targets, first, &known);
    }
    ech_tensor all = ech_tensor_2d(stats, ECH_F64, R, ECH_LOSS_STATS);
    ech_tensor shards = ech_tensor_view(parts, ECH_F64, 3, (const int64_t[]){t, R, ECH_LOSS_STATS});
    kernels->loss_combine(context, &shards, &all);
    if (t == 1) assert_memory_equal(parts[0], stats, 7 * ECH_LOSS_STATS * sizeof(double));
    for (int share = 0; share < t; share++) {
        int64_t n = ids_of(t, share, &first);
        ech_tensor own = ech_tensor_narrow(logits, logits->dims - 1, n > 0 ? first : 0, n);
        ech_tensor sum = ech_tensor_1d(sums[share], ECH_F64, ECH_LOSS_SUMS);
        sums[share][0] = 3;
        sums[share][1] = 4;
        kernels->loss_gradient(context, &own, &targets, &weights, first, &all, &scale, 0.5, 2,
                               gradient ? &own : NULL, &sum);
    }
    close_context(context);
}

TEST(loss_shares)
{
    loss given = make_loss();
    double whole[MOST_SHARES][ECH_LOSS_SUMS], sums[MOST_SHARES][ECH_LOSS_SUMS];
    for (int k = 0; k < 3; k++)
        for (int t = 1; t <= 8; t++)
            for (int gradient = 0; gradient < 2; gradient++) {
                const ech_kernels *kernels = table_of(k);
                double tolerance = kernels->dtype == ECH_F64 ? 1e-13 : 1e-6;
                ech_tensor exact = make(ECH_F64, R, V, 0), x = make(kernels->dtype, R, V, 0);
                for (int64_t i = 0; i < R * V; i++) {
                    /* Row 9: one share lies far below the others. */
                    double value = value_at(6, i, -8, 8) - (i / V == 9 && i % V < 6 ? 300 : 0);
                    if (i / V == 7 || i / V == 30) value = (double)NAN;
                    trial_set(&exact, i, value);
                    trial_set(&x, i, value);
                }
                run_shares(ech_kernels_ref(ECH_F64), &given, 1, &exact, gradient, whole);
                run_shares(kernels, &given, t, &x, gradient, sums);
                for (int share = 0; share < t; share++) {
                    assert_true(fabs(sums[share][ECH_LOSS_SUM] - whole[0][ECH_LOSS_SUM]) <
                                tolerance * whole[0][ECH_LOSS_SUM]);
                    assert_true(sums[share][ECH_LOSS_WEIGHT] == whole[0][ECH_LOSS_WEIGHT]);
                }
                for (int64_t i = 0; i < R * V; i++) {
                    double got = trial_get(&x, i), wanted = trial_get(&exact, i);
                    if (!gradient) /* logits stay as they are */
                        wanted = kernels->dtype == ECH_F64 ? wanted : (double)(float)wanted;
                    if (isnan(wanted))
                        assert_true(isnan(got));
                    else
                        assert_true(fabs(got - wanted) <= (gradient ? tolerance : 0));
                }
                free(exact.data);
                free(x.data);
            }
}

/* A NaN in one share reaches the loss of all. */
TEST(bad_shares_are_seen)
{
    static const double bad[] = {(double)NAN, (double)INFINITY};
    loss given = make_loss();
    double sums[MOST_SHARES][ECH_LOSS_SUMS];
    for (int k = 0; k < 3; k++)
        for (int kind = 0; kind < 2; kind++)
            for (int64_t v = 0; v < V; v += 11) {
                ech_tensor x = make(table_of(k)->dtype, R, V, 6);
                trial_set(&x, 11 * V + v, bad[kind]);
                run_shares(table_of(k), &given, 3, &x, true, sums);
                for (int share = 0; share < 3; share++)
                    assert_true(!isfinite(sums[share][ECH_LOSS_SUM]));
                for (int64_t i = 0; i < R * V; i++)
                    assert_true(isfinite(trial_get(&x, i)) || i / V == 11);
                assert_true(isnan(trial_get(&x, 11 * V + v)));
                free(x.data);
            }
}
