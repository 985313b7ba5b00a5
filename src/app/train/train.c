/* SPDX-License-Identifier: Apache-2.0
 *
 * The training loop of one rank. The calendar says which list runs after which training step.
 */
#include "app/train/train.h"
#include "schedule/calendar.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "app/machine.h"
#include "app/train/evaluations.h"
#include "app/train/histograms.h"
#include "app/train/trainer.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/writing.h"

/* ---- the step profile ---- */

/* Books the rank's time from now on to `activity`; does nothing without --profile. */
static void switch_to(ech_trainer *t, ech_activity activity)
{
    if (t->step_profile) ech_step_profile_switch_to(t->step_profile, activity, ech_clock_now());
}

/* Measures this machine on all ranks at the same time, since the ranks of a machine share its
 * memory bandwidth and clock rates. */
static ech_status begin_step_profile(ech_trainer *t)
{
    int threads = (int)t->config->parallel.threads;
    ech_dtype dtype = t->design->kernels->dtype;
    const ech_device *device = ech_device_find(ech_config_name(t->config, "parallel.device"));
    bool is_cpu = ech_device_is_processor(device);
    ech_group *world = ech_exec_world(t->session.exec);
    ECH_TRY(ech_group_barrier(world));
    ech_machine_rates rates = {.flops = is_cpu ? ech_peak_flops(dtype, threads)
                                               : ech_peak_flops_of(device, dtype,
                                                                   t->config->precision.tf32 == 1,
                                                                   ECH_GPU_SIDE)};
    ECH_TRY(ech_group_barrier(world));
    rates.bytes = is_cpu ? ech_stream_bytes(threads) : ech_stream_bytes_of(device, ECH_GPU_MIB);
    ECH_TRY(ech_group_barrier(world));
    t->step_profile = ech_step_profile_create(t->session.plan, rates);
    return ECH_OK;
}

/* Writes the step profile. The run continues if the file cannot be written. A start without
 * profiled steps keeps the file of the previous start. */
static void write_table(const ech_trainer *t, const ech_step_profile_table *all)
{
    ECH_FREED char *path = ech_file_join(t->config->log.directory, "step_profile.jsonl");
    ECH_FREED_TEXT lines = {0}, table = {0};
    ech_step_profile_print_json(all, t->design->world, &lines);
    ech_step_profile_print(all, t->design->world, &table);
    if (all->steps < 1)
        table.at[--table.n] = '\0'; /* its line's end */
    else if (ech_file_write_inside(path, lines.at, lines.n) == ECH_OK)
        ech_text_append(&table, "all rows, of all ranks: %s", path);
    else
        ech_text_append(&table, "the rows could not be written to %s", path);
    ech_progress_say(t->progress, "%s", table.at);
}

static ech_status finish_step_profile(ech_trainer *t)
{
    if (!t->step_profile) return ECH_OK;
    int world = t->design->world;
    ech_step_profile_table own = ech_step_profile_end(t->step_profile, ech_clock_now());
    ECH_FREED ech_step_profile_table *all = ech_calloc((size_t)world, sizeof *all);
    ech_status status = ech_step_profile_gather(ech_exec_world(t->session.exec), &own, all);
    if (status == ECH_OK && ech_trainer_is_first(t)) write_table(t, all);
    for (int r = 0; r < world; r++) ech_step_profile_table_free(&all[r]);
    ech_step_profile_table_free(&own);
    return status;
}

/* ---- training steps ---- */

