/* SPDX-License-Identifier: Apache-2.0
 *
 * Fused calls (fused.def) against the calls they stand for: outputs and gradients of a block, in
 * fp64 by the reference kernels, with each row alone and with all. The value between is touched by
 * no call where the row says so; and where something forbids a fusion there is none.
 */

#include <stdio.h>

#include "config/config.h"
#include "layer/runner.h"
#include "unit.h"

static const struct row {
    const char *name;
    bool exact; /* the same bits as the calls that it stands for */
    ech_activation activation;
} rows[] = {{"linear_residual", false, ECH_ACTIVATION_GELU}, /* BLAS adds in an order of its own */
            {"residual_layernorm", true, ECH_ACTIVATION_GELU},
            {"residual_rmsnorm", true, ECH_ACTIVATION_GELU},
#define ROWS_1(NAME, name)                                                                         \
    {"linear_" #name, true, ECH_ACTIVATION_##NAME}, {#name "_bias", true, ECH_ACTIVATION_##NAME},
#define ROWS_2(NAME, name)
#define ROWS_OF(NAME, name, operands, ...) ROWS_##operands(NAME, name)
            ECH_ACTIVATIONS(ROWS_OF)};
static ech_activation between = ECH_ACTIVATION_GELU; /* the products of a part */
enum { ROWS = sizeof rows / sizeof *rows, PARTS = 4, B = 2, T = 5, C = 8, F = 12 };

static int vector(runner *r, int64_t n)
{
    return runner_param(r, ech_shape_1d(ECH_AXIS_MODEL, n));
}

static int linear(runner *r, int x, int64_t in, int64_t out)
{
    int weight = runner_param(r, ech_shape_2d(ECH_AXIS_MODEL, in, ECH_AXIS_MODEL, out));
    return ech_layer_linear(r->block, x, weight, vector(r, out), true, ECH_AXIS_MODEL, out);
}

/* x + linear(f(linear(norm(x)))), dropped or not. */
static int part(runner *r, int x, int normal, double p)
{
    int y = ech_layer_activation(r->block, between, linear(r, normal, C, F), -1);
    return ech_layer_residual(r->block, x, ech_layer_dropout(r->block, linear(r, y, F, C), p));
}

/* Norms of both kinds; the second of each kind follows a sum that is not part of the product. */
static runner make(const char *fused, int recompute)
{
    runner r = runner_open(B, T);
    r.block->options.fused = ech_fused_rows(fused);
    r.block->options.recompute = recompute;
    int x = ech_block_input(r.block, "x", ech_shape_rows(ECH_AXIS_MODEL, C));
    x = part(&r, x, ech_layer_layernorm(r.block, x, vector(&r, C), vector(&r, C), 1e-5), 0.25);
    x = part(&r, x, ech_layer_layernorm(r.block, x, vector(&r, C), vector(&r, C), 1e-5), 0);
    x = part(&r, x, ech_layer_rmsnorm(r.block, x, vector(&r, C), 0, 1e-5), 0.25);
    x = part(&r, x, ech_layer_rmsnorm(r.block, x, vector(&r, C), 0, 1e-5), 0);
    ech_block_output(r.block, x);
    runner_finish(&r);
    return r;
}

static int count(const ech_block *block, ech_phase phase, const char *layer)
{
    int n = 0;
    for (size_t i = 0; i < block->program[phase].n; i++) {
        int node = block->program[phase].at[i].node;
        n += node >= 0 && strcmp(block->node.at[node].layer->name, layer) == 0;
    }
    return n;
}

static void check_same(const char *what, const double *x, const double *y, int64_t n, bool exact)
{
    for (int64_t i = 0; i < n; i++) {
        double error = fabs(x[i] - y[i]);
        if (exact ? memcmp(&x[i], &y[i], sizeof *x) != 0 : !(error <= 1e-13 * (1 + fabs(x[i]))))
            fail_msg("%s[%lld]: %.17g fused, %.17g not", what, (long long)i, x[i], y[i]);
    }
}

/* F, R, B and W, twice: gradients are overwritten, then added to. */
static void run_all(runner *r)
{
    static const ech_phase order[] = {ECH_FORWARD, ECH_RECOMPUTE, ECH_BACKWARD_INPUT,
                                      ECH_BACKWARD_WEIGHT};
    for (int i = 0; i < 2 * ECH_PHASES; i++) {
        if (order[i % ECH_PHASES] == ECH_RECOMPUTE && r->block->rinput.n)
            memcpy(r->value[r->block->rinput.at[0]], r->value[r->block->input.at[0]],
                   (size_t)runner_count(r, r->block->input.at[0]) * sizeof(double));
        runner_run(r, order[i % ECH_PHASES]);
    }
}

static void compare(const char *fused, int recompute, bool exact)
{
    runner a = make(fused, recompute), b = make("", recompute);
    run_all(&a);
    run_all(&b);
    int out[] = {a.block->output.at[0], b.block->output.at[0]};
    int dx[] = {a.block->dinput.at[0], b.block->dinput.at[0]};
    check_same("output", a.value[out[0]], b.value[out[1]], runner_count(&a, out[0]), exact);
    check_same("input's gradient", a.value[dx[0]], b.value[dx[1]], runner_count(&a, dx[0]), exact);
    for (int p = 0; p < a.params; p++)
        check_same("parameter's gradient", a.dparam[p], b.dparam[p],
                   ech_shape_count(&a.param_shape[p], a.extent), exact);
    runner_close(&a);
    runner_close(&b);
}

TEST(test_same_results)
{
    static const int ways[] = {ECH_RECOMPUTE_NONE, ECH_RECOMPUTE_SELECTIVE, ECH_RECOMPUTE_FULL};
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        char all[400] = "";
        for (int i = 0; i < ROWS; i++) {
            between = rows[i].activation;
            compare(rows[i].name, ways[w], rows[i].exact);
            snprintf(all + strlen(all), sizeof all - strlen(all), " %s", rows[i].name);
        }
        between = ECH_ACTIVATION_GELU;
        compare(all, ways[w], false);
    }
}

