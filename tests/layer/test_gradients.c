/* SPDX-License-Identifier: Apache-2.0
 *
 * Every layer against finite differences in fp64: the gradient of each input (B) and of each
 * parameter (B or W), alone and in blocks where gradients meet. Other tests run B and W separately,
 * and check that accumulation adds.
 */

#include "base/text.h"
#include "layer/runner.h"
#include "unit.h"

static double difference(runner *r, double *x)
{
    double was = *x, h = 1e-5 * (fabs(was) + 0.1);
    *x = was + h;
    double up = runner_objective(r);
    *x = was - h;
    double down = runner_objective(r);
    *x = was;
    return (up - down) / (2 * h);
}

/* What rounding of the objective leaves of a difference is about 1e-16 x 100 / 1e-6. */
static void check(runner *r, const char *what, double *x, const double *dx, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double expected = difference(r, &x[i]);
        double error = fabs(dx[i] - expected) / (fabs(expected) + 1e-2);
        if (!(error < 5e-6))
            fail_msg("%s[%lld]: %.12g, differences say %.12g", what, (long long)i, dx[i], expected);
    }
}

static void check_block(runner *r)
{
    runner_finish(r);
    runner_run(r, ECH_FORWARD);
    runner_run(r, ECH_BACKWARD_INPUT);
    runner_run(r, ECH_BACKWARD_WEIGHT);

    /* A second pass over the same values accumulates. */
    double *once[RUNNER_PARAMS];
    for (int p = 0; p < r->params; p++) {
        int64_t n = ech_shape_count(&r->param_shape[p], r->extent);
        once[p] = ech_calloc((size_t)n, sizeof(double));
        memcpy(once[p], r->dparam[p], (size_t)n * sizeof(double));
    }
    runner_run(r, ECH_FORWARD);
    runner_run(r, ECH_BACKWARD_INPUT);
    runner_run(r, ECH_BACKWARD_WEIGHT);
    for (int p = 0; p < r->params; p++) {
        int64_t n = ech_shape_count(&r->param_shape[p], r->extent);
        assert_true(r->written[p]);
        for (int64_t i = 0; i < n; i++)
            assert_true(fabs(r->dparam[p][i] - 2 * once[p][i]) <= 1e-12 * (1 + fabs(once[p][i])));
    }
    for (int p = 0; p < r->params; p++) {
        int64_t n = ech_shape_count(&r->param_shape[p], r->extent);
        if (!r->is_state[p]) check(r, "parameter", r->param[p], once[p], n);
        free(once[p]);
    }
    for (size_t i = 0; i < r->block->input.n; i++) {
        int input = r->block->input.at[i], gradient = r->block->dinput.at[i];
        assert_true(gradient >= 0);
        int64_t n = runner_count(r, input);
        double *dx = ech_calloc((size_t)n, sizeof(double));
        memcpy(dx, r->value[gradient], (size_t)n * sizeof(double));
        check(r, "input", r->value[input], dx, n);
        free(dx);
    }
    runner_close(r);
}

enum { B = 2, T = 5, C = 8 };

static ech_shape rows(int64_t n)
{
    return ech_shape_rows(ECH_AXIS_MODEL, n);
}
static int vector(runner *r, int64_t n)
{
    return runner_param(r, ech_shape_1d(ECH_AXIS_MODEL, n));
}
static int matrix(runner *r, int64_t a, int64_t b)
{
    return runner_param(r, ech_shape_2d(ECH_AXIS_MODEL, a, ECH_AXIS_FFN, b));
}
static int input(runner *r)
{
    return ech_block_input(r->block, "x", rows(C));
}

/* A block whose samples are several documents. */
static runner open_documents(bool several)
{
    runner r = runner_open(B, T);
    r.block->options.documents = several;
    return r;
}

