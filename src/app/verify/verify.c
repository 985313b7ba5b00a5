/* SPDX-License-Identifier: Apache-2.0
 *
 * Verification: the layout's ranks train; rank 0 also trains alone, step by step beside them, on the
 * same global micro-batches in order, and compares.
 */
#include "app/verify/verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/plan/axes_text.h"
#include "app/verify/verifier.h"

/* ---- steps ---- */

/* The single rank's steps of what the layout has just run. */
static ech_status follow(ech_verifier *v, int turns)
{
    for (int turn = 0; turn < turns; turn++) {
        if (v->replay)
            ECH_TRY(ech_replay_step(v->replay, v->step, turn));
        else
            ECH_TRY(ech_exec_run(v->single.session.exec, ECH_LIST_TRAIN, v->step));
        ech_verifier_compare_loss(v, turn);
        v->step++;
    }
    v->step--; /* names the last one in what is compared now */
    return ECH_OK;
}

static ech_status verify_list(ech_verifier *v)
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
static bool is_exact(const ech_verifier *v)
{
    const ech_layout *layout = v->layout.design.layout;
    bool whole = layout->stages * layout->chunks == 1 && !v->layout.design.schedule->written;
    for (int p = 0; p < ech_verifier_params(v) && !whole; p++)
        if (layout->first_user[p + 1] - layout->first_user[p] > 1) return false;
    return !ech_verifier_is_asynchronous(v) && layout->uniform && layout->replicas[0] == 1 &&
           layout->tensor == 1 && layout->context == 1 && v->layout.design.model->ways.pieces < 2;
}

static void prepare_gradients(ech_verifier *v)
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

static ech_status open_single(ech_verifier *v, ech_comm **alone)
{
    ech_config *config = ech_config_copy(v->layout.config);
    double clip_norm = config->optimizer.clip_norm;
    v->single.config = config;
    v->single.tokenizer = v->layout.tokenizer;
    ech_setup_alone(config);
    ech_config_replace_text(&config->parallel.comm, "local");
    ech_config_replace_text(&config->parallel.reduction, "direct");
    config->memory.device_limit = ECH_AUTO; /* the whole model on one rank */
    if (ech_verifier_is_asynchronous(v)) config->optimizer.clip_norm = 0;
    ECH_TRY(ech_comm_open(ech_comm_find("local"), 1, config->parallel.deadline, alone));
    ECH_TRY(ech_contestant_open(&v->single, *alone));
    if (ech_verifier_is_asynchronous(v))
        v->replay = ech_replay_create(&v->layout, &v->single, clip_norm);
    else
        ech_exec_observe(v->single.session.exec, ech_verifier_observe_single, v);
    return ECH_OK;
}

static void describe_layout(ech_verifier *v)
{
    ech_text text = {0};
    ech_print_axes(&v->layout.design, &text);
    if (v->layout.design.layout->stages > 1)
        ech_text_append(&text, ", %s", v->layout.config->parallel.schedule);
    snprintf(v->result->layout, sizeof v->result->layout, "%s", text.n ? text.at : "alone");
    ech_text_free(&text);
}

static ech_status run(ech_verifier *v, const ech_verification *request, ech_comm **alone)
{
    ech_config *config = v->layout.config;
    /* A profile is of the run's own precision: what it decides is decided before that changes. */
    ECH_TRY(ech_setup_resolve(config, request->tokenizer, ech_comm_size(v->comm),
                              ech_comm_local_size(v->comm)));
    ech_config_replace_text(&config->parallel.profile, "");
    if (!request->bits) ech_config_replace_text(&config->precision.compute, "fp64");
    ECH_TRY(ech_contestant_open(&v->layout, v->comm));
    prepare_gradients(v);
    if (!ech_verifier_is_asynchronous(v))
        ech_exec_observe(v->layout.session.exec, ech_verifier_observe_layout, v);
    if (v->result) {
        v->result->replayed = ech_verifier_is_asynchronous(v);
        v->result->exact = is_exact(v);
        describe_layout(v);
        ECH_TRY(open_single(v, alone));
    }
    int turns = v->layout.design.schedule->turns;
    for (int64_t done = 0; done < request->steps; done += turns) {
        v->step = done;
        ECH_TRY(verify_list(v));
        if (v->result) ECH_TRY(follow(v, turns));
        ECH_TRY(ech_verifier_compare_tensors(v));
    }
    return ech_group_barrier(ech_exec_world(v->layout.session.exec));
}

/* One comparison. *exact: on every rank. */
static ech_status compare(ech_comm *comm, ech_verification *request, bool *exact)
{
    ech_comm *alone = NULL;
    ech_verifier v = {
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
