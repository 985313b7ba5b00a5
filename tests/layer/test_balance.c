/* SPDX-License-Identifier: Apache-2.0
 *
 * Balance groups in layers of experts: gradients of outputs and of groups' losses together, against
 * finite differences in fp64; and context ranks, which have some of each group's rows, against one
 * rank that has all.
 */

#include "layer/cut_compare.h"
#include "layer/runner.h"
#include "unit.h"

enum { C = 4, F = 3, E = 4, PARAMS = 5 };

/* Coefficients so large that their gradients are as large as the others. */
typedef struct trial {
    ech_gate_kind kind;
    int64_t chosen, samples;
    double capacity, auxiliary, importance, load;
    int64_t groups, groups_chosen; /* of experts; 0: none */
} trial;

static const trial trials[] = {
    {ECH_GATE_topk, 2, 1, 0, 2, 0, 0, 0, 0},
    {ECH_GATE_topk, 2, 2, 0, 2, 0, 0, 0, 0},
    {ECH_GATE_topk, 2, 1, 0.4, 0, 0, 0, 0, 0},
    {ECH_GATE_topk, 3, 2, 0.4, 3, 0, 0, 0, 0},
    {ECH_GATE_switch, 1, 1, 0, 3, 0, 0, 0, 0},
    {ECH_GATE_switch, 1, 2, 0.5, 3, 0, 0, 0, 0},
    {ECH_GATE_gshard, 2, 1, 0, 9, 0, 0, 0, 0},
    {ECH_GATE_gshard, 2, 2, 0.3, 9, 0, 0, 0, 0},
    {ECH_GATE_noisy_topk, 2, 1, 0, 0, 2, 0, 0, 0},
    {ECH_GATE_noisy_topk, 2, 2, 0.4, 0, 0, 3, 0, 0},
    {ECH_GATE_noisy_topk, 1, 1, 0.8, 0, 2, 2, 0, 0},
    {ECH_GATE_noisy_topk, 3, 2, 0, 0, 2, 3, 0, 0},
    {ECH_GATE_hierarchical, 2, 1, 0, 0, 2, 3, 2, 2},
    {ECH_GATE_hierarchical, 2, 2, 0.4, 0, 0, 3, 2, 1},
    {ECH_GATE_hierarchical, 1, 1, 0.8, 0, 2, 1, 2, 1},
    {ECH_GATE_hierarchical, 3, 2, 0, 0, 2, 0, 4, 3},
};

static bool is_noisy(const trial *t)
{
    return t->groups > 0 || t->kind == ECH_GATE_noisy_topk;
}

static trial without_losses(const trial *t)
{
    trial without = *t;
    without.auxiliary = without.importance = without.load = 0;
    return without;
}

static void shapes_of(const trial *t, ech_shape shape[PARAMS])
{
    ech_shape up = {
        .dims = 3, .axis = {ECH_AXIS_EXPERTS, ECH_AXIS_FFN, ECH_AXIS_MODEL}, .size = {E, F, C}};
    ech_shape down = {
        .dims = 3, .axis = {ECH_AXIS_EXPERTS, ECH_AXIS_MODEL, ECH_AXIS_FFN}, .size = {E, C, F}};
    shape[0] = shape[4] = ech_shape_2d(ECH_AXIS_CHOICES, t->groups + E, ECH_AXIS_MODEL, C);
    shape[1] = shape[2] = up;
    shape[3] = down;
}

/* Of parameters 0 to 3, and 4 with noise. */
static void build(ech_block *block, const trial *t)
{
    ech_experts is = {.gate = {.kind = t->kind,
                               .experts = E,
                               .chosen = t->chosen,
                               .normalized = true,
                               .capacity_factor = t->capacity,
                               .samples = t->samples,
                               .auxiliary = t->auxiliary,
                               .importance = t->importance,
                               .load = t->load,
                               .groups = t->groups,
                               .groups_chosen = t->groups_chosen},
                      .width = F,
                      .activation = ECH_ACTIVATION_SWIGLU,
                      .router = 0,
                      .gate_proj = 1,
                      .up = 2,
                      .down = 3,
                      .noise = 4};
    int x = ech_block_input(block, "x", ech_block_stream(block, C));
    ech_block_output(block, ech_layer_residual(block, runner_experts(block, x, &is), x));
}

/* ---- differences ---- */

static double difference(runner *r, double *x)
{
    double was = *x, h = 1e-6;
    *x = was + h;
    double up = runner_objective(r);
    *x = was - h;
    double down = runner_objective(r);
    *x = was;
    return (up - down) / (2 * h);
}

static void check(runner *r, const trial *t, double *x, const double *dx, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double wanted = difference(r, &x[i]);
        if (!(fabs(dx[i] - wanted) < 1e-7 * (1 + fabs(wanted))))
            fail_msg(
                "%s, k %lld, groups of %lld, capacity %g: [%lld] is %.12g, differences say %.12g",
                ech_gate_name(t->kind), (long long)t->chosen, (long long)t->samples, t->capacity,
                (long long)i, dx[i], wanted);
    }
}

static runner run_trial(const trial *t)
{
    ech_shape shape[PARAMS];
    runner r = runner_open(2, 6);
    shapes_of(t, shape);
    for (int p = 0; p < PARAMS; p++) runner_param(&r, shape[p]);
    build(r.block, t);
    runner_finish(&r);
    runner_run(&r, ECH_FORWARD);
    runner_run(&r, ECH_BACKWARD_INPUT);
    runner_run(&r, ECH_BACKWARD_WEIGHT);
    return r;
}

