/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels of images: fast against definition for sizes that no vector divides, single pixels and
 * channels; and what the definition promises.
 */
#include "kernel/trial.h"

typedef struct shape {
    int64_t B, H, W, C, O;
    ech_filter at;
} shape;

static const shape shapes[] = {
    {1, 1, 1, 1, 1, {{1, 1}, {1, 1}, {0, 0}}},
    {2, 5, 7, 3, 5, {{3, 3}, {1, 1}, {1, 1}}},
    {3, 8, 8, 16, 17, {{3, 3}, {2, 2}, {1, 1}}},
    {1, 9, 6, 1, 8, {{5, 3}, {2, 1}, {2, 1}}},
    {2, 7, 7, 19, 4, {{1, 7}, {1, 1}, {0, 3}}},
    {2, 7, 7, 4, 19, {{7, 1}, {1, 1}, {3, 0}}},
    {2, 6, 6, 32, 16, {{1, 1}, {2, 2}, {0, 0}}},
    {1, 11, 13, 3, 6, {{7, 7}, {2, 2}, {3, 3}}},
    {2, 1, 1, 5, 9, {{3, 3}, {1, 1}, {1, 1}}},
    {4, 4, 4, 64, 48, {{3, 3}, {1, 1}, {1, 1}}},
    {1, 6, 5, 2, 3, {{2, 3}, {3, 2}, {0, 0}}},
    {4, 32, 32, 4, 8, {{1, 1}, {2, 2}, {0, 0}}},
    {2, 9, 9, 7, 8, {{1, 1}, {2, 2}, {0, 0}}},
    {2, 9, 9, 15, 8, {{1, 1}, {1, 2}, {0, 0}}},
    /* as products of pixels, some of a batch larger than what is gathered at a time */
    {33, 2, 2, 67, 70, {{3, 3}, {1, 1}, {1, 1}}},
    {32, 4, 5, 64, 65, {{2, 3}, {2, 2}, {1, 1}}},
    {513, 1, 1, 64, 64, {{1, 3}, {1, 1}, {0, 1}}},
    {32, 5, 4, 128, 128, {{1, 2}, {1, 1}, {0, 1}}},
    /* by strips: of fewer images than are copied at a time, and of more */
    {5, 12, 12, 65, 64, {{3, 3}, {1, 1}, {1, 1}}},
    {3, 1, 513, 64, 66, {{3, 3}, {1, 1}, {1, 1}}},
};

static int64_t out_rows(const shape *s)
{
    return ech_filter_output(&s->at, 0, s->H);
}

static int64_t out_columns(const shape *s)
{
    return ech_filter_output(&s->at, 1, s->W);
}

#define DIMS(s, bias)                                                                              \
    {                                                                                              \
        s->B, s->H, s->W, s->C, s->O, s->at.size[0], s->at.size[1], s->at.stride[0],               \
            s->at.stride[1], s->at.padding[0], s->at.padding[1], bias                              \
    }
#define IMAGES(s)  TRIAL_4D(s->B, s->H, s->W, s->C)
#define WEIGHTS(s) TRIAL_4D(s->O, s->C, s->at.size[0], s->at.size[1])
#define OUTPUTS(s) TRIAL_4D(s->B, out_rows(s), out_columns(s), s->O)
#define POOLED(s)  TRIAL_4D(s->B, out_rows(s), out_columns(s), s->C)
#define CHOICES(s) .type = TRIAL_FIXED, .dtype = ECH_U8, POOLED(s)

typedef struct image_options {
    ech_filter at;
    bool accumulate;
    double eps, factor;
    int64_t samples;
} image_options;

TRIAL_CALL_WITH(image_options, conv2d_forward, t[0], t[1], t[2], &o->at, t[3])
TRIAL_CALL_WITH(image_options, conv2d_backward_input, t[0], t[1], &o->at, t[2])
TRIAL_CALL_WITH(image_options, conv2d_backward_weight, t[0], t[1], &o->at, o->accumulate, t[2])
TRIAL_CALL_WITH(image_options, max_pool_forward, t[0], &o->at, t[1], t[2])
TRIAL_CALL_WITH(image_options, max_pool_backward, t[0], t[1], &o->at, t[2])
TRIAL_CALL_WITH(image_options, mean_pool_forward, t[0], &o->at, t[1])
TRIAL_CALL_WITH(image_options, mean_pool_backward, t[0], &o->at, t[1])
TRIAL_CALL(transpose, t[0], t[1])
TRIAL_CALL_WITH(image_options, batch_norm_statistics, t[0], o->samples, t[1], t[2])
TRIAL_CALL_WITH(image_options, batch_norm_forward, t[0], t[1], t[2], t[3], t[4], o->eps, t[5])
TRIAL_CALL_WITH(image_options, batch_norm_backward, t[0], t[1], o->samples, t[2], t[3], t[4],
                o->eps, t[5], o->accumulate, t[6], t[7])
