/* SPDX-License-Identifier: Apache-2.0
 *
 * The serial replay. Weights of the past are kept whole; between the steps of an ordinary training
 * list of one rank, the weights that the next micro-batch must see are put in place.
 */
#include "app/verify/replay.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef ECH_LIST(char *) history;

struct ech_replay {
    const ech_contestant *layout;
    ech_contestant *alone;
    double clip_norm;
    int turns, stages;
    int64_t micro_batches; /* of a step */
    int *version[2];       /* of F and of B and W: [(turn * micro_batches + q) * stages + stage] */
    int *stage_of;         /* [params] */
    size_t *first;         /* [params + 1] bytes: where each begins in a whole copy */
    history past;          /* whole copies; past.at[v]: version v of the run */
    int64_t base;          /* the version that is 0 in the span */
    int turn, loaded[2];   /* which micro-batch's weights are in place, and for what: F 0, B 1 */
};

static void copy_weights(ech_replay *r, void *to, const void *from, int param)
{
    memcpy(to, from, r->first[param + 1] - r->first[param]);
}

static void *weights_now(const ech_replay *r, int param)
{
    return ech_exec_param(r->alone->session.exec, param).data;
}

static void remember(ech_replay *r)
{
    int params = (int)r->alone->design.model->param.n;
    char *copy = ech_calloc(1, r->first[params]);
    for (int p = 0; p < params; p++) copy_weights(r, copy + r->first[p], weights_now(r, p), p);
    ECH_PUSH(r->past, copy);
}

/* Version -1 of a run is its version 0. */
static const void *recall(const ech_replay *r, int64_t version, int param)
{
    int64_t v = version < 0 ? 0 : version;
    ECH_ASSERT(v < (int64_t)r->past.n && r->past.at[v]);
    return r->past.at[v] + r->first[param];
}

/* ---- which version ---- */

/* The versions of one rank's items, put where its stage and its global micro-batches say. */
static void tabulate(ech_replay *r, int rank)
{
    const ech_layout *layout = r->layout->design.layout;
    const ech_schedule *schedule = r->layout->design.schedule;
    int own = ech_layout_micro_batches(layout, rank);
    ech_order order = {0};
    ech_schedule_order(schedule, layout, rank, r->turns, false, &order);
    int *version = ech_calloc(order.n + 1, sizeof *version);
    ech_schedule_versions(schedule, layout, rank, &order, version);
    for (size_t i = 0; i < order.n; i++) {
        int turn = order.at[i].micro / own;
        int64_t q = ech_layout_global_micro(layout, rank, order.at[i].micro % own);
        r->version[order.at[i].action != ECH_F][(turn * r->micro_batches + q) * r->stages +
                                                layout->place[rank].stage] = version[i];
    }
    free(version);
    free(order.at);
}

static void find_stages(ech_replay *r)
{
    const ech_layout *layout = r->layout->design.layout;
    const ech_model *model = r->layout->design.model;
    r->stage_of = ech_calloc(model->param.n + 1, sizeof *r->stage_of);
    for (int rank = 0; rank < layout->world; rank++)
        for (int p = 0; p < (int)model->param.n; p++)
            if (ech_layout_holds(layout, rank, p)) r->stage_of[p] = layout->place[rank].stage;
}

static void put_weights(ech_replay *r, int64_t q, int backward)
{
    const int *version = r->version[backward] + (r->turn * r->micro_batches + q) * r->stages;
    for (int p = 0; p < (int)r->alone->design.model->param.n; p++)
        copy_weights(r, weights_now(r, p), recall(r, r->base + version[r->stage_of[p]], p), p);
    r->loaded[0] = (int)q;
    r->loaded[1] = backward;
}

/* ---- in between steps ---- */

/* What the next step of the list needs. */
static void prepare_next(ech_replay *r, const ech_list *list, const ech_step *step)
{
    if (step + 1 == list->step.at + list->step.n) return;
    const ech_step *next = step + 1;
    bool backward = next->kind == ECH_STEP_BACKWARD_INPUT || next->kind == ECH_STEP_BACKWARD_WEIGHT;
    if (next->kind != ECH_STEP_FORWARD && !backward) return;
    if (r->loaded[0] != next->micro || r->loaded[1] != (int)backward)
        put_weights(r, next->micro, backward);
}

