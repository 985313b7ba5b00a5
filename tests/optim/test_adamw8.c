/* SPDX-License-Identifier: Apache-2.0
 *
 * AdamW with 8-bit states against code of its own: the maps as bitsandbytes makes them, and
 * quantization by trying all 256 values. Then how near the states stay to those in full.
 */

#include <math.h>
#include <string.h>

#include "base/random.h"
#include "base/log.h"
#include "optim/optimized.h"
#include "unit.h"

enum {
    ROWS = 3,
    COLUMNS = 600,
    ALL = ROWS * COLUMNS,
    BLOCK = 256,
    CODES = 256,
    BLOCKS = 3,
    STEPS = 6
};

static double draw(uint64_t i)
{
    return 2 * ech_random_unit(ech_random_word((ech_random_key){.seed = 3}, i)) - 1;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* create_dynamic_map(signed, 7, 8): boundaries linspace(0.1, 1, parts + 1), their means; a code is
 * a place in order. */
static void make_map(bool is_signed, double *value)
{
    int n = 0;
    for (int i = 0; i < 7; i++) {
        int parts = is_signed ? 1 << i : 2 << i;
        for (int k = 0; k < parts; k++) {
            double low = 0.1 + 0.9 * k / parts, high = 0.1 + 0.9 * (k + 1) / parts;
            double mean = pow(10, i - 6) * (low + high) / 2;
            value[n++] = (double)(float)mean;
            if (is_signed) value[n++] = -(double)(float)mean;
        }
    }
    value[n++] = 0;
    value[n++] = 1;
    assert_int_equal(n, CODES);
    qsort(value, CODES, sizeof *value, by_size);
}

/* The value that is nearest to x. */
static double nearest(const double *value, int n, double x)
{
    double found = value[0];
    for (int i = 1; i < n; i++)
        if (fabs(value[i] - x) < fabs(found - x)) found = value[i];
    return found;
}

/* With betas of 0 the states are g and g^2, here of all sizes from 1e-8 to 1: each becomes the
 * nearest value. */
TEST(test_codes)
{
    enum { N = 20000 };
    ech_config *config = optimized_config("adamw8");
    config->optimizer.beta1 = config->optimizer.beta2 = 0;
    config->optimizer.block = N;
    double value[2][CODES];
    for (int k = 0; k < 2; k++) make_map(k == 0, value[k]);
    for (int way = 0; way < 2; way++) {
        const ech_kernels *kernels = way ? ech_kernels_fast(ECH_F32) : ech_kernels_ref(ECH_F64);
        optimized o = optimized_create(config, kernels, 1, N);
        for (int i = 0; i < N; i++) {
            double size = pow(10, -8 * fabs(draw((uint64_t)i)));
            optimized_set(&o.gradient, i, i ? size * (draw((uint64_t)(i + N)) < 0 ? -1 : 1) : 1);
        }
        optimized_step(&o, 0.01, 1);
        for (int k = 0; k < 2; k++)
            for (int i = 0; i < N; i++) {
                double g = optimized_get(&o.gradient, i), x = k ? g * g : g;
                uint8_t code = ((const uint8_t *)o.state[k].data)[i];
                double got = value[k][code];
                double best = nearest(value[k], CODES, x);
                if (!(fabs(got - x) <= fabs(best - x) + 1e-6 * fabs(x)))
                    fail_msg("%.9g becomes %.9g, not %.9g", x, got, best);
            }
        optimized_free(&o);
    }
    ech_config_destroy(config);
}

static void keep(double *x, int n, bool is_signed)
{
    double value[CODES], most = 0;
    make_map(is_signed, value);
    for (int i = 0; i < n; i++) most = fmax(most, fabs(x[i]));
    for (int i = 0; i < n && most > 0; i++) x[i] = nearest(value, CODES, x[i] / most) * most;
}

TEST(test_update)
{
    ech_config *config = optimized_config("adamw8");
    config->optimizer.weight_decay = 0.1;
    optimized o = optimized_create(config, ech_kernels_ref(ECH_F64), ROWS, COLUMNS);
    optimized fast = optimized_create(config, ech_kernels_fast(ECH_F32), ROWS, COLUMNS);
    double p[ALL] = {0}, m[ALL] = {0}, v[ALL] = {0};
    assert_int_equal(o.needs.states, 4);
    assert_int_equal(ech_tensor_count(&o.state[2]), ROWS * BLOCKS);
    assert_int_equal(ech_tensor_bytes(&o.state[0]), ALL);
    for (int step = 1; step <= STEPS; step++) {
        for (int i = 0; i < ALL; i++) {
            /* a row without gradient, and sizes from 1e-6 to 1 */
            double g = i / COLUMNS == 2 ? 0 : draw((uint64_t)(step * ALL + i)) * pow(10, -(i % 7));
            optimized_set(&o.gradient, i, g);
            optimized_set(&fast.gradient, i, g);
            m[i] = 0.9 * m[i] + 0.1 * 0.5 * g;
            v[i] = 0.95 * v[i] + 0.05 * 0.25 * g * g;
            p[i] -=
                0.01 * (m[i] / (1 - pow(0.9, step)) / (sqrt(v[i] / (1 - pow(0.95, step))) + 1e-8) +
                        0.1 * p[i]);
        }
        for (int b = 0; b < ROWS * BLOCKS; b++) {
            int column = b % BLOCKS * BLOCK, first = b / BLOCKS * COLUMNS + column;
            int n = COLUMNS - column < BLOCK ? COLUMNS - column : BLOCK;
            keep(m + first, n, true);
            keep(v + first, n, false);
        }
        optimized_step(&o, 0.01, 0.5);
        optimized_step(&fast, 0.01, 0.5);
        for (int i = 0; i < ALL; i++) {
            double got = optimized_get(&o.param, i), quick = optimized_get(&fast.param, i);
            if (!(fabs(got - p[i]) <= 1e-12))
                fail_msg("step %d: %.17g, not %.17g", step, got, p[i]);
            /* in fp32 a number between two codes may take the other one, once in a while */
            if (!(fabs(quick - p[i]) <= 2e-3)) fail_msg("fast: %.9g, not %.9g", quick, p[i]);
        }
    }
    int apart = 0;
    for (int i = 0; i < ALL; i++) {
        int difference = ((uint8_t *)o.state[0].data)[i] - ((uint8_t *)fast.state[0].data)[i];
        assert_true(abs(difference) <= 1);
        apart += difference != 0;
    }
    assert_true(apart < ALL / 100);
    optimized_free(&o);
    optimized_free(&fast);
    ech_config_destroy(config);
}

/* Blocks that shards would split are refused; those that they do not are cut with them. */
TEST(test_shards)
{
    ech_config *config = optimized_config("adamw8");
    const ech_param qkv = {.name = "qkv",
                           .shape = ech_shape_2d(ECH_AXIS_MODEL, 8, ECH_AXIS_QKV, 3 * 512)};
    ech_optimizer_needs needs = ech_optimizer_needs_of(config, &qkv);
    ech_sharding two = {.tensor = 2, .key_value = 2}, four = {.tensor = 4, .key_value = 4};
    assert_int_equal(ech_shape_whole(&needs.state[2].shape), 8 * 6);
    assert_int_equal(ech_shape_count(&needs.state[2].shape, ech_extent_of_params(two)), 8 * 3);
    assert_int_equal(ech_optimizer_check_shards(config, &qkv, two), ECH_OK);
    assert_int_equal(ech_optimizer_check_shards(config, &qkv, four), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "splits blocks of 256"));
    config->optimizer.block = 128;
    assert_int_equal(ech_optimizer_check_shards(config, &qkv, four), ECH_OK);
    ech_config_destroy(config);
}

