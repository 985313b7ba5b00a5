/* SPDX-License-Identifier: Apache-2.0
 *
 * Muon: which parameters it moves how, and its Newton-Schulz iterations against what they do to
 * singular values that are known. check_optimizers.py compares it with PyTorch's; how shards become
 * a matrix is app/optimizers' matter.
 */

#include <math.h>

#include "base/random.h"
#include "optim/optimized.h"
#include "unit.h"

enum { SHORT = 7, LONG = 11, ALL = SHORT * LONG };

static double draw(uint64_t i)
{
    return 2 * ech_random_unit(ech_random_word((ech_random_key){.seed = 9}, i)) - 1;
}

static ech_config *config_of(bool nesterov)
{
    ech_config *config = optimized_config("muon");
    config->optimizer.momentum = 0.9;
    config->optimizer.nesterov = nesterov;
    config->optimizer.eps = 1e-30;
    return config;
}

/* Tables by token or position are AdamW's, as vectors are. */
TEST(test_declared)
{
    ech_config *config = config_of(false);
    const struct {
        ech_shape shape;
        int states, statistics;
    } of[] = {{ech_shape_2d(ECH_AXIS_FFN, LONG, ECH_AXIS_MODEL, SHORT), 1, 2},
              {ech_shape_2d(ECH_AXIS_MODEL, SHORT, ECH_AXIS_QKV, 12), 1, 2},
              {ech_shape_2d(ECH_AXIS_VOCAB, LONG, ECH_AXIS_MODEL, SHORT), 2, 0},
              {ech_shape_2d(ECH_AXIS_POSITION, LONG, ECH_AXIS_MODEL, SHORT), 2, 0},
              {ech_shape_1d(ECH_AXIS_MODEL, SHORT), 2, 0}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        ech_param param = {.name = "w", .shape = of[i].shape};
        ech_optimizer_needs needs = ech_optimizer_needs_of(config, &param);
        assert_int_equal(needs.states, of[i].states);
        assert_int_equal(needs.statistics, of[i].statistics);
        assert_string_equal(needs.state[0].name, needs.states == 1 ? "momentum_buffer" : "exp_avg");
        for (int tensor = 1; tensor <= 4 && needs.statistics; tensor++) {
            ech_sharding sharding = {.tensor = tensor};
            assert_int_equal(ech_statistic_shards(&needs.statistic[0], &param, sharding), tensor);
            assert_int_equal(ech_statistic_shards(&needs.statistic[1], &param, sharding), 1);
        }
    }
    ech_config_destroy(config);
}

/* What AdamW updates has a rate of its own, and factors by patterns besides. */
TEST(test_rates)
{
    ech_config *config = config_of(false);
    assert_int_equal(ech_config_set(config, "optimizer.adamw_rate=0.5"), ECH_OK);
    assert_int_equal(ech_config_set(config, "optimizer.rates=wte=0.25 mlp=3"), ECH_OK);
    ech_param params[] = {
        {.name = "wte", .shape = ech_shape_2d(ECH_AXIS_VOCAB, LONG, ECH_AXIS_MODEL, SHORT)},
        {.name = "mlp", .shape = ech_shape_2d(ECH_AXIS_MODEL, SHORT, ECH_AXIS_FFN, LONG)},
        {.name = "wq", .shape = ech_shape_2d(ECH_AXIS_MODEL, SHORT, ECH_AXIS_HEADS, LONG)},
        {.name = "bias", .shape = ech_shape_1d(ECH_AXIS_FFN, LONG)}};
    const double rate[] = {0.125, 3, 1, 0.5};
    for (int i = 0; i < 4; i++) params[i].rate = 1;
    assert_int_equal(ech_optimizer_group_params(config, params, 4), ECH_OK);
    for (int i = 0; i < 4; i++) {
        assert_true(params[i].rate == rate[i]);
        assert_string_equal(ech_optimizer_rule_of(config, &params[i]).name,
                            i % 3 ? "muon" : "adamw");
    }
    ech_config_destroy(config);
}

/* Element (row, column) of the reflection along the vector of so many drawn numbers. */
static double reflection(int n, uint64_t seed, int row, int column)
{
    double square = 0;
    for (int i = 0; i < n; i++) square += draw(seed + (uint64_t)i) * draw(seed + (uint64_t)i);
    return (row == column) -
           2 * draw(seed + (uint64_t)row) * draw(seed + (uint64_t)column) / square;
}

/* U diag(values) V^T of two reflections, as rows x columns or transposed. */
static double from_singular(const double *value, bool tall, int i)
{
    int row = tall ? i % SHORT : i / LONG, column = tall ? i / SHORT : i % LONG;
    double sum = 0;
    for (int s = 0; s < SHORT; s++)
        sum += reflection(SHORT, 0, row, s) * value[s] * reflection(LONG, 100, column, s);
    return sum;
}

static double iterated(double x)
{
    for (int i = 0; i < 5; i++) x = 3.4445 * x - 4.7750 * pow(x, 3) + 2.0315 * pow(x, 5);
    return x;
}

/* A matrix with known singular values moves along one with the polynomial of them, by the rate for
 * its shape. */