/* Returns true if, in lists of that purpose, a call touches the output of that layer's first
 * node. */
static bool is_touched(const ech_block *block, int value, ech_purpose purpose)
{
    bool touched = false;
    for (int phase = 0; phase < ECH_PHASES; phase++)
        for (size_t i = 0; i < block->program[phase].n; i++) {
            const ech_block_call *call = &block->program[phase].at[i];
            for (const ech_operand *o = NULL; (o = ech_call_next(block, call, purpose, o));)
                touched |= ech_operand_is_value(o) && o->value == value;
        }
    return touched;
}

/* How many of the values that nodes of the graph of that layer put out no call touches. */
static int count_untouched(const ech_block *block, const char *layer, ech_purpose purpose)
{
    int n = 0;
    for (int i = 0; i < (int)block->node.n; i++) {
        const ech_node *node = &block->node.at[i];
        if (node->position == i && !node->recompute_only && strcmp(node->layer->name, layer) == 0)
            n += !is_touched(block, node->out[0], purpose);
    }
    return n;
}

/* A product and the sum after it are one call, in R as well, and the product has no life. */
TEST(test_product_and_sum)
{
    runner r = make("linear_residual", ECH_RECOMPUTE_FULL), plain = make("", ECH_RECOMPUTE_FULL);
    const ech_block *block = r.block;
    assert_int_equal(count(block, ECH_FORWARD, "linear_residual"), 2);
    assert_int_equal(count(block, ECH_FORWARD, "residual"), 2);
    assert_int_equal(count(block, ECH_RECOMPUTE, "linear_residual"), 2);
    assert_int_equal(count_untouched(block, "linear", ECH_TRAIN), 2);
    assert_int_equal(count_untouched(plain.block, "linear", ECH_TRAIN), 0);
    for (int phase = 0; phase < ECH_PHASES; phase++) {
        bool fuses = phase == ECH_FORWARD || phase == ECH_RECOMPUTE;
        assert_int_equal(plain.block->program[phase].n - block->program[phase].n, fuses ? 2 : 0);
    }
    assert_int_equal(plain.block->needed - block->needed, 1);
    runner_close(&r);
    runner_close(&plain);
}