/* Logs a training step; time and bytes of a span are divided equally over its training steps. */
static void log_step(ech_trainer *t, const ech_readings *r, double seconds, int64_t sent)
{
    int64_t G = t->config->training.global_batch_size;
    if (!ech_trainer_is_first(t)) return;
    ech_scaler scaler = ech_exec_scaler(t->session.exec);
    ech_note note = {.kind = ECH_NOTE_STEP,
                     .step = {.step = t->step,
                              .loss = t->loss,
                              .learning_rate = r->learning_rate,
                              .grad_norm = r->grad_norm,
                              .units = t->tokens,
                              .samples = t->step * G,
                              .step_seconds = seconds,
                              .units_per_second = (double)(G * t->design->sample_units) / seconds,
                              .flops_per_second = t->flops / seconds,
                              .bytes_sent = sent,
                              .peak_bytes = t->session.plan->arena_bytes[ECH_SPACE_DEVICE],
                              .host_bytes = t->session.plan->arena_bytes[ECH_SPACE_HOST],
                              .loss_scale = r->loss_scale,
                              .overflow = r->overflow,
                              .overflows = (int64_t)scaler.overflows,
                              .next_scale = scaler.scale,
                              .idle = r->idle,
                              .pushes = ech_trainer_clocks(t) > 0,
                              .staleness = r->staleness,
                              .factored = r->factored,
                              .rank = r->rank,
                              .rank_short = r->rank_short,
                              .skipped = r->withheld}};
    switch_to(t, ECH_ACTIVITY_METRICS);
    ech_expert_metrics_take(t->design->model, r->reports, &note.step.experts);
    note.step.codes = ech_code_metrics_of(t->design->model, r->reports);
    ech_progress_submit(t->progress, &note);
    switch_to(t, ECH_ACTIVITY_OTHER);
}

/* `r` is a copy: ech_trainer_explain_nonfinite repeats the step, which changes the readings. */
static ech_status finish_step(ech_trainer *t, ech_readings r, double seconds, int64_t sent)
{
    if (r.withheld && !r.overflow) ECH_TRY(ech_trainer_explain_nonfinite(t));
    if (!r.withheld) {
        t->withheld = 0;
        t->proven = t->saved_step;
    }
    t->loss = r.tokens > 0 ? r.loss : (double)NAN;
    t->last = r;
    t->seconds = seconds;
    t->step++;
    ech_comm_count_step(t->comm);
    t->tokens += t->config->training.global_batch_size * t->design->sample_units;
    log_step(t, &r, seconds, sent);
    return ECH_OK;
}

/* After the last list that is recorded; once. */
static ech_status finish_trace(ech_trainer *t)
{
    bool written;
    ECH_TRY(ech_trace_finish(t->trace, ech_exec_world(t->session.exec), &written));
    if (written)
        ech_progress_say(t->progress, "recorded steps: %s/trace.json, for ui.perfetto.dev",
                         t->config->log.directory);
    return ECH_OK;
}

/* Whether training.time_limit has passed on this rank, and there are steps left. The validation
 * after the last step is not cut short by it: the limit would end each further start at once. */
static bool is_overdue(const ech_trainer *t)
{
    double limit = t->config->training.time_limit;
    if (t->step >= t->config->training.steps) return false;
    return limit > 0 && ech_clock_now() - t->began_at >= limit;
}

bool ech_trainer_wants_to_stop(const ech_trainer *t)
{
    return *ech_train_asked_to_stop() || is_overdue(t);
}

static void take_times(ech_trainer *t)
{
    switch_to(t, ECH_ACTIVITY_OTHER);
    ech_step_profile_take(t->step_profile, ech_exec_get_times(t->session.exec), ech_clock_now());
}

/* Whether local replicas are averaged after the list that begins now. Then all have the same
 * weights, and the run may stop or save. */
static bool may_stop_behind(const ech_trainer *t, int turns)
{
    return t->calendar.sync_every == 0 ||
           ech_calendar_due(&t->calendar, ECH_LIST_SYNC, t->step + turns);
}

bool ech_trainer_may_save(const ech_trainer *t)
{
    return may_stop_behind(t, 0);
}

/* A step that was withheld is repeated to find out why, from the weights that it had. */
static bool is_withheld(const ech_readings *r, int turns)
{
    for (int turn = 0; turn < turns; turn++)
        if (r[turn].withheld) return true;
    return false;
}

/* True if a span ends with the mean of all workers' layer states. */
static bool averages(const ech_plan *plan)
{
    for (size_t b = 0; b < plan->bucket.n; b++)
        if (ech_protocol_averages(plan, &plan->bucket.at[b])) return true;
    return false;
}

/* The others go on without a worker of asp or ssp that dies, but for the first, which leads. A run
 * that repeats an order, or averages layer states, needs all. */
