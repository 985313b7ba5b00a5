/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of RESIDUALS: of gradients that are compressed, what all ranks have sent and what they have
 * kept adds up to their gradients, number by number over all steps (Karimireddy et al. 2019).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "app/probe.h"
#include "schedule/states.h"

/* What a rank has seen of a compressed parameter, summed over steps. */
typedef struct one {
    ech_box box; /* of its shard: those who add to it have the same */
    int64_t n;
    double *gradient, *sent, *residual; /* [n]; gradient: without the residual that was added */
} one;

typedef struct seen {
    int params;
    one *of; /* [params]; n 0: not compressed */
} seen;

/* Gradients of other turns than the first cannot be looked at. */
static bool applies(const ech_design *design)
{
    return design->config->parallel.compression != ECH_COMPRESSION_NONE &&
           design->schedule->turns == 1;
}

static void prepare(seen *s, const probe_run *run)
{
    const ech_plan *plan = run->session->plan;
    s->params = (int)plan->model->param.n;
    s->of = ech_calloc((size_t)s->params, sizeof *s->of);
    for (int p = 0; p < s->params; p++) {
        if (plan->param[p].bucket < 0 || ech_plan_state_of(plan, p, ECH_STATE_RESIDUAL) < 0)
            continue;
        ech_held held =
            ech_layout_held(plan->layout, plan->model, run->rank, p, ECH_HELD_GRADIENT, NULL);
        size_t n = (size_t)plan->param[p].elements;
        s->of[p] = (one){.box = held.box[0],
                         .n = (int64_t)n,
                         .gradient = ech_calloc(n, sizeof(double)),
                         .sent = ech_calloc(n, sizeof(double)),
                         .residual = ech_calloc(n, sizeof(double))};
    }
}

static void add(const probe_run *run, const ech_tensor *x, double *sum, double sign)
{
    int64_t n = ech_tensor_count(x);
    ECH_FREED double *values = ech_calloc((size_t)n, sizeof *values);
    ech_exec_read(run->session->exec, x, values);
    for (int64_t i = 0; i < n; i++) sum[i] += sign * values[i];
}

static ech_tensor residual_of(const probe_run *run, int param)
{
    return ech_exec_state(run->session->exec, param,
                          ech_plan_state_of(run->session->plan, param, ECH_STATE_RESIDUAL));
}

/* At RESIDUAL the residual has been added, and is still there. */
static void look(seen *s, const probe_run *run)
{
    bool begins = run->step->kind == ECH_STEP_RESIDUAL;
    if (!begins && run->step->kind != ECH_STEP_DECOMPRESS) return;
    for (int p = 0; p < s->params; p++) {
        if (!s->of[p].n || run->session->plan->param[p].bucket != run->step->index) continue;
        ech_tensor g = ech_exec_gradient(run->session->exec, p), e = residual_of(run, p);
        add(run, &g, begins ? s->of[p].gradient : s->of[p].sent, 1);
        if (begins) add(run, &e, s->of[p].gradient, -1);
    }
}

static void observe(void *state, const probe_run *run, probe_moment moment)
{
    seen *s = state;
    if (moment == PROBE_OPENED) prepare(s, run);
    if (moment == PROBE_STEP && run->list == ECH_LIST_TRAIN) look(s, run);
    if (moment != PROBE_AFTER || run->list != ECH_LIST_VALIDATE) return;
    for (int p = 0; p < s->params; p++) {
        if (!s->of[p].n) continue;
        ech_tensor e = residual_of(run, p);
        add(run, &e, s->of[p].residual, 1);
    }
}

static double largest(const double *x, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(x[i]));
    return most;
}

/* Of all who add to the same numbers as `rank`. */
static void check(void *const *states, int ranks, int rank, int param)
{
    const one *own = &((const seen *)states[rank])->of[param];
    double error = 0, size = largest(own->gradient, own->n) + 1e-30;
    for (int64_t i = 0; i < own->n; i++) {
        double all = 0;
        for (int r = 0; r < ranks; r++) {
            const one *x = &((const seen *)states[r])->of[param];
            if (x->n == own->n && memcmp(&x->box, &own->box, sizeof x->box) == 0)
                all += x->gradient[i] - x->residual[i];
        }
        double d = fabs(own->sent[i] - all);
        error = isfinite(d) ? fmax(error, d) : INFINITY;
    }
    if (!(error < 1e-10 * size))
        probe_fail("rank %d, parameter %d: sent and kept are %g from gradients of up to %g", rank,
                   param, error, size);
}

static void judge(void *const *states, const probe_case *c)
{
    for (int r = 0; r < c->ranks; r++)
        for (int p = 0; p < ((const seen *)states[r])->params; p++)
            if (((const seen *)states[r])->of[p].n) check(states, c->ranks, r, p);
}

static void release(void *state)
{
    seen *s = state;
    for (int p = 0; p < s->params; p++) {
        free(s->of[p].gradient);
        free(s->of[p].sent);
        free(s->of[p].residual);
    }
    free(s->of);
}

const probe probe_residuals = {.name = "residuals",
                               .state = sizeof(seen),
                               .applies = applies,
                               .observe = observe,
                               .judge = judge,
                               .release = release,
                               .steps = true};
