/* SPDX-License-Identifier: Apache-2.0
 *
 * The serial replay of pushes. A push is one training step of the single rank with the weights that its worker has: before the update
 * the newest weights take their place. Of what that makes the shard of the server which serves it is kept.
 */
#include "app/verify/pushed.h"

#include <stdlib.h>
#include <string.h>

enum { TENSORS = 1 + ECH_MAX_STATES }; /* of a parameter: the weights, then states */

/* A worker between two of its pushes. */
typedef struct worker {
    ech_loader *loader; /* of the same batches: what is another worker's is padding */
    double *weights;    /* what it computes with */
    double *next;       /* what it has of servers that have served its push */
    int64_t clock;      /* training steps that all servers have served */
    int left;           /* servers that have not served the next one */
    double *loss;       /* [turns] sums over its targets; then [turns] their weights */
} worker;

struct ech_pushed {
    const ech_compared_run *layout;
    ech_compared_run *alone;
    int workers, servers, turns;
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

/* What lies of a tensor in a server's shard: *first: its first number. */
static int64_t own_of(const ech_pushed *p, int server, int param, int k, int64_t *first)
{
    const ech_plan *plan = p->layout->session.plan;
    int rank = p->workers + server;
    return k == 0 ? ech_plan_part(plan, rank, param, first)
                  : ech_plan_state_part(plan, rank, param, k - 1, first);
}

/* The server's shard of one copy becomes that of another. */
static void copy_shard(const ech_pushed *p, int server, double *to, double *from, int tensors)
{
    for (int param = 0; param < params_of(p); param++)
        for (int k = 0; k < tensors && k < tensors_of(p, param); k++) {
            int64_t first, n = own_of(p, server, param, k, &first);
            memcpy(place(p, to, param, k) + first, place(p, from, param, k) + first,
                   (size_t)n * sizeof *to);
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

/* The server's number `turn` of the span that begins with `step`. */
static ech_status serve(ech_pushed *p, int64_t step, int server, int turn, int who, double *made)
{
    worker *w = &p->worker[who];
    ech_exec *exec = p->alone->session.exec;
    load(p, p->newest, 1, TENSORS);
    load(p, w->weights, 0, 1);
    ech_exec_set_loader(exec, ECH_TRAIN, w->loader);
    ech_exec_set_updates(exec, step * p->workers + turn);
    ECH_TRY(ech_exec_run(exec, ECH_LIST_TRAIN, w->clock));
    store(p, made);
    copy_shard(p, server, p->newest, made, TENSORS);
    copy_shard(p, server, w->next, made, 1);
    return ECH_OK;
}

/* All servers have served the worker's push: it goes on with what they have sent back. */
static void go_on(ech_pushed *p, worker *w)
{
    memcpy(w->weights, w->next, (size_t)p->first[params_of(p) * TENSORS] * sizeof *w->next);
    w->clock++;
    w->left = p->servers;
}

/* Whether the push can be served now: its worker has what it computes with. */
static bool is_ready(const ech_pushed *p, const ech_serve *push)
{
    return push->worker >= 0 && push->worker < p->workers &&
           p->worker[push->worker].clock == push->clock;
}

static void begin_span(ech_pushed *p, int64_t step)
{
    size_t all = (size_t)p->first[params_of(p) * TENSORS];
    for (int w = 0; w < p->workers; w++) {
        memcpy(p->worker[w].weights, p->newest, all * sizeof *p->newest);
        memcpy(p->worker[w].next, p->newest, all * sizeof *p->newest);
        p->worker[w].clock = step;
        p->worker[w].left = p->servers;
    }
}

/* As ranks fold them: in the workers' order. */
static double fold_loss(const ech_pushed *p, int turn)
{
    double sum = 0, tokens = 0;
    for (int w = 0; w < p->workers; w++) {
        sum += p->worker[w].loss[turn];
        tokens += p->worker[w].loss[p->turns + turn];
    }
    return tokens > 0 ? sum / tokens : 0;
}

/* Serves what a server has next, if that can be. */
static ech_status try_one(ech_pushed *p, int64_t step, int server, const ech_serve *serves,
                          int *next, double *made)
{
    const ech_serve *push = &serves[*next];
    if (*next == p->workers * p->turns || !is_ready(p, push)) return ECH_OK;
    worker *w = &p->worker[push->worker];
    ECH_TRY(serve(p, step, server, *next, push->worker, made));
    const ech_readings *r = ech_exec_readings(p->alone->session.exec);
    w->loss[push->clock - step] = r->loss_sum; /* each server's replay makes the same */
    w->loss[p->turns + push->clock - step] = r->tokens;
    ++*next;
    if (--w->left == 0) go_on(p, w);
    return ECH_OK;
}

static ech_status replay(ech_pushed *p, int64_t step, const ech_serve *serves, double *made)
{
    int pushes = p->workers * p->turns, done = 0, before = -1;
    ECH_FREED int *next = ech_calloc((size_t)p->servers, sizeof *next);
    while (done < p->servers * pushes && done != before) {
        before = done;
        for (int s = 0; s < p->servers; s++) {
            int at = next[s];
            ECH_TRY(try_one(p, step, s, serves + s * pushes, &next[s], made));
            done += next[s] - at;
        }
    }
    if (done < p->servers * pushes)
        ECH_FAIL(ECH_EINTERNAL,
                 "step %lld: %d of %d pushes that servers have written down can be "
                 "served in their order",
                 (long long)step + 1, done, p->servers * pushes);
    return ECH_OK;
}

ech_status ech_pushed_replay(ech_pushed *p, int64_t step, const ech_serve *serves, double *loss)
{
    size_t all = (size_t)p->first[params_of(p) * TENSORS];
    ECH_FREED double *made = ech_calloc(all + 1, sizeof *made);
    begin_span(p, step);
    ECH_TRY(replay(p, step, serves, made));
    for (int turn = 0; turn < p->turns; turn++) loss[turn] = fold_loss(p, turn);
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
    p->servers = of->servers;
    p->turns = layout->design->schedule->turns;
    lay_out(p);
    size_t all = (size_t)p->first[params_of(p) * TENSORS];
    p->newest = ech_calloc(all + 1, sizeof *p->newest);
    p->worker = ech_calloc((size_t)p->workers, sizeof *p->worker);
    store(p, p->newest);
    for (int w = 0; w < p->workers; w++) {
        p->worker[w].weights = ech_calloc(all + 1, sizeof *p->worker[w].weights);
        p->worker[w].next = ech_calloc(all + 1, sizeof *p->worker[w].next);
        p->worker[w].loss = ech_calloc(2 * (size_t)p->turns, sizeof *p->worker[w].loss);
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
        free(p->worker[w].next);
        free(p->worker[w].loss);
    }
    free(p->worker);
    free(p->newest);
    free(p->first);
    free(p);
}
