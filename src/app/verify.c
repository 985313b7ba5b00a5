/* SPDX-License-Identifier: Apache-2.0
 *
 * Verification: the layout's ranks train in fp64; rank 0 also trains alone, step by step beside them,
 * on the same global micro-batches in order, and compares. Errors as docs/design.md defines them:
 * max|a - b| / max(max|b|, 1e-3 x RMS of the whole gradient).
 */
#include "app/verify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One of the two runs that are compared. */
typedef struct contestant {
    ech_config *config; /* resolved */
    ech_design design;
    ech_session session;
    ech_loader *loader;
} contestant;

typedef struct verifier {
    ech_verification *result; /* rank 0 */
    ech_token_file *data;
    contestant layout, single;
    double *gradients; /* the layout's, all parameters one behind the other */
    int64_t *first;    /* [params] where each begins in `gradients` */
    double rms;        /* of the single rank's whole gradient */
    int64_t step;
} verifier;

/* ---- one contestant ---- */

static ech_status open_contestant(contestant *c, const ech_token_file *data, ech_comm *comm)
{
    ECH_TRY(ech_setup_resolve(c->config, ech_comm_size(comm), ech_comm_local_size(comm)));
    ECH_TRY(ech_design_create(c->config, ech_comm_size(comm), &c->design));
    ECH_TRY(ech_session_create(&c->design, comm, false, &c->session));
    ech_loader_options options = ech_design_reads(&c->design, ech_comm_rank(comm), true, INT64_MAX);
    ECH_TRY(ech_loader_create(data, &options, 0, &c->loader));
    ech_exec_set_loader(c->session.exec, ECH_TRAIN, c->loader);
    return ech_exec_run(c->session.exec, ECH_LIST_INIT, 0);
}

