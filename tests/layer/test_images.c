/* SPDX-License-Identifier: Apache-2.0
 *
 * A small convolutional network in fp64 against loss and gradients that PyTorch has computed
 * (tests/oracle/make_images.py), and the running statistics after one step's commit.
 */
#include "layer/recorded_images.h"
#include "layer/runner.h"
#include "unit.h"

enum { B = 2, C = 3, H = 6, W = 5, O = 4, CLASSES = 5, FLAT = 4 * O };
enum { WEIGHT, BIAS, GAIN, SHIFT, FC_WEIGHT, FC_BIAS, MEAN, VARIANCE };

static double value_of(int stream, int64_t i)
{
    return sin(1 + stream + 0.7 * (double)i);
}

/* Where PyTorch has element i of images (B,H,W,C): in (B,C,H,W). */
static int64_t channels_first(int64_t i)
{
    int64_t c = i % C, pixel = i / C % (H * W), b = i / (C * H * W);
    return (b * C + c) * H * W + pixel;
}

static void build(runner *r, double smoothing)
{
    const ech_filter nine = {{3, 3}, {2, 2}, {1, 1}}, four = {{2, 2}, {1, 1}, {0, 0}};
    const ech_shape filters = {
        .dims = 4,
        .axis = {ECH_AXIS_CHANNELS, ECH_AXIS_CHANNELS, ECH_AXIS_HEIGHT, ECH_AXIS_WIDTH},
        .size = {O, C, 3, 3}};
    ech_layer_batch_norm_args norm = {GAIN, SHIFT, MEAN, VARIANCE, 0, B, 1e-5};
    ech_block *block = r->block;
    runner_param(r, filters);
    for (int p = BIAS; p <= SHIFT; p++) runner_param(r, ech_shape_1d(ECH_AXIS_CHANNELS, O));
    runner_param(r, ech_shape_2d(ECH_AXIS_VOCAB, CLASSES, ECH_AXIS_MODEL, FLAT));
    runner_param(r, ech_shape_1d(ECH_AXIS_VOCAB, CLASSES));
    runner_state(r, O);
    runner_state(r, O);
    int x = ech_block_input(block, "x", ech_shape_images(H, W, C));
    x = ech_layer_conv2d(block, x, WEIGHT, BIAS, &nine, O);
    x = ech_layer_batch_norm(block, x, &norm);
    x = ech_layer_activation(block, ECH_ACTIVATION_RELU, x, -1);
    x = ech_layer_flatten(block, ech_layer_max_pool(block, x, &four));
    ech_layer_classes_loss(block, x, FC_WEIGHT, FC_BIAS, CLASSES, smoothing);
}

static void fill(runner *r)
{
    static const int32_t targets[B] = {3, 1};
    double *x = r->value[r->block->input.at[0]];
    for (int64_t i = 0; i < B * H * W * C; i++) x[i] = value_of(0, channels_first(i));
    for (int p = WEIGHT; p <= FC_BIAS; p++) {
        int64_t n = ech_shape_count(&r->param_shape[p], r->extent);
        for (int64_t i = 0; i < n; i++) r->param[p][i] = value_of(1 + p, i);
    }
    for (int c = 0; c < O; c++) {
        r->param[MEAN][c] = 0;
        r->param[VARIANCE][c] = 1;
    }
    for (size_t v = 0; v < r->block->value.n; v++) {
        const ech_block_value *value = &r->block->value.at[v];
        if (value->source != ECH_FROM_BATCH) continue;
        for (int b = 0; b < B; b++) {
            if (value->slot == ECH_TARGETS) ((int32_t *)(void *)r->value[v])[b] = targets[b];
            if (value->slot == ECH_WEIGHTS) ((float *)(void *)r->value[v])[b] = 1;
        }
    }
    r->scale = 1.0 / B;
}

static void check(const char *what, const double *x, const double *expected, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(x[i] - expected[i]) <= 1e-12))
            fail_msg("%s[%lld]: %.17g, PyTorch has %.17g", what, (long long)i, x[i], expected[i]);
}

