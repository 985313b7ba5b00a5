/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizer updates, fast against definition and by hand; sums of squares, bit for bit; the search
 * for NaN and infinity.
 */
#include "kernel/dynamic_map.h"
#include "kernel/trial.h"

TRIAL_CALL(adamw, t[0], t[1], t[2], t[3], options, t[4])
TRIAL_CALL(sgd, t[0], t[1], t[2], options, t[3])
TRIAL_CALL(sgd_shared, t[0], t[1], options)
TRIAL_CALL(copy_shared, t[0], t[1])

typedef struct relaying {
    double tolerance;
    int64_t alone;
} relaying;

TRIAL_CALL_WITH(relaying, relay_shared, t[0], t[1], t[2], 0.68, 0.53, 0.9, o->tolerance, o->alone)

/* Of one thread alone; what several do at once is in test_shared.c. */
TEST(rows_of_shared_memory_agree)
{
    static const int64_t sizes[] = {0, 1, 17, 40000};
    ech_update update = {.learning_rate = 0.01, .grad_scale = 0.7};
    for (size_t s = 0; s < TRIAL_COUNT(sizes); s++) {
        trial_tensor x = TRIAL_CHANGED(TRIAL_1D(sizes[s]), .type = TRIAL_WIDE);
        trial sgd = {.name = "sgd_shared",
                     .op = ECH_OP_sgd_shared,
                     .call = call_sgd_shared,
                     .options = &update,
                     .tolerance = 1e-6,
                     .halves = true,
                     .tensor = {x, TRIAL_INPUT(TRIAL_1D(sizes[s]), .type = TRIAL_EITHER)}};
        trial copy = {.name = "copy_shared",
                      .op = ECH_OP_copy_shared,
                      .call = call_copy_shared,
                      .halves = true,
                      .tensor = {TRIAL_INPUT(TRIAL_1D(sizes[s]), .type = TRIAL_WIDE),
                                 TRIAL_RESULT(TRIAL_1D(sizes[s]), .type = TRIAL_WIDE)}};
        trial_check(&sgd);
        trial_check(&copy);
        static const relaying ways[] = {{0, 0}, {0.5, 0}, {0, 1}, {0.5, 2}};
        for (size_t i = 0; i < TRIAL_COUNT(ways); i++) {
            trial relay = {.name = "relay_shared",
                           .op = ECH_OP_relay_shared,
                           .call = call_relay_shared,
                           .options = &ways[i],
                           .tolerance = 1e-6,
                           .halves = true,
                           .tensor = {x, x, x}};
            trial_check(&relay);
        }
    }
}

static const ech_kernels *table_of(int k)
{
    return k == 0   ? ech_kernels_ref(ECH_F64)
           : k == 1 ? ech_kernels_ref(ECH_F32)
                    : ech_kernels_fast(ECH_F32);
}

/* Two tables, of which one is worked on row by row: numbers, gradients that are zero outside of the
 * list, the same of the listed rows alone, and what is read of these. */
typedef struct pair_of_tables {
    ech_tensor shared, gradient, listed, read, sums;
} pair_of_tables;

static pair_of_tables make_tables(ech_dtype real, const ech_tensor *rows, int64_t R, int64_t C)
{
    ech_dtype wide = ech_dtype_wide(real);
    int64_t blocks = (R * C + ECH_NORM_BLOCK - 1) / ECH_NORM_BLOCK, bytes = R * C * 8;
    int64_t N = rows->shape[0];
    pair_of_tables t = {ech_tensor_2d(ech_calloc(1, (size_t)bytes), wide, R, C),
                        ech_tensor_2d(ech_calloc(1, (size_t)bytes), real, R, C),
                        ech_tensor_2d(ech_calloc((size_t)(N * C), 8), real, N, C),
                        ech_tensor_2d(ech_calloc((size_t)(N * C), 8), wide, N, C),
                        ech_tensor_1d(ech_calloc((size_t)blocks, 8), ECH_F64, blocks)};
    for (int64_t i = 0; i < R * C; i++) trial_set(&t.shared, i, sin((double)i));
    for (int64_t k = 0; k < N; k++)
        for (int64_t c = 0, row = ((const int32_t *)rows->data)[k]; row >= 0 && c < C; c++) {
            trial_set(&t.gradient, row * C + c, cos((double)(row * C + c) * 7));
            trial_set(&t.listed, k * C + c, cos((double)(row * C + c) * 7));
        }
    return t;
}