TRIAL_CALL(batch_norm_merge, t[0], t[1], t[2])
TRIAL_CALL_WITH(image_options, batch_norm_sums, t[0], t[1], t[2], t[3], o->eps, t[4], o->accumulate,
                t[5], t[6])
TRIAL_CALL_WITH(image_options, batch_norm_input, t[0], t[1], t[2], t[3], t[4], t[5],
                3 * t[0]->shape[0], o->eps, t[6])
TRIAL_CALL_WITH(image_options, batch_norm_partial, t[0], o->factor, o->accumulate, t[1])

TEST(convolutions_agree_with_the_definition)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const shape *s = &shapes[i];
        const image_options with = {.at = s->at, .accumulate = i % 2};
        const trial trials[] = {
            {.name = "convolution",
             .op = ECH_OP_conv2d_forward,
             .call = call_conv2d_forward,
             .options = &with,
             .dims = DIMS(s, i % 3 > 0),
             .tolerance = 1e-5,
             .depends_on_threads = true,
             .is_library = true,
             .spreads = true,
             .large = 1e15,
             .tensor = {TRIAL_INPUT(IMAGES(s)),
                        TRIAL_INPUT(WEIGHTS(s)),
                        {.role = i % 3 ? TRIAL_IN : TRIAL_ABSENT,
                         TRIAL_1D(s->O),
                         .low = -1,
                         .high = 1,
                         .type = TRIAL_WIDE},
                        TRIAL_RESULT(OUTPUTS(s))}},
            {.name = "convolution, gradient of the input",
             .op = ECH_OP_conv2d_backward_input,
             .call = call_conv2d_backward_input,
             .options = &with,
             .dims = DIMS(s, false),
             .tolerance = 1e-5,
             .depends_on_threads = true,
             .is_library = true,
             .spreads = true,
             .large = 1e15,
             .tensor = {TRIAL_INPUT(OUTPUTS(s)), TRIAL_INPUT(WEIGHTS(s)), TRIAL_RESULT(IMAGES(s))}},
            {.name = "convolution, gradient of the weights",
             .op = ECH_OP_conv2d_backward_weight,
             .call = call_conv2d_backward_weight,
             .options = &with,
             .dims = DIMS(s, false),
             .tolerance = 1e-5,
             .depends_on_threads = true,
             .is_library = true,
             .spreads = true,
             .large = 1e15,
             .tensor = {TRIAL_INPUT(OUTPUTS(s)),
                        TRIAL_INPUT(IMAGES(s)),
                        {.role = with.accumulate ? TRIAL_IN_OUT : TRIAL_OUT,
                         .low = -1,
                         .high = 1,
                         .type = TRIAL_EITHER,
                         WEIGHTS(s)}}},
        };
        trial_check_all(trials, TRIAL_COUNT(trials));
    }
}

TEST(pools_agree_with_the_definition)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const shape *s = &shapes[i];
        const image_options with = {.at = s->at};
        double cells = (double)(s->at.size[0] * s->at.size[1]);
        const trial trials[] = {
            {.name = "largest",
             .op = ECH_OP_max_pool_forward,
             .call = call_max_pool_forward,
             .options = &with,
             .tolerance = 1e-7,
             .tensor = {TRIAL_INPUT(IMAGES(s)), TRIAL_RESULT(POOLED(s)), TRIAL_RESULT(CHOICES(s))}},
            {.name = "largest, backward",
             .op = ECH_OP_max_pool_backward,
             .call = call_max_pool_backward,
             .options = &with,
             .tolerance = 1e-6,
             .tensor = {TRIAL_INPUT(POOLED(s)),
                        {.role = TRIAL_IN, .low = 0, .high = cells, CHOICES(s)},
                        TRIAL_RESULT(IMAGES(s))}},
            {.name = "mean",
             .op = ECH_OP_mean_pool_forward,
             .call = call_mean_pool_forward,
             .options = &with,
             .tolerance = 1e-6,
             .tensor = {TRIAL_INPUT(IMAGES(s)), TRIAL_RESULT(POOLED(s))}},
            {.name = "mean, backward",
             .op = ECH_OP_mean_pool_backward,
             .call = call_mean_pool_backward,
             .options = &with,
             .tolerance = 1e-6,
             .tensor = {TRIAL_INPUT(POOLED(s)), TRIAL_RESULT(IMAGES(s))}},
            {.name = "transposition",
             .op = ECH_OP_transpose,
             .call = call_transpose,
             .tolerance = 1e-7,
             .tensor = {TRIAL_INPUT(TRIAL_3D(s->B, s->H * s->W, s->O)),
                        TRIAL_RESULT(TRIAL_3D(s->B, s->O, s->H * s->W))}},
        };
        trial_check_all(trials, TRIAL_COUNT(trials));
    }
}