/* Cut once more, at units: none is between two ranks' blocks, and each number of a state is with
 * its elements. */
TEST(test_units)
{
    static const int64_t sizes[][3] = {{6, 512, 256}, {6, 600, 600}, {6, 100, 100}, {1, 600, 256}};
    ech_config *config = optimized_config("adamw8");
    for (int c = 0; c < 4; c++) {
        const int64_t *of = sizes[c], row = of[1], all = of[0] * row, blocks = (row + 255) / 256;
        ech_param param = {.name = "x",
                           .shape = ech_shape_2d(ECH_AXIS_MODEL, of[0], ECH_AXIS_FFN, row)};
        if (of[0] == 1) param.shape = ech_shape_1d(ECH_AXIS_MODEL, row);
        ech_optimizer_needs needs = ech_optimizer_needs_of(config, &param);
        const int64_t *size = param.shape.size;
        int64_t unit = ech_optimizer_unit(&needs, &param, size), counted = 0, from;
        assert_int_equal(unit, of[2]);
        for (int64_t first = 0; first < all; first += unit) {
            int64_t n = all - first < unit ? all - first : unit;
            assert_int_equal(ech_state_part(&needs.state[0], &param, size, first, n, &from), n);
            assert_int_equal(from, first);
            n = ech_state_part(&needs.state[2], &param, size, first, n, &from);
            assert_int_equal(from, counted);
            assert_int_equal(n, unit == row ? blocks : 1);
            counted += n;
        }
        assert_int_equal(counted, of[0] * blocks);
    }
    ech_config_destroy(config);
}

/* Of any optimizer: a resume must find the states that it goes on with. */
TEST(test_resume)
{
    const ech_param param = {.name = "w", .shape = ech_shape_1d(ECH_AXIS_MODEL, 4)};
    ech_config *none = optimized_config("sgd"), *some = optimized_config("sgd");
    ech_config *more = optimized_config("sgd");
    some->optimizer.momentum = 0.9;
    more->optimizer.momentum = 0.5;
    assert_int_equal(ech_optimizer_check_resume(some, more, &param), ECH_OK);
    assert_int_equal(ech_optimizer_check_resume(some, none, &param), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "the checkpoint's are for 0.9"));
    assert_int_equal(ech_optimizer_check_resume(none, some, &param), ECH_EUSAGE);
    ech_config_destroy(none);
    ech_config_destroy(some);
    ech_config_destroy(more);
}
