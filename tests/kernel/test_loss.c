/* SPDX-License-Identifier: Apache-2.0
 *
 * The loss: fast against definition, rows without weight, and a case worked out by hand.
 */
#include "kernel/trial.h"

typedef struct loss_case {
    bool gradient;
    int64_t first_id;
    double cap;
} loss_case;

/* Both steps; the share's statistics stand for the row's, so columns that are missing do not
 * matter. */
static void call(const ech_kernels *kernels, ech_kernel_context *context,
                 const ech_tensor *const *t, const void *options)
{
    const loss_case *o = options;
    kernels->loss_statistics(context, t[0], t[1], o->first_id, t[5]);
    kernels->loss_gradient(context, t[0], t[1], t[2], o->first_id, t[5], o->gradient ? t[3] : NULL,
                           o->cap > 0 ? 0.5 : 1, o->cap, t[6], t[4]);
}

static void check_loss(int64_t R, int64_t V, double range, const loss_case *options, int64_t gap,
                       bool in_place, double tolerance)
{
    trial t = {
        .name = "loss",
        .op = ECH_OP_loss_gradient,
        .call = call,
        .options = options,
        .dims = {R, V},
        .tolerance = tolerance,
        .halves = V < 10000, /* the definition is slow */
        .large = 1e3, /* beyond, the definition's log sum exp in fp64 loses the sum */
        .tensor = {
            {.role = TRIAL_IN,
             TRIAL_2D(R, V),
             .low = -range,
             .high = range,
             .gap = gap,
             .type = TRIAL_EITHER},
            {.role = TRIAL_IN,
             TRIAL_1D(R),
             .high = (double)(V + 2 * options->first_id),
             .type = TRIAL_FIXED,
             .dtype = ECH_I32},
            {.role = TRIAL_IN, TRIAL_1D(R), .high = 2, .type = TRIAL_FIXED, .dtype = ECH_F32},
            {.role = TRIAL_IN,
             TRIAL_1D(1),
             .low = 1,
             .high = 2,
             .type = TRIAL_FIXED,
             .dtype = ECH_F64},
            {.role = TRIAL_IN_OUT,
             TRIAL_1D(ECH_LOSS_SUMS),
             .high = 9,
             .type = TRIAL_FIXED,
             .dtype = ECH_F64},
            {.role = TRIAL_OUT, TRIAL_2D(R, ECH_LOSS_STATS), .type = TRIAL_FIXED, .dtype = ECH_F64},
            TRIAL_RESULT(TRIAL_2D(R, V), .gap = 2 * gap)}};
    if (!options->gradient) t.tensor[6] = (trial_tensor){0};
    if (in_place) {
        t.tensor[0].role = TRIAL_IN_OUT;
        t.tensor[0].type = TRIAL_REAL;
        t.tensor[6] = t.tensor[0];
        t.tensor[6].alias = 1;
    }
    trial_check(&t);
}

TEST(fast_agrees_with_the_definition)
{
    for (int way = 0; way < 6; way++) {
        loss_case options = {.gradient = way % 3 > 0, .first_id = way / 3 * 9};
        int64_t gap = way / 3 * 13;
        bool in_place = way % 3 == 2;
        check_loss(1, 1, 1, &options, gap, in_place, 1e-6);
        check_loss(1, 33, 3, &options, gap, in_place, 1e-6);
        check_loss(70, 2, 3, &options, gap, in_place, 1e-6);
        check_loss(65, 301, 10, &options, gap, in_place, 1e-6);
        check_loss(3, 50257, 10, &options, gap, in_place, 3e-6); /* fp32 sums of many */
        check_loss(9, 2049, 300, &options, gap, in_place, 3e-6);
        options.cap = 12; /* of logits that are below it */
        check_loss(65, 301, 10, &options, gap, in_place, 1e-6);
    }
}

static const int table_dtypes[] = {ECH_F64, ECH_F32, ECH_F32};

static const ech_kernels *table_of(int k)
{
    return k < 2 ? ech_kernels_ref((ech_dtype)table_dtypes[k]) : ech_kernels_fast(ECH_F32);
}

/* Runs (R, V) logits at `memory` (of the table's type) and adds to sums. */
static void run_loss(const ech_kernels *kernels, int64_t R, int64_t V, void *memory,
                     int32_t *targets, float *weights, bool gradient, double sums[2])
{
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(2, &context), ECH_OK);
    double scale_value = 0.5;
    double *known = ech_calloc((size_t)(R * ECH_LOSS_STATS), sizeof *known);
    ech_tensor logits = ech_tensor_2d(memory, kernels->dtype, R, V);
    ech_tensor target = ech_tensor_1d(targets, ECH_I32, R);
    ech_tensor weight = ech_tensor_1d(weights, ECH_F32, R);
    ech_tensor scale = ech_tensor_view(&scale_value, ECH_F64, 0, NULL);
    ech_tensor sum = ech_tensor_1d(sums, ECH_F64, 2);
    ech_tensor stats = ech_tensor_2d(known, ECH_F64, R, ECH_LOSS_STATS);
    kernels->loss_statistics(context, &logits, &target, 0, &stats);
    kernels->loss_gradient(context, &logits, &target, &weight, 0, &stats, &scale, 1, 0,
                           gradient ? &logits : NULL, &sum);
    free(known);
    ech_kernel_context_destroy(context);
}