TEST(test_gradients)
{
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) {
        const trial *t = &trials[i];
        trial without = without_losses(t);
        runner r = run_trial(t), other = run_trial(&without);
        double apart = 0, dropped = 0;
        for (int64_t k = 0; k < E * C; k++) apart += fabs(r.dparam[0][k] - other.dparam[0][k]);
        for (int e = 0; e < E; e++) dropped += r.reported[E + e];
        assert_true((apart > 0.01) == (t->auxiliary + t->importance + t->load > 0));
        assert_true((dropped > 0) == (t->capacity > 0));
        for (int p = 0; p < PARAMS; p++)
            check(&r, t, r.param[p], r.dparam[p], ech_shape_count(&r.param_shape[p], r.extent));
        int x = r.block->input.at[0];
        check(&r, t, r.value[x], r.value[r.block->dinput.at[0]], runner_count(&r, x));
        runner_close(&r);
        runner_close(&other);
    }
}

/* What is sampled is dropped nowhere, whatever a validation drops. */
TEST(test_generates_all)
{
    trial dropless = trials[5];
    dropless.capacity = 0;
    runner with = run_trial(&trials[5]), without = run_trial(&dropless);
    int out = ech_block_base(with.block, with.block->output.at[0]);
    int other = ech_block_base(without.block, without.block->output.at[0]);
    size_t bytes = (size_t)runner_count(&with, with.block->output.at[0]) * sizeof(double);
    static const ech_purpose purposes[] = {ECH_EVALUATE, ECH_GENERATE};
    for (int i = 0; i < 2; i++) {
        with.purpose = without.purpose = purposes[i];
        runner_run(&with, ECH_FORWARD);
        runner_run(&without, ECH_FORWARD);
        bool same = memcmp(with.value[out], without.value[other], bytes) == 0;
        assert_true(same == (purposes[i] == ECH_GENERATE));
    }
    runner_close(&with);
    runner_close(&without);
}

static void run_for(runner *r, ech_purpose purpose)
{
    r->purpose = purpose;
    runner_run(r, ECH_FORWARD);
}

/* Without noise its k largest logits, by their softmax, are topk's: in validation and sampling, not
 * in training. */
TEST(test_noise_is_of_training)
{
    static const trial trial_noisy = {ECH_GATE_noisy_topk, 2, 1, 0, 0, 0, 0, 0, 0},
                       trial_topk = {ECH_GATE_topk, 2, 1, 0, 0, 0, 0, 0, 0};
    runner noisy = run_trial(&trial_noisy), topk = run_trial(&trial_topk);
    int out = ech_block_base(noisy.block, noisy.block->output.at[0]);
    int other = ech_block_base(topk.block, topk.block->output.at[0]);
    static const ech_purpose purposes[] = {ECH_TRAIN, ECH_EVALUATE, ECH_GENERATE};
    for (int i = 0; i < 3; i++) {
        double apart = 0;
        run_for(&noisy, purposes[i]);
        run_for(&topk, purposes[i]);
        for (int64_t k = 0; k < runner_count(&noisy, noisy.block->output.at[0]); k++)
            apart = fmax(apart, fabs(noisy.value[out][k] - topk.value[other][k]));
        assert_true(purposes[i] == ECH_TRAIN ? apart > 0.01 : apart < 1e-14);
    }
    runner_close(&noisy);
    runner_close(&topk);
}

/* ---- context ranks ---- */

static void compare(const trial *t, ech_block_options options, int forward, int backward)
{
    ech_shape shape[PARAMS];
    ech_param alone[PARAMS] = {{0}}, params[PARAMS] = {{0}};
    ech_pool *pool = ech_pool_create();
    ech_block *whole = ech_block_create(pool, "balance", 3, (ech_block_options){0});
    ech_block *cut = ech_block_create(pool, "balance", 3, options);
    int collectives[ECH_PHASES];
    shapes_of(t, shape);
    for (int p = 0; p < PARAMS; p++) {
        alone[p].name = params[p].name = "weight";
        alone[p].shape = params[p].shape = shape[p];
    }
    build(whole, t);
    build(cut, t);
    ech_block_finish(whole, alone);
    ech_block_finish(cut, params);
    cut_compare(whole, alone, cut, params, PARAMS, 2, 24, C, collectives);
    assert_int_equal(collectives[ECH_FORWARD], forward);
    assert_int_equal(collectives[ECH_BACKWARD_INPUT], backward);
    ech_block_destroy(whole);
    ech_block_destroy(cut);
    ech_pool_destroy(pool);
}

/* One gather of logits, and of noise where there is some, and with expert ranks the exchanges. */
TEST(test_context)
{
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++)
        for (int c = 2; c <= 4; c++)
            for (int ulysses = 0; ulysses < 2; ulysses++) {
                int e = c % 2 ? 1 : 2;
                ech_block_options options = {.sharding = {.context = c, .expert = e},
                                             .ulysses = ulysses};
                int gathers = is_noisy(&trials[i]) ? 2 : 1;
                compare(&trials[i], options, gathers + (e > 1 ? 3 : 0), e > 1 ? 2 : 0);
            }
}

/* Row shards over tensor ranks, and of these over context ranks: two gathers of logits, beside
 * those of rows, gates and choices. */
TEST(test_tensor)
{
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++)
        for (int c = 1; c <= 2; c++) {
            ech_block_options options = {
                .sharding = {.tensor = 3, .key_value = 3, .context = c, .sequence = true}};
            compare(&trials[i], options, 4 + (is_noisy(&trials[i]) ? 2 : 1) * c, 3);
        }
}
