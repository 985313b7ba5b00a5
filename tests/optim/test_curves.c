/* SPDX-License-Identifier: Apache-2.0
 *
 * Learning-rate curves at their corners, clipping, and the optimizers' states.
 */

#include <math.h>

#include "optim/optim.h"
#include "unit.h"

static ech_config *config(void)
{
    ech_config *c;
    assert_int_equal(ech_config_create(NULL, 0, &c), ECH_OK);
    c->optimizer.learning_rate = 1;
    c->optimizer.min_learning_rate = 0.1;
    c->optimizer.warmup_steps = 10;
    c->optimizer.decay_steps = 20;
    c->training.steps = 110;
    return c;
}

static void expect(const char *curve, int64_t count, double rate)
{
    ech_config *c = config();
    double got = ech_learning_rate(c, ech_curve_find(curve), count);
    if (fabs(got - rate) > 1e-12)
        fail_msg("%s at %lld: %g, not %g", curve, (long long)count, got, rate);
    ech_config_destroy(c);
}

/* transformers' numbers, on both sides of where the two rates meet; bit for bit. */
TEST(test_relative_steps)
{
    ech_config *c;
    assert_int_equal(ech_config_create(NULL, 0, &c), ECH_OK);
    c->optimizer.relative_step = 1;
    c->training.steps = 50000;
    for (int64_t count = 1; count <= 50000; count++) {
        double root = 1 / sqrt((double)count), begin = 1e-6 * (double)count;
        c->optimizer.warmup_init = 0;
        assert_true(ech_learning_rate(c, ech_curve_of(c), count) == (root < 1e-2 ? root : 1e-2));
        c->optimizer.warmup_init = 1;
        assert_true(ech_learning_rate(c, ech_curve_of(c), count) == (root < begin ? root : begin));
    }
    ech_config_destroy(c);
}

TEST(test_curves)
{
    const char *const all[] = {"constant", "linear", "cosine", "wsd"};
    for (int i = 0; i < 4; i++) {
        expect(all[i], 1, 0.1); /* warmup */
        expect(all[i], 5, 0.5);
        expect(all[i], 10, 1);
        expect(all[i], 11, 1);
        expect(all[i], 111, i == 0 ? 1 : 0.1); /* past the end */
        expect(all[i], 200, i == 0 ? 1 : 0.1);
    }
    expect("linear", 61, 0.55);
    expect("linear", 110, 0.1 + 0.9 / 100);
    expect("cosine", 61, 0.55);
    expect("cosine", 36, 0.1 + 0.9 * 0.5 * (1 + sqrt(0.5)));
    ech_config *small = config();
    small->optimizer.learning_rate = 0.25;
    for (int64_t count = 11; count <= 120; count += 7)
        assert_true(fabs(ech_learning_rate(small, ech_curve_find("rsqrt"), count) -
                         fmin(0.25, 1 / sqrt((double)(count < 111 ? count : 111)))) < 1e-12);
    ech_config_destroy(small);
    for (int i = 0; i <= 20; i++) expect("wsd", 91 + i, 1 - 0.9 * i / 20);
}

/* Down to 0, which is the default, no update is lost, however many there are. */
TEST(test_every_update_counts)
{
    const char *const all[] = {"constant", "linear", "cosine", "wsd"};
    ech_config *c = config();
    c->optimizer.min_learning_rate = 0;
    for (int steps = 1; steps < 40; steps++) {
        for (int warmup = 0; warmup <= steps; warmup++) {
            c->training.steps = steps, c->optimizer.warmup_steps = warmup;
            c->optimizer.decay_steps = 1 + (steps - warmup) / 2;
            for (int i = 0; i < 4; i++) {
                const ech_curve *curve = ech_curve_find(all[i]);
                for (int64_t count = 1; count <= steps; count++)
                    if (!(ech_learning_rate(c, curve, count) > 0))
                        fail_msg("%s: update %lld has rate 0", all[i], (long long)count);
                assert_true(ech_learning_rate(c, curve, warmup + 1) == 1 || warmup == steps);
            }
        }
    }
    ech_config_destroy(c);
}

TEST(test_no_steps_after_warmup)
{
    ech_config *c = config();
    c->optimizer.warmup_steps = 0;
    c->training.steps = 0;
    assert_true(isfinite(ech_learning_rate(c, ech_curve_find("cosine"), 1)));
    ech_config_destroy(c);
}

TEST(test_clip)
{
    assert_true(ech_clip_factor(0.5, 1) == 1);
    assert_true(fabs(ech_clip_factor(4, 1) - 0.25) < 1e-6);
    assert_true(ech_clip_factor(4, 0) == 1);
    assert_true(ech_clip_factor(0, 1) == 1);
}

TEST(test_states)
{
    ech_config *c = config();
    const ech_optimizer *adamw = ech_optimizer_find("adamw"), *sgd = ech_optimizer_find("sgd");
    const ech_param matrix = {.name = "w",
                              .shape = ech_shape_2d(ECH_AXIS_MODEL, 4, ECH_AXIS_FFN, 6)};
    ech_optimizer_needs needs = {0};
    adamw->declare(c, &matrix, &needs);
    assert_int_equal(needs.states, 2);
    assert_string_equal(needs.state[1].name, "exp_avg_sq");
    assert_int_equal(ech_shape_whole(&needs.state[1].shape), 24);
    needs = (ech_optimizer_needs){0};
    sgd->declare(c, &matrix, &needs);
    assert_int_equal(needs.states, 0);
    c->optimizer.momentum = 0.9;
    sgd->declare(c, &matrix, &needs);
    assert_int_equal(needs.states, 1);
    assert_null(ech_optimizer_find("adam"));
    ech_config_destroy(c);
}