TEST(test_embedding)
{
    for (int documents = 0; documents < 2; documents++) {
        runner r = open_documents(documents);
        int ids = ech_block_batch(r.block, ECH_TOKENS);
        int y = ech_layer_embedding(r.block, ids, matrix(&r, 6, C), C);
        ech_block_output(r.block, ech_layer_position(r.block, y, matrix(&r, T + 2, C),
                                                     ech_block_starts(r.block)));
        check_block(&r);
    }
}

TEST(test_position)
{
    for (int documents = 0; documents < 2; documents++) {
        runner r = open_documents(documents);
        ech_block_output(r.block, ech_layer_position(r.block, input(&r), matrix(&r, T, C),
                                                     ech_block_starts(r.block)));
        check_block(&r);
    }
}

TEST(test_norms)
{
    runner r = runner_open(B, T);
    ech_block_output(r.block,
                     ech_layer_layernorm(r.block, input(&r), vector(&r, C), vector(&r, C), 1e-5));
    check_block(&r);
    r = runner_open(B, T);
    ech_block_output(r.block, ech_layer_rmsnorm(r.block, input(&r), vector(&r, C), 0, 1e-5));
    check_block(&r);
}

/* Of each head of a product's columns by itself, with one gain. */
TEST(test_norms_of_heads)
{
    enum { H = 4, D = 6 };
    runner r = runner_open(B, T);
    int gain = runner_param(&r, ech_shape_1d(ECH_AXIS_HEAD_DIM, D));
    int x = ech_layer_linear(r.block, input(&r), matrix(&r, H * D, C), -1, false, ECH_AXIS_HEADS,
                             H * D);
    x = ech_block_view(r.block, x, 0, ech_shape_heads(ECH_AXIS_HEADS, H, D));
    x = ech_layer_rmsnorm(r.block, x, gain, 1, 1e-2);
    ech_block_output(r.block, ech_layer_rotary(r.block, x, &(ech_rope){.theta = 100}, -1));
    check_block(&r);
}

TEST(test_linear)
{
    for (int form = 0; form < 4; form++) {
        runner r = runner_open(B, T);
        bool in_first = form & 1;
        int x = input(&r), w = in_first ? matrix(&r, C, 6) : matrix(&r, 6, C);
        int bias = form & 2 ? vector(&r, 6) : -1;
        ech_block_output(r.block, ech_layer_linear(r.block, x, w, bias, in_first, ECH_AXIS_FFN, 6));
        check_block(&r);
    }
}

TEST(test_pointwise)
{
    for (int a = 0; a < ECH_ACTIVATION_COUNT; a++) {
        runner r = runner_open(B, T);
        int x = input(&r), up = -1;
        if (ech_activation_operands((ech_activation)a) > 1)
            up = ech_block_input(r.block, "up", rows(C));
        ech_block_output(r.block, ech_layer_activation(r.block, (ech_activation)a, x, up));
        check_block(&r);
    }
    runner r = runner_open(B, T);
    ech_block_output(r.block, ech_layer_dropout(r.block, input(&r), 0.4));
    check_block(&r);
    r = runner_open(B, T);
    int x = input(&r);
    ech_block_output(r.block, ech_layer_residual(r.block, x, ech_layer_scale(r.block, x, 0.3)));
    check_block(&r);
}

TEST(test_attention)
{
    for (int form = 0; form < 16; form++) {
        int64_t H = 4, G = form & 1 ? 2 : 4, D = 2;
        runner r = open_documents(form & 4);
        int starts = ech_block_starts(r.block);
        int q = ech_block_input(r.block, "q", ech_shape_heads(ECH_AXIS_HEADS, H, D));
        int k = ech_block_input(r.block, "k", ech_shape_heads(ECH_AXIS_KV_HEADS, G, D));
        int v = ech_block_input(r.block, "v", ech_shape_heads(ECH_AXIS_KV_HEADS, G, D));
        q = ech_layer_rotary(r.block, q, &(ech_rope){.theta = 100}, starts);
        bool ruled = form & 8;
        int sinks = ruled ? runner_param(&r, ech_shape_1d(ECH_AXIS_HEADS, H)) : -1;
        ech_block_output(r.block, ech_layer_attention(r.block, &(ech_layer_attention_args){
                                                                   .q = q,
                                                                   .k = k,
                                                                   .v = v,
                                                                   .starts = starts,
                                                                   .dropout = form & 2 ? 0.3 : 0,
                                                                   .scale = ruled ? 0.9 : 0,
                                                                   .softcap = ruled ? 0.8 : 0,
                                                                   .window = ruled ? 3 : 0,
                                                                   .sinks = sinks}));
        check_block(&r);
    }
}