static void free_tables(pair_of_tables *t)
{
    free(t->shared.data);
    free(t->gradient.data);
    free(t->listed.data);
    free(t->read.data);
    free(t->sums.data);
}

static void expect_same(const ech_tensor *x, const ech_tensor *y)
{
    assert_memory_equal(x->data, y->data, ech_tensor_bytes(x));
}

/* Of every third row of the first half, and of the last: bits are those of all rows at once. */
static void check_listed_rows(const ech_kernels *kernels, int64_t R, int64_t C, bool withheld)
{
    enum { PLACES = 3000 };
    int32_t list[PLACES];
    int64_t n = 0;
    ech_kernel_context *context;
    double held = withheld;
    ech_update update = {.learning_rate = 0.03, .grad_scale = 0.7, .withheld = &held};
    assert_int_equal(ech_kernel_context_create(2, &context), ECH_OK);
    for (int64_t r = 0; 2 * r < R - 1; r += 3) list[n++] = (int32_t)r;
    list[n++] = (int32_t)(R - 1);
    ech_tensor rows = ech_tensor_1d(list, ECH_I32, n + 2);
    list[n] = list[n + 1] = -1;
    pair_of_tables all = make_tables(kernels->dtype, &rows, R, C);
    pair_of_tables some = make_tables(kernels->dtype, &rows, R, C);
    kernels->square_sums(context, &all.gradient, &all.sums);
    kernels->square_sums_rows(context, &some.listed, &rows, &some.sums);
    expect_same(&all.sums, &some.sums);
    kernels->sgd_shared(context, &all.shared, &all.gradient, &update);
    kernels->sgd_shared_rows(context, &some.shared, &some.listed, &rows, &update);
    expect_same(&all.shared, &some.shared);
    memset(all.listed.data, 0, ech_tensor_bytes(&all.listed));
    expect_same(&all.listed, &some.listed);
    kernels->copy_shared_rows(context, &some.shared, &rows, &some.read);
    for (int64_t k = 0; k < n; k++)
        for (int64_t c = 0; c < C; c++)
            trial_set(&all.read, k * C + c, trial_get(&all.shared, list[k] * C + c));
    expect_same(&all.read, &some.read);
    free_tables(&all);
    free_tables(&some);
    ech_kernel_context_destroy(context);
}

TEST(listed_rows_have_the_bits_of_all)
{
    static const int64_t sizes[][2] = {{1, 1},    {17, 1},   {17000, 1}, {300, 7},
                                       {40, 160}, {5, 9000}, {2, 4096}};
    const ech_kernels *tables[] = {table_of(0),
                                   table_of(1),
                                   table_of(2),
                                   ech_kernels_ref(ECH_BF16),
                                   ech_kernels_fast(ECH_BF16),
                                   ech_kernels_ref(ECH_F16),
                                   ech_kernels_fast(ECH_F16)};
    for (size_t k = 0; k < TRIAL_COUNT(tables); k++)
        for (size_t s = 0; s < TRIAL_COUNT(sizes); s++)
            for (int withheld = 0; withheld < 2; withheld++)
                check_listed_rows(tables[k], sizes[s][0], sizes[s][1], withheld);
}

TEST(updates_agree)
{
    static const int64_t sizes[] = {0, 1, 17, 40000};
    for (size_t s = 0; s < TRIAL_COUNT(sizes); s++)
        for (int way = 0; way < 4; way++) {
            ech_update update = {.learning_rate = 0.01,
                                 .weight_decay = way % 2 ? 0.1 : 0,
                                 .beta1 = 0.9,
                                 .beta2 = 0.95,
                                 .eps = 1e-8,
                                 .momentum = way ? 0.8 : 0,
                                 .nesterov = way == 3,
                                 .count = way * 50 + 1,
                                 .grad_scale = 0.7};
            trial_tensor x = TRIAL_CHANGED(TRIAL_1D(sizes[s]), .type = TRIAL_WIDE);
            trial_tensor g = TRIAL_INPUT(TRIAL_1D(sizes[s]), .type = TRIAL_EITHER), v = x;
            v.low = 0.01;
            trial adamw = {.name = "adamw",
                           .op = ECH_OP_adamw,
                           .call = call_adamw,
                           .options = &update,
                           .tolerance = 1e-6,
                           .halves = way % 3 == 0,
                           .tensor = {x, g, x, v, TRIAL_RESULT(TRIAL_1D(sizes[s]))}};
            trial sgd = {.name = "sgd",
                         .op = ECH_OP_sgd,
                         .call = call_sgd,
                         .options = &update,
                         .tolerance = 1e-6,
                         .halves = true,
                         .tensor = {x, g, x, TRIAL_RESULT(TRIAL_1D(sizes[s]))}};
            if (way == 0) sgd.tensor[2] = (trial_tensor){0};
            trial_check(&adamw);
            trial_check(&sgd);
        }
}