/* A product and its GELU: the product lives where B reads it, and nowhere else. */
TEST(test_product_and_gelu)
{
    static const int ways[] = {ECH_RECOMPUTE_NONE, ECH_RECOMPUTE_FULL};
    for (int w = 0; w < 2; w++) {
        runner r = make("linear_gelu", ways[w]);
        assert_int_equal(count(r.block, ECH_FORWARD, "linear_gelu"), PARTS);
        assert_int_equal(count_untouched(r.block, "linear", ECH_TRAIN), w ? PARTS : 0);
        assert_int_equal(count_untouched(r.block, "linear", ECH_EVALUATE), PARTS);
        runner_close(&r);
    }
}

/* A sum that its product does not make, and its norm. */
TEST(test_sum_and_norm)
{
    runner r = make("linear_residual residual_rmsnorm residual_layernorm", ECH_RECOMPUTE_FULL);
    for (int phase = ECH_FORWARD; phase < ECH_PHASES; phase += ECH_RECOMPUTE) {
        assert_int_equal(count(r.block, (ech_phase)phase, "residual_layernorm"), 1);
        assert_int_equal(count(r.block, (ech_phase)phase, "residual_rmsnorm"), 1);
        assert_int_equal(count(r.block, (ech_phase)phase, "linear_residual"), 2);
        assert_int_equal(count(r.block, (ech_phase)phase, "residual"), 0);
    }
    runner_close(&r);
}

/* B sums the rows of GELU's gradient, and each gradient is made by one call. */
TEST(test_gelu_and_bias)
{
    runner r = make("gelu_bias", ECH_RECOMPUTE_NONE);
    int made[RUNNER_PARAMS] = {0}, sums = 0;
    assert_int_equal(count(r.block, ECH_BACKWARD_INPUT, "gelu_bias"), PARTS);
    assert_int_equal(count(r.block, ECH_BACKWARD_WEIGHT, "linear"), 2 * PARTS);
    for (int phase = ECH_BACKWARD_INPUT; phase <= ECH_BACKWARD_WEIGHT; phase++)
        for (size_t i = 0; i < r.block->program[phase].n; i++) {
            const ech_block_call *call = &r.block->program[phase].at[i];
            int node = call->node;
            bool of_gelu =
                node >= 0 && strcmp(r.block->node.at[node].layer->name, "gelu_bias") == 0;
            for (const ech_operand *o = NULL; (o = ech_call_next(r.block, call, ECH_TRAIN, o));) {
                if (o->port != ECH_PORT_DPARAM) continue;
                made[o->value]++;
                sums += of_gelu;
            }
        }
    for (int p = 0; p < r.params; p++) assert_int_equal(made[p], 1);
    assert_int_equal(sums, PARTS);
    runner_close(&r);
}

/* None where the product has another reader, or R subtracts it, or the sum is of another type. */
TEST(test_what_forbids)
{
    for (int way = 0; way < 4; way++) {
        runner r = runner_open(B, T);
        r.block->options.fused = ech_fused_rows("linear_residual");
        r.block->options.reversible = way == 1;
        r.block->options.stream = way == 2 ? ECH_TYPE_WIDE : ECH_TYPE_COMPUTE;
        int x = ech_block_input(r.block, "x", ech_shape_rows(ECH_AXIS_MODEL, C));
        int y =
            linear(&r, ech_layer_layernorm(r.block, x, vector(&r, C), vector(&r, C), 1e-5), C, C);
        int s = ech_layer_residual(r.block, x, y);
        if (way == 3)
            s = ech_layer_residual(r.block, s,
                                   ech_layer_activation(r.block, ECH_ACTIVATION_GELU, y, -1));
        ech_block_output(r.block, s);
        runner_finish(&r);
        assert_int_equal(count(r.block, ECH_FORWARD, "linear_residual"), way == 0);
        runner_close(&r);
    }
}
