/* SPDX-License-Identifier: Apache-2.0
 *
 * What the layout's ranks have: each notes its own gradients, weights and states while it trains,
 * and rank 0 gathers them in whole tensors.
 */
#include <stdlib.h>
#include <string.h>

#include "app/verify/verifier.h"
#include "schedule/states.h"
#include "tensor/tensor.h"

int ech_verifier_params(const ech_verifier *v)
{
    return (int)v->layout.design->model->param.n;
}

void *ech_verifier_alloc(ech_verifier *v, size_t n, size_t bytes)
{
    if (!v->pool) v->pool = ech_pool_create();
    return ech_pool_alloc(v->pool, n * bytes + 1);
}

bool ech_verifier_clocks(const ech_verifier *v)
{
    return ech_protocol_of(v->layout.design->layout)->clocks(v->layout.design->layout) > 0;
}

const ech_param *ech_verifier_param(const ech_verifier *v, int param)
{
    return &v->layout.design->model->param.at[param];
}

/* ---- from the ranks to rank 0 ---- */

enum { TAG = (1 << 20) - 1 }; /* of tensors on their way to rank 0 */

ech_status ech_verifier_send(ech_verifier *v, int rank, void *x, size_t bytes, void *to)
{
    int me = ech_comm_rank(v->comm);
    ech_request request;
    if (rank == 0) {
        if (me == 0) memmove(to, x, bytes);
        return ECH_OK;
    }
    if (me == rank)
        ECH_TRY(ech_comm_send_start(v->comm, 0, TAG, x, bytes, &request));
    else if (me == 0)
        ECH_TRY(ech_comm_receive_start(v->comm, rank, TAG, to, bytes, &request));
    else
        return ECH_OK;
    return ech_comm_wait(v->comm, &request, 1);
}

static void put_boxes(const ech_compared *x, const ech_held *held, const double *from,
                      double *whole)
{
    for (int b = 0; b < held->boxes; b++) {
        ech_box_runs runs = ech_box_split(x->shape->dims, x->shape->size, &held->box[b]);
        for (int64_t i = 0; i < runs.count; i++) {
            ech_box_offset at = ech_box_run_at(&runs, i);
            for (int64_t k = 0; k < runs.length; k++) {
                double *to = &whole[at.in_whole + k];
                *to = (x->adds ? *to : 0) + from[at.in_memory + k];
            }
        }
    }
}

/* Whether the whole tensor is made of what that rank, and others, have: the first copies of a
 * stage, or of what is sharded over them all members of the parameter's addend group. */
static bool is_part(const ech_verifier *v, const ech_compared *x, int rank)
{
    const ech_design *design = v->layout.design;
    const ech_coordinates *at = &design->layout->coordinates[rank];
    ech_held held =
        ech_layout_held(design->layout, design->model, rank, x->copy->param, x->kind, x->shape);
    int64_t zero = design->config->parallel.zero;
    bool own = x->adds || ech_shape_replicas(x->shape) >= 0; /* each replica has another */
    int copies = ech_shape_copies(x->shape, design->layout->sharding);
    if (own) return at->stage == x->copy->stage && at->tensor % copies == 0;
    bool tied = ech_layout_addends(design->layout, design->model, x->copy->param) == ECH_GROUP_TIED;
    bool shared = (x->kind == ECH_HELD_WEIGHTS ? zero > 2 && !tied : zero > 0) ||
                  v->serial->keeper == ECH_KEPT_BY_ALL;
    if (v->serial->keeper == ECH_KEPT_BY_SERVERS) return ech_layout_serves(design->layout, rank);
    if (shared) return held.counts;
    return held.is_first && at->stage == x->copy->stage;
}

/* What this rank has, its memory beginning with it. */
static ech_held own_held(const ech_verifier *v, const ech_compared *x)
{
    const ech_plan *plan = v->layout.session.plan;
    int state = x->kind == ECH_HELD_STATE ? x->state : -1;
    if (x->adds || v->serial->keeper == ECH_KEPT_BY_REPLICAS)
        return ech_layout_held(plan->layout, plan->model, plan->rank, x->copy->param, x->kind,
                               x->shape);
    return ech_plan_held(plan, plan->rank, x->copy->param, x->kind, state);
}

/* The rank of the compared worker that corresponds to a rank of the first one. Local replicas each
 * have a full set of copies. */
