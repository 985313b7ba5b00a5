/* SPDX-License-Identifier: Apache-2.0
 *
 * Verification: the layout's ranks train; rank 0 also trains alone, step by step beside them, on the
 * same global micro-batches in order, and compares. Errors as docs/design.md defines them:
 * max|a - b| / max(max|b|, 1e-3 x RMS of the whole gradient).
 */
#include "app/verify/verify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/plan/axes_text.h"
#include "app/verify/replay.h"

enum { TAG = (1 << 20) - 1 }; /* of tensors on their way to rank 0 */

typedef struct verifier {
    ech_verification *result; /* rank 0 */
    ech_comm *comm;
    ech_contestant layout, single;
    ech_replay *replay;
    double *mine;      /* the layout's gradients, what this rank holds of them */
    int64_t *own;      /* [params] where each begins in them */
    double *gradients; /* rank 0: a stage's, all parameters one behind the other */
    double *reference; /* rank 0: the single rank's */
    int64_t *first;    /* [params + 1] where each begins in them */
    double rms;        /* of the single rank's whole gradient */
    int64_t step;
} verifier;

static int params_of(const verifier *v)
{
    return (int)v->layout.design.model->param.n;
}

static bool is_asynchronous(const verifier *v)
{
    return v->layout.design.schedule->weights != ECH_WEIGHTS_FLUSHED;
}

/* ---- comparing ---- */

static void note(verifier *v, const char *what, int param, double error, double *worst)
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

static void observe_layout(void *context, ech_exec *exec, const ech_step *step)
{
    verifier *v = context;
    if (step->kind != ECH_STEP_CLIP) return;
    for (int i = 0; i < params_of(v); i++) {
        if (v->layout.session.plan->param[i].value < 0) continue;
        ech_tensor gradient = ech_exec_gradient(exec, i);
        take(&gradient, v->mine + v->own[i]);
    }
}

static void observe_single(void *context, ech_exec *exec, const ech_step *step)
{
    verifier *v = context;
    if (step->kind != ECH_STEP_CLIP) return;
    double squares = 0;
    for (int i = 0; i < params_of(v); i++) {
        ech_tensor gradient = ech_exec_gradient(exec, i);
        take(&gradient, v->reference + v->first[i]);
    }
    for (int64_t j = 0; j < v->first[params_of(v)]; j++)
        squares += v->reference[j] * v->reference[j];
    v->rms = sqrt(squares / (double)ech_model_params(v->single.design.model));
}

static void compare_gradient(verifier *v, int param, const double *a)
{
    int64_t first = v->first[param], n = v->first[param + 1] - first;
    note(v, "gradient of", param, error_of(a, v->reference + first, n, 1e-3 * v->rms, NULL),
         &v->result->worst_gradient);
}

/* Updates of elements whose gradient is noise on both sides are left out: the optimizer amplifies
 * it. `gradient`: NULL, all count. */
static void compare_weight(verifier *v, int param, const double *a, const double *gradient)
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
static ech_status bring(verifier *v, int rank, double *x, int64_t n, double *to)
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
static void put_slices(const verifier *v, int param, int index, const double *from, double *whole)
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
static int holders_of(const verifier *v, int param)
{
    int shares;
    const ech_layout *layout = v->layout.design.layout;
    return ech_shape_is_cut(&v->layout.design.model->param.at[param].shape, layout->cut, &shares)
               ? layout->tensor
               : 1;
}

/* Brings slices of the ranks at (stage, 0, 0, .) to rank 0, where they make up `whole`. `mine`: this
 * rank's, n numbers. */