static void close_contestant(contestant *c)
{
    ech_loader_destroy(c->loader);
    ech_session_destroy(&c->session);
    ech_design_destroy(&c->design);
    ech_config_destroy(c->config);
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

/* Copies the layout's gradients before they are clipped. */
static void observe_layout(void *context, ech_exec *exec, const ech_step *step)
{
    verifier *v = context;
    if (step->kind != ECH_STEP_CLIP) return;
    for (int i = 0; i < (int)v->layout.design.model->param.n; i++) {
        ech_tensor gradient = ech_exec_gradient(exec, i);
        memcpy(v->gradients + v->first[i], gradient.data, ech_tensor_bytes(&gradient));
    }
}

/* Compares them with the single rank's. */
static void observe_single(void *context, ech_exec *exec, const ech_step *step)
{
    verifier *v = context;
    if (step->kind != ECH_STEP_CLIP) return;
    int params = (int)v->single.design.model->param.n;
    double squares = 0;
    for (int i = 0; i < params; i++) {
        ech_tensor b = ech_exec_gradient(exec, i);
        for (int64_t j = 0; j < ech_tensor_count(&b); j++)
            squares += ((double *)b.data)[j] * ((double *)b.data)[j];
    }
    v->rms = sqrt(squares / (double)ech_model_params(v->single.design.model));
    for (int i = 0; i < params; i++) {
        ech_tensor b = ech_exec_gradient(exec, i);
        double error =
            error_of(v->gradients + v->first[i], b.data, ech_tensor_count(&b), 1e-3 * v->rms, NULL);
        note(v, "gradient of", i, error, &v->result->worst_gradient);
        /* Which elements' updates count: kept in place of the gradient, 0 where they do not. */
        for (int64_t j = 0; j < ech_tensor_count(&b); j++) {
            double *a = &v->gradients[v->first[i] + j], noise = 1e-12 * v->rms;
            *a = fabs(*a) >= noise || fabs(((double *)b.data)[j]) >= noise;
        }
    }
}

static void compare_weights(verifier *v)
{
    for (int i = 0; i < (int)v->single.design.model->param.n; i++) {
        ech_tensor a = ech_exec_param(v->layout.session.exec, i);
        ech_tensor b = ech_exec_param(v->single.session.exec, i);
        int64_t n = ech_tensor_count(&b);
        bool *counts = ech_calloc((size_t)n, sizeof *counts);
        for (int64_t j = 0; j < n; j++) {
            counts[j] = v->gradients[v->first[i] + j] != 0;
            v->result->compared += counts[j];
            v->result->left_out += !counts[j];
        }
        note(v, "weight", i, error_of(a.data, b.data, n, 1e-3 * v->rms, counts),
             &v->result->worst_weight);
        free(counts);
    }
}

static ech_status compare_step(verifier *v)
{
    ECH_TRY(ech_exec_run(v->single.session.exec, ECH_LIST_TRAIN, v->step));
    double a = ech_exec_readings(v->layout.session.exec)->loss;
    double b = ech_exec_readings(v->single.session.exec)->loss;
    note(v, "loss", -1, error_of(&a, &b, 1, 0, NULL), &v->result->worst_loss);
    compare_weights(v);
    return ECH_OK;
}

/* ---- the whole ---- */

static ech_status prepare_comparison(verifier *v)
{
    const ech_model *model = v->layout.design.model;
    int64_t elements = 0;
    v->first = ech_calloc(model->param.n, sizeof *v->first);
    for (size_t i = 0; i < model->param.n; i++) {
        v->first[i] = elements;
        elements += v->layout.session.plan->param[i].elements;
    }
    v->gradients = ech_calloc((size_t)elements, sizeof *v->gradients);
    ech_exec_observe(v->layout.session.exec, observe_layout, v);
    ech_exec_observe(v->single.session.exec, observe_single, v);
    return ECH_OK;
}

static ech_status open_single(verifier *v, ech_comm **alone)
{
    ech_config *config = ech_config_copy(v->layout.config);
    v->single.config = config;
    config->parallel.data = 1;
    ech_config_replace_text(&config->parallel.comm, "local");
    ech_config_replace_text(&config->parallel.reduction, "direct");
    ECH_TRY(ech_comm_open(ech_comm_find("local"), 1, config->parallel.deadline, alone));
    ECH_TRY(open_contestant(&v->single, v->data, *alone));
    return prepare_comparison(v);
}

static ech_status run(verifier *v, ech_comm *comm, const ech_verification *request,
                      ech_comm **alone)
{
    ech_config_replace_text(&v->layout.config->precision.compute, "fp64");
    ECH_TRY(ech_token_file_open(v->layout.config->data.train, &v->data));
    ECH_TRY(open_contestant(&v->layout, v->data, comm));
    if (v->result) ECH_TRY(open_single(v, alone));
    for (v->step = 0; v->step < request->steps; v->step++) {
        ECH_TRY(ech_exec_run(v->layout.session.exec, ECH_LIST_TRAIN, v->step));
        ECH_TRY(ech_exec_run(v->layout.session.exec, ECH_LIST_CHECK, v->step));
        if (ech_exec_readings(v->layout.session.exec)->hash_differs)
            ECH_FAIL(ECH_EINTERNAL, "step %lld: parameters differ between ranks",
                     (long long)v->step + 1);
        if (v->result) ECH_TRY(compare_step(v));
    }
    return ech_group_barrier(ech_exec_world(v->layout.session.exec));
}

ech_status ech_verify_rank(ech_comm *comm, void *context)
{
    ech_verification *request = context;
    ech_comm *alone = NULL;
    verifier v = {.result = ech_comm_rank(comm) == 0 ? request : NULL,
                  .layout.config = ech_config_copy(request->config)};
    ech_status status = run(&v, comm, request, &alone);
    if (v.result) request->passed = status == ECH_OK && request->worst <= request->tolerance;
    close_contestant(&v.single);
    close_contestant(&v.layout);
    ech_comm_close(alone);
    ech_token_file_close(v.data);
    free(v.gradients);
    free(v.first);
    return status;
}