static int in_replica(const ech_verifier *v, int rank)
{
    const ech_layout *layout = v->layout.design->layout;
    const ech_coordinates *at = &layout->coordinates[rank];
    if (v->serial->keeper != ECH_KEPT_BY_REPLICAS) return rank;
    return ech_layout_rank_at(layout, at->stage, v->worker, at->context, at->tensor);
}

ech_status ech_verifier_gather(ech_verifier *v, const ech_compared *x, double *mine, double *whole)
{
    const ech_layout *layout = v->layout.design->layout;
    int64_t n = ech_shape_count(x->shape, ech_extent_of_params(layout->sharding));
    ECH_FREED double *part = v->result ? ech_calloc((size_t)n, sizeof *part) : NULL;
    for (int rank = 0; rank < layout->world; rank++) {
        ech_held held = {0};
        if (!is_part(v, x, rank)) continue;
        int from = in_replica(v, rank);
        if (from == v->layout.session.plan->rank) held = own_held(v, x);
        ECH_TRY(ech_verifier_send(v, from, &held, sizeof held, &held));
        ECH_TRY(ech_verifier_send(v, from, mine, (size_t)n * sizeof *part, part));
        if (v->result) put_boxes(x, &held, part, whole);
    }
    return ECH_OK;
}

/* ---- notes ---- */

/* Where tensors of parameters begin, whole and as this rank has them. */
static void lay_out(ech_verifier *v)
{
    const ech_plan *plan = v->layout.session.plan;
    for (int p = 0; p < ech_verifier_params(v); p++) {
        v->first[p + 1] = v->first[p] + ech_shape_whole(&ech_verifier_param(v, p)->shape);
        v->own[p + 1] = v->own[p] + plan->param[p].elements;
        for (int k = 0; k < ECH_MAX_STATES; k++) {
            int64_t *at = &v->own_state[p * ECH_MAX_STATES + k];
            at[1] = at[0];
            if (plan->param[p].bucket < 0 || k >= plan->param[p].states) continue;
            ech_tensor state = ech_exec_state(v->layout.session.exec, p, k);
            at[1] += ech_tensor_count(&state);
        }
    }
}

void ech_verifier_prepare(ech_verifier *v)
{
    const ech_layout *layout = v->layout.design->layout;
    size_t params = (size_t)ech_verifier_params(v), turns = (size_t)v->schedule.turns;
    size_t pushes = (size_t)v->workers * turns;
    int64_t elements = 0;
    v->first = ech_verifier_alloc(v, params + 1, sizeof *v->first);
    v->own = ech_verifier_alloc(v, params + 1, sizeof *v->own);
    v->own_state = ech_verifier_alloc(v, params * ECH_MAX_STATES + 1, sizeof *v->own_state);
    v->stage_of = ech_verifier_alloc(v, params, sizeof *v->stage_of);
    v->withheld = ech_verifier_alloc(v, (size_t)layout->stages, sizeof *v->withheld);
    v->serves = ech_verifier_alloc(v, pushes, sizeof *v->serves);
    v->pushed = ech_verifier_alloc(v, (size_t)v->workers, sizeof *v->pushed);
    v->unnumbered = ech_verifier_alloc(v, (size_t)v->workers, sizeof *v->unnumbered);
    lay_out(v);
    for (int s = 0; s < layout->stages; s++)
        for (int p = 0; p < (int)params; p++)
            if (ech_layout_holds(layout, layout->first_rank[s], p)) {
                ech_copy copy = {.stage = s, .param = p, .at = elements};
                ECH_PUSH(v->copy, copy);
                v->stage_of[p] = s;
                elements += v->first[p + 1] - v->first[p];
            }
    if (!ech_serial_does(v->serial, ECH_DO_GATHER)) turns = 1; /* nothing is noted */
    size_t sets = turns > 1 ? 2 * turns : 1, states = (size_t)v->own_state[params * ECH_MAX_STATES];
    v->mine = ech_verifier_alloc(v, sets * (size_t)v->own[params], sizeof *v->mine);
    v->states = ech_verifier_alloc(v, (turns - 1) * states, sizeof *v->states);
    if (v->result) v->gradients = ech_verifier_alloc(v, (size_t)elements, sizeof *v->gradients);
}

/* The weights of a span's training steps are stored after all of its gradients. */
double *ech_verifier_own_weights(const ech_verifier *v, int turn)
{
    return v->mine + (v->schedule.turns + turn) * v->own[ech_verifier_params(v)];
}

