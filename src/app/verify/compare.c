/* SPDX-License-Identifier: Apache-2.0
 *
 * Comparing: losses, gradients, weights and states of the layout with the single rank's. Errors as
 * docs/design/correctness.md defines them: max|a - b| / max|b|, of gradients at least 1e-3 x RMS of
 * the whole.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/verify/verifier.h"
#include "tensor/tensor.h"

void ech_verifier_note(ech_verifier *v, const char *what, int param, double error, double *worst)
{
    ech_verification *r = v->result;
    const ech_model *model = v->single.run.design->model;
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
    if (!(apart > 0)) return 0;
    return size > 0 && isfinite(size) ? apart / size : INFINITY;
}

/* Notes how far n numbers of the twin are from the single rank's. */
static void note_unit(ech_verifier *v, const double *twin, const double *single, int64_t n,
                      double floor_)
{
    double unit = ech_verifier_error(twin, single, n, floor_);
    if (!(unit <= v->result->unit)) v->result->unit = unit;
}

/* Below this, numbers lose digits: the smallest normal number over the machine epsilon. */
static double smallest(const ech_verifier *v)
{
    return v->single.run.session.plan->types.compute == ECH_F64 ? 0x1p-970 : 0x1p-103;
}

/* ---- gradients ---- */

/* Of the whole gradient x that is compared; partials of layer states are none. */
static double rms_of_gradients(const ech_verifier *v, const double *x)
{
    double squares = 0;
    int64_t n = 0;
    for (int p = 0; p < ech_verifier_params(v); p++) {
        if (!ech_param_is_trained(ech_verifier_param(v, p)) ||
            ech_verifier_is_withheld(v, v->stage_of[p]))
            continue;
        for (int64_t i = v->first[p]; i < v->first[p + 1]; i++) squares += x[i] * x[i];
        n += v->first[p + 1] - v->first[p];
    }
    return n > 0 ? sqrt(squares / (double)n) : 0;
}

static void compare_gradient(ech_verifier *v, const ech_copy *copy, double floor_)
{
    int p = copy->param;
    double *reference = v->single.gradient + v->first[p], *twin = v->twin.gradient + v->first[p];
    bool is_state = ech_verifier_param(v, p)->commit != NULL;
    int64_t n = v->first[p + 1] - v->first[p];
    double least = is_state ? smallest(v) : floor_;
    if (ech_verifier_chooses(v, copy)) {
        ech_verifier_add_kept(v, copy, reference);
        ech_verifier_add_kept(v, copy, twin);
    }
    double error = ech_verifier_error(v->gradients + copy->at, reference, n, least);
    note_unit(v, twin, reference, n, least);
    ech_verifier_note(v, is_state ? "partials of" : "gradient of", p, error,
                      &v->result->worst_gradient);
    v->result->compared += n;
}