/* Two classes with logits ln 3 and 0 have probabilities 3/4 and 1/4. */
TEST(worked_by_hand)
{
    for (int k = 0; k < 3; k++) {
        const ech_kernels *kernels = table_of(k);
        double memory[4], sums[2] = {10, 20};
        ech_tensor logits = ech_tensor_2d(memory, kernels->dtype, 2, 2);
        for (int64_t i = 0; i < 4; i++) trial_set(&logits, i, i % 2 ? 0 : log(3));
        run_loss(kernels, 2, 2, memory, (int32_t[]){0, 1}, (float[]){1, 2}, true, sums);
        assert_true(fabs(sums[ECH_LOSS_SUM] - (10 + log(4.0 / 3) + 2 * log(4))) < 1e-6);
        assert_true(sums[ECH_LOSS_WEIGHT] == 23);
        static const double expected[] = {-0.125, 0.125, 0.75, -0.75};
        for (int64_t i = 0; i < 4; i++)
            assert_true(fabs(trial_get(&logits, i) - expected[i]) < 1e-6);
    }
}

enum { SMOOTH_ROWS = 3, MOST_CLASSES = 1030 };

/* Smoothed loss and gradient of a row of V logits, by definition. */
static double smooth_row(const double *z, int V, int32_t target, double share, double *gradient)
{
    double sum = 0, loss = 0;
    for (int v = 0; v < V; v++) sum += exp(z[v]);
    for (int v = 0; v < V; v++) {
        double wanted = (1 - share) * (v == target) + share / V;
        loss -= wanted * (z[v] - log(sum));
        gradient[v] = exp(z[v]) / sum - wanted;
    }
    return loss;
}

static void run_smooth(const ech_kernels *kernels, double share, const ech_tensor *logits,
                       int32_t *targets, float *weights, double sums[ECH_LOSS_SUMS])
{
    double known[SMOOTH_ROWS * ECH_LOSS_STATS], scale_value = 0.5;
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(2, &context), ECH_OK);
    ech_tensor target = ech_tensor_1d(targets, ECH_I32, SMOOTH_ROWS);
    ech_tensor weight = ech_tensor_1d(weights, ECH_F32, SMOOTH_ROWS);
    ech_tensor scale = ech_tensor_1d(&scale_value, ECH_F64, 1);
    ech_tensor sum = ech_tensor_1d(sums, ECH_F64, ECH_LOSS_SUMS);
    ech_tensor stats = ech_tensor_2d(known, ECH_F64, SMOOTH_ROWS, ECH_LOSS_STATS);
    kernels->loss_statistics(context, logits, &target, 0, &stats);
    kernels->smooth_statistics(context, logits, share, &stats);
    kernels->loss_gradient(context, logits, &target, &weight, 0, &stats, &scale, 1, 0, logits,
                           &sum);
    kernels->smooth_gradient(context, &target, &weight, &scale, share, logits);
    ech_kernel_context_destroy(context);
}

/* Rows of V logits; the last one has no weight, and NaN. */
static void check_smooth(const ech_kernels *kernels, int V, double share)
{
    int32_t targets[SMOOTH_ROWS] = {V / 2, V - 1, 0};
    float weights[SMOOTH_ROWS] = {1, 0.5F, 0};
    static double memory[SMOOTH_ROWS * MOST_CLASSES], z[MOST_CLASSES], expected[MOST_CLASSES];
    double sums[ECH_LOSS_SUMS] = {0}, loss = 0;
    ech_tensor x = ech_tensor_2d(memory, kernels->dtype, SMOOTH_ROWS, V);
    for (int64_t i = 0; i < SMOOTH_ROWS * V; i++)
        trial_set(&x, i, i / V < 2 ? value_at(0, i, -2, 2) : (double)NAN);
    run_smooth(kernels, share, &x, targets, weights, sums);
    for (int64_t r = 0; r < SMOOTH_ROWS; r++) {
        for (int v = 0; v < V; v++) z[v] = value_at(0, r * V + v, -2, 2);
        if (weights[r] > 0)
            loss += (double)weights[r] * smooth_row(z, V, targets[r], share, expected);
        for (int v = 0; v < V; v++) {
            double is = trial_get(&x, r * V + v), factor = 0.5 * (double)weights[r];
            if (!(fabs(is - factor * expected[v]) < (weights[r] > 0 ? 1e-6 : 1e-300)))
                fail_msg("%d classes, row %d, %d: %.9g, not %.9g", V, (int)r, v, is,
                         factor * expected[v]);
        }
    }
    assert_true(fabs(sums[ECH_LOSS_SUM] - loss) < 1e-6 * (1 + fabs(loss)));
    assert_true(sums[ECH_LOSS_WEIGHT] == 1.5);
}