double *ech_verifier_own_state(const ech_verifier *v, int turn, int param, int state)
{
    int64_t all = v->own_state[ech_verifier_params(v) * ECH_MAX_STATES];
    return v->states + (turn - 1) * all + v->own_state[param * ECH_MAX_STATES + state];
}

static void take_gradients(const ech_verifier *v, ech_exec *exec, const ech_bucket *bucket,
                           int turn)
{
    const ech_plan *plan = v->layout.session.plan;
    for (int i = 0; i < bucket->params; i++) {
        int p = plan->bucket_param.at[bucket->first_param + i];
        ech_tensor gradient =
            bucket->compressed ? ech_exec_gradient(exec, p) : ech_exec_own_gradient(exec, p, turn);
        double *to = v->mine + turn * v->own[ech_verifier_params(v)] + v->own[p];
        if (ech_tensor_count(&gradient)) ech_exec_read(exec, &gradient, to);
        ech_exec_spread_rows(exec, p, turn, to);
    }
}

/* A bucket's gradients are taken at its norm, since they may leave for the host then; partials of
 * layer states, which have none, and weights at the turn's end. */
void ech_verifier_observe_layout(void *context, ech_exec *exec, const ech_step *step)
{
    ech_verifier *v = context;
    const ech_plan *plan = v->layout.session.plan;
    if (step->kind == ECH_STEP_NORM)
        take_gradients(v, exec, &plan->bucket.at[step->index], step->turn);
    if (step->kind != ECH_STEP_CLIP) return;
    for (size_t b = 0; b < plan->bucket.n; b++)
        if (plan->bucket.at[b].commits) take_gradients(v, exec, &plan->bucket.at[b], step->turn);
    int params = ech_verifier_params(v);
    for (int i = 0; i < params && step->turn > 0; i++) {
        if (plan->param[i].bucket < 0) continue;
        ech_tensor weight = ech_exec_own_param(exec, i, step->turn); /* others' may be under way */
        double *to = ech_verifier_own_weights(v, step->turn) + v->own[i];
        if (ech_tensor_count(&weight)) ech_exec_read(exec, &weight, to);
        ech_exec_spread_rows(exec, i, step->turn, to);
        for (int k = 0; k < v->layout.session.plan->param[i].states; k++) {
            ech_tensor state = ech_exec_state(exec, i, k);
            ech_exec_read(exec, &state, ech_verifier_own_state(v, step->turn, i, k));
        }
    }
}

/* ---- gradients that the single rank and its twin take ---- */

static ech_status gather_gradient(ech_verifier *v, ech_copy *copy)
{
    double *mine = v->mine + v->turn * v->own[ech_verifier_params(v)] + v->own[copy->param];
    const ech_param *param = ech_verifier_param(v, copy->param);
    double *to = v->result ? v->gradients + copy->at : NULL;
    if (ech_verifier_chooses(v, copy)) return ech_verifier_choose(v, copy, mine, to);
    bool adds = ech_compression_rank(v->layout.design->config, param) > 0;
    ech_compared x = {
        .copy = copy, .kind = ECH_HELD_GRADIENT, .shape = &param->shape, .adds = adds};
    if (to && adds) memset(to, 0, (size_t)ech_shape_whole(&param->shape) * sizeof *to);
    return ech_verifier_gather(v, &x, mine, to);
}

ech_status ech_verifier_gather_gradients(ech_verifier *v)
{
    for (size_t i = 0; i < v->copy.n; i++) {
        ech_copy *copy = &v->copy.at[i];
        ECH_TRY(gather_gradient(v, copy));
        if (!v->result) continue;
        bool chooses = ech_verifier_chooses(v, copy);
        const double *from = chooses ? copy->sent : v->gradients + copy->at;
        ech_follower_give(&v->single, copy->param, from);
        ech_follower_give(&v->twin, copy->param, from);
    }
    for (size_t i = 0; i < v->copy.n && v->result; i++)
        if (ech_verifier_chooses(v, &v->copy.at[i])) ech_verifier_keep(v, &v->copy.at[i]);
    return ECH_OK;
}

/* Each rank has all parameters, as they lie in the model. */
ech_status ech_verifier_gather_read(ech_verifier *v)
{
    if (v->turn == 0) return ECH_OK;
    double *to = v->result ? ech_follower_copy(&v->single, ECH_COPY_READ, 0) : NULL;
    size_t bytes = (size_t)v->own[ech_verifier_params(v)] * sizeof *to;
    return ech_verifier_send(v, v->worker, ech_verifier_own_weights(v, v->turn), bytes, to);
}
