/* SPDX-License-Identifier: Apache-2.0
 *
 * Comparing: losses, gradients and weights of the layout with those of the single rank. Errors as
 * docs/design.md defines them: max|a - b| / max(max|b|, 1e-3 x RMS of the whole gradient).
 */
#include "app/verify/verifier.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TAG = (1 << 20) - 1 }; /* of tensors on their way to rank 0 */

int ech_verifier_params(const ech_verifier *v)
{
    return (int)v->layout.design.model->param.n;
}

bool ech_verifier_is_asynchronous(const ech_verifier *v)
{
    return v->layout.design.schedule->weights != ECH_WEIGHTS_FLUSHED;
}

static void note(ech_verifier *v, const char *what, int param, double error, double *worst)
{
    ech_verification *r = v->result;
    const ech_model *model = v->single.design.model;
    char at[256];
    if (param < 0)
        snprintf(at, sizeof at, "step %lld, loss", (long long)v->step + 1);
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

/* max|a - b| over max(max|b|, floor), over the elements where `counts` (NULL: all). A NaN on either
 * side is an infinite error. */
static double error_of(const double *a, const double *b, int64_t n, double floor_,
                       const bool *counts)
{
    double apart = 0, size = floor_;
    for (int64_t i = 0; i < n; i++) {
        if (fabs(b[i]) > size) size = fabs(b[i]);
        if (counts && !counts[i]) continue;
        double d = fabs(a[i] - b[i]);
        if (!isfinite(d)) return INFINITY;
        if (d > apart) apart = d;
    }
    return size > 0 ? apart / size : apart > 0 ? INFINITY : 0;
}

/* As fp64, whatever it is; from fp32 no bit is lost. */
static void take(const ech_tensor *x, double *to)
{
    int64_t n = ech_tensor_count(x);
    for (int64_t i = 0; i < n; i++)
        to[i] = x->dtype == ECH_F64 ? ((const double *)x->data)[i]
                                    : (double)((const float *)x->data)[i];
}

void ech_verifier_observe_layout(void *context, ech_exec *exec, const ech_step *step)
{
    ech_verifier *v = context;
    if (step->kind != ECH_STEP_CLIP) return;
    for (int i = 0; i < ech_verifier_params(v); i++) {
        if (v->layout.session.plan->param[i].value < 0) continue;
        ech_tensor gradient = ech_exec_gradient(exec, i);
        take(&gradient, v->mine + v->own[i]);
    }
}

void ech_verifier_observe_single(void *context, ech_exec *exec, const ech_step *step)
{
    ech_verifier *v = context;
    if (step->kind != ECH_STEP_CLIP) return;
    double squares = 0;
    for (int i = 0; i < ech_verifier_params(v); i++) {
        ech_tensor gradient = ech_exec_gradient(exec, i);
        take(&gradient, v->reference + v->first[i]);
    }
    for (int64_t j = 0; j < v->first[ech_verifier_params(v)]; j++)
        squares += v->reference[j] * v->reference[j];
    v->rms = sqrt(squares / (double)ech_model_params(v->single.design.model));
}

static void compare_gradient(ech_verifier *v, int param, const double *a)
{
    int64_t first = v->first[param], n = v->first[param + 1] - first;
    note(v, "gradient of", param, error_of(a, v->reference + first, n, 1e-3 * v->rms, NULL),
         &v->result->worst_gradient);
}

/* Updates of elements whose gradient is noise on both sides are left out: the optimizer amplifies
 * it. `gradient`: NULL, all count. */
static void compare_weight(ech_verifier *v, int param, const double *a, const double *gradient)
{
    int64_t first = v->first[param], n = v->first[param + 1] - first;
    ech_tensor single = ech_exec_param(v->single.session.exec, param);
    double *b = ech_calloc((size_t)n, sizeof *b);
    bool *counts = ech_calloc((size_t)n, sizeof *counts);
    double noise = v->result->bits ? 0 : 1e-12 * v->rms;
    take(&single, b);
    for (int64_t j = 0; j < n; j++) {
        counts[j] =
            !gradient || fabs(gradient[j]) >= noise || fabs(v->reference[first + j]) >= noise;
        v->result->compared += counts[j];
        v->result->left_out += !counts[j];
    }
    note(v, "weight", param, error_of(a, b, n, 1e-3 * v->rms, counts), &v->result->worst_weight);
    free(counts);
    free(b);
}

/* ---- from the ranks to rank 0 ---- */

/* What `rank` has in `x` (n numbers) is in `to` on rank 0 afterwards. */
static ech_status bring(ech_verifier *v, int rank, double *x, int64_t n, double *to)
{
    size_t bytes = (size_t)n * sizeof *x;
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

/* What tensor rank `index` has of a parameter, to its place in the whole. */
static void put_slices(const ech_verifier *v, int param, int index, const double *from,
                       double *whole)
{
    const ech_shape *shape = &v->layout.design.model->param.at[param].shape;
    ech_cut cut = v->layout.design.layout->cut;
    ech_slice slices[ECH_MOST_SLICES];
    int n = ech_shape_slices(shape, cut, index, slices);
    for (int i = 0; i < n; i++) {
        ech_slice_runs r = ech_slice_split(shape, cut, &slices[i]);
        for (int64_t run = 0; run < r.runs; run++)
            memcpy(whole + r.whole + run * r.whole_step, from + r.local + run * r.local_step,
                   (size_t)r.length * sizeof *whole);
    }
}

/* The tensor ranks whose slices make up the parameter: all, or of an uncut one the first. */
static int holders_of(const ech_verifier *v, int param)
{
    int shares;
    const ech_layout *layout = v->layout.design.layout;
    return ech_shape_is_cut(&v->layout.design.model->param.at[param].shape, layout->cut, &shares)
               ? layout->tensor
               : 1;
}

/* Brings slices of the ranks at (stage, 0, 0, .) to rank 0, where they make up `whole`. `mine`: this
 * rank's, n numbers. */
static ech_status bring_whole(ech_verifier *v, int stage, int param, double *mine, double *whole)
{
    const ech_layout *layout = v->layout.design.layout;
    const ech_shape *shape = &v->layout.design.model->param.at[param].shape;
    int64_t n = ech_shape_count(shape, ech_extent_of_params(layout->cut));
    double *slice = v->result ? ech_calloc((size_t)n, sizeof *slice) : NULL;
    ech_status status = ECH_OK;
    for (int k = 0; k < holders_of(v, param) && status == ECH_OK; k++) {
        status = bring(v, ech_layout_rank_at(layout, stage, 0, 0, k), mine, n, slice);
        if (status == ECH_OK && v->result) put_slices(v, param, k, slice, whole);
    }
    free(slice);
    return status;
}

/* One parameter as the first replica of a stage has it. */
static ech_status compare_param(ech_verifier *v, int stage, int param)
{
    int64_t first = v->first[param], n = v->first[param + 1] - first;
    bool replayed = ech_verifier_is_asynchronous(v);
    double *weight = v->result ? ech_calloc((size_t)n, sizeof *weight) : NULL, *mine = NULL;
    ech_status status = ECH_OK;
    if (!replayed)
        status = bring_whole(v, stage, param, v->mine + v->own[param],
                             v->result ? v->gradients + first : NULL);
    if (status == ECH_OK && v->result && !replayed)
        compare_gradient(v, param, v->gradients + first);
    if (v->layout.session.plan->param[param].value >= 0) {
        ech_tensor x = ech_exec_param(v->layout.session.exec, param);
        mine = ech_calloc((size_t)ech_tensor_count(&x), sizeof *mine);
        take(&x, mine);
    }
    if (status == ECH_OK) status = bring_whole(v, stage, param, mine, weight);
    if (status == ECH_OK && v->result)
        compare_weight(v, param, weight, replayed ? NULL : v->gradients + first);
    free(mine);
    free(weight);
    return status;
}

ech_status ech_verifier_compare_tensors(ech_verifier *v)
{
    const ech_layout *layout = v->layout.design.layout;
    for (int s = 0; s < layout->stages; s++)
        for (int p = 0; p < ech_verifier_params(v); p++)
            if (ech_layout_holds(layout, layout->first_rank[s], p)) ECH_TRY(compare_param(v, s, p));
    return ECH_OK;
}

void ech_verifier_compare_loss(ech_verifier *v, int turn)
{
    double a = ech_exec_readings(v->layout.session.exec)[turn].loss;
    double b = ech_exec_readings(v->single.session.exec)->loss;
    note(v, "loss", -1, error_of(&a, &b, 1, 0, NULL), &v->result->worst_loss);
}