TEST(smoothed_targets_by_definition)
{
    static const double shares[] = {0, 0.1, 1};
    static const int classes[] = {1, 7, MOST_CLASSES};
    for (int k = 0; k < 27; k++) {
        const ech_kernels *kernels = table_of(k % 3);
        if (!kernels->smooth_gradient) continue; /* GPUs', as test_devices.c says */
        check_smooth(kernels, classes[k / 9], shares[k / 3 % 3]);
    }
}

/* A row of weight 0 may hold anything, even a target outside of the vocabulary. */
TEST(rows_without_weight)
{
    enum { R = 3, V = 40 };
    for (int k = 0; k < 3; k++)
        for (int gradient = 0; gradient < 2; gradient++) {
            const ech_kernels *kernels = table_of(k);
            double memory[R * V], sums[2] = {0}, alone[2] = {0};
            int32_t targets[R] = {3, -1, 5};
            float weights[R] = {1, 0, 1};
            ech_tensor logits = ech_tensor_2d(memory, kernels->dtype, R, V);
            for (int64_t i = 0; i < R * V; i++)
                trial_set(&logits, i, i / V == 1 ? (double)NAN : value_at(0, i % V, -1, 1));
            run_loss(kernels, R, V, memory, targets, weights, gradient, sums);
            for (int64_t i = V; gradient && i < 2 * V; i++) assert_true(trial_get(&logits, i) == 0);
            for (int64_t i = 0; i < V; i++) assert_true(isfinite(trial_get(&logits, i)));
            for (int64_t i = 0; i < 2 * V; i++) trial_set(&logits, i, value_at(0, i % V, -1, 1));
            targets[1] = 5;
            weights[1] = 1;
            run_loss(kernels, 2, V, memory, targets, weights, false, alone);
            assert_true(sums[0] == alone[0] && sums[1] == 2);
        }
}

/* Of equal logits the lower id comes first; a NaN is not found; a row without weight does not
 * count. */
TEST(hits_by_order)
{
    enum { R = 7, V = 6 };
    static const double nan = (double)NAN;
    static const double rows[R][V] = {
        {0, 1, 5, 2, 3, 4},   {5, 1, 5, 2, 3, 4},   {5, 1, 5, 2, 3, 4}, {0, 1, 5, 2, 3, 4},
        {0, 1, nan, 2, 3, 4}, {nan, 1, 5, 2, 3, 4}, {9, 1, 5, 2, 3, 4}};
    int32_t targets[R] = {2, 2, 0, 0, 2, 2, 0};
    float weights[R] = {1, 2, 4, 8, 16, 32, 0};
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
    for (int k = 0; k < 3; k++) {
        const ech_kernels *kernels = table_of(k);
        double memory[R * V], sums[ECH_HITS] = {100, 200};
        ech_tensor logits = ech_tensor_2d(memory, kernels->dtype, R, V);
        ech_tensor target = ech_tensor_1d(targets, ECH_I32, R);
        ech_tensor weight = ech_tensor_1d(weights, ECH_F32, R);
        ech_tensor sum = ech_tensor_1d(sums, ECH_F64, ECH_HITS);
        if (!kernels->class_hits) continue; /* GPUs', as test_devices.c says */
        for (int64_t i = 0; i < R * V; i++) trial_set(&logits, i, rows[i / V][i % V]);
        kernels->class_hits(context, &logits, &target, &weight, &sum);
        assert_true(sums[ECH_HITS_OF_1] == 100 + 1 + 4 + 32);
        assert_true(sums[ECH_HITS_OF_5] == 200 + 1 + 2 + 4 + 32);
    }
    ech_kernel_context_destroy(context);
}

/* With weight, a NaN or an infinity reaches the sum and the row's gradient, and no other row's. */
TEST(nonfinite_logits_are_seen)
{
    enum { R = 3, V = 40 };
    static const double bad[] = {(double)NAN, (double)INFINITY};
    for (int k = 0; k < 3; k++)
        for (int kind = 0; kind < 2; kind++) {
            const ech_kernels *kernels = table_of(k);
            double memory[R * V], sums[2] = {0};
            ech_tensor logits = ech_tensor_2d(memory, kernels->dtype, R, V);
            for (int64_t i = 0; i < R * V; i++) trial_set(&logits, i, value_at(0, i, -1, 1));
            trial_set(&logits, V + 7, bad[kind]);
            run_loss(kernels, R, V, memory, (int32_t[R]){3, 4, 5}, (float[R]){1, 1, 1}, true, sums);
            assert_true(!isfinite(sums[ECH_LOSS_SUM]));
            assert_true(sums[ECH_LOSS_WEIGHT] == 3);
            assert_true(isnan(trial_get(&logits, V + 7)));
            for (int64_t i = 0; i < V; i++) {
                assert_true(isfinite(trial_get(&logits, i)));
                assert_true(isfinite(trial_get(&logits, 2 * V + i)));
            }
        }
}
