/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch norms whose statistics cover D replicas (layer/batch_norm_sync.c), in fp64. The replicas
 * run call by call in lockstep, and loops over their values stand for the collectives. Gradients
 * agree with finite differences over all replicas, and with one replica that has all samples.
 */

#include "layer/runner.h"
#include "unit.h"

enum { MOST = 3, B = 2, H = 3, W = 2, C = 2, STEPS = 2 };
enum { GAIN, BIAS, RUNNING_MEAN, RUNNING_VARIANCE, PARAMS };

typedef struct replicas {
    int n;
    int x, y, dx, dy; /* values of the block, on every replica */
    runner of[MOST];
} replicas;

/* A norm and an activation, so that gradients of the output differ from draws. */
static int build(runner *r, int64_t step_samples)
{
    const ech_shape vector = ech_shape_1d(ECH_AXIS_CHANNELS, C);
    ech_layer_batch_norm_args norm = {.step_samples = step_samples, .eps = 1e-5};
    norm.gain = runner_param(r, vector);
    norm.bias = runner_param(r, vector);
    norm.running_mean = runner_state(r, C);
    norm.running_variance = runner_state(r, C);
    int x = ech_block_input(r->block, "x", ech_shape_images(H, W, C));
    int y = ech_layer_batch_norm(r->block, x, &norm);
    ech_block_output(r->block, ech_layer_activation(r->block, ECH_ACTIVATION_GELU, y, -1));
    runner_finish(r);
    return x;
}

/* Inputs and gradients of the outputs: the numbers of `samples` samples from sample `first` on. */
static void draw_samples(runner *r, int64_t first, int64_t samples)
{
    enum { SAMPLE = H * W * C };
    double *x = r->value[r->block->input.at[0]], *dy = r->value[r->block->doutput.at[0]];
    for (int64_t i = 0; i < samples * SAMPLE; i++) {
        x[i] = 1 + runner_draw(50, (uint64_t)(first * SAMPLE + i));
        dy[i] = runner_draw(51, (uint64_t)(first * SAMPLE + i));
    }
}

/* n replicas of B samples, or one of n B samples. */
static replicas open_replicas(int n, int64_t samples)
{
    replicas all = {.n = n};
    for (int d = 0; d < n; d++) {
        runner *r = &all.of[d];
        *r = runner_open(samples, 1);
        r->block->options.norm_replicas = n;
        all.x = build(r, MOST * B);
        draw_samples(r, d * samples, samples);
    }
    const ech_block *block = all.of[0].block;
    all.y = ech_block_base(block, block->output.at[0]);
    all.dx = block->dinput.at[0];
    all.dy = block->doutput.at[0];
    return all;
}

static void close_replicas(replicas *all)
{
    for (int d = 0; d < all->n; d++) runner_close(&all->of[d]);
}

/* ---- calls in lockstep ---- */

/* The n-th value of the call. */
static int value_of(const ech_block *block, const ech_block_call *call, int n)
{
    const ech_operand *o = ech_call_next(block, call, ECH_TRAIN, NULL);
    while (n-- > 0) o = ech_call_next(block, call, ECH_TRAIN, o);
    assert_true(ech_operand_is_value(o));
    return o->value;
}

static void gather(replicas *all, int from, int to)
{
    int64_t own = runner_count(&all->of[0], from);
    assert_int_equal(runner_count(&all->of[0], to), own * all->n);
    for (int d = 0; d < all->n; d++)
        for (int other = 0; other < all->n; other++)
            memcpy(all->of[d].value[to] + own * other, all->of[other].value[from],
                   (size_t)own * sizeof(double));
}

static void reduce(replicas *all, int value)
{
    int64_t n = runner_count(&all->of[0], value);
    assert_int_equal(n % all->n, 0);
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (int d = 0; d < all->n; d++) sum += all->of[d].value[value][i];
        for (int d = 0; d < all->n; d++) all->of[d].value[value][i] = sum;
    }
}

static void exchange(replicas *all, const ech_block_call *call, const ech_exchange *does)
{
    const ech_block *block = all->of[0].block;
    int from = value_of(block, call, 0), to = value_of(block, call, 1);
    assert_int_equal(does->over, ECH_MESH_REPLICAS);
    if (does->kind == ECH_COLLECTIVE_ALL_GATHER) {
        gather(all, from, to);
        return;
    }
    assert_int_equal(does->kind, ECH_COLLECTIVE_ALL_REDUCE);
    assert_int_equal(from, to);
    reduce(all, to);
}