/* Element i, of fp32 or fp64, times a factor. Returns what it was. */
static double scale(const ech_tensor *x, int64_t i, double factor)
{
    double value;
    if (x->dtype == ECH_F64) {
        value = ((double *)x->data)[i];
        ((double *)x->data)[i] = value * factor;
    } else {
        value = (double)((float *)x->data)[i];
        ((float *)x->data)[i] = (float)(value * factor);
    }
    return value;
}

/* Each stage's gradients by its own norm. */
static void clip_stages(ech_replay *r, ech_exec *exec)
{
    int params = (int)r->alone->design.model->param.n;
    double *squares = ech_calloc((size_t)r->stages, sizeof *squares);
    for (int p = 0; p < params; p++) {
        ech_tensor g = ech_exec_gradient(exec, p);
        for (int64_t i = 0; i < ech_tensor_count(&g); i++) {
            double x = scale(&g, i, 1);
            squares[r->stage_of[p]] += x * x;
        }
    }
    for (int p = 0; p < params; p++) {
        ech_tensor g = ech_exec_gradient(exec, p);
        double factor = ech_clip_factor(sqrt(squares[r->stage_of[p]]), r->clip_norm);
        for (int64_t i = 0; i < ech_tensor_count(&g); i++) scale(&g, i, factor);
    }
    free(squares);
}

static void observe(void *context, ech_exec *exec, const ech_step *step)
{
    ech_replay *r = context;
    const ech_list *list = &r->alone->session.plan->list[ECH_LIST_TRAIN];
    if (step < list->step.at || step >= list->step.at + list->step.n) return;
    if (step->kind == ECH_STEP_CLIP) {
        clip_stages(r, exec);
        for (int p = 0; p < (int)r->alone->design.model->param.n; p++)
            copy_weights(r, weights_now(r, p), recall(r, (int64_t)r->past.n - 1, p), p);
        return;
    }
    prepare_next(r, list, step);
}

ech_replay *ech_replay_create(const ech_contestant *layout, ech_contestant *alone, double clip_norm)
{
    const ech_model *model = alone->design.model;
    ech_replay *r = ech_calloc(1, sizeof *r);
    r->layout = layout;
    r->alone = alone;
    r->clip_norm = clip_norm;
    r->turns = layout->design.schedule->turns;
    r->stages = layout->design.layout->stages;
    r->micro_batches = layout->design.layout->micro_batches;
    r->first = ech_calloc(model->param.n + 1, sizeof *r->first);
    for (size_t p = 0; p < model->param.n; p++)
        r->first[p + 1] = r->first[p] + (size_t)alone->session.plan->param[p].elements *
                                            ech_dtype_bytes(alone->session.plan->real);
    size_t entries = (size_t)(r->turns * r->stages) * (size_t)r->micro_batches;
    for (int i = 0; i < 2; i++) r->version[i] = ech_calloc(entries + 1, sizeof *r->version[i]);
    for (int rank = 0; rank < layout->design.layout->world; rank++) tabulate(r, rank);
    find_stages(r);
    remember(r);
    ech_exec_observe(alone->session.exec, observe, r);
    return r;
}

void ech_replay_destroy(ech_replay *r)
{
    if (!r) return;
    for (size_t i = 0; i < r->past.n; i++) free(r->past.at[i]);
    free(r->past.at);
    for (int i = 0; i < 2; i++) free(r->version[i]);
    free(r->stage_of);
    free(r->first);
    free(r);
}

/* A span looks back to the version before its first at most. */
static void begin_span(ech_replay *r)
{
    r->base = (int64_t)r->past.n - 1;
    for (int64_t v = 0; v < r->base - 1; v++) {
        free(r->past.at[v]);
        r->past.at[v] = NULL;
    }
}

ech_status ech_replay_step(ech_replay *r, int64_t step, int turn)
{
    if (turn == 0) begin_span(r);
    r->turn = turn;
    r->loaded[0] = -1;
    ECH_TRY(ech_exec_run(r->alone->session.exec, ECH_LIST_TRAIN, step));
    remember(r);
    return ECH_OK;
}
