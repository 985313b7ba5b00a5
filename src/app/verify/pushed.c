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

/* The gradient and its clip factor are there: the update is of the newest weights. */
static void observe(void *context, ech_exec *exec, const ech_step *step)
{
    ech_pushed *p = context;
    (void)exec;
    if (step->kind == ECH_STEP_CLIP) load(p, p->newest, 0, 1);
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

ech_status ech_pushed_replay(ech_pushed *p, int64_t step, const ech_serve *serves, double *loss)
{
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
    lay_out(p);
    size_t all = (size_t)p->first[params_of(p) * TENSORS];
    p->newest = ech_calloc(all + 1, sizeof *p->newest);
    p->worker = ech_calloc((size_t)p->workers, sizeof *p->worker);
    store(p, p->newest);
    for (int w = 0; w < p->workers; w++) {
        p->worker[w].weights = ech_calloc(all + 1, sizeof *p->worker[w].weights);
        ECH_TRY(read_worker(p, w));
    }
    ech_exec_set_workers(alone->session.exec, p->workers);
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
    free(p->first);
    free(p);
}
