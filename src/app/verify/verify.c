/* SPDX-License-Identifier: Apache-2.0
 *
 * Verification: the layout's ranks train; after each list rank 0 trains the same training steps alone, on the
 * same global micro-batches in order, and compares.
 */
#include "app/verify/verify.h"

#include <stdio.h>

#include "app/plan/report.h"
#include "app/setup/initial.h"
#include "app/verify/added.h"
#include "schedule/calendar.h"

/* ---- compared runs ---- */

ech_status ech_compared_run_open(ech_compared_run *c, ech_comm *comm)
{
    ECH_TRY(ech_session_create(c->design, comm, false, &c->session));
    ECH_TRY(ech_design_open_data(c->design, ECH_SPLIT_TRAIN, &c->data));
    ECH_TRY(ech_session_read(&c->session, c->design, c->data, ECH_TRAIN, 0, INT64_MAX, &c->loader));
    return ech_session_initialise(&c->session, c->design->config);
}

ech_status ech_compared_run_validate(ech_compared_run *c, bool *validates, double *loss)
{
    ECH_CLEANUP(ech_corpus_close_at) ech_corpus *valid = NULL;
    ECH_CLEANUP(ech_loader_destroy_at) ech_loader *loader = NULL;
    ECH_TRY(ech_design_open_data(c->design, ECH_SPLIT_VALID, &valid));
    *validates = valid != NULL;
    if (!valid) return ECH_OK;
    int64_t samples = ech_corpus_samples(valid),
            wanted = c->design->config->training.global_batch_size;
    ECH_TRY(ech_session_read(&c->session, c->design, valid, ECH_EVALUATE, 0,
                             wanted < samples ? wanted : samples, &loader));
    ech_status status = ech_exec_run(c->session.exec, ECH_LIST_VALIDATE, 0);
    ech_exec_set_loader(c->session.exec, ECH_EVALUATE, NULL);
    if (status == ECH_OK) *loss = ech_exec_readings(c->session.exec)->loss;
    return status;
}

void ech_compared_run_close(ech_compared_run *c)
{
    ech_loader_destroy(c->loader);
    ech_corpus_close(c->data);
    ech_session_destroy(&c->session);
    *c = (ech_compared_run){0};
}

/* ---- steps ---- */

bool ech_verifier_has_gradients(ech_compared_run *run, ech_replay *replay, const ech_step *step)
{
    const ech_list *list = &run->session.plan->list[ECH_LIST_TRAIN];
    const ech_step *first = list->step.at, *end = first + list->step.n, *next = step + 1;
    if (step < first || next >= end) return false;
    if (replay) ech_replay_prepare(replay, next);
    return next->kind == ECH_STEP_NORM;
}

/* ech_exec_observe of the single rank. */
static void observe_single(void *context, ech_exec *exec, const ech_step *step)
{
    ech_verifier *v = context;
    if (!ech_verifier_has_gradients(&v->single, v->replay, step) || v->taken) return;
    ech_verifier_exchange_gradients(v, exec);
}

/* Trains the single rank for one training step of the list that the layout has run. */
static ech_status follow(ech_verifier *v)
{
    v->taken = false;
    ECH_TRY(ech_unit_train(v));
    if (v->replay) ech_replay_begin(v->replay, v->list, v->turn);
    ECH_TRY(ech_exec_run(v->single.session.exec, ECH_LIST_TRAIN, v->step));
    ECH_ASSERT(v->taken);
    if (v->replay) ech_replay_remember(v->replay);
    ech_verifier_compare_losses(v, "loss", ech_exec_readings(v->layout.session.exec)[v->turn].loss,
                                ech_exec_readings(v->single.session.exec)->loss,
                                &v->result->worst_loss);
    ech_unit_note(v, &ech_exec_readings(v->twin.session.exec)->loss,
                  &ech_exec_readings(v->single.session.exec)->loss, 1, 0);
    ech_verifier_compare_reports(v, ech_exec_readings(v->layout.session.exec)[v->turn].reports,
                                 ech_exec_readings(v->single.session.exec)->reports);
    return ECH_OK;
}