/* The first row is far from the mean of the others. */
static void call_outliers(const ech_kernels *kernels, ech_kernel_context *context,
                          const ech_tensor *const *t, const void *options)
{
    const image_options *o = options;
    for (int64_t c = 0; c < t[0]->shape[1]; c++) trial_set(t[0], c, 1000);
    kernels->batch_norm_statistics(context, t[0], o->samples, t[1], t[2]);
}

TEST(statistics_hold_beside_an_outlier)
{
    const image_options with = {.samples = 1};
    const trial trials[] = {{.name = "statistics beside an outlier",
                             .op = ECH_OP_batch_norm_statistics,
                             .call = call_outliers,
                             .options = &with,
                             .dims = {4096, 3, 1},
                             .tolerance = 1e-5,
                             .tensor = {TRIAL_INPUT(TRIAL_2D(4096, 3)),
                                        TRIAL_RESULT(TRIAL_2D(1, 3), .type = TRIAL_WIDE),
                                        TRIAL_RESULT(TRIAL_2D(1, 3), .type = TRIAL_WIDE)}}};
    trial_check_all(trials, TRIAL_COUNT(trials));
}

/* G groups of `samples` samples with n rows each. The backward reads the statistics of a group's
 * first sample. */
static void check_norm(int64_t G, int64_t samples, int64_t n, int64_t C, bool accumulate)
{
    int64_t S = G * samples;
    const image_options with = {
        .eps = 1e-5, .accumulate = accumulate, .factor = 0.25, .samples = samples};
    trial_role sums = accumulate ? TRIAL_IN_OUT : TRIAL_OUT;
    const trial trials[] = {
        {.name = "statistics of groups",
         .op = ECH_OP_batch_norm_statistics,
         .call = call_batch_norm_statistics,
         .options = &with,
         .dims = {S * n, C, G},
         .tolerance = 1e-5,
         .spreads = true,
         .large = 1e3,
         .tensor = {TRIAL_INPUT(TRIAL_2D(S * n, C)),
                    TRIAL_RESULT(TRIAL_2D(S, C), .type = TRIAL_WIDE),
                    TRIAL_RESULT(TRIAL_2D(S, C), .type = TRIAL_WIDE)}},
        {.name = "batch norm",
         .op = ECH_OP_batch_norm_forward,
         .call = call_batch_norm_forward,
         .options = &with,
         .tolerance = 1e-5,
         .large = 1e9,
         .tensor = {TRIAL_INPUT(TRIAL_2D(S * n, C)),
                    TRIAL_INPUT(TRIAL_2D(S, C), .type = TRIAL_WIDE),
                    {.role = TRIAL_IN, TRIAL_2D(S, C), .low = 0.5, .high = 2, .type = TRIAL_WIDE},
                    TRIAL_INPUT(TRIAL_1D(C), .type = TRIAL_WIDE),
                    TRIAL_INPUT(TRIAL_1D(C), .type = TRIAL_WIDE),
                    TRIAL_RESULT(TRIAL_2D(S * n, C))}},
        {.name = "batch norm, backward",
         .op = ECH_OP_batch_norm_backward,
         .call = call_batch_norm_backward,
         .options = &with,
         .dims = {S * n, C, G},
         .tolerance = 1e-5,
         .spreads = true,
         .large = 1e3,
         .tensor = {TRIAL_INPUT(TRIAL_2D(S * n, C)),
                    TRIAL_INPUT(TRIAL_2D(S * n, C)),
                    TRIAL_INPUT(TRIAL_2D(S, C), .type = TRIAL_WIDE),
                    {.role = TRIAL_IN, TRIAL_2D(S, C), .low = 0.5, .high = 2, .type = TRIAL_WIDE},
                    TRIAL_INPUT(TRIAL_1D(C), .type = TRIAL_WIDE),
                    TRIAL_RESULT(TRIAL_2D(S * n, C)),
                    {.role = sums, TRIAL_1D(C), .low = -1, .high = 1, .type = TRIAL_EITHER},
                    {.role = sums, TRIAL_1D(C), .low = -1, .high = 1, .type = TRIAL_EITHER}}},
        {.name = "sum of groups",
         .op = ECH_OP_batch_norm_partial,
         .call = call_batch_norm_partial,
         .options = &with,
         .tolerance = 1e-6,
         .tensor = {TRIAL_INPUT(TRIAL_2D(S, C), .type = TRIAL_WIDE),
                    {.role = sums,
                     TRIAL_1D(C),
                     .low = -1,
                     .high = 1,
                     .type = TRIAL_FIXED,
                     .dtype = ECH_F64}}},
    };
    trial_check_all(trials, TRIAL_COUNT(trials));
    trial in_place = trials[1];
    in_place.name = "batch norm in place";
    in_place.tensor[0].role = TRIAL_IN_OUT;
    in_place.tensor[5] = in_place.tensor[0];
    in_place.tensor[5].alias = 1;
    trial_check(&in_place);
}

