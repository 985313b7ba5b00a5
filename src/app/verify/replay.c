/* SPDX-License-Identifier: Apache-2.0
 *
 * The serial replay. It stores whole copies of past weights; between the steps of an ordinary train list of one
 * rank it loads the version that the next step must read.
 */
#include "app/verify/replay.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/tensor.h"

typedef ECH_LIST(char *) history;

struct ech_replay {
    const ech_compared_run *layout;
    ech_compared_run *alone;
    double clip_norm;
    int *stage_of;       /* [params] */
    size_t *first;       /* [params + 1] bytes: where each begins in a whole copy */
    history past;        /* past.at[v]: all weights of version v of the run */
    int64_t base;        /* the run's version that is version 0 of the span */
    bool reads_newest;   /* the layout's list does */
    bool updates;        /* the list has come to CLIP */
    bool is_newest;      /* the newest version is loaded, for the update */
    double *factor;      /* [stages] by which it clips */
    double unclipped;    /* what gradients are multiplied by without clipping */
    int turn, loaded[2]; /* the micro-batch whose weights are loaded, and for what: F 0, B 1 */
};

static void copy_weights(ech_replay *r, void *to, const void *from, int param)
{
    ech_exec_copy(r->alone->session.exec, to, from, r->first[param + 1] - r->first[param]);
}

static void *weights_now(const ech_replay *r, int param)
{
    return ech_exec_param(r->alone->session.exec, param).data;
}

static void store(ech_replay *r, char *copy)
{
    for (int p = 0; p < (int)r->alone->design->model->param.n; p++)
        copy_weights(r, copy + r->first[p], weights_now(r, p), p);
}

void ech_replay_remember(ech_replay *r)
{
    char *copy = ech_calloc(1, r->first[r->alone->design->model->param.n]);
    store(r, copy);
    ECH_PUSH(r->past, copy);
}

/* Version -1 of a run is its version 0. */
static const void *recall(const ech_replay *r, int64_t version, int param)
{
    int64_t v = version < 0 ? 0 : version;
    ECH_ASSERT(v < (int64_t)r->past.n && r->past.at[v]);
    return r->past.at[v] + r->first[param];
}

/* ---- weight versions ---- */

/* Micro-batches in flight on a rank of the stage, begun before its first backward ends: the workers of this and
 * the later stages over the stage's replicas (Narayanan et al. 2019, section 3.2: NOAM of the input stage; d - i
 * of stage i of d). */
static int64_t in_flight(const ech_layout *layout, int stage)
{
    double workers = 0;
    for (int s = stage; s < layout->stages; s++) workers += layout->replicas[s];
    return (int64_t)ceil(workers / layout->replicas[stage]);
}

/* The newest version when the stage begins the micro-batch, its replica's k-th: w_i(t - n + i). An update is
 * made when all micro-batches of a training step have ended. */
static int newest_at_forward(const ech_layout *layout, int turn, int64_t q, int stage)
{
    int rank = layout->first_rank[stage]; /* of the stage's replicas any does as many */
    ech_numbering own = {ech_layout_micro_batches(layout, rank), 1};
    int k = ech_micro_number(own, (ech_micro){turn, (int)ech_layout_own_micro(layout, rank, q), 0});
    int64_t through = k - (in_flight(layout, stage) - 1);
    return through > 0 ? ech_micro_at(own, (int)through).turn : 0;
}

int ech_replay_version(const ech_layout *layout, const ech_schedule *schedule, int turn, int64_t q,
                       int stage, bool backward)
{
    if (ech_weights_keep_previous(schedule->weights)) return turn - 1; /* W(t - 1) */
    if (backward && !schedule->stashing) return turn; /* all steps before it have ended */
    return newest_at_forward(layout, turn, q, schedule->vertical_sync ? 0 : stage);
}

static void find_stages(ech_replay *r)
{
    const ech_layout *layout = r->layout->design->layout;
    const ech_model *model = r->layout->design->model;
    r->stage_of = ech_calloc(model->param.n + 1, sizeof *r->stage_of);
    for (int rank = 0; rank < layout->world; rank++)
        for (int p = 0; p < (int)model->param.n; p++)
            if (ech_layout_holds(layout, rank, p)) r->stage_of[p] = layout->coordinates[rank].stage;
}

