/* SPDX-License-Identifier: Apache-2.0
 *
 * Comparing: losses, gradients, weights and states of the layout with those of the single rank. Errors
 * as docs/design.md defines them: max|a - b| / max|b|, of gradients at least 1e-3 x RMS of the whole.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/verify/added.h"
#include "tensor/tensor.h"

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
    bool central = (design->layout->protocol == ECH_PROTOCOL_CENTRAL);
    bool own = x->adds || ech_shape_replicas(x->shape) >= 0; /* each replica has another */
    int copies = ech_shape_copies(x->shape, design->layout->sharding);
    if (own) return at->stage == x->copy->stage && at->tensor % copies == 0;
    bool tied = ech_layout_addends(design->layout, design->model, x->copy->param) == ECH_GROUP_TIED;
    bool shared = (x->kind == ECH_HELD_WEIGHTS ? zero > 2 && !tied : zero > 0) || central;
    if (design->layout->servers) return ech_layout_serves(design->layout, rank);
    if (shared) return held.counts;
    return held.is_first && at->stage == x->copy->stage;
}

/* What this rank has, its memory beginning with it. */
static ech_held own_held(const ech_verifier *v, const ech_compared *x)
{
    const ech_plan *plan = v->layout.session.plan;
    int state = x->kind == ECH_HELD_STATE ? x->state : -1;
    if (x->adds || (plan->layout->protocol == ECH_PROTOCOL_APART))
        return ech_layout_held(plan->layout, plan->model, plan->rank, x->copy->param, x->kind,
                               x->shape);
    return ech_plan_held(plan, plan->rank, x->copy->param, x->kind, state);
}

/* The rank of the replica that is compared, of a rank of the first: each replica that is apart has
 * all copies of its own. */