static void spare_workers(ech_trainer *t)
{
    const ech_layout *layout = t->design->layout;
    const ech_device *device = ech_device_find(ech_config_name(t->config, "parallel.device"));
    bool spares = ech_trainer_clocks(t) > 0 && !t->design->serves && device->is_immediate &&
                  !averages(t->session.plan);
    if (spares) ech_comm_spare(t->comm, 1, ech_layout_workers(layout));
}

/* Says who has died since this was last called. */
static void note_losses(ech_trainer *t)
{
    int workers = ech_layout_workers(t->design->layout), lost = 0;
    ECH_FREED_TEXT who = {0};
    for (int r = 1; r < workers; r++)
        if (ech_comm_is_lost(t->comm, r)) ech_text_append(&who, "%s%d", lost++ ? ", " : "", r);
    if (lost == t->lost || !ech_trainer_is_first(t)) return;
    t->lost = lost;
    ech_progress_say(t->progress,
                     "step %lld: %s %s died; %s pending gradients are discarded, and %s "
                     "continue%s",
                     (long long)t->step, lost == 1 ? "rank" : "ranks", who.at,
                     lost == 1 ? "its" : "their", ECH_COUNT(workers - lost, "worker"),
                     workers - lost == 1 ? "s" : "");
}

/* Whether histograms of the next step are due. */
static bool counts_exponents(const ech_trainer *t)
{
    return t->histograms && (t->step + 1) % t->config->log.histograms == 0;
}

/* One step, or a span of them. Recorded, and profiled, is the train list. */
static ech_status train_list(ech_trainer *t)
{
    ech_exec *exec = t->session.exec;
    ech_list_kind list = ech_schedule_list(t->design->schedule, t->step, &t->turns);
    int turns = t->turns;
    bool shown = list == ECH_LIST_TRAIN;
    double start = ech_clock_now();
    int64_t sent = ech_exec_sent_bytes(exec);
    bool may = may_stop_behind(t, turns);
    ech_exec_ask(exec, may && ech_trainer_wants_to_stop(t), may && ech_train_take_save());
    ech_exec_record(exec, shown && (t->step_profile || ech_trace_wants(t->trace, t->step)));
    if (shown) switch_to(t, ECH_ACTIVITY_STEPS);
    bool counts = counts_exponents(t);
    if (counts) ech_histograms_begin(t->histograms, exec);
    if (ech_calendar_due(&t->calendar, ECH_LIST_RETURN, t->step))
        ECH_TRY(ech_exec_run(exec, ECH_LIST_RETURN, t->step));
    ECH_TRY(ech_exec_run(exec, list, t->step));
    if (counts) ech_exec_observe(exec, NULL, NULL); /* a search for a NaN repeats the step */
    if (shown) take_times(t);
    if (shown) ech_trace_take(t->trace, exec, t->step);
    static const ech_list_kind meetings[] = {ECH_LIST_SYNC, ECH_LIST_GOSSIP};
    for (int i = 0; i < 2 && !is_withheld(ech_exec_readings(exec), turns); i++)
        if (ech_calendar_due(&t->calendar, meetings[i], t->step + turns))
            ECH_TRY(ech_exec_run(exec, meetings[i], t->step));
    double seconds = (ech_clock_now() - start) / turns;
    sent = (ech_exec_sent_bytes(exec) - sent) / turns;
    ECH_TRY(ech_trainer_log_serves(t));
    for (int turn = 0; turn < turns; turn++)
        ECH_TRY(finish_step(t, ech_exec_readings(exec)[turn], seconds, sent));
    if (counts) ECH_TRY(ech_histograms_finish(t->histograms, exec, t->step, t->progress));
    note_losses(t);
    return ECH_OK;
}

static const ech_readings *last_readings(const ech_trainer *t)
{
    return &ech_exec_readings(t->session.exec)[t->turns - 1];
}