TRIAL_CALL(adamw8, t[0], t[1], t[2], t[3], t[4], t[5], options, t[6])

/* A number between two codes may take either, once in a while; what else comes out is as close as
 * ever. */
static void check_states(const trial *t, ech_isa isa, ech_dtype dtype, unsigned wide)
{
    enum { MEAN = 2, SQUARE = 3 };
    const ech_kernels *fast = trial_set_of(isa, dtype, t->op);
    const trial_way way = {.threads = 1, .wide = wide},
                    other = {.threads = TRIAL_THREADS, .is_odd = true, .wide = wide};
    if (!fast) return;
    trial_run exact = trial_execute(t, ech_kernels_ref(dtype), way);
    trial_run one = trial_execute(t, fast, way), more = trial_execute(t, fast, other);
    trial_compare(t, "threads and addresses", &more, &one, 0);
    int64_t n = ech_tensor_count(&one.view[MEAN]), apart = 0;
    for (int i = MEAN; i <= SQUARE; i++)
        for (int64_t e = 0; e < n; e++) {
            double distance = fabs(one.result[i][e] - exact.result[i][e]);
            if (distance > 1)
                trial_differ(t, "codes", i, e, one.result[i][e], exact.result[i][e], 1);
            apart += distance > 0;
        }
    assert_true(apart <= n / 500);
    trial rest = *t;
    rest.tensor[MEAN].role = rest.tensor[SQUARE].role = TRIAL_ABSENT;
    trial_compare_halves(&rest, ech_isa_name(isa), &one, &exact, t->tolerance);
    trial_free(&exact);
    trial_free(&one);
    trial_free(&more);
}

TEST(updates_of_8_bit_states_agree)
{
    static const int64_t sizes[][3] = {
        {1, 1, 256}, {3, 17, 4}, {5, 600, 256}, {2, 3000, 2500}, {20, 900, 256}};
    static const ech_dtype types[] = {ECH_F32, ECH_BF16, ECH_F16};
    for (size_t s = 0; s < TRIAL_COUNT(sizes); s++) {
        int64_t R = sizes[s][0], C = sizes[s][1], block = sizes[s][2];
        int64_t blocks = (C + block - 1) / block;
        ech_update update = {.learning_rate = 0.01,
                             .weight_decay = 0.1,
                             .beta1 = 0.9,
                             .beta2 = 0.95,
                             .eps = 1e-8,
                             .count = 51,
                             .grad_scale = 0.7,
                             .block = block};
        trial_tensor codes = {.role = TRIAL_IN_OUT,
                              .high = 256,
                              TRIAL_2D(R, C),
                              .type = TRIAL_FIXED,
                              .dtype = ECH_U8};
        trial_tensor most = {
            .role = TRIAL_IN_OUT, .low = 0.1, .high = 2, TRIAL_2D(R, blocks), .type = TRIAL_WIDE};
        trial t = {.name = "adamw8",
                   .op = ECH_OP_adamw8,
                   .call = call_adamw8,
                   .options = &update,
                   .dims = {R, C},
                   .tolerance = 1e-6,
                   .tensor = {TRIAL_CHANGED(TRIAL_2D(R, C), .type = TRIAL_WIDE),
                              TRIAL_INPUT(TRIAL_2D(R, C), .type = TRIAL_EITHER), codes, codes, most,
                              most, TRIAL_RESULT(TRIAL_2D(R, C))}};
        for (size_t k = 0; k < TRIAL_COUNT(types); k++)
            for (ech_isa isa = 0; isa < ECH_ISAS; isa++)
                for (int wide = 0; wide < 2; wide++)
                    if (share_takes()) check_states(&t, isa, types[k], wide ? ~0u : 0);
    }
}