static int in_replica(const ech_verifier *v, int rank)
{
    const ech_layout *layout = v->layout.design->layout;
    const ech_coordinates *at = &layout->coordinates[rank];
    if (layout->protocol != ECH_PROTOCOL_APART) return rank;
    return ech_layout_rank_at(layout, at->stage, v->replica, at->context, at->tensor);
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

int ech_verifier_params(const ech_verifier *v)
{
    return (int)v->layout.design->model->param.n;
}

const ech_param *ech_verifier_param(const ech_verifier *v, int param)
{
    return &v->layout.design->model->param.at[param];
}

bool ech_verifier_is_replayed(const ech_verifier *v)
{
    ech_weights weights = v->layout.design->schedule->weights;
    return weights != ECH_WEIGHTS_FLUSHED && weights != ECH_WEIGHTS_PULLED;
}

void ech_verifier_note(ech_verifier *v, const char *what, int param, double error, double *worst)
{
    ech_verification *r = v->result;
    const ech_model *model = v->single.design->model;
    char at[256];
    if (param < 0)
        snprintf(at, sizeof at, "step %lld, %s", (long long)v->step + 1, what);
    else
        snprintf(at, sizeof at, "step %lld, %s %s (block %s)", (long long)v->step + 1, what,
                 model->param.at[param].name, model->block.at[model->param.at[param].block]->name);
    if (!(error <= *worst)) *worst = error;
    if (!(error <= r->worst)) {
        r->worst = error;
        memcpy(r->worst_at, at, sizeof at);
    }
    if (!(error <= r->tolerance) && !r->first_bad[0]) memcpy(r->first_bad, at, sizeof at);
}

double ech_verifier_error(const double *a, const double *b, int64_t n, double floor_)
{
    double apart = 0, size = floor_;
    for (int64_t i = 0; i < n; i++) {
        double d = fabs(a[i] - b[i]);
        if (!isfinite(d)) return INFINITY;
        if (fabs(b[i]) > size) size = fabs(b[i]);
        if (d > apart) apart = d;
    }
    return size > 0 ? apart / size : 0;
}

/* Below this, numbers lose digits: the smallest normal number over the machine epsilon. */
static double smallest(const ech_verifier *v)
{
    return v->single.session.plan->types.compute == ECH_F64 ? 0x1p-970 : 0x1p-103;
}

/* Elements that this rank has of a parameter's states below number `end`. */
static int64_t states_before(const ech_verifier *v, int param, int end)
{
    int64_t n = 0;
    for (int k = 0; k < end && v->layout.session.plan->param[param].bucket >= 0; k++) {
        ech_tensor state = ech_exec_state(v->layout.session.exec, param, k);
        n += ech_tensor_count(&state);
    }
    return n;
}

void ech_verifier_prepare(ech_verifier *v)
{
    const ech_model *model = v->layout.design->model;
    const ech_layout *layout = v->layout.design->layout;
    const ech_plan *plan = v->layout.session.plan;
    size_t params = model->param.n, turns = (size_t)v->layout.design->schedule->turns;
    int64_t elements = 0;
    v->first = ech_calloc(params + 1, sizeof *v->first);
    v->own = ech_calloc(params + 1, sizeof *v->own);
    v->own_state = ech_calloc(params + 1, sizeof *v->own_state);
    for (size_t p = 0; p < params; p++) {
        v->own_state[p + 1] = v->own_state[p] + states_before(v, (int)p, plan->param[p].states);
        v->first[p + 1] = v->first[p] + ech_shape_whole(&model->param.at[p].shape);
        v->own[p + 1] = v->own[p] + plan->param[p].elements;
    }
    for (int s = 0; s < layout->stages; s++)
        for (int p = 0; p < (int)params; p++)
            if (ech_layout_holds(layout, layout->first_rank[s], p)) {
                ech_copy copy = {.stage = s, .param = p, .at = elements};
                ECH_PUSH(v->copy, copy);
                elements += v->first[p + 1] - v->first[p];
            }
    if ((layout->sums == ECH_SUMS_SERVERS)) turns = 1; /* no rank knows what was before its push */
    size_t sets = turns > 1 ? 2 * turns : 1;
    v->mine = ech_calloc(sets * (size_t)v->own[params], sizeof *v->mine);
    v->states = ech_calloc((turns - 1) * (size_t)v->own_state[params] + 1, sizeof *v->states);
    if (v->result) v->gradients = ech_calloc((size_t)elements, sizeof *v->gradients);
}

void ech_verifier_free(ech_verifier *v)
{
    ech_added_destroy(v->added); /* it reads the twin's data, too */
    ech_unit_close(v);
    ech_replay_destroy(v->replay);
    ech_apart_destroy(v->apart);
    ech_pushed_destroy(v->pushed);
    ech_compared_run_close(&v->single);
    ech_compared_run_close(&v->layout);
    ech_design_destroy(&v->reference);
    ech_design_destroy(&v->inverted);
    ech_comm_close(v->alone);
    for (int i = 0; i < 3; i++) ech_config_destroy(v->config[i]);
    for (size_t i = 0; i < v->copy.n; i++) ech_verifier_free_chosen(&v->copy.at[i]);
    free(v->copy.at);
    free(v->mine);
    free(v->own);
    free(v->states);
    free(v->own_state);
    free(v->gradients);
    free(v->first);
}

/* ---- gradients ---- */

/* The weights of a span's training steps are stored after all of its gradients. */
static double *own_weights(const ech_verifier *v, int turn)
{
    return v->mine + (v->layout.design->schedule->turns + turn) * v->own[ech_verifier_params(v)];
}

/* A parameter's state number `state` before the update of a span's training step `turn` > 0. */
static double *own_state(const ech_verifier *v, int turn, int param, int state)
{
    return v->states + (turn - 1) * v->own_state[ech_verifier_params(v)] + v->own_state[param] +
           states_before(v, param, state);
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
        if (ech_tensor_count(&weight))
            ech_exec_read(exec, &weight, own_weights(v, step->turn) + v->own[i]);
        for (int k = 0; k < v->layout.session.plan->param[i].states; k++) {
            ech_tensor state = ech_exec_state(exec, i, k);
            ech_exec_read(exec, &state, own_state(v, step->turn, i, k));
        }
    }
}