/* Rotated numbers of each head, and the same ones in all heads, beside others; values of another
 * width. */
TEST(test_latent_attention)
{
    for (int form = 0; form < 4; form++) {
        int64_t H = 3, N = 3, P = 4, E = form & 2 ? 2 : 9;
        runner r = open_documents(form & 1);
        int starts = ech_block_starts(r.block);
        const ech_rope rope = {.theta = 100, .neighbours = form & 1};
        int q_rope = ech_block_input(r.block, "q rope", ech_shape_heads(ECH_AXIS_HEADS, H, P));
        int q_nope = ech_block_input(r.block, "q nope", ech_shape_heads(ECH_AXIS_HEADS, H, N));
        int k_rope = ech_layer_linear(r.block, input(&r), matrix(&r, P, C), vector(&r, P), false,
                                      ECH_AXIS_HEAD_DIM, P);
        int k_nope = ech_block_input(r.block, "k nope", ech_shape_heads(ECH_AXIS_KV_HEADS, H, N));
        int v = ech_block_input(r.block, "v", ech_shape_heads(ECH_AXIS_KV_HEADS, H, E));
        ech_layer_attention_args args = {.v = v, .starts = starts, .sinks = -1};
        args.q = ech_layer_rotary_beside(r.block, q_rope, q_nope, &rope, starts);
        args.k = ech_layer_rotary_beside(r.block, k_rope, k_nope, &rope, starts);
        ech_block_output(r.block, ech_layer_attention(r.block, &args));
        check_block(&r);
    }
}

/* Queries, keys and values as columns of one product, as in GPT-2. */
static void check_views(bool copied)
{
    runner r = runner_open(B, T);
    ech_shape heads = ech_shape_heads(ECH_AXIS_HEADS, 2, C / 2);
    int qkv =
        ech_layer_linear(r.block, input(&r), matrix(&r, C, 3 * C), -1, true, ECH_AXIS_QKV, 3 * C);
    int q = ech_block_view(r.block, qkv, 0, heads), k = ech_block_view(r.block, qkv, C, heads);
    if (copied) q = ech_layer_copy(r.block, q);
    int v = ech_block_view(r.block, qkv, 2 * C, heads);
    int y = ech_layer_attention(
        r.block, &(ech_layer_attention_args){.q = q, .k = k, .v = v, .starts = -1, .sinks = -1});
    y = ech_block_view(r.block, y, 0, rows(C));
    ech_block_output(r.block,
                     ech_layer_linear(r.block, y, matrix(&r, C, C), -1, false, ECH_AXIS_MODEL, C));
    check_block(&r);
}

TEST(test_views)
{
    check_views(false);
    check_views(true);
}

/* Gradients meet: at residuals, at a value that three products read, and where a layer cannot
 * add. */
TEST(test_meeting)
{
    runner r = runner_open(B, T);
    int x = input(&r), n = ech_layer_rmsnorm(r.block, x, vector(&r, C), 0, 1e-5);
    int a = ech_layer_linear(r.block, n, matrix(&r, C, C), -1, false, ECH_AXIS_FFN, C);
    int b = ech_layer_linear(r.block, n, matrix(&r, C, C), vector(&r, C), false, ECH_AXIS_FFN, C);
    int y =
        ech_layer_residual(r.block, x, ech_layer_activation(r.block, ECH_ACTIVATION_SWIGLU, a, b));
    int z =
        ech_layer_residual(r.block, y, ech_layer_activation(r.block, ECH_ACTIVATION_GELU, y, -1));
    z = ech_layer_residual(
        r.block, z, ech_layer_linear(r.block, z, matrix(&r, C, C), -1, true, ECH_AXIS_MODEL, C));
    ech_block_output(r.block, ech_layer_residual(r.block, ech_layer_dropout(r.block, z, 0.2), z));
    check_block(&r);
}