static void put_weights(ech_replay *r, int64_t q, bool backward)
{
    for (int p = 0; p < (int)r->alone->design->model->param.n; p++) {
        int version = ech_replay_version(r->layout->design->layout, r->layout->design->schedule,
                                         r->turn, q, r->stage_of[p], backward);
        copy_weights(r, weights_now(r, p), recall(r, r->base + version, p), p);
    }
    r->loaded[0] = (int)q;
    r->loaded[1] = backward;
}

/* ---- between steps ---- */

/* By which each stage clips its gradients, with the norm of what its update reads of them. */
static void find_factors(ech_replay *r)
{
    const ech_model *model = r->alone->design->model;
    ech_exec *exec = r->alone->session.exec;
    int stages = r->layout->design->layout->stages;
    for (int s = 0; s < stages; s++) r->factor[s] = 0;
    for (int p = 0; p < (int)model->param.n; p++)
        if (!model->param.at[p].commit)
            r->factor[r->stage_of[p]] += ech_exec_scalar(exec, ECH_SCALARS + p);
    for (int s = 0; s < stages; s++)
        r->factor[s] = ech_clip_factor(sqrt(r->factor[s]), r->clip_norm);
    r->unclipped = ech_exec_scalar(exec, ECH_SCALAR_CLIP);
}

/* All of a bucket is of one stage. */
static void clip(ech_replay *r, int bucket)
{
    const ech_plan *plan = r->alone->session.plan;
    int param = plan->bucket_param.at[plan->bucket.at[bucket].first_param];
    ech_exec_set_scalar(r->alone->session.exec, ECH_SCALAR_CLIP,
                        r->unclipped * r->factor[r->stage_of[param]]);
}

static void load_newest(ech_replay *r)
{
    for (int p = 0; p < (int)r->alone->design->model->param.n; p++)
        copy_weights(r, weights_now(r, p), recall(r, (int64_t)r->past.n - 1, p), p);
    r->is_newest = true;
}

/* Statistics read gradients as clipped, and the newest weights, like updates. */
static void prepare_update(ech_replay *r, int bucket)
{
    if (!r->is_newest) {
        load_newest(r);
        if (r->clip_norm > 0) find_factors(r);
    }
    if (r->clip_norm > 0) clip(r, bucket);
}

void ech_replay_prepare(ech_replay *r, const ech_step *next)
{
    int phase = ech_step_kind_phase(next->kind);
    bool backward = phase > ECH_FORWARD;
    if (next->kind == ECH_STEP_CLIP) r->updates = true;
    if (r->updates && ech_step_has_bucket(next)) prepare_update(r, next->index);
    if (phase < 0 || r->reads_newest) return;
    if (r->loaded[0] != next->micro || r->loaded[1] != (int)backward)
        put_weights(r, next->micro, backward);
}

/* ---- the whole ---- */

ech_replay *ech_replay_create(const ech_compared_run *layout, ech_compared_run *alone,
                              double clip_norm)
{
    const ech_model *model = alone->design->model;
    ech_replay *r = ech_calloc(1, sizeof *r);
    r->layout = layout;
    r->alone = alone;
    r->clip_norm = clip_norm;
    r->first = ech_calloc(model->param.n + 1, sizeof *r->first);
    for (size_t p = 0; p < model->param.n; p++)
        r->first[p + 1] = r->first[p] + (size_t)ech_plan_param_bytes(alone->session.plan, (int)p);
    find_stages(r);
    r->factor = ech_calloc((size_t)layout->design->layout->stages, sizeof *r->factor);
    ech_replay_remember(r);
    return r;
}

void ech_replay_destroy(ech_replay *r)
{
    if (!r) return;
    for (size_t i = 0; i < r->past.n; i++) free(r->past.at[i]);
    free(r->past.at);
    free(r->stage_of);
    free(r->factor);
    free(r->first);
    free(r);
}

/* A span reads no version older than the one before its first. */
static void begin_span(ech_replay *r)
{
    r->base = (int64_t)r->past.n - 1;
    for (int64_t v = 0; v < r->base - 1; v++) {
        free(r->past.at[v]);
        r->past.at[v] = NULL;
    }
}

void ech_replay_begin(ech_replay *r, ech_list_kind list, int turn)
{
    store(r, r->past.at[r->past.n - 1]);
    if (turn == 0) begin_span(r);
    r->turn = turn;
    r->reads_newest = list == ECH_LIST_UNDELAYED;
    r->updates = r->is_newest = false;
    r->loaded[0] = -1;
}
