/* SPDX-License-Identifier: Apache-2.0
 *
 * The serial replay of pushes. A push is one training step of the single rank with the weights that its worker has: before the update
 * the newest weights take their place.
 */
#include "app/verify/pushed.h"

#include <stdlib.h>
#include <string.h>

enum { TENSORS = 1 + ECH_MAX_STATES }; /* of a parameter: the weights, then states */

/* A worker between two of its pushes. */
typedef struct worker {
    ech_loader *loader; /* of the same batches: what is another worker's is padding */
    double *weights;    /* what it computes with */
    int64_t clock;      /* the training step of its next push */
} worker;

struct ech_pushed {
    const ech_compared_run *layout;
    ech_compared_run *alone;
    int workers, turns;
    int64_t *first; /* [params * TENSORS + 1] where each tensor begins in a whole copy */
    double *newest; /* all weights and states */
    worker *worker; /* [workers] */
    bool sums;      /* there are backup workers: servers sum pushes of a clock */
    int summands;   /* so many */
    bool gives;     /* the sum is there */
    double
        *gradient; /* of the single rank, where a copy has weights: what it has made, or is given */
};

static int params_of(const ech_pushed *p)
{
    return (int)p->alone->design->model->param.n;
}

static ech_tensor tensor_of(const ech_pushed *p, int param, int k)
{
    ech_exec *exec = p->alone->session.exec;
    return k == 0 ? ech_exec_param(exec, param) : ech_exec_state(exec, param, k - 1);
}

static int tensors_of(const ech_pushed *p, int param)
{
    return 1 + p->alone->session.plan->param[param].states;
}

/* ---- whole copies ---- */

static void lay_out(ech_pushed *p)
{
    int n = params_of(p) * TENSORS;
    p->first = ech_calloc((size_t)n + 1, sizeof *p->first);
    for (int i = 0; i < n; i++) {
        bool has = i % TENSORS < tensors_of(p, i / TENSORS);
        ech_tensor x = has ? tensor_of(p, i / TENSORS, i % TENSORS) : (ech_tensor){0};
        p->first[i + 1] = p->first[i] + (has ? ech_tensor_count(&x) : 0);
    }
}

static double *place(const ech_pushed *p, double *copy, int param, int k)
{
    return copy + p->first[param * TENSORS + k];
}

/* Of tensors from .. end - 1 of each parameter. */
static void load(ech_pushed *p, double *copy, int from, int end)
{
    for (int param = 0; param < params_of(p); param++)
        for (int k = from; k < end && k < tensors_of(p, param); k++) {
            ech_tensor x = tensor_of(p, param, k);
            ech_exec_write(p->alone->session.exec, &x, place(p, copy, param, k));
        }
}

static void store(ech_pushed *p, double *copy)
{
    for (int param = 0; param < params_of(p); param++)
        for (int k = 0; k < tensors_of(p, param); k++) {
            ech_tensor x = tensor_of(p, param, k);
            ech_exec_read(p->alone->session.exec, &x, place(p, copy, param, k));
        }
}

/* ---- a push ---- */

/* Before the first norm gradients are complete. */
static void exchange(ech_pushed *p, ech_exec *exec, const ech_step *step)
{
    const ech_list *list = &p->alone->session.plan->list[ECH_LIST_TRAIN];
    const ech_step *end = list->step.at + list->step.n;
    bool trains = step >= list->step.at && step + 1 < end; /* other lists are observed, too */
    bool first = trains && step[1].kind == ECH_STEP_NORM && step->kind != ECH_STEP_NORM;
    for (int param = 0; param < params_of(p) && first; param++) {
        ech_tensor gradient = ech_exec_gradient(exec, param);
        double *at = place(p, p->gradient, param, 0);
        if (p->gives)
            ech_exec_write(exec, &gradient, at);
        else
            ech_exec_read(exec, &gradient, at);
    }
}

/* The gradient and its clip factor are there: the update is of the newest weights. */
static void observe(void *context, ech_exec *exec, const ech_step *step)
{
    ech_pushed *p = context;
    if (step->kind == ECH_STEP_CLIP && !p->sums) load(p, p->newest, 0, 1);
    if (p->sums) exchange(p, exec, step);
}