/* A wide stream, whose gradient a branch gets rounded to its own type. */
static int stacked_bias(runner *r, int64_t experts, ech_axis axis, int64_t n)
{
    return runner_param(r, ech_shape_2d(ECH_AXIS_EXPERTS, experts, axis, n));
}

static int stack(runner *r, int64_t experts, int64_t a, int64_t b)
{
    return runner_param(r, (ech_shape){.dims = 3,
                                       .axis = {ECH_AXIS_EXPERTS, ECH_AXIS_FFN, ECH_AXIS_MODEL},
                                       .size = {experts, a, b}});
}

/* Rows of one sample are padding in part (runner_finish), and go to no expert. Choices are the same
 * on both sides of a difference: no two logits are as near as that. */
TEST(test_experts)
{
    enum { E = 5, F = 3 };
    enum { ACTS = ECH_ACTIVATION_COUNT };
    for (int form = 0; form < 6 * ACTS; form++) {
        int k = 1 + form / ACTS % 3 * 2;
        ech_activation activation = (ech_activation)(form % ACTS);
        bool gated = ech_activation_operands(activation) > 1;
        runner r = runner_open(B, T);
        int x = ech_layer_rmsnorm(r.block, input(&r), vector(&r, C), 0, 1e-5);
        ech_experts experts = {.gate = {.kind = k == E ? ECH_GATE_dense : ECH_GATE_topk,
                                        .experts = E,
                                        .chosen = k,
                                        .normalized = k > 1,
                                        .samples = 1},
                               .width = F,
                               .activation = activation,
                               .dropout = form < 3 * ACTS ? 0 : 0.3,
                               .router = matrix(&r, E, C),
                               .gate_proj = gated ? stack(&r, E, F, C) : -1,
                               .up = stack(&r, E, F, C),
                               .down = stack(&r, E, C, F)};
        if (form % 2) {
            experts.biased = true;
            experts.router_bias = vector(&r, E);
            if (gated) experts.gate_bias = stacked_bias(&r, E, ECH_AXIS_FFN, F);
            experts.up_bias = stacked_bias(&r, E, ECH_AXIS_FFN, F);
            experts.down_bias = stacked_bias(&r, E, ECH_AXIS_MODEL, C);
        }
        int y = runner_experts(r.block, x, &experts);
        ech_block_output(r.block, ech_layer_residual(r.block, y, x));
        check_block(&r);
    }
}

/* Rows of what a feed-forward layer makes, by a gate of what it reads. */
TEST(test_shared_gate)
{
    runner r = runner_open(B, T);
    int x = input(&r), n = ech_layer_rmsnorm(r.block, x, vector(&r, C), 0, 1e-5);
    int y = ech_layer_linear(r.block, n, matrix(&r, C, C), -1, false, ECH_AXIS_MODEL, C);
    y = ech_layer_shared_gate(r.block, n, matrix(&r, 1, C), y);
    ech_block_output(r.block, ech_layer_residual(r.block, x, y));
    check_block(&r);
}