static ech_status check_ranks(ech_verifier *v, int64_t done)
{
    ECH_TRY(ech_exec_run(v->layout.session.exec, ECH_LIST_CHECK, done));
    if (ech_exec_readings(v->layout.session.exec)->hash_differs)
        ECH_FAIL(ECH_EINTERNAL, "step %lld: parameters differ between ranks", (long long)done);
    return ECH_OK;
}

/* ---- replicas that are apart ---- */

/* The single rank and its twin train the replica for the step that the layout has trained. */
static ech_status train_replica(ech_verifier *v, ech_tokens_loss *single, ech_tokens_loss *twin)
{
    ech_apart_load(v->apart, v->replica);
    ech_apart_load(v->twin_apart, v->replica);
    ECH_TRY(ech_unit_train(v));
    v->taken = false;
    ECH_TRY(ech_exec_run(v->single.session.exec, ECH_LIST_TRAIN, v->step));
    ECH_ASSERT(v->taken);
    ech_tokens_loss_add(single, &v->single);
    ech_tokens_loss_add(twin, &v->twin);
    return ECH_OK;
}

/* Compares the replica, and keeps the layout's numbers of it. */
static ech_status exchange_replica(ech_verifier *v)
{
    ECH_TRY(ech_verifier_exchange_weights(v, 0));
    if (v->result) ech_apart_store(v->apart, v->replica);
    return ECH_OK;
}

/* All replicas meet or mix, as the single rank has them, and as the twin does, with other last
 * bits. */
static void replay_meeting(ech_verifier *v, ech_list_kind list)
{
    void (*replay)(ech_apart *) = list == ECH_LIST_SYNC ? ech_apart_meet : ech_apart_mix;
    for (int r = 0; r < v->layout.design->layout->replicas[0]; r++) {
        ech_apart_load(v->apart, r);
        ech_unit_begin(v);
        ech_apart_store(v->twin_apart, r);
    }
    replay(v->apart);
    replay(v->twin_apart);
}

/* list: by which all meet, or mix with their neighbours. */
static ech_status verify_meeting(ech_verifier *v, ech_list_kind list)
{
    int replicas = v->layout.design->layout->replicas[0];
    ECH_TRY(ech_exec_run(v->layout.session.exec, list, v->step));
    if (list == ECH_LIST_SYNC) ECH_TRY(check_ranks(v, v->step + 1));
    if (v->result) replay_meeting(v, list);
    for (v->replica = 0; v->replica < replicas; v->replica++) {
        if (v->result) ech_apart_load(v->apart, v->replica);
        if (v->result) ech_apart_load(v->twin_apart, v->replica);
        ECH_TRY(exchange_replica(v));
    }
    return ECH_OK;
}

/* Runs and compares training step *done, and the meeting behind it if there is one. */
static ech_status verify_apart(ech_verifier *v, int64_t *done)
{
    ech_tokens_loss single = {0}, twin = {0};
    ech_calendar calendar = ech_calendar_of(v->layout.design->config);
    v->step = *done;
    ECH_TRY(ech_exec_run(v->layout.session.exec, ECH_LIST_TRAIN, *done));
    for (v->replica = 0; v->replica < v->layout.design->layout->replicas[0]; v->replica++) {
        ECH_TRY(ech_verifier_gather_gradients(v));
        if (v->result) ECH_TRY(train_replica(v, &single, &twin));
        ECH_TRY(exchange_replica(v));
    }
    if (v->result)
        ech_verifier_compare_mean(v, ech_exec_readings(v->layout.session.exec)->loss, &single,
                                  &twin);
    ++*done;
    if (ech_calendar_due(&calendar, ECH_LIST_GOSSIP, *done))
        ECH_TRY(verify_meeting(v, ECH_LIST_GOSSIP));
    return ech_calendar_due(&calendar, ECH_LIST_SYNC, *done) ? verify_meeting(v, ECH_LIST_SYNC)
                                                             : ECH_OK;
}