/* The push of turn `turn` of the span that begins with `step`: its worker goes on with what it leaves. */
static ech_status serve(ech_pushed *p, int64_t step, int turn, const ech_serve *push)
{
    ech_exec *exec = p->alone->session.exec;
    if (push->worker < 0 || push->worker >= p->workers ||
        p->worker[push->worker].clock != push->clock)
        ECH_FAIL(ECH_EINTERNAL,
                 "servers have written down that push %d behind step %lld is of worker %d and its "
                 "step %lld, which has no such push then",
                 turn, (long long)step, push->worker, (long long)push->clock);
    worker *w = &p->worker[push->worker];
    load(p, p->newest, 1, TENSORS);
    load(p, w->weights, 0, 1);
    ech_exec_set_loader(exec, ECH_TRAIN, w->loader);
    ech_exec_set_updates(exec, step * p->workers + turn);
    ECH_TRY(ech_exec_run(exec, ECH_LIST_TRAIN, w->clock));
    store(p, p->newest);
    memcpy(w->weights, p->newest, (size_t)p->first[params_of(p) * TENSORS] * sizeof *w->weights);
    w->clock++;
    return ECH_OK;
}

static void begin_span(ech_pushed *p)
{
    size_t all = (size_t)p->first[params_of(p) * TENSORS];
    for (int w = 0; w < p->workers; w++)
        memcpy(p->worker[w].weights, p->newest, all * sizeof *p->newest);
}

/* Of a training step: so many pushes as there are workers. */
static ech_status replay_step(ech_pushed *p, int64_t step, int first, const ech_serve *serves,
                              double *loss)
{
    double sum = 0, tokens = 0;
    for (int turn = first; turn < first + p->workers; turn++) {
        ECH_TRY(serve(p, step, turn, &serves[turn]));
        sum += ech_exec_readings(p->alone->session.exec)->loss_sum;
        tokens += ech_exec_readings(p->alone->session.exec)->tokens;
    }
    *loss = tokens > 0 ? sum / tokens : 0;
    return ECH_OK;
}

/* ---- sums of pushes ---- */

/* A training step of the single rank with one worker's samples, or with the gradient that it is given. */
static ech_status run_push(ech_pushed *p, int64_t clock, int who)
{
    ech_exec *exec = p->alone->session.exec;
    load(p, p->newest, 0, TENSORS);
    ech_exec_set_loader(exec, ECH_TRAIN, p->worker[who].loader);
    ech_exec_set_updates(exec, clock);
    return ech_exec_run(exec, ECH_LIST_TRAIN, clock);
}

/* The update by the mean of one clock's pushes that are not dropped. */
static ech_status replay_clock(ech_pushed *p, int64_t clock, const ech_serve *serves, double *loss)
{
    size_t all = (size_t)p->first[params_of(p) * TENSORS];
    ECH_FREED double *sum = ech_calloc(all + 1, sizeof *sum);
    double tokens = 0, losses = 0;
    int last = 0;
    p->gives = false;
    for (int i = 0; i < p->workers * p->turns; i++) {
        if (serves[i].clock != clock) continue;
        ECH_TRY(run_push(p, clock, serves[i].worker)); /* of all: loaders go step by step */
        if (serves[i].dropped) continue;
        last = serves[i].worker;
        const ech_readings *r = ech_exec_readings(p->alone->session.exec);
        for (size_t k = 0; k < all; k++) sum[k] += r->tokens * p->gradient[k];
        losses += r->loss_sum;
        tokens += r->tokens;
    }
    for (size_t k = 0; k < all; k++) p->gradient[k] = tokens > 0 ? sum[k] / tokens : 0;
    *loss = tokens > 0 ? losses / tokens : 0;
    p->gives = true;
    ECH_TRY(run_push(p, clock, last));
    store(p, p->newest);
    return ECH_OK;
}

