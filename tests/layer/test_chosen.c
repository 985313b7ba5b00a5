/* SPDX-License-Identifier: Apache-2.0
 *
 * Which rows a layer of experts computes: those that an expert was chosen for and no others.
 * Numbers of experts that nobody chose are NaN, and nobody notices; what is drawn is drawn in
 * training alone; padding is of no expert.
 */

#include "layer/runner.h"
#include "unit.h"

enum { B = 2, T = 6, C = 4, F = 3, E = 4, ROUTER = 0, STACKS = 3 };

typedef struct layer {
    ech_gate_kind kind;
    int64_t chosen;
    double capacity, jitter, dropout;
} layer;

static runner make(const layer *of, const ech_kernels *kernels)
{
    runner r = runner_open(B, T);
    ech_axis M = ECH_AXIS_MODEL, W = ECH_AXIS_FFN;
    ech_shape up = {.dims = 3, .axis = {ECH_AXIS_EXPERTS, W, M}, .size = {E, F, C}};
    ech_shape down = {.dims = 3, .axis = {ECH_AXIS_EXPERTS, M, W}, .size = {E, C, F}};
    ech_experts is = {.gate = {.kind = of->kind,
                               .experts = E,
                               .chosen = of->chosen,
                               .normalized = of->chosen > 1,
                               .samples = 1,
                               .capacity_factor = of->capacity},
                      .width = F,
                      .activation = ECH_ACTIVATION_SWIGLU,
                      .jitter = of->jitter,
                      .dropout = of->dropout,
                      .router = runner_param(&r, ech_shape_2d(ECH_AXIS_CHOICES, E, M, C)),
                      .gate_proj = runner_param(&r, up),
                      .up = runner_param(&r, up),
                      .down = runner_param(&r, down)};
    int x = ech_block_input(r.block, "x", ech_block_stream(r.block, C));
    ech_block_output(r.block, runner_experts(r.block, x, &is));
    runner_finish(&r);
    r.kernels = kernels;
    return r;
}

/* Makes the logits of these experts those of expert 0, so that ties go to this one; numbers of the
 * last are NaN. */
static void spoil(runner *r, int64_t first)
{
    for (int64_t e = first; e < E; e++)
        memcpy(r->param[ROUTER] + e * C, r->param[ROUTER], C * sizeof(double));
    for (int p = 1; p <= STACKS; p++)
        for (int64_t i = 0; i < F * C; i++) r->param[p][(E - 1) * F * C + i] = NAN;
}

static void train(runner *r)
{
    memset(r->reported, 0, sizeof r->reported);
    runner_run(r, ECH_FORWARD);
    runner_run(r, ECH_BACKWARD_INPUT);
    runner_run(r, ECH_BACKWARD_WEIGHT);
}

static bool is_finite(const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return false;
    return true;
}

/* Whether the output, and gradients of the input and of all weights, are. */
static bool all_finite(const runner *r)
{
    const ech_block *b = r->block;
    int y = b->output.at[0], dx = b->dinput.at[0];
    bool finite = is_finite(r->value[ech_block_base(b, y)], runner_count(r, y)) &&
                  is_finite(r->value[ech_block_base(b, dx)], runner_count(r, dx));
    for (int p = 0; p < r->params; p++)
        finite = finite && is_finite(r->dparam[p], ech_shape_count(&r->param_shape[p], r->extent));
    return finite;
}

TEST(test_others_are_not_run)
{
    static const layer layers[] = {{ECH_GATE_topk, 1, 0, 0, 0},
                                   {ECH_GATE_topk, 2, 0, 0, 0.3},
                                   {ECH_GATE_switch, 1, 1, 0, 0},
                                   {ECH_GATE_gshard, 2, 0.5, 0, 0}};
    const ech_kernels *tables[] = {ech_kernels_ref(ECH_F64), ech_kernels_fast(ECH_F64)};
    for (size_t i = 0; i < 2 * sizeof layers / sizeof *layers; i++) {
        const layer *of = &layers[i / 2];
        runner r = make(of, tables[i % 2]);
        double rows = 0;
        spoil(&r, of->chosen > 1 ? 2 : 3);
        for (int p = 1; p <= STACKS; p++)
            for (int64_t k = 0; k < E * F * C; k++) r.dparam[p][k] = 7; /* what was there before */
        train(&r);
        for (int e = 0; e < E; e++) rows += r.reported[e];
        assert_true(rows == (double)of->chosen * r.reported[2 * E + ECH_GATE_ROWS] && rows > 0);
        assert_true(r.reported[E - 1] == 0 && r.reported[0] > 0);
        assert_true(all_finite(&r));
        for (int p = 1; p <= STACKS; p++)
            for (int64_t k = (E - 1) * F * C; k < E * F * C; k++) assert_true(r.dparam[p][k] == 0);
        r.param[1][0] = NAN; /* of one that was chosen */
        train(&r);
        assert_false(all_finite(&r));
        runner_close(&r);
    }
}