TEST(test_wide_stream)
{
    runner r = runner_open(B, T);
    r.block->options.stream = ECH_TYPE_WIDE;
    int x = input(&r), n = ech_layer_rmsnorm(r.block, x, vector(&r, C), 0, 1e-5);
    int a = ech_layer_linear(r.block, n, matrix(&r, C, C), -1, false, ECH_AXIS_MODEL, C);
    int y = ech_layer_residual(r.block, x, a);
    int b = ech_layer_dropout(r.block, ech_layer_rmsnorm(r.block, y, vector(&r, C), 0, 1e-5), 0.2);
    assert_int_equal(r.block->value.at[b].type, ECH_TYPE_COMPUTE);
    y = ech_layer_residual(r.block, y, b);
    assert_int_equal(r.block->value.at[y].type, ECH_TYPE_WIDE);
    ech_block_output(r.block, y);
    check_block(&r);
}

TEST(test_head)
{
    runner r = runner_open(B, T);
    int x = ech_layer_rmsnorm(r.block, input(&r), vector(&r, C), 0, 1e-5);
    int targets = ech_block_batch(r.block, ECH_TARGETS),
        weights = ech_block_batch(r.block, ECH_WEIGHTS);
    ech_layer_head_loss(r.block, x, targets, weights, matrix(&r, 6, C), 6, (ech_logits){0.5, 2},
                        NULL);
    check_block(&r);
}

enum { HEIGHT = 5, WIDTH = 4, CHANNELS = 3 };

static int images(runner *r)
{
    return ech_block_input(r->block, "x", ech_shape_images(HEIGHT, WIDTH, CHANNELS));
}

static int filters(runner *r, const ech_filter *at, int64_t in, int64_t out)
{
    const ech_shape shape = {
        .dims = 4,
        .axis = {ECH_AXIS_CHANNELS, ECH_AXIS_CHANNELS, ECH_AXIS_HEIGHT, ECH_AXIS_WIDTH},
        .size = {out, in, at->size[0], at->size[1]}};
    return runner_param(r, shape);
}

static const ech_filter windows[] = {{{3, 3}, {1, 1}, {1, 1}},
                                     {{3, 2}, {2, 2}, {1, 0}},
                                     {{1, 3}, {1, 1}, {0, 1}},
                                     {{5, 4}, {1, 1}, {0, 0}}};
enum { WINDOWS = sizeof windows / sizeof *windows };

TEST(test_convolution)
{
    for (int i = 0; i < 2 * WINDOWS; i++) {
        const ech_filter *at = &windows[i / 2];
        runner r = runner_open(B, 1);
        int weight = filters(&r, at, CHANNELS, 2);
        ech_block_output(r.block, ech_layer_conv2d(r.block, images(&r), weight,
                                                   i % 2 ? vector(&r, 2) : -1, at, 2));
        check_block(&r);
    }
}

TEST(test_pools)
{
    for (int i = 0; i < WINDOWS; i++) {
        runner r = runner_open(B, 1);
        ech_block_output(r.block, ech_layer_max_pool(r.block, images(&r), &windows[i]));
        check_block(&r);
        r = runner_open(B, 1);
        ech_block_output(r.block, ech_layer_mean_pool(r.block, images(&r), &windows[i]));
        check_block(&r);
    }
    runner r = runner_open(B, 1);
    ech_block_output(r.block, ech_layer_global_pool(r.block, images(&r)));
    check_block(&r);
    r = runner_open(B, 1);
    ech_block_output(r.block, ech_layer_flatten(r.block, images(&r)));
    check_block(&r);
}

static void add_norm_params(runner *r, ech_layer_batch_norm_args *norm)
{
    norm->gain = vector(r, CHANNELS);
    norm->bias = vector(r, CHANNELS);
    norm->running_mean = runner_state(r, CHANNELS);
    norm->running_variance = runner_state(r, CHANNELS);
}

/* Samples with common statistics, and each by itself. */
TEST(test_batch_norm)
{
    for (int64_t samples = 0; samples < 3; samples++) {
        runner r = runner_open(4, 1);
        ech_layer_batch_norm_args norm = {.samples = samples, .step_samples = 4, .eps = 1e-5};
        add_norm_params(&r, &norm);
        ech_block_output(r.block, ech_layer_batch_norm(r.block, images(&r), &norm));
        check_block(&r);
    }
}