enum { RATIOS = 256 };

/* With beta1 = beta2 = 0 the states are the gradient and its square. The last one is the largest:
 * the others are ratios of whole numbers. Some lie between two values of a map. */
static void codes_of_ratios(const ech_kernels *kernels, int largest, double *codes)
{
    static const int64_t dims[] = {1, RATIOS};
    ech_update update = {.eps = 1, .count = 1, .grad_scale = 1, .block = RATIOS};
    double p[RATIOS] = {0}, g[RATIOS], most[2] = {0};
    uint8_t code[2][RATIOS] = {{0}};
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
    ech_dtype dtype = kernels->dtype;
    ech_tensor t[] = {
        ech_tensor_2d(p, dtype, 1, RATIOS),        ech_tensor_2d(g, dtype, 1, RATIOS),
        ech_tensor_2d(code[0], ECH_U8, 1, RATIOS), ech_tensor_2d(code[1], ECH_U8, 1, RATIOS),
        ech_tensor_2d(&most[0], dtype, 1, 1),      ech_tensor_2d(&most[1], dtype, 1, 1)};
    for (int i = 0; i < RATIOS; i++)
        trial_set(&t[1], i, i == RATIOS - 1 ? largest : (i % 2 ? -1 : 1) * (i / 2 % (largest + 1)));
    context->scratch_bytes = ech_kernel_scratch(kernels, ECH_OP_adamw8, 1, dims);
    context->scratch = ech_calloc(1, context->scratch_bytes);
    kernels->adamw8(context, &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &update, NULL);
    free(context->scratch);
    for (int i = 0; i < 2 * RATIOS; i++) codes[i] = code[i / RATIOS][i % RATIOS];
    ech_kernel_context_destroy(context);
}

TEST(ties_of_codes_are_broken_as_in_the_reference)
{
    double expected[2 * RATIOS], codes[2 * RATIOS];
    for (int largest = 1; largest < RATIOS / 2; largest++) {
        codes_of_ratios(ech_kernels_ref(ECH_F32), largest, expected);
        for (ech_isa isa = 0; isa < ECH_ISAS; isa++) {
            const ech_kernels *fast = trial_set_of(isa, ECH_F32, ECH_OP_adamw8);
            if (fast) codes_of_ratios(fast, largest, codes);
            for (int i = 0; fast && i < 2 * RATIOS; i++)
                if (codes[i] != expected[i])
                    fail_msg("%s: ratio %d of %d has code %g, not %g", ech_isa_name(isa), i,
                             largest, codes[i], expected[i]);
        }
    }
}

/* First update: m^ = g and v^ = g^2, so AdamW moves by lr (sign g + wd p). */
TEST(first_adamw_step_by_hand)
{
    ech_update update = {.learning_rate = 0.1,
                         .weight_decay = 0.5,
                         .beta1 = 0.9,
                         .beta2 = 0.999,
                         .eps = 0,
                         .count = 1,
                         .grad_scale = 0.5};
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
    for (int k = 0; k < 3; k++) {
        double p[2], g[2], m[2] = {0}, v[2] = {0};
        ech_tensor t[] = {
            ech_tensor_1d(p, table_of(k)->dtype, 2), ech_tensor_1d(g, table_of(k)->dtype, 2),
            ech_tensor_1d(m, table_of(k)->dtype, 2), ech_tensor_1d(v, table_of(k)->dtype, 2)};
        trial_set(&t[0], 0, 2);
        trial_set(&t[0], 1, -1);
        trial_set(&t[1], 0, 4);
        trial_set(&t[1], 1, -6);
        table_of(k)->adamw(context, &t[0], &t[1], &t[2], &t[3], &update, NULL);
        assert_true(fabs(trial_get(&t[0], 0) - (2 - 0.1 * (1 + 0.5 * 2))) < 1e-6);
        assert_true(fabs(trial_get(&t[0], 1) - (-1 - 0.1 * (-1 + 0.5 * -1))) < 1e-6);
        assert_true(fabs(trial_get(&t[2], 0) - 0.2) < 1e-6);
        assert_true(fabs(trial_get(&t[3], 1) - 0.009) < 1e-6);
    }
    ech_kernel_context_destroy(context);
}