/* Returns the number of collectives. */
static int run(replicas *all, ech_phase phase)
{
    const ech_block *block = all->of[0].block;
    int collectives = 0;
    for (size_t i = 0; i < block->program[phase].n; i++) {
        const ech_block_call *call = &block->program[phase].at[i];
        const ech_exchange *does = ech_call_exchange(block, call, phase, ECH_TRAIN);
        if (!(call->purposes & 1u << ECH_TRAIN)) continue;
        collectives += does != NULL;
        if (does) exchange(all, call, does);
        for (int d = 0; d < all->n && !does; d++)
            runner_call(&all->of[d], phase, &all->of[d].block->program[phase].at[i]);
    }
    return collectives;
}

static void run_all(replicas *all)
{
    bool several = all->n > 1;
    assert_int_equal(run(all, ECH_FORWARD), several);
    assert_int_equal(run(all, ECH_BACKWARD_INPUT), several);
    assert_int_equal(run(all, ECH_BACKWARD_WEIGHT), 0);
}

/* ---- finite differences ---- */

/* The sum of outputs times their gradients, over all replicas. */
static double objective(replicas *all)
{
    double sum = 0;
    run(all, ECH_FORWARD);
    for (int d = 0; d < all->n; d++) {
        const runner *r = &all->of[d];
        for (int64_t i = 0; i < runner_count(r, all->y); i++)
            sum += r->value[all->y][i] * r->value[all->dy][i];
    }
    return sum;
}

/* Adds `h` to number i of a parameter, which all replicas have, or of replica d's images. */
static void shift(replicas *all, int param, int d, int64_t i, double h)
{
    if (param < 0) all->of[d].value[all->x][i] += h;
    for (int other = 0; other < all->n && param >= 0; other++) all->of[other].param[param][i] += h;
}

static void check_difference(replicas *all, int param, int d, int64_t i, double gradient)
{
    const double h = 1e-5;
    shift(all, param, d, i, h);
    double up = objective(all);
    shift(all, param, d, i, -2 * h);
    double down = objective(all);
    shift(all, param, d, i, h);
    double expected = (up - down) / (2 * h);
    if (!(fabs(gradient - expected) < 5e-6 * (fabs(expected) + 1e-2)))
        fail_msg("%s[%lld] of replica %d: %.12g, differences say %.12g",
                 param < 0 ? "input" : "parameter", (long long)i, d, gradient, expected);
}

/* As the reduction of gradients adds them. */
static double summed(const replicas *all, int param, int64_t i)
{
    double sum = 0;
    for (int d = 0; d < all->n; d++) sum += all->of[d].dparam[param][i];
    return sum;
}

TEST(gradients_agree_with_differences_over_all_replicas)
{
    for (int n = 2; n <= MOST; n++) {
        replicas all = open_replicas(n, B);
        run_all(&all);
        for (int d = 0; d < n; d++)
            for (int64_t i = 0; i < runner_count(&all.of[d], all.x); i++)
                check_difference(&all, -1, d, i, all.of[d].value[all.dx][i]);
        for (int param = GAIN; param <= BIAS; param++)
            for (int64_t i = 0; i < C; i++)
                check_difference(&all, param, 0, i, summed(&all, param, i));
        close_replicas(&all);
    }
}

/* ---- one replica with all samples ---- */

static void check_equal(const char *what, double x, double expected)
{
    if (!(fabs(x - expected) <= 1e-13 * (1 + fabs(expected))))
        fail_msg("%s: %.17g, one replica has %.17g", what, x, expected);
}

TEST(replicas_compute_what_one_does_with_all_samples)
{
    for (int n = 2; n <= MOST; n++) {
        replicas all = open_replicas(n, B), one = open_replicas(1, n * B);
        for (int step = 0; step < STEPS; step++) { /* gradients accumulate */
            run_all(&all);
            run_all(&one);
        }
        int64_t own = runner_count(&all.of[0], all.x);
        for (int64_t i = 0; i < n * own; i++) {
            const runner *r = &all.of[i / own];
            check_equal("y", r->value[all.y][i % own], one.of[0].value[one.y][i]);
            check_equal("dx", r->value[all.dx][i % own], one.of[0].value[one.dx][i]);
        }
        for (int param = 0; param < PARAMS; param++)
            for (int64_t i = 0; i < C; i++)
                check_equal("sum over replicas", summed(&all, param, i),
                            one.of[0].dparam[param][i]);
        close_replicas(&one);
        close_replicas(&all);
    }
}