static ech_status bring_whole(verifier *v, int stage, int param, double *mine, double *whole)
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
static ech_status compare_param(verifier *v, int stage, int param)
{
    int64_t first = v->first[param], n = v->first[param + 1] - first;
    bool replayed = is_asynchronous(v);
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

/* Of every stage: where stages share a parameter, each has its copy. */
static ech_status compare_tensors(verifier *v)
{
    const ech_layout *layout = v->layout.design.layout;
    for (int s = 0; s < layout->stages; s++)
        for (int p = 0; p < params_of(v); p++)
            if (ech_layout_holds(layout, layout->first_rank[s], p)) ECH_TRY(compare_param(v, s, p));
    return ECH_OK;
}

/* ---- steps ---- */

static void compare_loss(verifier *v, int turn)
{
    double a = ech_exec_readings(v->layout.session.exec)[turn].loss;
    double b = ech_exec_readings(v->single.session.exec)->loss;
    note(v, "loss", -1, error_of(&a, &b, 1, 0, NULL), &v->result->worst_loss);
}

/* The single rank's steps of what the layout has just run. */
static ech_status follow(verifier *v, int turns)
{
    for (int turn = 0; turn < turns; turn++) {
        if (v->replay)
            ECH_TRY(ech_replay_step(v->replay, v->step, turn));
        else
            ECH_TRY(ech_exec_run(v->single.session.exec, ECH_LIST_TRAIN, v->step));
        compare_loss(v, turn);
        v->step++;
    }
    v->step--; /* names the last one in what is compared now */
    return ECH_OK;
}

static ech_status verify_list(verifier *v)
{
    int turns = v->layout.design.schedule->turns;
    int64_t step = v->step;
    ECH_TRY(ech_exec_run(v->layout.session.exec, ECH_LIST_TRAIN, step));
    ECH_TRY(ech_exec_run(v->layout.session.exec, ECH_LIST_CHECK, step));
    if (ech_exec_readings(v->layout.session.exec)->hash_differs)
        ECH_FAIL(ECH_EINTERNAL, "step %lld: parameters differ between ranks",
                 (long long)step + turns);
    return ECH_OK;
}

/* ---- the whole ---- */

/* Equality level (b) of docs/design.md: only the pipeline differs. The gradient of a parameter that
 * several blocks share is a sum in the order in which they come. */
static bool is_exact(const verifier *v)
{
    const ech_layout *layout = v->layout.design.layout;
    bool whole = layout->stages * layout->chunks == 1 && !v->layout.design.schedule->written;
    for (int p = 0; p < params_of(v) && !whole; p++)
        if (layout->first_user[p + 1] - layout->first_user[p] > 1) return false;
    return !is_asynchronous(v) && layout->uniform && layout->replicas[0] == 1 &&
           layout->tensor == 1 && layout->context == 1 && v->layout.design.model->ways.pieces < 2;
}

static void prepare_gradients(verifier *v)
{
    const ech_model *model = v->layout.design.model;
    const ech_param_plan *plans = v->layout.session.plan->param;
    int64_t own = 0;
    v->first = ech_calloc(model->param.n + 1, sizeof *v->first);
    for (size_t i = 0; i < model->param.n; i++)
        v->first[i + 1] = v->first[i] + ech_shape_whole(&model->param.at[i].shape);
    size_t elements = (size_t)v->first[model->param.n];
    v->own = ech_calloc(model->param.n, sizeof *v->own);
    for (size_t i = 0; i < model->param.n; own += plans[i++].elements) v->own[i] = own;
    v->mine = ech_calloc((size_t)own, sizeof *v->mine);
    if (!v->result) return;
    v->gradients = ech_calloc(elements, sizeof *v->gradients);
    v->reference = ech_calloc(elements, sizeof *v->reference);
}

static ech_status open_single(verifier *v, ech_comm **alone)
{
    ech_config *config = ech_config_copy(v->layout.config);
    double clip_norm = config->optimizer.clip_norm;
    v->single.config = config;
    v->single.tokenizer = v->layout.tokenizer;
    ech_setup_alone(config);
    ech_config_replace_text(&config->parallel.comm, "local");
    ech_config_replace_text(&config->parallel.reduction, "direct");
    config->memory.device_limit = ECH_AUTO; /* the whole model on one rank */
    if (is_asynchronous(v)) config->optimizer.clip_norm = 0;
    ECH_TRY(ech_comm_open(ech_comm_find("local"), 1, config->parallel.deadline, alone));
    ECH_TRY(ech_contestant_open(&v->single, *alone));
    if (is_asynchronous(v))
        v->replay = ech_replay_create(&v->layout, &v->single, clip_norm);
    else
        ech_exec_observe(v->single.session.exec, observe_single, v);
    return ECH_OK;
}

static void describe_layout(verifier *v)
{
    ech_text text = {0};
    ech_print_axes(&v->layout.design, &text);
    if (v->layout.design.layout->stages > 1)
        ech_text_append(&text, ", %s", v->layout.config->parallel.schedule);
    snprintf(v->result->layout, sizeof v->result->layout, "%s", text.n ? text.at : "alone");
    ech_text_free(&text);
}

static ech_status run(verifier *v, const ech_verification *request, ech_comm **alone)
{
    ech_config *config = v->layout.config;
    /* A profile is of the run's own precision: what it decides is decided before that changes. */
    ECH_TRY(ech_setup_resolve(config, request->tokenizer, ech_comm_size(v->comm),
                              ech_comm_local_size(v->comm)));
    ech_config_replace_text(&config->parallel.profile, "");
    if (!request->bits) ech_config_replace_text(&config->precision.compute, "fp64");
    ECH_TRY(ech_contestant_open(&v->layout, v->comm));
    prepare_gradients(v);
    if (!is_asynchronous(v)) ech_exec_observe(v->layout.session.exec, observe_layout, v);
    if (v->result) {
        v->result->replayed = is_asynchronous(v);
        v->result->exact = is_exact(v);
        describe_layout(v);
        ECH_TRY(open_single(v, alone));
    }
    int turns = v->layout.design.schedule->turns;
    for (int64_t done = 0; done < request->steps; done += turns) {
        v->step = done;
        ECH_TRY(verify_list(v));
        if (v->result) ECH_TRY(follow(v, turns));
        ECH_TRY(compare_tensors(v));
    }
    return ech_group_barrier(ech_exec_world(v->layout.session.exec));
}

/* One comparison. *exact: on every rank. */
static ech_status compare(ech_comm *comm, ech_verification *request, bool *exact)
{
    ech_comm *alone = NULL;
    verifier v = {
        .result = ech_comm_rank(comm) == 0 ? request : NULL,
        .comm = comm,
        .layout = {.config = ech_config_copy(request->config), .tokenizer = request->tokenizer}};
    v.layout.config->checkpoint.background = 0; /* nothing is saved: no memory for it */
    if (v.result && request->bits) request->tolerance = 0;
    ech_status status = run(&v, request, &alone);
    *exact = status == ECH_OK && is_exact(&v);
    if (v.result) request->passed = status == ECH_OK && request->worst <= request->tolerance;
    ech_replay_destroy(v.replay);
    ech_contestant_close(&v.single);
    ech_contestant_close(&v.layout);
    ech_comm_close(alone);
    free(v.mine);
    free(v.own);
    free(v.gradients);
    free(v.reference);
    free(v.first);
    return status;
}

ech_status ech_verify_rank(ech_comm *comm, void *context)
{
    ech_verification *request = context;
    bool exact;
    ECH_TRY(compare(comm, request, &exact));
    if (!request->also_bits || !exact) return ECH_OK;
    ech_verification bits = {.config = request->config,
                             .tokenizer = request->tokenizer,
                             .steps = request->steps,
                             .bits = true};
    ECH_TRY(compare(comm, &bits, &exact));
    if (ech_comm_rank(comm) != 0) return ECH_OK;
    request->bits_compared = true;
    request->passed &= bits.passed;
    memcpy(request->bits_bad, bits.first_bad, sizeof bits.first_bad);
    return ECH_OK;
}