TEST(test_classes)
{
    static const double smoothings[] = {0, 0.1, 1};
    for (int i = 0; i < 3; i++) {
        runner r = runner_open(B, 1);
        r.smoothed = smoothings[i] > 0;
        int x = ech_block_input(r.block, "x", rows(C));
        int weight = matrix(&r, 6, C), bias = vector(&r, 6);
        ech_layer_classes_loss(r.block, x, weight, bias, 6, smoothings[i]);
        check_block(&r);
    }
}

/* Where two gradients meet, and a part is recomputed. */
TEST(test_residual_unit)
{
    runner r = runner_open(B, 1);
    const ech_filter *at = &windows[0];
    int x = images(&r);
    int y = ech_layer_activation(r.block, ECH_ACTIVATION_GELU, x, -1);
    y = ech_layer_conv2d(r.block, y, filters(&r, at, CHANNELS, CHANNELS), -1, at, CHANNELS);
    ech_block_output(r.block, ech_layer_residual(r.block, x, y));
    check_block(&r);
}

TEST(test_logistic)
{
    runner r = runner_open(B, T);
    r.block->options.samples = ECH_SAMPLES_OF_features;
    int x = ech_block_input(r.block, "x", rows(1));
    ech_layer_logistic_loss(r.block, x, vector(&r, 1));
    check_block(&r);
}

static void note_reads(const ech_block *block, const ech_block_call *call, bool *read)
{
    for (const ech_operand *o = NULL; (o = ech_call_next(block, call, ECH_TRAIN, o));)
        if (ech_operand_is_value(o) && o->mode != ECH_WRITE) read[o->value] = true;
}

/* A second W reads only what the declaration says: everything else is spoiled in between. */
TEST(test_weights_apart)
{
    runner r = runner_open(B, T);
    int x = input(&r), n = ech_layer_layernorm(r.block, x, vector(&r, C), vector(&r, C), 1e-5);
    int h = ech_layer_activation(
        r.block, ECH_ACTIVATION_GELU,
        ech_layer_linear(r.block, n, matrix(&r, 6, C), -1, false, ECH_AXIS_FFN, 6), -1);
    int y = ech_layer_linear(r.block, h, matrix(&r, C, 6), vector(&r, C), false, ECH_AXIS_MODEL, C);
    ech_block_output(r.block, ech_layer_residual(r.block, x, y));
    runner_finish(&r);
    runner_run(&r, ECH_FORWARD);
    runner_run(&r, ECH_BACKWARD_INPUT);
    bool read[RUNNER_VALUES] = {false};
    for (size_t i = 0; i < r.block->program[ECH_BACKWARD_WEIGHT].n; i++)
        note_reads(r.block, &r.block->program[ECH_BACKWARD_WEIGHT].at[i], read);
    int spoiled = 0;
    for (int v = 0; v < (int)r.block->value.n; v++) {
        if (!r.value[v] || read[v]) continue;
        spoiled++;
        for (int64_t i = 0; i < runner_count(&r, v); i++) r.value[v][i] = NAN;
    }
    assert_true(spoiled >= 4);
    runner_run(&r, ECH_BACKWARD_WEIGHT);
    for (int p = 0; p < r.params; p++)
        for (int64_t i = 0; i < ech_shape_count(&r.param_shape[p], r.extent); i++)
            assert_true(isfinite(r.dparam[p][i]));
    runner_close(&r);
}

/* ---- reversible blocks ---- */