/* Of the whole gradient x; partials of layer states are none. */
static double rms_of_gradients(const ech_verifier *v, const double *x)
{
    double squares = 0;
    int64_t n = 0;
    for (int p = 0; p < ech_verifier_params(v); p++) {
        if (ech_verifier_param(v, p)->commit) continue;
        for (int64_t i = v->first[p]; i < v->first[p + 1]; i++) squares += x[i] * x[i];
        n += v->first[p + 1] - v->first[p];
    }
    return sqrt(squares / (double)n);
}

void ech_verifier_exchange_gradients(ech_verifier *v, ech_exec *exec)
{
    int params = ech_verifier_params(v);
    ECH_FREED double *reference = ech_calloc((size_t)v->first[params], sizeof *reference);
    for (int p = 0; p < params; p++) {
        ech_tensor gradient = ech_exec_gradient(exec, p);
        ech_exec_read(exec, &gradient, reference + v->first[p]);
    }
    double floor_ = 1e-3 * rms_of_gradients(v, reference);
    for (size_t i = 0; i < v->copy.n; i++) {
        const ech_copy *copy = &v->copy.at[i];
        int p = copy->param;
        ech_tensor gradient = ech_exec_gradient(exec, p);
        bool is_state = ech_verifier_param(v, p)->commit != NULL;
        bool chooses = ech_verifier_chooses(v, copy);
        int64_t n = v->first[p + 1] - v->first[p];
        double least = is_state ? smallest(v) : floor_;
        if (chooses) ech_verifier_add_kept(v, copy, reference + v->first[p]);
        double error =
            ech_verifier_error(v->gradients + copy->at, reference + v->first[p], n, least);
        double *twin = v->twin_gradients + v->first[p];
        if (chooses) ech_verifier_add_kept(v, copy, twin);
        ech_unit_note(v, twin, reference + v->first[p], n, least);
        ech_verifier_note(v, is_state ? "partials of" : "gradient of", p, error,
                          &v->result->worst_gradient);
        ech_exec_write(exec, &gradient, chooses ? copy->sent : v->gradients + copy->at);
        v->result->compared += n;
    }
    v->taken = true;
}

ech_status ech_verifier_gather_gradients(ech_verifier *v)
{
    double *mine = v->mine + v->turn * v->own[ech_verifier_params(v)];
    for (size_t i = 0; i < v->copy.n; i++) {
        ech_copy *copy = &v->copy.at[i];
        const ech_param *param = ech_verifier_param(v, copy->param);
        double *to = v->result ? v->gradients + copy->at : NULL;
        if (ech_verifier_chooses(v, copy)) {
            ECH_TRY(ech_verifier_choose(v, copy, mine + v->own[copy->param], to));
            continue;
        }
        bool adds = ech_compression_rank(v->layout.design->config, param) > 0;
        ech_compared x = {
            .copy = copy, .kind = ECH_HELD_GRADIENT, .shape = &param->shape, .adds = adds};
        if (to && adds) memset(to, 0, (size_t)ech_shape_whole(&param->shape) * sizeof *to);
        ECH_TRY(ech_verifier_gather(v, &x, mine + v->own[copy->param], to));
    }
    return ECH_OK;
}

/* ---- weights and states ---- */

/* The number of the layout's state there: a single rank that does not compress has no residuals. */
static int state_of(const ech_compared_run *c, const ech_compared *x)
{
    ech_optimizer_needs needs =
        ech_optimizer_needs_of(c->design->config, &c->design->model->param.at[x->copy->param]);
    for (int s = 0; s < needs.states; s++)
        if (strcmp(needs.state[s].name, x->name) == 0) return s;
    ECH_ASSERT(false);
    return -1;
}

static ech_tensor tensor_of(const ech_compared_run *c, const ech_compared *x)
{
    return x->name ? ech_exec_state(c->session.exec, x->copy->param, state_of(c, x))
                   : ech_exec_param(c->session.exec, x->copy->param);
}