void ech_verifier_compare_gradients(ech_verifier *v)
{
    ech_verifier_find_withheld(v);
    double floor_ = 1e-3 * rms_of_gradients(v, v->single.gradient);
    for (size_t i = 0; i < v->copy.n; i++) {
        const ech_copy *copy = &v->copy.at[i];
        if (!ech_verifier_param(v, copy->param)->frozen &&
            !ech_verifier_is_withheld(v, copy->stage))
            compare_gradient(v, copy, floor_);
    }
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

/* The gradient is gathered times the loss scale; one that is withheld may be infinite. */
double ech_verifier_largest_gradient(const ech_verifier *v, const ech_copy *copy)
{
    double most = smallest(v);
    double scale = (double)v->layout.design->config->precision.loss_scale;
    const double *gradient = v->gradients + copy->at;
    int64_t n = ech_shape_whole(&ech_verifier_param(v, copy->param)->shape);
    for (int64_t i = 0; i < n; i++) {
        double size = fabs(gradient[i]) / (scale > 0 ? scale : 1);
        if (isfinite(size) && size > most) most = size;
    }
    return most;
}

/* What an error of x is compared with at least: what is left of a gradient is a difference from
 * that. */
static double least_of(const ech_verifier *v, const ech_compared *x)
{
    return ech_shape_replicas(x->shape) < 0 ? smallest(v)
                                            : ech_verifier_largest_gradient(v, x->copy);
}

/* The follower's tensor in new memory: of weights the sum, if that is compared. */
static double *read_tensor(ech_follower *f, const ech_compared *x)
{
    ech_tensor from = tensor_of(&f->run, x);
    size_t n = (size_t)ech_tensor_count(&from);
    double *to = ech_calloc(n + 1, sizeof *to);
    if (x->name || f->of->operand == ECH_COPY_NEWEST)
        ech_exec_read(f->run.session.exec, &from, to);
    else
        memcpy(to, ech_follower_copy(f, ECH_COPY_SUM, 0) + f->of->first[x->copy->param],
               n * sizeof *to);
    return to;
}

static void compare_tensor(ech_verifier *v, const ech_compared *x, const double *a)
{
    ech_tensor single = tensor_of(&v->single.run, x);
    int64_t n = ech_tensor_count(&single);
    ECH_FREED double *b = read_tensor(&v->single, x), *twin = read_tensor(&v->twin, x);
    char what[80] = "weight";
    if (x->name) snprintf(what, sizeof what, "state %s of", x->name);
    if (single.dtype == ECH_U8) accept_neighbours(v, b, twin, n);
    note_unit(v, twin, b, n, least_of(v, x));
    if (single.dtype == ECH_U8) accept_neighbours(v, a, b, n);
    ech_verifier_note(v, what, x->copy->param, ech_verifier_error(a, b, n, least_of(v, x)),
                      x->name ? &v->result->worst_state : &v->result->worst_weight);
    v->result->compared += n;
}

static void take_tensor(const ech_compared_run *run, const ech_compared *x, const double *from)
{
    ech_tensor to = tensor_of(run, x);
    ech_exec_write(run->session.exec, &to, from);
}

/* 0: the newest are compared; above 0: what this training step of the span updates. */
static int turn_of(const ech_verifier *v)
{
    return (v->turn + 1) % v->turns;
}

/* This rank's shard in new memory; NULL: it has none. */
static double *own_shard(const ech_verifier *v, const ech_compared *x)
{
    int param = x->copy->param, turn = turn_of(v);
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
               x->name ? ech_verifier_own_state(v, turn, param, x->state)
                       : ech_verifier_own_weights(v, turn) + v->own[param],
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
static ech_status exchange_tensor(ech_verifier *v, const ech_compared *x)
{
    int64_t n = ech_shape_whole(x->shape);
    ECH_FREED double *mine = own_shard(v, x);
    ECH_FREED double *whole = v->result ? ech_calloc((size_t)n, sizeof *whole) : NULL;
    ECH_TRY(ech_verifier_gather(v, x, mine, whole));
    if (!v->result) return ECH_OK;
    if (x->is_kept) {
        ech_verifier_compare_kept(v, x, whole);
        return ECH_OK;
    }
    add_replicas(x, whole);
    if (!v->result->carried) compare_tensor(v, x, whole);
    take_tensor(&v->single.run, x, whole);
    take_tensor(&v->twin.run, x, whole);
    return ECH_OK;
}

static ech_status exchange_copy(ech_verifier *v, const ech_copy *copy)
{
    bool divided = v->serial->keeper == ECH_KEPT_BY_REPLICAS; /* one replica at a time */
    const ech_param *param = ech_verifier_param(v, copy->param);
    ech_compared x = {.copy = copy,
                      .kind = turn_of(v) > 0 ? ECH_HELD_GRADIENT : ECH_HELD_WEIGHTS,
                      .shape = &param->shape};
    ech_optimizer_needs needs = ech_optimizer_needs_of(v->layout.design->config, param);
    ECH_TRY(exchange_tensor(v, &x));
    x.kind = ECH_HELD_STATE;
    for (x.state = 0; x.state < needs.states; x.state++) {
        x.name = needs.state[x.state].name;
        x.is_kept =
            needs.state[x.state].role == ECH_STATE_RESIDUAL && ech_verifier_chooses(v, copy);
        ech_state own = ech_state_of_replica(&needs.state[x.state]);
        x.shape = divided ? &own.shape : &needs.state[x.state].shape;
        ECH_TRY(exchange_tensor(v, &x));
    }
    return ECH_OK;
}

ech_status ech_verifier_exchange_weights(ech_verifier *v)
{
    for (size_t i = 0; i < v->copy.n; i++) ECH_TRY(exchange_copy(v, &v->copy.at[i]));
    return ECH_OK;
}

/* ---- losses ---- */

void ech_verifier_compare_losses(ech_verifier *v, const char *what, double layout, double single,
                                 double *worst)
{
    if (!isfinite(layout) && !isfinite(single)) {
        v->result->not_finite++;
        return;
    }
    ech_verifier_note(v, what, -1, ech_verifier_error(&layout, &single, 1, 0), worst);
}

static double mean_of(const ech_tokens_loss *loss)
{
    return loss->tokens > 0 ? loss->sum / loss->tokens : 0;
}

void ech_verifier_compare_loss(ech_verifier *v)
{
    double layout = ech_exec_readings(v->layout.session.exec)[v->turn].loss;
    double single = mean_of(&v->single.loss), twin = mean_of(&v->twin.loss);
    ech_verifier_compare_losses(v, "loss", layout, single, &v->result->worst_loss);
    if (isfinite(single)) note_unit(v, &twin, &single, 1, 0);
}

/* What is not finite on both sides is counted instead. */
static void compare_report(ech_verifier *v, const char *what, const double *layout,
                           const double *single, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(layout[i]) && !isfinite(single[i])) {
            v->result->not_finite++;
            return;
        }
    ech_verifier_note(v, what, -1, ech_verifier_error(layout, single, n, smallest(v)),
                      &v->result->worst_report);
}

/* Number by number in fp64. In the run's own precision a choice between two that are nearly equal
 * may differ, and counts with it. */
void ech_verifier_compare_reports(ech_verifier *v)
{
    const double *layout = ech_exec_readings(v->layout.session.exec)[v->turn].reports;
    const double *single = ech_exec_readings(v->single.run.session.exec)->reports;
    const ech_model *model = v->single.run.design->model;
    v->result->reports = model->reports;
    for (size_t b = 0; b < model->block.n; b++) {
        const ech_block *block = model->block.at[b];
        int64_t at = block->first_report;
        for (size_t k = 0; k < block->report.n; k++) {
            const ech_reported *report = &block->report.at[k];
            char what[200];
            snprintf(what, sizeof what, "the %s of %s", report->kind, report->name);
            if (report->local) {
                at += report->numbers;
                continue;
            }
            int64_t each = v->result->own_precision ? report->numbers : 1;
            for (int64_t end = at + report->numbers; at < end; at += each)
                compare_report(v, what, &layout[at], &single[at], each);
        }
    }
}