/* Statistics of D replicas; `samples` samples with n rows each. */
static void check_sync(int64_t D, int64_t samples, int64_t n, int64_t C, bool accumulate)
{
    int64_t R = samples * n;
    const image_options with = {.eps = 1e-5, .accumulate = accumulate};
    trial_role sums = accumulate ? TRIAL_IN_OUT : TRIAL_OUT;
    const trial trials[] = {
        {.name = "statistics of replicas",
         .op = ECH_OP_batch_norm_merge,
         .call = call_batch_norm_merge,
         .tolerance = 1e-6,
         .tensor = {TRIAL_INPUT(TRIAL_2D(2 * D, C), .type = TRIAL_WIDE),
                    TRIAL_RESULT(TRIAL_2D(samples, C), .type = TRIAL_WIDE),
                    TRIAL_RESULT(TRIAL_2D(samples, C), .type = TRIAL_WIDE)}},
        {.name = "sums for the gradient",
         .op = ECH_OP_batch_norm_sums,
         .call = call_batch_norm_sums,
         .options = &with,
         .dims = {R, C, 1},
         .tolerance = 1e-5,
         .spreads = true,
         .large = 1e3,
         .tensor =
             {TRIAL_INPUT(TRIAL_2D(R, C)),
              TRIAL_INPUT(TRIAL_2D(R, C)),
              TRIAL_INPUT(TRIAL_2D(samples, C), .type = TRIAL_WIDE),
              {.role = TRIAL_IN, TRIAL_2D(samples, C), .low = 0.5, .high = 2, .type = TRIAL_WIDE},
              TRIAL_RESULT(TRIAL_2D(2, C), .type = TRIAL_WIDE),
              {.role = sums, TRIAL_1D(C), .low = -1, .high = 1, .type = TRIAL_EITHER},
              {.role = sums, TRIAL_1D(C), .low = -1, .high = 1, .type = TRIAL_EITHER}}},
        {.name = "gradient from sums",
         .op = ECH_OP_batch_norm_input,
         .call = call_batch_norm_input,
         .options = &with,
         .tolerance = 1e-5,
         .large = 1e3,
         .tensor =
             {TRIAL_INPUT(TRIAL_2D(R, C)),
              TRIAL_INPUT(TRIAL_2D(R, C)),
              TRIAL_INPUT(TRIAL_2D(samples, C), .type = TRIAL_WIDE),
              {.role = TRIAL_IN, TRIAL_2D(samples, C), .low = 0.5, .high = 2, .type = TRIAL_WIDE},
              TRIAL_INPUT(TRIAL_1D(C), .type = TRIAL_WIDE),
              TRIAL_INPUT(TRIAL_2D(2, C), .type = TRIAL_WIDE),
              TRIAL_RESULT(TRIAL_2D(R, C))}},
    };
    trial_check_all(trials, TRIAL_COUNT(trials));
}

TEST(synchronized_norms_agree_with_the_definition)
{
    check_sync(1, 1, 1, 1, false);
    check_sync(2, 4, 16, 16, true);
    check_sync(3, 1, 65, 17, false);
    check_sync(8, 2, 100, 300, true);
}