TEST(test_singular_values)
{
    double value[SHORT], moved[SHORT], square = 0;
    for (int i = 0; i < SHORT; i++) square += pow(value[i] = pow(0.5, i), 2);
    for (int i = 0; i < SHORT; i++) moved[i] = iterated(value[i] / sqrt(square));
    for (int way = 0; way < 8; way++) {
        bool tall = way & 1, nesterov = way & 2, match = way & 4;
        ech_config *config = config_of(nesterov);
        config->optimizer.adjust_rate =
            match ? ECH_ADJUST_RATE_MATCH_RMS_ADAMW : ECH_ADJUST_RATE_ORIGINAL;
        double factor = match ? 0.2 * sqrt(LONG) : tall ? sqrt((double)LONG / SHORT) : 1;
        for (int narrow = 0; narrow < 2; narrow++) {
            const ech_kernels *kernels =
                narrow ? ech_kernels_fast(ECH_F32) : ech_kernels_ref(ECH_F64);
            optimized o =
                optimized_create(config, kernels, tall ? LONG : SHORT, tall ? SHORT : LONG);
            double tolerance = narrow ? 2e-5 : 1e-13;
            for (int i = 0; i < ALL; i++)
                optimized_set(&o.gradient, i, from_singular(value, tall, i));
            for (int step = 1; step <= 3; step++) { /* the momentum only grows */
                optimized_step(&o, 0.25, 1);
                for (int i = 0; i < ALL; i++) {
                    double wanted = -0.25 * step * factor * from_singular(moved, tall, i);
                    double got = optimized_get(&o.param, i);
                    if (!(fabs(got - wanted) <= tolerance * step * factor))
                        fail_msg("way %d, step %d, %d: %.17g, not %.17g", way, step, i, got,
                                 wanted);
                }
            }
            optimized_free(&o);
        }
        ech_config_destroy(config);
    }
}

/* The momentum: what comes of two gradients is what comes of their sum, weighted as SGD weights
 * them. */
TEST(test_momentum)
{
    for (int nesterov = 0; nesterov < 2; nesterov++) {
        ech_config *config = config_of(nesterov);
        optimized two = optimized_create(config, ech_kernels_ref(ECH_F64), SHORT, LONG);
        optimized one = optimized_create(config, ech_kernels_ref(ECH_F64), SHORT, LONG);
        double before[ALL];
        for (int step = 0; step < 2; step++) {
            for (int i = 0; i < ALL; i++) {
                before[i] = optimized_get(&two.param, i);
                optimized_set(&two.gradient, i, draw((uint64_t)(1000 * step + i)));
            }
            optimized_step(&two, 0.25, step ? 0.5 : 2);
        }
        for (int i = 0; i < ALL; i++) {
            double first = 2 * draw((uint64_t)i), second = 0.5 * draw((uint64_t)(1000 + i));
            double buffer = 0.9 * first + second;
            optimized_set(&one.gradient, i, nesterov ? second + 0.9 * buffer : buffer);
        }
        optimized_step(&one, 0.25, 1);
        for (int i = 0; i < ALL; i++)
            assert_true(fabs(optimized_get(&two.param, i) - before[i] -
                             optimized_get(&one.param, i)) <= 1e-13);
        optimized_free(&two);
        optimized_free(&one);
        ech_config_destroy(config);
    }
}

static void multiply(ech_kernel_context *context, const ech_tensor *a, bool a_transposed,
                     const ech_tensor *b, bool b_transposed, const ech_tensor *bias,
                     const ech_tensor *add, const ech_tensor *c)
{
    assert_int_equal((uintptr_t)context->scratch % 256, 0);
    ech_kernels_ref(ECH_F32)->matmul(context, a, a_transposed, b, b_transposed, bias, add, c);
}

/* cuBLASLt refuses a workspace that begins elsewhere. */
TEST(test_scratch_of_products)
{
    ech_kernels kernels = *ech_kernels_ref(ECH_F32);
    kernels.matmul = multiply;
    kernels.wide = &kernels;
    ech_config *config = config_of(false);
    optimized o = optimized_create(config, &kernels, SHORT, LONG);
    for (int i = 0; i < ALL; i++) optimized_set(&o.gradient, i, draw((uint64_t)i));
    optimized_step(&o, 0.25, 1);
    assert_true(optimized_get(&o.param, 0) != 0);
    optimized_free(&o);
    ech_config_destroy(config);
}

/* Without a gradient a matrix only decays, whatever eps is; with one its size does not matter. */
TEST(test_sizes)
{
    static const double sizes[] = {0, 1e-30, 1e-10, 1, 1e15};
    ech_config *config = config_of(true);
    config->optimizer.weight_decay = 0.5;
    config->optimizer.eps = 0;
    double moved[ALL];
    for (int s = 0; s < 5; s++) {
        optimized o = optimized_create(config, ech_kernels_fast(ECH_F32), SHORT, LONG);
        o.of.decay = true;
        for (int i = 0; i < ALL; i++) {
            optimized_set(&o.param, i, 1);
            optimized_set(&o.gradient, i, sizes[s] * draw((uint64_t)i));
        }
        optimized_step(&o, 0.125, 1);
        for (int i = 0; i < ALL; i++) {
            double by = optimized_get(&o.param, i) - (1 - 0.125 * 0.5);
            if (s == 1) moved[i] = by;
            assert_true(s == 0 ? by == 0 : isfinite(by) && fabs(by - moved[i]) <= 1e-5);
        }
        optimized_free(&o);
    }
    ech_config_destroy(config);
}