/* y1 = x1 + F(x2), y2 = x2 + G(y1), with dropout. */
static runner open_reversible(void)
{
    runner r = runner_open(B, T);
    r.block->options.reversible = r.block->options.invert = true;
    int x[2] = {input(&r), input(&r)};
    for (int part = 0; part < 2; part++) {
        int y = ech_layer_rmsnorm(r.block, x[1 - part], vector(&r, C), 0, 1e-5);
        y = ech_layer_linear(r.block, y, matrix(&r, 12, C), -1, false, ECH_AXIS_FFN, 12);
        y = ech_layer_activation(r.block, ECH_ACTIVATION_GELU, y, -1);
        y = ech_layer_linear(r.block, y, matrix(&r, 12, C), -1, true, ECH_AXIS_MODEL, C);
        y = ech_layer_dropout(r.block, y, part ? 0.25 : 0);
        x[part] = ech_layer_residual(r.block, x[part], y);
    }
    for (int part = 0; part < 2; part++) ech_block_output(r.block, x[part]);
    runner_finish(&r);
    return r;
}

/* A unit of RevNet: norm, activation and convolution, twice for each of F and G. */
static runner open_unit(void)
{
    runner r = runner_open(4, 1);
    const ech_filter *at = &windows[0];
    r.block->options.reversible = r.block->options.invert = true;
    int x[2] = {images(&r), images(&r)};
    for (int part = 0; part < 2; part++) {
        int y = x[1 - part];
        for (int i = 0; i < 2; i++) {
            ech_layer_batch_norm_args norm = {.samples = 2, .step_samples = 4, .eps = 1e-5};
            add_norm_params(&r, &norm);
            y = ech_layer_batch_norm(r.block, y, &norm);
            y = ech_layer_activation(r.block, ECH_ACTIVATION_GELU, y, -1);
            y = ech_layer_conv2d(r.block, y, filters(&r, at, CHANNELS, CHANNELS), -1, at, CHANNELS);
        }
        x[part] = ech_layer_residual(r.block, x[part], y);
    }
    for (int part = 0; part < 2; part++) ech_block_output(r.block, x[part]);
    runner_finish(&r);
    return r;
}

static void copy_rows(const runner *r, int from, int to)
{
    memcpy(r->value[to], r->value[from], (size_t)runner_count(r, from) * sizeof(double));
}

/* R after F, of which nothing is left but the outputs. */
static void invert_outputs(runner *r)
{
    for (size_t i = 0; i < r->block->output.n; i++)
        copy_rows(r, r->block->output.at[i], r->block->routput.at[i]);
    for (int v = 0; v < (int)r->block->value.n; v++)
        if (r->value[v] && r->block->value.at[v].kept != ECH_KEPT_STORED)
            for (int64_t i = 0; i < runner_count(r, v); i++) r->value[v][i] = NAN;
    runner_run(r, ECH_RECOMPUTE);
}

/* B and W of what R has made from the outputs. */
static void check_inverted(runner r)
{
    runner_run(&r, ECH_FORWARD);
    double *x[2];
    for (int i = 0; i < 2; i++) {
        int64_t n = runner_count(&r, r.block->input.at[i]);
        x[i] = ech_calloc((size_t)n, sizeof(double));
        memcpy(x[i], r.value[r.block->input.at[i]], (size_t)n * sizeof(double));
    }
    invert_outputs(&r);
    runner_run(&r, ECH_BACKWARD_INPUT);
    runner_run(&r, ECH_BACKWARD_WEIGHT);
    for (int i = 0; i < 2; i++) {
        int at = r.block->input.at[i];
        int64_t n = runner_count(&r, at);
        memcpy(r.value[at], x[i], (size_t)n * sizeof(double));
        free(x[i]);
    }
    for (int i = 0; i < 2; i++)
        check(&r, "input", r.value[r.block->input.at[i]], r.value[r.block->dinput.at[i]],
              runner_count(&r, r.block->input.at[i]));
    for (int p = 0; p < r.params; p++)
        if (!r.is_state[p])
            check(&r, "parameter", r.param[p], r.dparam[p],
                  ech_shape_count(&r.param_shape[p], r.extent));
    runner_close(&r);
}

TEST(test_reversible)
{
    check_inverted(open_reversible());
    check_inverted(open_unit());
}