TEST(batch_norms_agree_with_the_definition)
{
    check_norm(1, 1, 1, 1, false);
    check_norm(1, 4, 16, 16, true);
    check_norm(2, 1, 65, 17, false);
    check_norm(3, 2, 100, 33, true);
    check_norm(4, 3, 3, 3, true);
}

TEST(a_batch_norm_is_centred_and_scaled)
{
    enum { R = 6, C = 2 };
    double x[R * C], y[R * C], mean[2 * C], variance[2 * C];
    const double gain[C] = {2, 3}, bias[C] = {-1, 5};
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
    for (int i = 0; i < R * C; i++) x[i] = value_at(0, i, -3, 8);
    const ech_kernels *ref = ech_kernels_ref(ECH_F64);
    const ech_tensor in = ech_tensor_2d(x, ECH_F64, R, C), out = ech_tensor_2d(y, ECH_F64, R, C);
    const ech_tensor m = ech_tensor_2d(mean, ECH_F64, 2, C);
    const ech_tensor v = ech_tensor_2d(variance, ECH_F64, 2, C);
    const ech_tensor a = ech_tensor_1d((void *)gain, ECH_F64, C);
    const ech_tensor b = ech_tensor_1d((void *)bias, ECH_F64, C);
    ref->batch_norm_statistics(context, &in, 1, &m, &v);
    ref->batch_norm_forward(context, &in, &m, &v, &a, &b, 0, &out);
    for (int g = 0; g < 2; g++)
        for (int c = 0; c < C; c++) {
            double sum = 0, squares = 0;
            for (int r = 3 * g; r < 3 * g + 3; r++) {
                sum += y[r * C + c];
                squares += (y[r * C + c] - bias[c]) * (y[r * C + c] - bias[c]);
            }
            assert_true(fabs(sum / 3 - (bias[c])) <= 1e-12);
            assert_true(fabs(squares / 3 - (gain[c] * gain[c])) <= 1e-12);
        }
    ech_kernel_context_destroy(context);
}

/* moving = 0.75 moving + 0.25 sum; a withheld update changes nothing. */
TEST(a_commit_moves_towards_the_sum)
{
    double moving[] = {4, -8}, sum[] = {8, 0}, withheld = 1;
    const ech_tensor to = ech_tensor_1d(moving, ECH_F64, 2), from = ech_tensor_1d(sum, ECH_F64, 2);
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
    ech_update update = {.withheld = &withheld};
    ech_kernels_ref(ECH_F64)->batch_norm_commit(context, &from, 0.25, &update, &to);
    assert_true(fabs(moving[0] - (4)) <= 0);
    withheld = 0;
    ech_kernels_ref(ECH_F64)->batch_norm_commit(context, &from, 0.25, &update, &to);
    assert_true(fabs(moving[0] - (5)) <= 0);
    assert_true(fabs(moving[1] - (-6)) <= 0);
    ech_kernel_context_destroy(context);
}

/* The largest of equal pixels is the first, padding is never one, and NaN wins. */
TEST(the_largest_pixel_is_the_first)
{
    const float x[] = {-1, -1, -2, -1, -3, -4, -5, (float)NAN, -6};
    const uint8_t expected[] = {4, 3, 2, 1};
    float y[4];
    uint8_t chosen[4];
    const ech_filter at = {{3, 3}, {2, 2}, {1, 1}};
    const ech_tensor in = ech_tensor_view((void *)x, ECH_F32, 4, (int64_t[]){1, 3, 3, 1});
    const ech_tensor out = ech_tensor_view(y, ECH_F32, 4, (int64_t[]){1, 2, 2, 1});
    const ech_tensor which = ech_tensor_view(chosen, ECH_U8, 4, (int64_t[]){1, 2, 2, 1});
    const ech_kernels *tables[] = {ech_kernels_ref(ECH_F32), ech_kernels_fast(ECH_F32)};
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
    for (int t = 0; t < 2; t++) {
        tables[t]->max_pool_forward(context, &in, &at, &out, &which);
        assert_true(fabs((double)y[0] - (-1)) <= 0);
        assert_int_equal(chosen[0], expected[0]);
        assert_int_equal(chosen[1], expected[1]);
        assert_true(isnan(y[2]) && isnan(y[3]));
    }
    ech_kernel_context_destroy(context);
}
