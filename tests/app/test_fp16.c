/* SPDX-License-Identifier: Apache-2.0
 *
 * fp16 runs need the loss scale, and with it they learn what fp32 runs do; they are resumed with
 * the same bits.
 */
#include <math.h>

#include "app/grid_run.h"
#include "app/runs.h"
#include "unit.h"

/* ---- gradients below fp16's smallest number ---- */

enum { MOST_ELEMENTS = 1 << 17 };

typedef struct taken {
    const ech_plan *plan;
    double scale;
    double gradient[MOST_ELEMENTS]; /* all parameters' */
    int64_t end[64];                /* of each parameter's in it */
} taken;

static void take(void *context, ech_exec *exec, const ech_step *step)
{
    taken *t = context;
    if (step->kind != ECH_STEP_CLIP) return;
    int64_t at = 0;
    for (int p = 0; p < (int)t->plan->model->param.n; p++) {
        ech_tensor g = ech_exec_gradient(exec, p);
        ECH_ASSERT(at + ech_tensor_count(&g) <= MOST_ELEMENTS);
        ech_convert(g.data, g.dtype, &t->gradient[at], ECH_F64, ech_tensor_count(&g));
        at = t->end[p] = at + ech_tensor_count(&g);
    }
}

static ech_status take_step(void *context, int rank, ech_compared_run *run)
{
    (void)rank;
    taken *t = context;
    t->plan = run->session.plan;
    t->scale = ech_exec_scaler(run->session.exec).scale;
    ech_exec_observe(run->session.exec, take, t);
    return ech_exec_run(run->session.exec, ECH_LIST_TRAIN, 0);
}

/* The largest error of a parameter's gradient; in *lost how many parameters have a gradient of
 * which nothing is left, in *lost_size the largest element of those. */
static double compare(const char *words, const taken *right, int *lost, double *lost_size)
{
    taken *t = ech_calloc(1, sizeof *t);
    double worst = 0;
    int params = 0;
    grid_run("llama", words, take_step, t);
    *lost = 0;
    *lost_size = 0;
    for (int64_t i = 0; params < 64 && (params == 0 || right->end[params] > 0); params++) {
        double apart = 0, size = 0, left = 0;
        for (; i < right->end[params]; i++) {
            double value = t->gradient[i] / t->scale;
            apart = fmax(apart, fabs(value - right->gradient[i]));
            size = fmax(size, fabs(right->gradient[i]));
            left = fmax(left, fabs(value));
        }
        *lost += size > 0 && left == 0;
        if (left == 0) *lost_size = fmax(*lost_size, size);
        if (size > 0) worst = fmax(worst, apart / size);
    }
    free(t);
    return worst;
}

#define SMALL                                                                                      \
    "training.global_batch_size=2 training.micro_batch_size=2 training.steps=1 "                   \
    "model.initializer_range=1.6e-3 model.num_hidden_layers=1 "

/* With small weights queries and keys have gradients of about 2^-26, which fp16 rounds to zero. */
TEST(small_gradients_need_it)
{
    taken *right = ech_calloc(1, sizeof *right);
    int lost;
    double size;
    grid_run("llama", SMALL "precision.compute=fp32", take_step, right);
    double one =
        compare(SMALL "precision.compute=fp16 precision.loss_scale=1", right, &lost, &size);
    assert_true(lost >= 2 && one == 1 && size > 0x1p-28 && size < 0x1p-25);
    double scaled = compare(SMALL "precision.compute=fp16", right, &lost, &size);
    assert_true(lost == 0 && scaled < 5e-3);
    free(right);
}

/* ---- whole runs ---- */

#define SHORT                                                                                      \
    "training.validate_every=16 training.validate_samples=12 optimizer.learning_rate=3e-2 "        \
    "training.steps=16 "

TEST(it_learns_as_fp32)
{
    double whole = runs_loss("llama", "fp32", 2, SHORT "parallel.pipeline=2");
    double half = runs_loss("llama", "fp16", 2, SHORT "parallel.data=2 precision.compute=fp16");
    assert_true(whole < 4.5 && fabs(half - whole) < 0.01 * whole);
}

/* Two stages and replicas, with overflows in between. */
TEST(it_is_resumed)
{
    static const char words[] =
        "precision.compute=fp16 precision.gradients=compute parallel.data=2 parallel.pipeline=2 "
        "model.initializer_range=2 optimizer.schedule=constant checkpoint.every=3 "
        "training.validate_samples=2";
    char more[400];
    for (int part = 0; part < 3; part++) {
        snprintf(more, sizeof more, "%s training.steps=%d", words, part == 1 ? 3 : 6);
        runs_train("llama", part ? "parts" : "whole", 4, more);
    }
    assert_true(runs_same("whole", "parts", 6));
    runs_remove("whole");
    runs_remove("parts");
}

ALL_TESTS(grid_setup, fixture_teardown)