/* ---- pushes ---- */

/* What the first server has served in a span, on rank 0; all have one order. */
static ech_status gather_serves(ech_verifier *v, ech_serve *serves, int pushes)
{
    int n, first = ech_layout_workers(v->layout.design->layout);
    const ech_serve *own = ech_exec_serves(v->layout.session.exec, &n);
    return ech_verifier_send(v, first, (void *)own, (size_t)pushes * sizeof *serves, serves);
}

/* A run that is to repeat a log has done so. serves: as of gather_serves. */
static ech_status check_order(const ech_verifier *v, int64_t step, const ech_serve *serves)
{
    const ech_serve_log *log = v->layout.design->serves;
    if (!v->result || !log) return ECH_OK;
    const ech_serve *span = ech_serve_log_span(log, step);
    for (int i = 0; i < log->pushes; i++)
        if (serves[i].worker != span[i].worker || serves[i].clock != span[i].clock)
            ECH_FAIL(ECH_EINTERNAL,
                     "step %lld: push %d is of worker %d and its step %lld, in %s of %d and %lld",
                     (long long)step + 1, i, serves[i].worker, (long long)serves[i].clock + 1,
                     log->path, span[i].worker, (long long)span[i].clock + 1);
    return ECH_OK;
}

/* Runs and compares the span of pushes that begins at training step *done. */
static ech_status verify_pushed(ech_verifier *v, int64_t *done)
{
    const ech_design *design = v->layout.design;
    int turns = design->schedule->turns;
    int pushes = ech_layout_workers(design->layout) * turns;
    ECH_FREED ech_serve *serves = ech_calloc((size_t)pushes, sizeof *serves);
    ECH_FREED double *loss = ech_calloc((size_t)turns, sizeof *loss);
    ECH_TRY(ech_exec_run(v->layout.session.exec, ECH_LIST_TRAIN, *done));
    ECH_TRY(check_ranks(v, *done + turns));
    ECH_TRY(gather_serves(v, serves, pushes));
    ECH_TRY(check_order(v, *done, serves));
    if (v->result) {
        v->step = *done;
        ech_unit_begin(v);
        ECH_TRY(ech_pushed_replay(v->pushed, *done, serves, loss));
        ECH_TRY(ech_unit_push(v, serves, loss));
    }
    for (int turn = 0; turn < turns; turn++) {
        v->step = *done + turn;
        if (v->result)
            ech_verifier_compare_losses(v, "loss",
                                        ech_exec_readings(v->layout.session.exec)[turn].loss,
                                        loss[turn], &v->result->worst_loss);
    }
    *done += turns;
    return ech_verifier_exchange_weights(v, 0);
}

/* ---- lock-free ranks ---- */

/* Runs and compares the span of lock-free ranks that begins at training step *done. */
static ech_status verify_added(ech_verifier *v, int64_t *done)
{
    int turns = v->layout.design->schedule->turns;
    ECH_TRY(ech_exec_run(v->layout.session.exec, ECH_LIST_TRAIN, *done));
    ECH_TRY(check_ranks(v, *done + turns));
    ECH_TRY(ech_verifier_compare_added(v, *done));
    *done += turns;
    return ECH_OK;
}

/* ---- lists ---- */