/* Codes of 8-bit states are roundings of numbers that the two round differently in the run's own
 * precision: neighbours are equal then, unless the same bits are promised. */
static void accept_neighbours(const ech_verifier *v, const double *a, double *b, int64_t n)
{
    if (!v->result->own_precision || v->result->tolerance <= 0) return;
    for (int64_t i = 0; i < n; i++)
        if (fabs(a[i] - b[i]) <= 1) b[i] = a[i];
}

/* What an error of x is compared with at least: what is left of a gradient is a difference from
 * that. */
static double least_of(const ech_verifier *v, const ech_compared *x)
{
    double most = smallest(v);
    const double *gradient = v->gradients + x->copy->at;
    int64_t n = ech_shape_whole(&ech_verifier_param(v, x->copy->param)->shape);
    if (ech_shape_replicas(x->shape) < 0) return most;
    for (int64_t i = 0; i < n; i++)
        if (fabs(gradient[i]) > most) most = fabs(gradient[i]);
    return most;
}

static void compare_tensor(ech_verifier *v, const ech_compared *x, const double *a)
{
    ech_tensor single = tensor_of(&v->single, x);
    int64_t n = ech_tensor_count(&single);
    ECH_FREED double *b = ech_calloc((size_t)n, sizeof *b);
    char what[80] = "weight";
    if (x->name) snprintf(what, sizeof what, "state %s of", x->name);
    ech_exec_read(v->single.session.exec, &single, b);
    if (single.dtype == ECH_U8) accept_neighbours(v, a, b, n);
    ech_verifier_note(v, what, x->copy->param, ech_verifier_error(a, b, n, least_of(v, x)),
                      x->name ? &v->result->worst_state : &v->result->worst_weight);
    ech_exec_write(v->single.session.exec, &single, a);
    ech_tensor twin = tensor_of(&v->twin, x);
    ech_unit_compare(v, &twin, b, a, least_of(v, x));
    v->result->compared += n;
}

/* This rank's shard in new memory; NULL: it has none. */
static double *own_shard(const ech_verifier *v, const ech_compared *x, int turn)
{
    int param = x->copy->param;
    if (v->layout.session.plan->param[param].bucket < 0) return NULL;
    ech_tensor newest = tensor_of(&v->layout, x);
    int64_t all =
        ech_shape_count(x->shape, ech_extent_of_params(v->layout.design->layout->sharding));
    size_t n = (size_t)ech_tensor_count(&newest);
    double *mine = ech_calloc((size_t)all, sizeof *mine);
    if (turn == 0)
        ech_exec_read(v->layout.session.exec, &newest, mine);
    else
        memcpy(mine,
               x->name ? own_state(v, turn, param, x->state) : own_weights(v, turn) + v->own[param],
               n * sizeof *mine);
    return mine;
}

/* The single rank has what all replicas have together: x becomes the sum over them, of one of the
 * stack after the other. */
static void add_replicas(const ech_compared *x, double *whole)
{
    int at = ech_shape_replicas(x->shape);
    int64_t before = 1, after = 1;
    if (at < 0) return;
    const int64_t replicas = x->shape->size[at];
    for (int d = 0; d < at; d++) before *= x->shape->size[d];
    for (int d = at + 1; d < x->shape->dims; d++) after *= x->shape->size[d];
    for (int64_t s = 0; s < before; s++)
        for (int64_t i = 0; i < after; i++) {
            double sum = 0;
            for (int64_t r = 0; r < replicas; r++) sum += whole[(s * replicas + r) * after + i];
            whole[s * after + i] = sum;
        }
}

/* Compares the layout's tensor with the single rank's, and copies it there. */
static ech_status exchange_tensor(ech_verifier *v, const ech_compared *x, int turn)
{
    int64_t n = ech_shape_whole(x->shape);
    ECH_FREED double *mine = own_shard(v, x, turn);
    ECH_FREED double *whole = v->result ? ech_calloc((size_t)n, sizeof *whole) : NULL;
    ECH_TRY(ech_verifier_gather(v, x, mine, whole));
    if (v->result) add_replicas(x, whole);
    if (v->result) compare_tensor(v, x, whole);
    return ECH_OK;
}