/* Through 64 blocks and back. */
static void check_round_trip(runner r)
{
    enum { DEPTH = 64 };
    int64_t n = runner_count(&r, r.block->input.at[0]);
    double *x[2], worst = 0;
    for (int i = 0; i < 2; i++) {
        x[i] = ech_calloc((size_t)n, sizeof(double));
        memcpy(x[i], r.value[r.block->input.at[i]], (size_t)n * sizeof(double));
    }
    for (int depth = 0; depth < DEPTH; depth++) {
        runner_run(&r, ECH_FORWARD);
        for (int i = 0; i < 2; i++) copy_rows(&r, r.block->output.at[i], r.block->input.at[i]);
    }
    invert_outputs(&r);
    for (int depth = 1; depth < DEPTH; depth++) {
        for (int i = 0; i < 2; i++) copy_rows(&r, r.block->rinput.at[i], r.block->routput.at[i]);
        runner_run(&r, ECH_RECOMPUTE);
    }
    for (int i = 0; i < 2; i++)
        for (int64_t k = 0; k < n; k++)
            worst = fmax(worst, fabs(r.value[r.block->rinput.at[i]][k] - x[i][k]));
    if (!(worst <= 1e-12)) fail_msg("after %d blocks and back: %g", DEPTH, worst);
    for (int i = 0; i < 2; i++) free(x[i]);
    runner_close(&r);
}

TEST(test_round_trip)
{
    check_round_trip(open_reversible());
    check_round_trip(open_unit());
}

/* Every row of the table has occurred above; or it does nothing where nothing is cut, and
 * test_cut.c, test_exchange.c or model/test_recompute.c has it on several ranks. */
#define NAMES(NAME, name, ...) #name " expert_" #name " "
#define FUSED_1(name)          "linear_" #name " " #name "_bias "
#define FUSED_2(name)
#define FUSED(NAME, name, operands, ...) FUSED_##operands(name)

TEST(test_every_layer_is_here)
{
    const char *tested =
        "embedding position layernorm rmsnorm linear rotary rotary_beside "
        "attention " ECH_ACTIVATIONS(
            NAMES) "scale dropout residual residual_wide difference head_logits head_loss copy "
                   "sparse_logits logistic_loss "
                   "conv2d max_pool mean_pool flatten batch_statistics batch_running batch_norm "
                   "router gate route dispatch dispatch_index expert_linear "
                   "expert_dropout combine shared_gate";
    const char *cut = "sum sum_both squares rmsnorm_part spread gather scatter keep_shard "
                      "gather_kept gather_table shift unshift "
                      "slide to_heads to_tokens pack attend head_gather exchange_counts "
                      "exchange_rows return_rows gather_rows scatter_rows slice_counts "
                      "expert_linear_both gather_context own_rows all_rows";
    const char *synchronized = /* test_norm_sync.c */
        "batch_moments gather_moments batch_merge batch_sync sum_gradients batch_sums";
    const char *sampled = "head_next";
    const char *counted = "gate_load"; /* tests/app/test_router_bias.c: it has no gradient */
    const char *codes =                /* tests/app/test_codes.c */
        "encode_bits decode_bits encode_sparse decode_sparse encode_places decode_places "
        "encode_narrow decode_narrow";
    const char *fused =                /* test_fused.c */
        "linear_residual residual_layernorm residual_rmsnorm " ECH_ACTIVATIONS(FUSED);
    for (int i = 0; i < ech_layers_count; i++)
        if (!ech_text_has_word(tested, ech_layers[i]->name) &&
            !ech_text_has_word(cut, ech_layers[i]->name) &&
            !ech_text_has_word(fused, ech_layers[i]->name) &&
            !ech_text_has_word(sampled, ech_layers[i]->name) &&
            !ech_text_has_word(synchronized, ech_layers[i]->name) &&
            !ech_text_has_word(codes, ech_layers[i]->name) &&
            !ech_text_has_word(counted, ech_layers[i]->name))
            fail_msg("nothing tests layer %s", ech_layers[i]->name);
}