/* Runs and compares the list that begins at training step *done. */
static ech_status verify_list(ech_verifier *v, int64_t *done)
{
    int turns;
    if ((v->layout.design->layout->protocol == ECH_PROTOCOL_APART)) return verify_apart(v, done);
    if ((v->layout.design->layout->sums == ECH_SUMS_SERVERS)) return verify_pushed(v, done);
    if ((v->layout.design->layout->protocol == ECH_PROTOCOL_LOCK_FREE))
        return verify_added(v, done);
    v->list = ech_schedule_list(&v->schedule, *done, &turns);
    ECH_TRY(ech_exec_run(v->layout.session.exec, v->list, *done));
    ECH_TRY(check_ranks(v, *done + turns));
    for (v->turn = 0; v->turn < turns; v->turn++) {
        if (v->turn > 0)
            ECH_TRY(ech_verifier_exchange_weights(v, v->turn)); /* names the step before */
        v->step = *done + v->turn;
        ECH_TRY(ech_verifier_gather_gradients(v));
        if (v->result) ECH_TRY(follow(v));
    }
    *done += turns;
    return ech_verifier_exchange_weights(v, 0);
}

static ech_status validate(ech_verifier *v)
{
    bool validates;
    double layout = 0, single = 0;
    ECH_TRY(ech_compared_run_validate(&v->layout, &validates, &layout));
    if (!validates || !v->result) return ECH_OK;
    ECH_TRY(ech_compared_run_validate(&v->single, &validates, &single));
    /* Workers sum theirs first: the one number here that is no replay's. */
    if (v->pushed && v->result->own_precision) return ECH_OK;
    v->result->validated = true;
    ech_verifier_compare_losses(v, "validation loss", layout, single, &v->result->worst_validation);
    return ECH_OK;
}

/* ---- the whole ---- */

/* Equality level (b) of docs/design.md: only the pipeline differs. The gradient of a parameter that
 * several blocks use is summed in the order of their backwards, which a pipeline may change. Inputs
 * that are made from outputs are not the forward's to the last bit. Of pushes the replay is of the
 * same gradients, one by one. */
static bool is_exact(const ech_design *design)
{
    const ech_layout *layout = design->layout;
    const ech_schedule *schedule = design->schedule;
    bool alike = design->model->options.sequence_chunks < 2 && !design->model->options.invert;
    if ((layout->sums == ECH_SUMS_SERVERS))
        return alike && !schedule->written && (layout->protocol == ECH_PROTOCOL_PUSHES);
    bool whole = layout->stages * layout->chunks == 1 && !schedule->written;
    for (size_t p = 0; p < design->model->param.n && !whole; p++)
        if (layout->first_user[p + 1] - layout->first_user[p] > 1) return false;
    return layout->protocol != ECH_PROTOCOL_APART && schedule->weights == ECH_WEIGHTS_FLUSHED &&
           layout->uniform && layout->replicas[0] == 1 && layout->tensor == 1 &&
           layout->context == 1 && alike;
}

static ech_status open_single(ech_verifier *v)
{
    ech_config *config = v->config[1] = ech_config_copy(v->config[0]);
    double clip_norm = config->optimizer.clip_norm;
    ech_config_set_alone(config);
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
    bool lock_free = (v->layout.design->layout->protocol == ECH_PROTOCOL_LOCK_FREE);
    if (lock_free) config->parallel.strategy = ECH_STRATEGY_SYNCHRONOUS;
    bool asynchronous = !ech_weights_are_synchronous(v->schedule.weights);
    if (asynchronous) config->optimizer.clip_norm = 0;
    if (!v->layout.design->schedule->stashing) { /* the replay's backwards see other weights, too */
        config->parallel.weight_stashing = 0;
        config->parallel.flush_every = 1;
        ech_config_replace_text(&config->parallel.schedule, "pipedream");
    }
    ECH_TRY(ech_comm_open(ech_comm_find("local"), 1, config->parallel.deadline, &v->alone));
    ECH_TRY(ech_design_create_alone(&v->compared, config, &v->reference));
    v->single.design = &v->reference;
    ECH_TRY(ech_compared_run_open(&v->single, v->alone));
    if (ech_verifier_is_replayed(v))
        v->replay = ech_replay_create(&v->layout, &v->single, asynchronous ? clip_norm : 0);
    if ((v->layout.design->layout->protocol == ECH_PROTOCOL_APART))
        ECH_TRY(ech_apart_create(&v->layout, &v->single, &v->apart));
    if ((v->layout.design->layout->sums == ECH_SUMS_SERVERS)) {
        ECH_TRY(ech_pushed_create(&v->layout, &v->single, &v->pushed));
        return ech_unit_open(v, 0);
    }
    ech_exec_observe(v->single.session.exec, observe_single, v);
    ECH_TRY(ech_unit_open(v, asynchronous ? clip_norm : 0));
    return lock_free ? ech_added_create(v) : ECH_OK;
}

