/* SPDX-License-Identifier: Apache-2.0
 *
 * FACTORS of gradients that PowerSGD compresses (Vogels et al. 2019): left ones are orthonormal,
 * and all ranks that add to the same gradients have the same bits of both.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "app/probe.h"
#include "schedule/states.h"

typedef struct one {
    ech_box box;   /* of the rank's gradient: who adds to it has the same */
    uint64_t bits; /* FNV-1a of all factors of all steps; 0: not compressed */
} one;

typedef struct seen {
    int params;
    one *of; /* [params] */
} seen;

static bool applies(const ech_design *design)
{
    return design->config->parallel.compression == ECH_COMPRESSION_POWERSGD;
}

static void prepare(seen *s, const probe_run *run)
{
    const ech_plan *plan = run->session->plan;
    s->params = (int)plan->model->param.n;
    s->of = ech_calloc((size_t)s->params, sizeof *s->of);
    for (int p = 0; p < s->params; p++) {
        if (plan->param[p].bucket < 0 || plan->param[p].rank == 0) continue;
        ech_held held =
            ech_layout_held(plan->layout, plan->model, run->rank, p, ECH_HELD_GRADIENT, NULL);
        s->of[p] = (one){.box = held.box[0], .bits = 1469598103934665603u};
    }
}

/* All factors of the step's bucket, as fp64. */
static double *read_factors(const probe_run *run)
{
    ech_tensor x = ech_exec_factors(run->session->exec, run->step);
    double *values = ech_calloc((size_t)ech_tensor_count(&x) + 1, sizeof *values);
    ech_exec_read(run->session->exec, &x, values);
    return values;
}

static void check_left(const probe_run *run, int param, const double *left)
{
    int64_t size[2], rank = run->session->plan->param[param].rank;
    ech_plan_matrix(run->session->plan, param, size);
    for (int64_t i = 0; i < rank; i++)
        for (int64_t j = 0; j < rank; j++) {
            double sum = 0;
            for (int64_t r = 0; r < size[0]; r++) sum += left[r * rank + i] * left[r * rank + j];
            if (!(fabs(sum - (i == j)) < 1e-10))
                probe_fail("rank %d, parameter %d: columns %lld and %lld of its left factor have "
                           "the product %g",
                           run->rank, param, (long long)i, (long long)j, sum);
        }
}

static void hash(one *of, const double *values, int64_t n)
{
    const unsigned char *at = (const unsigned char *)values;
    for (size_t i = 0; i < (size_t)n * sizeof *values; i++)
        of->bits = (of->bits ^ at[i]) * 0x100000001b3u;
}

static void look(seen *s, const probe_run *run)
{
    const ech_plan *plan = run->session->plan;
    bool left = run->step->kind == ECH_STEP_TRANSFORM_BACK;
    if (!left && run->step->kind != ECH_STEP_DECOMPRESS) return;
    if (plan->types.wide != ECH_F64 || !plan->bucket.at[run->step->index].compressed) return;
    ECH_FREED double *factors = read_factors(run);
    for (int p = 0; p < s->params; p++) {
        const ech_plan_param *param = &plan->param[p];
        int64_t size[2];
        if (!s->of[p].bits || param->bucket != run->step->index) continue;
        ech_plan_matrix(plan, p, size);
        for (int i = 0; i < param->stacked; i++) {
            const double *own = factors + param->left + i * size[0] * param->rank;
            if (left) check_left(run, p, own);
            if (!left) hash(&s->of[p], own, size[0] * param->rank);
        }
        if (!left) hash(&s->of[p], factors + param->right, param->stacked * size[1] * param->rank);
    }
}

static void observe(void *state, const probe_run *run, probe_moment moment)
{
    if (moment == PROBE_OPENED) prepare(state, run);
    if (moment == PROBE_STEP) look(state, run);
}

static void judge(void *const *states, const probe_case *c)
{
    for (int r = 1; r < c->ranks; r++)
        for (int q = 0; q < r; q++) {
            const seen *x = states[r], *y = states[q];
            for (int p = 0; p < x->params; p++)
                if (x->of[p].bits && y->of[p].bits && x->of[p].bits != y->of[p].bits &&
                    memcmp(&x->of[p].box, &y->of[p].box, sizeof x->of[p].box) == 0)
                    probe_fail("ranks %d and %d have other factors of parameter %d", q, r, p);
        }
}

static void release(void *state)
{
    free(((seen *)state)->of);
}

const probe probe_factors = {.name = "factors",
                             .state = sizeof(seen),
                             .applies = applies,
                             .observe = observe,
                             .judge = judge,
                             .release = release,
                             .steps = true};
