/* SPDX-License-Identifier: Apache-2.0
 *
 * Verification: the layout's ranks train; after each list rank 0 trains the same training steps
 * alone by the protocol's serial program, and compares.
 */
#include "app/verify/verify.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/plan/report.h"
#include "app/setup/parts.h"
#include "app/setup/plugins.h"
#include "app/verify/verifier.h"
#include "schedule/calendar.h"

/* ---- lists ---- */

/* The layout runs the list; the single rank follows. */
static ech_status verify_list(ech_verifier *v, ech_list_kind list, const ech_serial_step *program)
{
    v->list = list;
    ECH_TRY(ech_exec_run(v->layout.session.exec, list, v->step));
    return ech_verifier_interpret(v, program);
}

/* Runs and compares the list that begins at training step *done, and the meetings before and after
 * it, if there are any. */
static ech_status verify_span(ech_verifier *v, int64_t *done)
{
    const ech_serial *serial = v->serial;
    ech_calendar calendar = ech_calendar_of(v->layout.design->config);
    v->step = v->span = *done;
    ech_list_kind list = ech_schedule_list(&v->schedule, *done, &v->turns);
    if (ech_calendar_due(&calendar, ECH_LIST_RETURN, *done))
        ECH_TRY(verify_list(v, ECH_LIST_RETURN, serial->returns));
    ECH_TRY(verify_list(v, list, serial->train));
    *done += v->turns;
    if (ech_calendar_due(&calendar, ECH_LIST_GOSSIP, *done))
        ECH_TRY(verify_list(v, ECH_LIST_GOSSIP, serial->gossip));
    if (ech_calendar_due(&calendar, ECH_LIST_SYNC, *done))
        ECH_TRY(verify_list(v, ECH_LIST_SYNC, serial->sync));
    return ECH_OK;
}

static ech_status validate(ech_verifier *v)
{
    bool validates;
    double layout = 0, single = 0;
    ECH_TRY(ech_compared_run_validate(&v->layout, &validates, &layout));
    if (!validates || !v->result) return ECH_OK;
    ECH_TRY(ech_compared_run_validate(&v->single.run, &validates, &single));
    /* Workers sum theirs first: the one number here that is no replay's. */
    if (ech_serial_does(v->serial, ECH_DO_SERVES) && v->result->own_precision) return ECH_OK;
    v->result->validated = true;
    ech_verifier_compare_losses(v, "validation loss", layout, single, &v->result->worst_validation);
    return ECH_OK;
}

/* ---- the whole ---- */

/* Equality level (b) of docs/design/correctness.md: only the pipeline differs. The gradient of a
 * parameter that several blocks use is summed in the order of their backwards, which a pipeline may
 * change. Inputs that are made from outputs are not the forward's to the last bit. Of pushes the
 * replay is of the same gradients, one by one. */
static bool is_exact(const ech_design *design)
{
    const ech_layout *layout = design->layout;
    const ech_schedule *schedule = design->schedule;
    ech_serial_equality equal = ech_protocol_of(layout)->serial.equal;
    /* The processor updates what it holds, and rounds roots and quotients otherwise than a GPU. */
    bool elsewhere = design->config->memory.offload_optimizer != ECH_OFFLOAD_NONE &&
                     strcmp(design->kernels->name, "cuda") == 0;
    bool alike =
        design->model->options.sequence_chunks < 2 && !design->model->options.invert && !elsewhere;
    if (equal == ECH_EQUAL_ALWAYS) return alike && !schedule->written;
    bool whole = layout->stages * layout->chunks == 1 && !schedule->written;
    for (size_t p = 0; p < design->model->param.n && !whole; p++)
        if (layout->first_user[p + 1] - layout->first_user[p] > 1) return false;
    return equal == ECH_EQUAL_ALONE && schedule->weights == ECH_WEIGHTS_FLUSHED &&
           layout->uniform && layout->replicas[0] == 1 && layout->tensor == 1 &&
           layout->context == 1 && alike;
}

/* A ring's token that comes and goes within a span meets what nobody knows: the span's end is open,
 * too. Otherwise it goes around once after all training steps. */
static bool is_carried(const ech_design *design)
{
    const ech_schedule_ring *ring = &design->schedule->ring;
    return ring->clusters > 1 && design->schedule->turns >= ring->turns;
}

/* Whether steps read other weights than the newest. */
static bool is_replayed(const ech_verifier *v)
{
    ech_weights weights = v->layout.design->schedule->weights;
    return weights != ECH_WEIGHTS_FLUSHED && weights != ECH_WEIGHTS_PULLED;
}