static ech_status check_ranks(ech_trainer *t)
{
    ECH_TRY(ech_exec_run(t->session.exec, ECH_LIST_CHECK, t->step));
    if (ech_exec_readings(t->session.exec)->hash_differs)
        ECH_FAIL(ECH_EINTERNAL,
                 "step %lld: parameters are no longer bit-identical across ranks; test memory and "
                 "network of these machines, and resume from a checkpoint. If it happens on other "
                 "machines, too",
                 (long long)t->step);
    return ECH_OK;
}

/* *keeps: a checkpoint must be saved; *stop: a stop was requested during the validation. The last
 * step is checked, too, if it turns out to be the last. */
static ech_status validate_if(ech_trainer *t, bool due, bool *stop, bool *keeps)
{
    bool stops = false;
    *keeps = false;
    if (!due) return ECH_OK;
    switch_to(t, ECH_ACTIVITY_VALIDATION);
    ECH_TRY(ech_trainer_validate_due(t, &stops, keeps));
    *stop |= stops;
    *keeps |= t->exhausted;
    switch_to(t, ECH_ACTIVITY_CHECK);
    if (t->exhausted && !ech_calendar_due(&t->calendar, ECH_LIST_CHECK, t->step))
        ECH_TRY(check_ranks(t));
    return ECH_OK;
}

static ech_status stop_here(ech_trainer *t)
{
    ECH_TRY(ech_trainer_finish_save(t)); /* before the line below */
    if (ech_trainer_is_first(t))
        ech_progress_say(t->progress, "stopped after step %lld, %s; the same command goes on",
                         (long long)t->step,
                         is_overdue(t) ? "as training.time_limit says" : "as it was asked to");
    t->stopped = true;
    return ECH_OK;
}

static ech_status run_due(ech_trainer *t)
{
    const ech_readings *r = last_readings(t);
    bool keeps, stop = r->stop && t->step < t->config->training.steps;
    switch_to(t, ECH_ACTIVITY_CHECK);
    if (ech_calendar_due(&t->calendar, ECH_LIST_CHECK, t->step)) ECH_TRY(check_ranks(t));
    ECH_TRY(
        validate_if(t, ech_calendar_due(&t->calendar, ECH_LIST_VALIDATE, t->step), &stop, &keeps));
    if (ech_samples_are_due(t)) ECH_TRY(ech_samples_take(t->samples, t));
    switch_to(t, ECH_ACTIVITY_SAVING);
    if (ech_calendar_due(&t->calendar, ECH_LIST_SAVE, t->step) || r->save_now || stop || keeps)
        ECH_TRY(ech_trainer_save(t));
    if (stop) ECH_TRY(stop_here(t));
    switch_to(t, ECH_ACTIVITY_OTHER);
    return ECH_OK;
}

/* A validation that a stop has cut short. The checkpoint gets its result. */
static ech_status catch_up(ech_trainer *t)
{
    bool stop = false, keeps;
    if (!ech_trainer_owes_validation(t)) return ECH_OK;
    ECH_TRY(validate_if(t, true, &stop, &keeps));
    if (stop) return stop_here(t);
    t->saved_step = -1;
    return ech_trainer_save(t);
}

/* Waits until all checkpoints are evaluated, unless the run is stopped; then evaluators end. The
 * other ranks exchange messages during the wait, so that none waits longer than parallel.deadline.
 * */
static ech_status finish_evaluations(ech_trainer *t)
{
    enum { LEFT, ASKED, NUMBERS };
    int evaluators = ech_layout_roles(t->design->layout).evaluate.n;
    double numbers[NUMBERS] = {[LEFT] = t->stopped ? 0 : evaluators};
    while (numbers[LEFT] > 0 && numbers[ASKED] <= 0) {
        int left = 0;
        if (t->evaluations) ECH_TRY(ech_evaluations_await(t->evaluations, &left));
        numbers[LEFT] = left;
        numbers[ASKED] = ech_trainer_wants_to_stop(t);
        ECH_TRY(ech_group_fold(ech_exec_world(t->session.exec), ECH_FOLD_MAX, numbers, NUMBERS));
    }
    return t->evaluations ? ech_evaluations_end(t->evaluations) : ECH_OK;
}