TEST(test_training_alone_draws)
{
    static const layer drawing[] = {{ECH_GATE_topk, 2, 0, 0.3, 0},
                                    {ECH_GATE_topk, 2, 0, 0, 0.3},
                                    {ECH_GATE_gshard, 2, 0, 0, 0}},
                       plain[] = {{ECH_GATE_topk, 2, 0, 0, 0},
                                  {ECH_GATE_topk, 2, 0, 0, 0},
                                  {ECH_GATE_topk, 2, 0, 0, 0}};
    static const ech_purpose purposes[] = {ECH_TRAIN, ECH_EVALUATE, ECH_GENERATE};
    for (int i = 0; i < 9; i++) {
        runner r = make(&drawing[i / 3], ech_kernels_ref(ECH_F64)),
               other = make(&plain[i / 3], ech_kernels_ref(ECH_F64));
        int y = r.block->output.at[0], z = other.block->output.at[0];
        double apart = 0;
        r.purpose = other.purpose = purposes[i % 3];
        runner_run(&r, ECH_FORWARD);
        runner_run(&other, ECH_FORWARD);
        const double *a = r.value[ech_block_base(r.block, y)],
                     *b = other.value[ech_block_base(other.block, z)];
        for (int64_t k = 0; k < runner_count(&r, y); k++) apart = fmax(apart, fabs(a[k] - b[k]));
        assert_true(purposes[i % 3] == ECH_TRAIN ? apart > 0.01 : apart < 1e-14);
        runner_close(&r);
        runner_close(&other);
    }
}

/* Rows after a sample's length are padding. They get no expert, and the other rows get the same
 * result whatever the padding contains. */
TEST(test_padding_is_of_no_expert)
{
    static const layer dropping = {ECH_GATE_switch, 1, 1.5, 0, 0};
    runner r = make(&dropping, ech_kernels_ref(ECH_F64)),
           other = make(&dropping, ech_kernels_ref(ECH_F64));
    int y = r.block->output.at[0], x = r.block->input.at[0], rows = 0;
    const int32_t lengths[B] = {4, 2};
    runner *both[] = {&r, &other};
    for (int i = 0; i < 2; i++)
        for (int v = 0; v < (int)r.block->value.n; v++) {
            const ech_block_value *value = &r.block->value.at[v];
            if (value->source == ECH_FROM_BATCH && value->slot == ECH_LENGTHS)
                memcpy(both[i]->value[v], lengths, sizeof lengths);
        }
    for (int64_t i = 0; i < B * T; i++)
        for (int64_t c = 0; c < C && i % T >= lengths[i / T]; c++)
            other.value[ech_block_base(r.block, x)][i * C + c] *= -3;
    train(&r);
    train(&other);
    const double *a = r.value[ech_block_base(r.block, y)],
                 *b = other.value[ech_block_base(r.block, y)];
    for (int64_t i = 0; i < B * T * C; i++) {
        bool is = i / C % T < lengths[i / C / T];
        assert_true(a[i] == b[i] && (is || a[i] == 0));
        rows += is && a[i] != 0;
    }
    assert_true(rows > 0 && r.reported[2 * E + ECH_GATE_ROWS] == 6);
    for (int p = 0; p < r.params; p++)
        assert_memory_equal(r.dparam[p], other.dparam[p],
                            (size_t)ech_shape_count(&r.param_shape[p], r.extent) * sizeof(double));
    runner_close(&r);
    runner_close(&other);
}