#define CHECK(what, x) check(#what, x, recorded_##what, sizeof recorded_##what / sizeof(double))

static void commit(const runner *r, int state)
{
    const ech_param param = {.commit = ech_layer_batch_norm_commit, .commit_rate = 0.1};
    const ech_update update = {0};
    const ech_tensor to = ech_tensor_1d(r->param[state], ECH_F64, O);
    const ech_tensor sum = ech_tensor_1d(r->dparam[state], ECH_F64, O);
    param.commit(&(ech_commit){&param, r->kernels, r->context, &to, &sum, &update});
}

TEST(a_network_has_the_gradients_of_pytorch)
{
    runner r = runner_open(B, 1);
    build(&r, 0);
    runner_finish(&r);
    fill(&r);
    runner_run(&r, ECH_FORWARD);
    runner_run(&r, ECH_BACKWARD_INPUT);
    runner_run(&r, ECH_BACKWARD_WEIGHT);
    double loss = r.sums[ECH_LOSS_SUM] / B, dx[B * H * W * C];
    for (int64_t i = 0; i < B * H * W * C; i++)
        dx[channels_first(i)] = r.value[r.block->dinput.at[0]][i];
    CHECK(loss, &loss);
    CHECK(x, dx);
    CHECK(weight, r.dparam[WEIGHT]);
    CHECK(bias, r.dparam[BIAS]);
    CHECK(gain, r.dparam[GAIN]);
    CHECK(shift, r.dparam[SHIFT]);
    CHECK(fc_weight, r.dparam[FC_WEIGHT]);
    CHECK(fc_bias, r.dparam[FC_BIAS]);
    commit(&r, MEAN);
    commit(&r, VARIANCE);
    CHECK(running_mean, r.param[MEAN]);
    CHECK(running_variance, r.param[VARIANCE]);
    runner_close(&r);
}

static double loss_of(ech_purpose purpose, double smoothing)
{
    runner r = runner_open(B, 1);
    build(&r, smoothing);
    runner_finish(&r);
    fill(&r);
    r.purpose = purpose;
    runner_run(&r, ECH_FORWARD);
    if (purpose == ECH_TRAIN) runner_run(&r, ECH_BACKWARD_INPUT);
    double loss = r.sums[ECH_LOSS_SUM];
    runner_close(&r);
    return loss;
}

TEST(validation_does_not_smooth_targets)
{
    assert_true(loss_of(ECH_TRAIN, 0.1) != loss_of(ECH_TRAIN, 0));
    assert_true(loss_of(ECH_EVALUATE, 0.1) == loss_of(ECH_EVALUATE, 0));
}

/* Outside of training the running statistics normalize, and nothing is counted. */
TEST(running_statistics_normalize_in_evaluation)
{
    runner r = runner_open(B, 1);
    ech_layer_batch_norm_args norm = {.step_samples = B, .eps = 0};
    norm.gain = runner_param(&r, ech_shape_1d(ECH_AXIS_CHANNELS, C));
    norm.bias = runner_param(&r, ech_shape_1d(ECH_AXIS_CHANNELS, C));
    norm.running_mean = runner_state(&r, C);
    norm.running_variance = runner_state(&r, C);
    int x = ech_block_input(r.block, "x", ech_shape_images(H, W, C));
    int y = ech_layer_batch_norm(r.block, x, &norm);
    ech_block_output(r.block, y);
    runner_finish(&r);
    for (int c = 0; c < C; c++) r.param[norm.running_variance][c] = 4 + c;
    r.purpose = ECH_EVALUATE;
    runner_run(&r, ECH_FORWARD);
    for (int64_t i = 0; i < B * H * W * C; i++) {
        int64_t c = i % C;
        double z = (r.value[x][i] - r.param[norm.running_mean][c]) / sqrt((double)(4 + c));
        double expected = z * r.param[norm.gain][c] + r.param[norm.bias][c];
        assert_true(fabs(r.value[y][i] - expected) <= 1e-12);
    }
    for (int c = 0; c < C; c++) assert_true(r.dparam[norm.running_mean][c] == 0);
    runner_close(&r);
}
