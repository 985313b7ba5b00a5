/* SPDX-License-Identifier: Apache-2.0
 *
 * SM3: a 2 x 2 by hand, the bounds that the paper proves (its lemma 2 and proposition 3), momentum.
 */

#include <math.h>

#include "base/random.h"
#include "optim/optimized.h"
#include "unit.h"

enum { ROWS = 6, COLUMNS = 5, ALL = ROWS * COLUMNS };

static double draw(uint64_t i)
{
    return 2 * ech_random_unit(ech_random_word((ech_random_key){.seed = 9}, i)) - 1;
}

static void assert_near(double got, double wanted)
{
    if (!(fabs(got - wanted) <= 1e-14 * fabs(wanted))) fail_msg("%.17g, not %.17g", got, wanted);
}

static void set_gradient(optimized *o, const double *g)
{
    for (int64_t i = 0; i < ech_tensor_count(&o->gradient); i++)
        optimized_set(&o->gradient, i, g[i]);
}

/* First g^2 = 1 4 / 9 16, so rows 4, 16 and columns 9, 16; then nu = min(4, 9) + 4, min(4, 16) + 0
 * / min(16, 9) + 1, min(16, 16) + 9. */
TEST(test_by_hand)
{
    ech_config *config = optimized_config("sm3");
    optimized o = optimized_create(config, ech_kernels_ref(ECH_F64), 2, 2);
    const double first[] = {1, 2, -3, 4}, second[] = {2, 0, 1, -3};
    const double columns[][2] = {{9, 16}, {10, 25}}, rows[][2] = {{4, 16}, {8, 25}};
    const double nu[] = {8, 4, 10, 25};
    for (int step = 0; step < 2; step++) {
        set_gradient(&o, step ? second : first);
        optimized_step(&o, 0.5, 1);
        for (int i = 0; i < 2; i++) {
            assert_near(optimized_get(&o.state[0], i), columns[step][i]);
            assert_near(optimized_get(&o.state[1], i), rows[step][i]);
        }
    }
    for (int i = 0; i < 4; i++) {
        double first_sign = first[i] > 0 ? 1 : -1;
        assert_near(optimized_get(&o.param, i), -0.5 * (first_sign + second[i] / sqrt(nu[i])));
    }
    optimized_free(&o);
    ech_config_destroy(config);
}

/* Sum of g^2 <= nu of SM3-II <= nu of SM3-I, element by element and step by step; accumulators
 * never fall. What nu is shows in how far a weight moves. */
TEST(test_bounds)
{
    ech_config *config = optimized_config("sm3");
    optimized o = optimized_create(config, ech_kernels_ref(ECH_F64), ROWS, COLUMNS);
    double g[ALL], sum[ALL] = {0}, before[ALL] = {0}, kept[ROWS + COLUMNS] = {0};
    double row[ROWS] = {0}, column[COLUMNS] = {0}; /* SM3-I's */
    int64_t numbers = 0;
    for (int i = 0; i < o.needs.states; i++) numbers += ech_tensor_count(&o.state[i]);
    assert_int_equal(numbers, ROWS + COLUMNS);
    for (int step = 0; step < 30; step++) {
        double most_row[ROWS] = {0}, most_column[COLUMNS] = {0};
        for (int i = 0; i < ALL; i++) {
            g[i] = draw((uint64_t)(ALL * step + i)) * (1 + i % COLUMNS);
            sum[i] += g[i] * g[i];
            most_row[i / COLUMNS] = fmax(most_row[i / COLUMNS], g[i] * g[i]);
            most_column[i % COLUMNS] = fmax(most_column[i % COLUMNS], g[i] * g[i]);
        }
        for (int i = 0; i < ROWS; i++) row[i] += most_row[i];
        for (int i = 0; i < COLUMNS; i++) column[i] += most_column[i];
        set_gradient(&o, g);
        optimized_step(&o, 1, 1);
        for (int i = 0; i < ALL; i++) {
            double moved = before[i] - optimized_get(&o.param, i),
                   nu = g[i] * g[i] / (moved * moved);
            assert_true(nu >= sum[i] * (1 - 1e-9));
            assert_true(nu <= fmin(row[i / COLUMNS], column[i % COLUMNS]) * (1 + 1e-9));
            before[i] = optimized_get(&o.param, i);
        }
        for (int i = 0; i < ROWS + COLUMNS; i++) {
            double now = i < COLUMNS ? optimized_get(&o.state[0], i)
                                     : optimized_get(&o.state[1], i - COLUMNS);
            assert_true(now >= kept[i]);
            kept[i] = now;
        }
    }
    optimized_free(&o);
    ech_config_destroy(config);
}

/* A vector's covers are single elements: Adagrad. With momentum, decay and clipping; where all was
 * 0, nothing moves. */
TEST(test_vector_is_adagrad)
{
    ech_config *config = optimized_config("sm3");
    config->optimizer.momentum = 0.75;
    config->optimizer.weight_decay = 0.25;
    optimized o = optimized_create(config, ech_kernels_ref(ECH_F64), 0, COLUMNS);
    double p[COLUMNS] = {0}, v[COLUMNS] = {0}, m[COLUMNS] = {0}, g[COLUMNS];
    o.of.decay = true;
    for (int step = 0; step < 5; step++) {
        for (int i = 0; i < COLUMNS; i++) {
            g[i] = i ? draw((uint64_t)(COLUMNS * step + i)) : 0;
            v[i] += 0.25 * g[i] * g[i];
            m[i] = 0.75 * m[i] + 0.25 * (v[i] > 0 ? 0.5 * g[i] / sqrt(v[i]) : 0);
            p[i] -= 0.125 * (0.25 * p[i] + m[i]);
        }
        set_gradient(&o, g);
        optimized_step(&o, 0.125, 0.5);
        for (int i = 0; i < COLUMNS; i++) assert_near(optimized_get(&o.param, i), p[i]);
    }
    optimized_free(&o);
    ech_config_destroy(config);
}
