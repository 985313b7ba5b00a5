/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs with compressed gradients in fp64: what each rank has found, sent and kept of all compressed
 * parameters, side by side; of one that tensor ranks share, its shard. After cmocka.h.
 */
#ifndef ECH_TESTS_APP_COMPRESSED_H
#define ECH_TESTS_APP_COMPRESSED_H

#include <math.h>

#include "app/grid_run.h"
#include "schedule/states.h"

enum { RANKS = 4, MOST_STEPS = 40, ELEMENTS = 40000 };

typedef struct seen {
    int64_t n;                                 /* numbers of gradients */
    double gradient[ELEMENTS], sent[ELEMENTS]; /* summed over steps */
    double residual[ELEMENTS], loss[MOST_STEPS];
    double own[ELEMENTS]; /* what is read just now */
} seen;

typedef struct job {
    int steps;
    bool forgets; /* what is left is thrown away after each step */
    seen *of;     /* [RANKS] */
} job;

typedef struct watch {
    const job *job;
    const ech_plan *plan;
    seen *out;
} watch;

static inline bool has_residual(const ech_plan *plan, int param)
{
    return plan->param[param].bucket >= 0 &&
           ech_plan_state_of(plan, param, ECH_STATE_RESIDUAL) >= 0;
}

/* Calls `use` for each compressed parameter of the step's bucket, or of all (-1), with where it is
 * in `seen`. */
typedef void (*on_param)(watch *w, ech_exec *exec, int param, int64_t at);

static inline void each_param(watch *w, ech_exec *exec, int bucket, on_param use)
{
    int64_t at = 0;
    for (int p = 0; p < (int)w->plan->model->param.n; p++) {
        if (!has_residual(w->plan, p)) continue;
        if (bucket < 0 || w->plan->param[p].bucket == bucket) use(w, exec, p, at);
        at += w->plan->param[p].elements;
    }
    ECH_ASSERT(at <= ELEMENTS);
    w->out->n = at;
}

static inline void add(seen *s, ech_exec *exec, const ech_tensor *x, double *sums, double sign)
{
    ech_exec_read(exec, x, s->own);
    for (int64_t i = 0; i < ech_tensor_count(x); i++) sums[i] += sign * s->own[i];
}

static inline ech_tensor residual_of(const watch *w, ech_exec *exec, int param)
{
    return ech_exec_state(exec, param, ech_plan_state_of(w->plan, param, ECH_STATE_RESIDUAL));
}

/* At RESIDUAL the residual has been added, and is still there. */
static inline void add_gradient(watch *w, ech_exec *exec, int param, int64_t at)
{
    ech_tensor g = ech_exec_gradient(exec, param), e = residual_of(w, exec, param);
    add(w->out, exec, &g, w->out->gradient + at, 1);
    add(w->out, exec, &e, w->out->gradient + at, -1);
}

static inline void add_sent(watch *w, ech_exec *exec, int param, int64_t at)
{
    ech_tensor g = ech_exec_gradient(exec, param);
    add(w->out, exec, &g, w->out->sent + at, 1);
}

static inline void forget(watch *w, ech_exec *exec, int param, int64_t at)
{
    static const double none[ELEMENTS];
    (void)at;
    ech_tensor e = residual_of(w, exec, param);
    ech_exec_write(exec, &e, none);
}

static inline void take_residual(watch *w, ech_exec *exec, int param, int64_t at)
{
    ech_tensor e = residual_of(w, exec, param);
    ech_exec_read(exec, &e, w->out->residual + at);
}

static inline void look(void *context, ech_exec *exec, const ech_step *step)
{
    watch *w = context;
    if (step->kind == ECH_STEP_RESIDUAL) each_param(w, exec, step->index, add_gradient);
    if (step->kind != ECH_STEP_DECOMPRESS) return;
    each_param(w, exec, step->index, add_sent);
    if (w->job->forgets) each_param(w, exec, step->index, forget);
}

static inline ech_status train(void *context, int rank, ech_compared_run *run)
{
    const job *j = context;
    ech_exec *exec = run->session.exec;
    watch w = {.job = j, .plan = run->session.plan, .out = &j->of[rank]};
    ECH_ASSERT(rank < RANKS && w.plan->types.wide == ECH_F64 && j->steps <= MOST_STEPS);
    memset(w.out, 0, sizeof *w.out);
    ech_exec_observe(exec, look, &w);
    for (int step = 0; step < j->steps; step++) {
        ECH_TRY(ech_exec_run(exec, ECH_LIST_TRAIN, step));
        w.out->loss[step] = ech_exec_readings(exec)->loss;
    }
    ech_exec_observe(exec, NULL, NULL);
    each_param(&w, exec, -1, take_residual);
    return ECH_OK;
}

static seen of[RANKS], other[RANKS];

static inline void run(job j, const char *grid)
{
    char words[600];
    snprintf(words, sizeof words,
             "optimizer.name=sgd optimizer.weight_decay=0 optimizer.momentum=0.9 "
             "training.steps=40 %s",
             grid);
    grid_run("llama", words, train, &j);
}

/* How far what two ranks have sent is from their gradients, over all that these are. */
static inline double missing(const seen *x)
{
    double apart = 0, all = 0;
    for (int64_t i = 0; i < x[0].n; i++) {
        double gradient = x[0].gradient[i] + x[1].gradient[i];
        apart += pow(gradient - x[0].sent[i], 2);
        all += gradient * gradient;
    }
    return sqrt(apart / all);
}

/* What is not sent and forgotten is missing for good: it grows with the steps, where otherwise it
 * stays below some steps'. */
static inline void assert_forgetting_drifts_away(const char *grid)
{
    run((job){.steps = MOST_STEPS, .of = of}, grid);
    run((job){.steps = MOST_STEPS, .of = other, .forgets = true}, grid);
    assert_true(missing(other) > 2 * missing(of));
    assert_true(other[0].loss[MOST_STEPS - 1] > of[0].loss[MOST_STEPS - 1]);
}

#endif