/* Whether a push may stand where it does: where clock `now` is summed, whose weights are there since so many pushes. */
static bool is_in_order(const ech_pushed *p, const ech_serve *push, int64_t now, int sent)
{
    if (push->worker < 0 || push->worker >= p->workers) return false;
    if (push->clock != p->worker[push->worker].clock || push->clock > now) return false;
    return push->dropped ? push->clock < now : push->clock == now && push->read >= sent;
}

/* Each worker's pushes come in order; the first ones of a clock, with the weights of the update before, are in its update, and the
 * others, behind it, dropped. */
static ech_status check_serves(ech_pushed *p, int64_t step, const ech_serve *serves)
{
    int summed = 0, sent = 0;
    int64_t now = step;
    for (int i = 0; i < p->workers * p->turns; i++) {
        const ech_serve *push = &serves[i];
        if (!is_in_order(p, push, now, sent))
            ECH_FAIL(ECH_EINTERNAL,
                     "servers have written down that push %d behind step %lld, of worker %d and "
                     "step %lld, is %s while step %lld is summed",
                     i, (long long)step, push->worker, (long long)push->clock,
                     push->dropped ? "dropped" : "served", (long long)now);
        p->worker[push->worker].clock++;
        if (push->dropped || ++summed < p->summands) continue;
        now++;
        summed = 0;
        sent = i + 1;
    }
    return ECH_OK;
}

static ech_status replay_sums(ech_pushed *p, int64_t step, const ech_serve *serves, double *loss)
{
    ECH_TRY(check_serves(p, step, serves));
    for (int turn = 0; turn < p->turns; turn++)
        ECH_TRY(replay_clock(p, step + turn, serves, &loss[turn]));
    load(p, p->newest, 0, TENSORS);
    return ECH_OK;
}

ech_status ech_pushed_replay(ech_pushed *p, int64_t step, const ech_serve *serves, double *loss)
{
    store(p, p->newest);
    if (p->sums) return replay_sums(p, step, serves, loss);
    begin_span(p);
    for (int turn = 0; turn < p->turns; turn++)
        ECH_TRY(replay_step(p, step, turn * p->workers, serves, &loss[turn]));
    load(p, p->newest, 0, TENSORS);
    return ECH_OK;
}

/* ---- the whole ---- */

/* What the single rank reads of a step for one worker. */
static ech_status read_worker(ech_pushed *p, int w)
{
    ech_loader_options options = ech_design_reads(p->alone->design, 0, true, INT64_MAX);
    options.replicas = p->workers;
    options.replica = w;
    return ech_loader_create(p->alone->data, &options, 0, &p->worker[w].loader);
}

ech_status ech_pushed_create(const ech_compared_run *layout, ech_compared_run *alone,
                             ech_pushed **out)
{
    const ech_layout *of = layout->design->layout;
    ech_pushed *p = *out = ech_calloc(1, sizeof *p);
    p->layout = layout;
    p->alone = alone;
    p->workers = ech_layout_workers(of);
    p->turns = layout->design->schedule->turns;
    p->sums = of->backups > 0;
    p->summands = ech_layout_summands(of);
    lay_out(p);
    size_t all = (size_t)p->first[params_of(p) * TENSORS];
    p->newest = ech_calloc(all + 1, sizeof *p->newest);
    p->worker = ech_calloc((size_t)p->workers, sizeof *p->worker);
    p->gradient = ech_calloc(all + 1, sizeof *p->gradient);
    store(p, p->newest);
    for (int w = 0; w < p->workers; w++) {
        p->worker[w].weights = ech_calloc(all + 1, sizeof *p->worker[w].weights);
        ECH_TRY(read_worker(p, w));
    }
    if (!p->sums) ech_exec_set_workers(alone->session.exec, p->workers);
    ech_exec_observe(alone->session.exec, observe, p);
    return ECH_OK;
}

void ech_pushed_destroy(ech_pushed *p)
{
    if (!p) return;
    for (int w = 0; w < p->workers && p->worker; w++) {
        ech_loader_destroy(p->worker[w].loader);
        free(p->worker[w].weights);
    }
    free(p->worker);
    free(p->newest);
    free(p->gradient);
    free(p->first);
    free(p);
}