static ech_status exchange_state(ech_verifier *v, ech_copy *copy, const ech_compared *x,
                                 ech_state_role role, int turn)
{
    if (role != ECH_STATE_RESIDUAL || !ech_verifier_chooses(v, copy))
        return exchange_tensor(v, x, turn);
    ECH_FREED double *mine = own_shard(v, x, turn);
    return ech_verifier_compare_kept(v, copy, x, mine);
}

static ech_status exchange_copy(ech_verifier *v, ech_copy *copy, int turn)
{
    const ech_param *param = ech_verifier_param(v, copy->param);
    ech_compared x = {.copy = copy,
                      .kind = turn > 0 ? ECH_HELD_GRADIENT : ECH_HELD_WEIGHTS,
                      .shape = &param->shape};
    ech_optimizer_needs needs = ech_optimizer_needs_of(v->layout.design->config, param);
    ECH_TRY(exchange_tensor(v, &x, turn));
    x.kind = ECH_HELD_STATE;
    for (x.state = 0; x.state < needs.states; x.state++) {
        x.name = needs.state[x.state].name;
        /* Those of one replica at a time are compared. */
        ech_state own = ech_state_of_replica(&needs.state[x.state]);
        x.shape = (v->layout.design->layout->protocol == ECH_PROTOCOL_APART)
                      ? &own.shape
                      : &needs.state[x.state].shape;
        ECH_TRY(exchange_state(v, copy, &x, needs.state[x.state].role, turn));
    }
    return ECH_OK;
}

ech_status ech_verifier_exchange_weights(ech_verifier *v, int turn)
{
    for (size_t i = 0; i < v->copy.n; i++) ECH_TRY(exchange_copy(v, &v->copy.at[i], turn));
    return ECH_OK;
}

/* ---- losses ---- */

void ech_verifier_compare_losses(ech_verifier *v, const char *what, double layout, double single,
                                 double *worst)
{
    ech_verifier_note(v, what, -1, ech_verifier_error(&layout, &single, 1, 0), worst);
}

void ech_tokens_loss_add(ech_tokens_loss *loss, const ech_compared_run *run)
{
    const ech_readings *readings = ech_exec_readings(run->session.exec);
    loss->sum += readings->loss_sum;
    loss->tokens += readings->tokens;
}

static double mean_of(const ech_tokens_loss *loss)
{
    return loss->tokens > 0 ? loss->sum / loss->tokens : 0;
}

void ech_verifier_compare_mean(ech_verifier *v, double layout, const ech_tokens_loss *single,
                               const ech_tokens_loss *twin)
{
    double mean = mean_of(single), changed = mean_of(twin);
    ech_verifier_compare_losses(v, "loss", layout, mean, &v->result->worst_loss);
    ech_unit_note(v, &changed, &mean, 1, 0);
}

/* Number by number in fp64. In the run's own precision a choice between two that are nearly equal
 * may differ, and counts with it. */
void ech_verifier_compare_reports(ech_verifier *v, const double *layout, const double *single)
{
    const ech_model *model = v->single.design->model;
    v->result->reports = model->reports;
    for (size_t b = 0; b < model->block.n; b++) {
        const ech_block *block = model->block.at[b];
        int64_t at = block->first_report;
        for (size_t k = 0; k < block->report.n; k++) {
            const ech_reported *report = &block->report.at[k];
            char what[200];
            snprintf(what, sizeof what, "the %s of %s", report->kind, report->name);
            int64_t each = v->result->own_precision ? report->numbers : 1;
            for (int64_t end = at + report->numbers; at < end; at += each)
                ech_verifier_note(v, what, -1,
                                  ech_verifier_error(&layout[at], &single[at], each, smallest(v)),
                                  &v->result->worst_report);
        }
    }
}