/* Two steps with momentum 0.5 and a gradient of 1: 1, then 1.5; nesterov 1.5, then 1.75. */
TEST(momentum_by_hand)
{
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
    for (int k = 0; k < 6; k++) {
        ech_update update = {
            .learning_rate = 1, .momentum = 0.5, .nesterov = k >= 3, .grad_scale = 1, .count = 1};
        ech_dtype dtype = table_of(k % 3)->dtype;
        double p = 0, g = 0, buffer = 0;
        ech_tensor tp = ech_tensor_1d(&p, dtype, 1), tg = ech_tensor_1d(&g, dtype, 1),
                   tb = ech_tensor_1d(&buffer, dtype, 1);
        trial_set(&tg, 0, 1);
        for (int step = 0; step < 2; step++)
            table_of(k % 3)->sgd(context, &tp, &tg, &tb, &update, NULL);
        assert_true(fabs(trial_get(&tp, 0) + (k >= 3 ? 3.25 : 2.5)) < 1e-6);
    }
    ech_kernel_context_destroy(context);
}

TRIAL_CALL(square_sums, t[0], t[1])

/* The sums of fp32 squares are the same bits in every table: the order is part of the definition.
 * The range is one whose squares do not add up exactly, so another order would show. */
TEST(square_sums_are_equal_bits)
{
    static const int64_t sizes[] = {0, 1, 15, 16, 4096, 4097, 100003};
    for (size_t s = 0; s < TRIAL_COUNT(sizes); s++) {
        int64_t blocks = (sizes[s] + ECH_NORM_BLOCK - 1) / ECH_NORM_BLOCK;
        trial t = {
            .name = "sums",
            .op = ECH_OP_square_sums,
            .call = call_square_sums,
            .halves = true,
            .tensor = {{.role = TRIAL_IN,
                        TRIAL_1D(sizes[s]),
                        .low = -1.1,
                        .high = 1.3,
                        .type = TRIAL_EITHER},
                       TRIAL_RESULT(TRIAL_1D(blocks), .type = TRIAL_FIXED, .dtype = ECH_F64)}};
        trial_check(&t);
        trial_run run = trial_execute(&t, ech_kernels_fast(ECH_F32), (trial_way){.threads = 2});
        long double exact = 0, sum = 0;
        for (int64_t i = 0; i < sizes[s]; i++)
            exact += (long double)run.result[0][i] * run.result[0][i];
        for (int64_t j = 0; j < blocks; j++) sum += run.result[1][j];
        assert_true(fabsl(sum - exact) <= 1e-12L * exact);
        trial_free(&run);
    }
}

TEST(first_nonfinite_is_found)
{
    enum { N = 70001 };
    static const double bad[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    static const int64_t places[] = {0, 1, 16383, 16384, 50000, N - 1};
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(2, &context), ECH_OK);
    double *memory = ech_calloc(N, sizeof *memory);
    for (int k = 0; k < 3; k++) {
        ech_tensor x = ech_tensor_1d(memory, table_of(k)->dtype, N);
        double first = 5;
        const ech_tensor found = ech_tensor_view(&first, ECH_F64, 0, NULL);
        for (int64_t i = 0; i < N; i++) trial_set(&x, i, i % 2 ? 3e38 : -1e-40);
        table_of(k)->find_nonfinite(context, &x, &found);
        assert_int_equal((int)first, -1);
        for (int p = (int)TRIAL_COUNT(places) - 1; p >= 0; p--) {
            trial_set(&x, places[p], bad[p % 3]);
            table_of(k)->find_nonfinite(context, &x, &found);
            assert_int_equal((int)first, places[p]);
        }
    }
    free(memory);
    ech_kernel_context_destroy(context);
}

/* Gradients that are only rounding noise are ratios of small multiples of one unit. The code of
 * such a ratio never depends on its last bit. */
TEST(codes_of_noise_do_not_tie)
{
    for (int is_signed = 0; is_signed < 2; is_signed++) {
        const ech_dynamic_map *map = ech_dynamic_map_of(is_signed == 1);
        for (int i = 1; i < ECH_MAP_CODES; i++)
            for (int b = 1; b <= 256; b++) {
                double middle = (double)map->middle[i], a = round(middle * b);
                assert_true(fabs(a / (double)b - middle) > 1e-12);
            }
    }
}