/* Whether there is a next step. */
static ech_status go_on(ech_trainer *t, bool *goes)
{
    const ech_training *of = t->training;
    bool ends = false;
    if (of->pause) ECH_TRY(of->pause(t, of->context, &ends));
    *goes = !ends && !ech_trainer_is_done(t);
    return ECH_OK;
}

bool ech_trainer_is_done(const ech_trainer *t)
{
    return t->stopped || t->exhausted || !ech_calendar_due(&t->calendar, ECH_LIST_TRAIN, t->step);
}

/* Returns whether no step is left before any is made; a line says so. */
static bool was_done(const ech_trainer *t)
{
    bool all = t->step >= t->config->training.steps, done = all || t->exhausted;
    if (!done || t->saved_step != t->step || !ech_trainer_is_first(t)) return done;
    if (all)
        ech_progress_say(t->progress, "all %lld steps were done already", (long long)t->step);
    else
        ech_progress_say(t->progress,
                         "training had ended after step %lld, as training.patience = %lld says; a "
                         "larger number goes on",
                         (long long)t->step, (long long)t->config->training.patience);
    return done;
}

static ech_status loop(ech_trainer *t)
{
    bool goes, done = was_done(t);
    spare_workers(t);
    if (done && t->saved_step != t->step) /* a run of no steps */
        ECH_TRY(run_due(t));
    ECH_TRY(catch_up(t));
    ECH_TRY(go_on(t, &goes));
    while (goes) {
        ECH_TRY(train_list(t));
        ECH_TRY(ech_trainer_follow_save(t, last_readings(t)->save_failed));
        if (t->evaluations) ECH_TRY(ech_evaluations_follow(t->evaluations));
        if (!ech_trace_wants(t->trace, t->step)) ECH_TRY(finish_trace(t));
        ECH_TRY(run_due(t));
        ECH_TRY(go_on(t, &goes));
    }
    ECH_TRY(finish_step_profile(t));
    ECH_TRY(ech_trainer_finish_save(t));
    ECH_TRY(finish_trace(t));
    ECH_TRY(finish_evaluations(t));
    if (ech_trainer_is_first(t)) ech_trainer_say_best(t);
    if (ech_trainer_is_first(t) && !done)
        ech_progress_submit(t->progress,
                            &(ech_note){.kind = ECH_NOTE_END, .end = {t->step, t->skipped}});
    /* A launcher ends the job when one process exits, so all wait for the last. */
    return ech_group_barrier(ech_exec_world(t->session.exec));
}

ech_status ech_train_rank(ech_comm *comm, const ech_design *design, void *context)
{
    if (ech_layout_evaluates(design->layout, ech_comm_rank(comm)))
        return ech_evaluator_run(comm, design);
    const ech_training *training = context;
    ech_trainer t = {.comm = comm,
                     .training = training,
                     .design = design,
                     .config = ech_config_copy(design->config),
                     .turns = design->schedule->turns,
                     .lock = {-1, -1},
                     .valid_bytes = -1,
                     .began_at = ech_clock_now() - training->elapsed};
    ech_status status = ech_trainer_begin(&t);
    if (status == ECH_OK) ech_exec_hurry_on(t.session.exec, ech_train_asked_to_stop());
    if (status == ECH_OK && training->gradients) status = ech_exec_keep_gradients(t.session.exec);
    if (status == ECH_OK && training->profile) status = begin_step_profile(&t);
    if (status == ECH_OK) status = loop(&t);
    ech_trace_close(t.trace);
    ech_step_profile_destroy(t.step_profile);
    ech_loader_destroy(t.loader);
    ech_loader_destroy(t.valid_loader);
    ech_session_destroy(&t.session);
    ech_checkpoint_info_free(&t.texts);
    free(t.model_folder);
    free(t.best);
    ech_histograms_destroy(t.histograms);
    ech_samples_destroy(t.samples);
    ech_evaluations_destroy(t.evaluations);
    ech_progress_destroy(t.progress); /* savers use it */
    for (int i = 0; i < 2; i++)       /* a checkpoint under way has ended */
        ech_file_unlock_folder(t.lock[i]);
    ech_corpus_close(t.train);
    ech_corpus_close(t.valid);
    ech_config_destroy(t.config);
    return status;
}
