/* SPDX-License-Identifier: Apache-2.0
 *
 * Adafactor: what it keeps, what is exact, what is bounded, and momentum against a few lines of its
 * own. check_optimizers.py compares it with PyTorch's.
 */

#include <math.h>

#include "base/random.h"
#include "optim/optimized.h"
#include "unit.h"

enum { ROWS = 7, COLUMNS = 11, ALL = ROWS * COLUMNS };

static double draw(uint64_t i)
{
    return 2 * ech_random_unit(ech_random_word((ech_random_key){.seed = 5}, i)) - 1;
}

static double sum_of(const ech_tensor *x)
{
    double sum = 0;
    for (int64_t i = 0; i < ech_tensor_count(x); i++) sum += optimized_get(x, i);
    return sum;
}

static double rms(const double *x, int n)
{
    double squares = 0;
    for (int i = 0; i < n; i++) squares += x[i] * x[i];
    return sqrt(squares / n);
}

static void assert_near(double got, double wanted, double tolerance)
{
    if (!(fabs(got - wanted) <= tolerance * fabs(wanted)))
        fail_msg("%.17g, not %.17g", got, wanted);
}

TEST(test_kept)
{
    ech_config *config = optimized_config("adafactor");
    for (int momentum = 0; momentum < 2; momentum++) {
        config->optimizer.momentum = momentum ? 0.9 : 0;
        for (int vector = 0; vector < 2; vector++) {
            optimized o =
                optimized_create(config, ech_kernels_ref(ECH_F32), vector ? 0 : ROWS, COLUMNS);
            int64_t kept = 0, wanted = vector ? COLUMNS : ROWS + COLUMNS;
            for (int i = 0; i < o.needs.states; i++) {
                kept += ech_tensor_count(&o.state[i]);
                assert_int_equal(o.state[i].dtype, ECH_F32);
            }
            assert_int_equal(kept, wanted + momentum * (vector ? COLUMNS : ALL));
            optimized_free(&o);
        }
    }
    ech_config_destroy(config);
}

/* Where the squares are of rank 1 the factored estimate is the full one: what a vector of as many
 * numbers makes. */
TEST(test_rank_one_is_exact)
{
    ech_config *config = optimized_config("adafactor");
    optimized matrix = optimized_create(config, ech_kernels_ref(ECH_F64), ROWS, COLUMNS);
    optimized vector = optimized_create(config, ech_kernels_ref(ECH_F64), 0, ALL);
    for (int step = 0; step < 5; step++) {
        for (int i = 0; i < ALL; i++) {
            double g =
                (0.1 + i / COLUMNS) * exp(0.3 * (i % COLUMNS)) * (draw((uint64_t)i) < 0 ? -1 : 1);
            optimized_set(&matrix.gradient, i, (1 + step) * g);
            optimized_set(&vector.gradient, i, (1 + step) * g);
        }
        optimized_step(&matrix, 0.01, 1);
        optimized_step(&vector, 0.01, 1);
        for (int i = 0; i < ALL; i++)
            assert_near(optimized_get(&matrix.param, i), optimized_get(&vector.param, i), 1e-13);
        assert_near(sum_of(&matrix.state[0]), sum_of(&matrix.state[1]), 1e-14);
    }
    optimized_free(&matrix);
    optimized_free(&vector);
    ech_config_destroy(config);
}

/* Absolute steps show U^ itself: the weights move by the learning rate times it. */
TEST(test_updates_are_bounded)
{
    ech_config *config = optimized_config("adafactor");
    config->optimizer.scale_parameter = 0;
    optimized o = optimized_create(config, ech_kernels_ref(ECH_F64), ROWS, COLUMNS);
    double before[ALL] = {0}, moved[ALL];
    bool clipped = false;
    for (int step = 0; step < 20; step++) {
        double size = step % 7 == 6 ? 50 : 1; /* now and then much larger than before */
        for (int i = 0; i < ALL; i++)
            optimized_set(&o.gradient, i, size * draw((uint64_t)(100 * step + i)));
        optimized_step(&o, 0.125, 1);
        for (int i = 0; i < ALL; i++) {
            double now = optimized_get(&o.param, i);
            moved[i] = (before[i] - now) / 0.125;
            before[i] = now;
        }
        assert_true(rms(moved, ALL) <= 1 + 1e-12);
        clipped |= size > 1 && rms(moved, ALL) > 1 - 1e-9;
        assert_near(sum_of(&o.state[0]), sum_of(&o.state[1]), 1e-13);
    }
    assert_true(clipped);
    optimized_free(&o);
    ech_config_destroy(config);
}

/* The same in a few lines: steps by the size of weights, decay, clipping of gradients and
 * momentum of a vector. */
TEST(test_momentum_by_hand)
{
    ech_config *config = optimized_config("adafactor");
    config->optimizer.momentum = 0.75;
    config->optimizer.weight_decay = 0.1;
    optimized o = optimized_create(config, ech_kernels_ref(ECH_F64), 0, COLUMNS);
    o.of.decay = true;
    double p[COLUMNS], v[COLUMNS] = {0}, m[COLUMNS] = {0}, u[COLUMNS];
    for (int i = 0; i < COLUMNS; i++) optimized_set(&o.param, i, p[i] = draw((uint64_t)i));
    for (int step = 1; step <= 6; step++) {
        double beta = 1 - pow(step, -0.8), size = fmax(1e-3, rms(p, COLUMNS));
        for (int i = 0; i < COLUMNS; i++) {
            double g = draw((uint64_t)(1000 * step + i));
            optimized_set(&o.gradient, i, g);
            v[i] = beta * v[i] + (1 - beta) * (0.25 * g * g + 1e-30);
            u[i] = 0.5 * g / sqrt(v[i]);
        }
        double scale = 0.01 * size / fmax(1, rms(u, COLUMNS));
        for (int i = 0; i < COLUMNS; i++) {
            m[i] = 0.75 * m[i] + 0.25 * scale * u[i];
            p[i] -= 0.01 * size * 0.1 * p[i] + m[i];
        }
        optimized_step(&o, 0.01, 0.5);
        for (int i = 0; i < COLUMNS; i++) assert_near(optimized_get(&o.param, i), p[i], 1e-13);
    }
    optimized_free(&o);
    ech_config_destroy(config);
}

/* A row, or everything, without gradient: nothing moves but by decay, and nothing becomes NaN. */
TEST(test_zero_gradients)
{
    ech_config *config = optimized_config("adafactor");
    optimized o = optimized_create(config, ech_kernels_fast(ECH_F32), ROWS, COLUMNS);
    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < ALL; i++)
            optimized_set(&o.gradient, i, i < COLUMNS || step == 0 ? 0 : draw((uint64_t)i));
        optimized_step(&o, 0.01, 1);
        for (int i = 0; i < ALL; i++) {
            double p = optimized_get(&o.param, i);
            assert_true(step == 0 || i < COLUMNS ? p == 0 : p != 0 && isfinite(p));
        }
    }
    optimized_free(&o);
    ech_config_destroy(config);
}