static ech_status open_single(ech_verifier *v)
{
    ech_config *config = v->config[1] = ech_config_copy(v->config[0]);
    ech_config_set_alone(config);
    /* With model.norm_sync the micro-batches of all replicas are one micro-batch here. */
    int replicas = v->layout.design->model->options.norm_replicas;
    v->result->merged = replicas > 1 ? replicas : 1;
    config->training.micro_batch_size *= v->result->merged;
    config->parallel.comm = ECH_COMM_local;
    config->parallel.reduction = ECH_REDUCTION_DIRECT;
    config->memory.device_limit = ECH_AUTO; /* the whole model on one rank */
    config->memory.offload_optimizer = ECH_OFFLOAD_NONE;
    config->memory.offload_parameters = ECH_OFFLOAD_NONE;
    config->memory.offload_delayed_from = 0;
    if (config->parallel.compression == ECH_COMPRESSION_TOPK) { /* chosen.c */
        config->parallel.compression = ECH_COMPRESSION_NONE;
        config->parallel.compression_density = 0.01; /* the default, which goes with it */
    }
    if (v->serial->open) config->parallel.strategy = ECH_STRATEGY_SYNCHRONOUS;
    if (!ech_weights_are_synchronous(v->schedule.weights)) {
        v->clip_norm = config->optimizer.clip_norm;
        config->optimizer.clip_norm = 0;
    }
    if (!v->layout.design->schedule->stashing) { /* backwards read other weights, too */
        config->parallel.weight_stashing = 0;
        config->parallel.flush_every = 1;
        ech_config_replace_text(&config->parallel.schedule, "pipedream");
    }
    ECH_TRY(ech_design_create_alone(&v->compared, config, &v->reference));
    return ech_follower_open(&v->single, v, &v->reference);
}

/* If the layout computes inputs from outputs, which rounds them, the twin does so, too, and more
 * coarsely. */
static ech_status open_twin(ech_verifier *v)
{
    const ech_design *design = &v->reference;
    v->twin.is_twin = true;
    if (v->layout.design->model->options.invert) {
        v->config[2] = ech_config_copy(v->config[1]);
        v->config[2]->memory.invert = 1;
        ECH_TRY(ech_design_create_alone(&v->compared, v->config[2], &v->inverted));
        ech_verifier_disturb(v->inverted.model);
        design = &v->inverted;
    }
    return ech_follower_open(&v->twin, v, design);
}

static void describe_layout(ech_verifier *v)
{
    ECH_FREED_TEXT text = {0};
    ech_print_axes(v->layout.design, &text);
    if (v->layout.design->layout->stages > 1)
        ech_text_append(&text, ", %s", v->layout.design->config->parallel.schedule);
    snprintf(v->result->layout, sizeof v->result->layout, "%s", text.n ? text.at : "alone");
}

/* fp16 loses small gradients without a loss scale. A fixed scale replaces a dynamic one, so that no
 * update is skipped. */
static int64_t verified_scale(const ech_config *config, bool own_precision)
{
    enum { FIXED = 4096 };
    if (!own_precision || config->precision.compute != ECH_COMPUTE_FP16) return 1;
    return config->precision.loss_scale == ECH_AUTO ? FIXED : config->precision.loss_scale;
}

/* Local replicas are averaged soon, so that the comparison includes it: after a small divisor of
 * parallel.sync_every, since training.steps is a multiple of that. */
static int64_t meets_soon(int64_t sync_every)
{
    enum { MOST = 1000 };
    for (int64_t divisor = 2; divisor < MOST && divisor < sync_every; divisor++)
        if (sync_every % divisor == 0) return divisor;
    return sync_every;
}

static void close_verifier(ech_verifier *v)
{
    ech_follower_close(&v->twin);
    ech_follower_close(&v->single);
    ech_compared_run_close(&v->layout);
    ech_design_destroy(&v->reference);
    ech_design_destroy(&v->inverted);
    for (int i = 0; i < 3; i++) ech_config_destroy(v->config[i]);
    free(v->copy.at);
    ech_pool_destroy(v->pool);
}