static void describe_layout(ech_verifier *v)
{
    ECH_FREED_TEXT text = {0};
    ech_print_axes(v->layout.design, &text);
    if (v->layout.design->layout->stages > 1)
        ech_text_append(&text, ", %s", v->layout.design->config->parallel.schedule);
    snprintf(v->result->layout, sizeof v->result->layout, "%s", text.n ? text.at : "alone");
}

/* fp16 loses small gradients without one. Of a dynamic scale a fixed one stands in, under which no
 * step is withheld. */
static int64_t verified_scale(const ech_config *config, bool own_precision)
{
    enum { FIXED = 4096 };
    if (!own_precision || config->precision.compute != ECH_COMPUTE_FP16) return 1;
    return config->precision.loss_scale == ECH_AUTO ? FIXED : config->precision.loss_scale;
}

/* Replicas that are apart meet soon, to be seen: after a small divisor of their steps, as
 * training.steps is a multiple of these. */
static int64_t meets_soon(int64_t sync_every)
{
    enum { MOST = 1000 };
    for (int64_t divisor = 2; divisor < MOST && divisor < sync_every; divisor++)
        if (sync_every % divisor == 0) return divisor;
    return sync_every;
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
    v->schedule = *design->schedule;
    int64_t turns = v->schedule.turns, spans = (request->steps + turns - 1) / turns;
    if (v->result) ECH_TRY(ech_design_check_serves(design, 0, spans * turns));
    if (v->schedule.delayed_from) v->schedule.delayed_from = 1; /* soon, to be seen */
    ECH_TRY(ech_compared_run_open(&v->layout, v->comm));
    ech_verifier_prepare(v);
    if (design->layout->sums != ECH_SUMS_SERVERS)
        ech_exec_observe(v->layout.session.exec, ech_verifier_observe_layout, v);
    if (v->result) {
        v->result->replayed = ech_verifier_is_replayed(v);
        v->result->exact = is_exact(design);
        v->result->open = (design->layout->protocol == ECH_PROTOCOL_LOCK_FREE) && design->world > 1;
        v->result->carried = ech_added_is_carried(design);
        v->result->precision = ech_dtype_name(v->layout.session.plan->types.compute);
        describe_layout(v);
        ECH_TRY(open_single(v));
    }
    ech_calendar calendar = ech_calendar_of(config);
    int64_t done = 0;
    while (done < request->steps || (calendar.sync_every > 0 && done % calendar.sync_every))
        ECH_TRY(verify_list(v, &done));
    ECH_TRY(validate(v));
    return ech_group_barrier(ech_exec_world(v->layout.session.exec));
}

ech_status ech_verify_rank(ech_comm *comm, const ech_design *design, void *context)
{
    ech_verification *request = context;
    bool first = ech_comm_rank(comm) == 0;
    ECH_CLEANUP(ech_verifier_free)
    ech_verifier v = {.result = first ? request : NULL, .comm = comm};
    ECH_TRY(run(&v, request, design));
    if (!first) return ECH_OK;
    /* A layout that must not change a bit makes the same rounding errors as one rank. */
    bool rounds = !request->exact;
    double wide = 10 * request->unit; /* in units: rounding errors add up */
    if (request->widened && rounds && wide > request->tolerance) request->tolerance = wide;
    bool within = request->worst <= request->tolerance;
    request->ill =
        within && rounds && !request->own_precision && request->unit > ECH_MOST_UNIT;
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