static ech_status run(ech_verifier *v, const ech_verification *request, const ech_design *design)
{
    ech_config *config = v->config[0] = ech_config_copy(design->config);
    config->checkpoint.background = 0;        /* nothing is saved: no memory for it */
    config->precision.reduce = ECH_WIRE_AUTO; /* the layout is verified, not what roundings do */
    config->precision.tf32 = 0;
    config->precision.loss_scale = verified_scale(config, request->own_precision);
    config->parallel.sync_every = meets_soon(config->parallel.sync_every);
    v->compared = *design; /* model, layout and schedule do not depend on these keys */
    v->compared.config = config;
    if (!request->own_precision) {
        config->precision.compute = ECH_COMPUTE_FP64;
        config->precision.residual = ECH_RESIDUAL_COMPUTE;
        v->compared.kernels = ech_kernels_on(ech_config_name(config, "parallel.device"), ECH_F64);
        v->compared.in_fp64 = design->config->precision.compute != ECH_COMPUTE_FP64;
    }
    v->layout.design = &v->compared;
    v->serial = &ech_protocol_of(design->layout)->serial;
    v->workers = design->layout->sums == ECH_SUMS_ALL ? 1 : design->layout->replicas[0];
    v->schedule = *design->schedule;
    int64_t turns = v->schedule.turns, spans = (request->steps + turns - 1) / turns;
    if (v->result) ECH_TRY(ech_design_check_serves(design, 0, spans * turns));
    if (v->schedule.delayed_from) v->schedule.delayed_from = 1; /* soon, to be seen */
    if (v->result) ECH_TRY(ech_design_check_ranks(&v->compared, ECH_CHECKED_STEPS));
    ECH_TRY(ech_compared_run_open(&v->layout, v->comm));
    ech_verifier_prepare(v);
    if (ech_serial_does(v->serial, ECH_DO_GATHER))
        ech_exec_observe(v->layout.session.exec, ech_verifier_observe_layout, v);
    if (v->result) {
        v->result->ranks = ech_comm_size(v->comm);
        v->result->comm = ech_comm_name(v->comm);
        v->result->replayed = is_replayed(v);
        v->result->exact = is_exact(design);
        v->result->open = v->serial->open && design->world > 1;
        v->result->carried = is_carried(design);
        v->result->precision = ech_dtype_name(v->layout.session.plan->types.compute);
        describe_layout(v);
        ECH_TRY(open_single(v));
        ECH_TRY(open_twin(v));
    }
    ECH_TRY(ech_verifier_interpret(v, v->serial->begin));
    ech_calendar calendar = ech_calendar_of(config);
    int64_t done = 0;
    while (done < request->steps || (calendar.sync_every > 0 && done % calendar.sync_every))
        ECH_TRY(verify_span(v, &done));
    if (v->result) v->result->done = done;
    ECH_TRY(validate(v));
    return ech_group_barrier(ech_exec_world(v->layout.session.exec));
}

/* True if results within the tolerance prove nothing. A layout that must not change a bit makes the
 * same rounding errors as one rank, but its updates may all have been withheld. */
static bool is_ill(const ech_verification *r)
{
    double most = r->own_precision ? DBL_MAX : ECH_MOST_UNIT;
    return ech_verification_is_void(r) || (!r->exact && r->unit > most);
}

ech_status ech_verify_rank(ech_comm *comm, const ech_design *design, void *context)
{
    ech_verification *request = context;
    bool first = ech_comm_rank(comm) == 0;
    ECH_CLEANUP(close_verifier)
    ech_verifier v = {.result = first ? request : NULL, .comm = comm};
    ECH_TRY(run(&v, request, design));
    if (!first) return ECH_OK;
    double wide = 10 * request->unit; /* in units: rounding errors add up */
    if (request->widened && !request->exact && wide > request->tolerance) request->tolerance = wide;
    bool within = request->worst <= request->tolerance;
    if (within) request->first_bad[0] = '\0'; /* it was of the tolerance before */
    request->ill = within && is_ill(request);
    request->passed = within && !request->ill;
    return ECH_OK;
}

/* How much coarser a type rounds than fp32. */
static double coarseness(ech_dtype dtype)
{
    return dtype == ECH_BF16 ? 0x1p16 : dtype == ECH_F16 ? 0x1p13 : 1;
}

ech_status ech_verify_twice_rank(ech_comm *comm, const ech_design *design, void *context)
{
    ech_verifications *both = context;
    ech_dtype dtype = design->kernels->dtype;
    bool exact = is_exact(design), same = dtype == ECH_F64;
    if (ech_comm_rank(comm) == 0) ECH_TRY(ech_plugins_derive(design->config));
    ECH_TRY(ech_verify_rank(comm, design, &both->main));
    if (!exact && (same || !both->own_precision)) return ECH_OK;
    ech_verification own = {.steps = both->main.steps,
                            .tolerance = exact ? 0 : both->own.tolerance * coarseness(dtype),
                            .widened = !exact,
                            .own_precision = true};
    ECH_TRY(ech_verify_rank(comm, design, &own));
    if (ech_comm_rank(comm) != 0) return ECH_OK;
    both->own = own;
    both->own_compared = true;
    return ECH_OK;
}
