/* SPDX-License-Identifier: Apache-2.0
 *
 * The training loop of one rank: the calendar says which list runs at which step.
 */
#include "app/train.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/peak.h"
#include "app/progress.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"

static volatile sig_atomic_t asked_to_stop, asked_to_save;

static void on_signal(int signal)
{
    if (signal == SIGUSR1) asked_to_save = 1;
    else asked_to_stop = 1;
}

void ech_train_catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    const int signals[] = {SIGUSR1, SIGUSR2, SIGTERM, SIGINT};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) sigaction(signals[i], &action, NULL);
}

typedef struct trainer {
    ech_comm *comm;
    ech_config *config; /* resolved */
    ech_design design;
    ech_session session;
    ech_calendar calendar;
    ech_token_file *train, *valid;
    ech_loader *loader;
    ech_progress *progress; /* rank 0 */
    int64_t step, saved_step, skipped, tokens;
    double loss, flops;
    bool stopped;
} trainer;

static bool is_first(const trainer *t)
{
    return ech_comm_rank(t->comm) == 0;
}

static ech_loader_options loader_options(const trainer *t, bool shuffle, int64_t last)
{
    const ech_config *c = t->config;
    const ech_place *place = &t->design.layout->place[ech_comm_rank(t->comm)];
    return (ech_loader_options){.sequence_length = c->data.sequence_length,
                                .global_batch_size = c->training.global_batch_size,
                                .micro_batch_size = c->training.micro_batch_size,
                                .data_degree = t->design.layout->data,
                                .data_rank = place->data,
                                .vocabulary = c->model.vocab_size,
                                .shuffle = shuffle,
                                .seed = (uint64_t)c->training.seed,
                                .last_position = last,
                                .prefetch = (int)c->data.prefetch};
}

/* ---- beginning ---- */

static ech_status open_data(trainer *t)
{
    ECH_TRY(ech_token_file_open(t->config->data.train, &t->train));
    if (ech_data_samples(ech_token_file_tokens(t->train), t->config->data.sequence_length) < 1)
        return ech_config_complain(t->config, "data.train", "holds %lld tokens, too few for a sample",
                                   (long long)ech_token_file_tokens(t->train));
    if (!t->config->data.valid[0]) return ECH_OK;
    return ech_token_file_open(t->config->data.valid, &t->valid);
}

static ech_status check_saved(const trainer *t, const ech_checkpoint *checkpoint)
{
    ech_config *saved;
    ECH_TRY(ech_setup_config_text(ech_checkpoint_get_info(checkpoint)->run_yaml,
                                  "the checkpoint's run file", NULL, 0, &saved));
    ech_status status = ech_config_check_resume(saved, t->config);
    ech_config_destroy(saved);
    return status;
}

static ech_status resume_from(trainer *t, const ech_checkpoint *checkpoint)
{
    const ech_checkpoint_info *info = ech_checkpoint_get_info(checkpoint);
    if (strcmp(t->config->checkpoint.resume, "never") == 0)
        return ech_config_complain(t->config, "checkpoint.resume",
                                   "%s is there; remove it, choose another checkpoint.directory, or "
                                   "set checkpoint.resume to auto",
                                   ech_checkpoint_path(checkpoint));
    ECH_TRY(check_saved(t, checkpoint));
    ECH_TRY(ech_exec_run(t->session.exec, ECH_LIST_INIT, 0));
    ECH_TRY(ech_exec_restore(t->session.exec, checkpoint));
    t->step = t->saved_step = info->step;
    t->skipped = info->skipped_steps;
    t->loss = info->loss;
    t->tokens = info->samples * t->config->data.sequence_length;
    if (is_first(t))
        ech_log_info("resuming from %s (saved by %d ranks)", ech_checkpoint_path(checkpoint),
                     info->ranks);
    return ECH_OK;
}

/* The newest checkpoint that verifies, or initial parameters. Rank 0 looks and checks; the others
 * open what it found. */
static ech_status begin(trainer *t)
{
    char path[4096] = "";
    ech_checkpoint *checkpoint = NULL;
    t->saved_step = -1;
    if (is_first(t)) {
        ECH_TRY(ech_checkpoint_open_newest(t->config->checkpoint.directory, &checkpoint));
        if (checkpoint) snprintf(path, sizeof path, "%s", ech_checkpoint_path(checkpoint));
    }
    ech_status status =
        ech_group_broadcast(ech_exec_world(t->session.exec), 0, path, sizeof path);
    if (status == ECH_OK && path[0] && !checkpoint)
        status = ech_checkpoint_open(path, false, &checkpoint);
    if (status == ECH_OK)
        status = checkpoint ? resume_from(t, checkpoint)
                            : ech_exec_run(t->session.exec, ECH_LIST_INIT, 0);
    ech_checkpoint_close(checkpoint);
    return status;
}

static ech_status write_run_file(const trainer *t)
{
    ech_text yaml = {0};
    ech_config_print(t->config, &yaml);
    char *path = ech_file_join(t->config->log.directory, "run.yaml");
    ech_status status = ech_file_make_folder(t->config->log.directory);
    if (status == ECH_OK) status = ech_file_write(path, yaml.at, yaml.n);
    free(path);
    ech_text_free(&yaml);
    return status;
}

static ech_status begin_progress(trainer *t)
{
    if (!is_first(t)) return ECH_OK;
    ECH_TRY(write_run_file(t));
    double peak = ech_peak_flops(t->design.kernels, (int)t->config->parallel.threads);
    ech_progress_setup setup = {.directory = t->config->log.directory,
                                .steps = t->config->training.steps,
                                .first_step = t->step,
                                .every = t->config->log.every,
                                .peak_flops = peak * t->design.world};
    ECH_TRY(ech_progress_create(&setup, &t->progress));
    char bytes[32];
    ech_progress_say(t->progress, "%s, %lld parameters, on %d rank%s of %lld thread%s (%s); %s each",
                     t->design.model->family->name, (long long)ech_model_params(t->design.model),
                     t->design.world, t->design.world > 1 ? "s" : "",
                     (long long)t->config->parallel.threads, t->config->parallel.threads > 1 ? "s" : "",
                     ech_comm_name(t->comm),
                     ech_text_from_bytes(t->session.plan->arena_bytes, bytes, sizeof bytes));
    return ECH_OK;
}

/* ---- lists at their steps ---- */

static ech_status stop_on_nonfinite(trainer *t)
{
    ech_finding finding;
    ECH_TRY(ech_exec_find_nonfinite(t->session.exec, t->step, &finding));
    bool skip = strcmp(t->config->training.on_nonfinite, "skip") == 0;
    t->skipped++;
    if (is_first(t)) {
        char what[320];
        if (finding.rank < 0)
            snprintf(what, sizeof what, "not found again when the step was repeated (a passing fault "
                                        "of the machine?)");
        else
            snprintf(what, sizeof what, "first in rank %d, block %s, micro-batch %d: %s", finding.rank,
                     finding.block < 0 ? "none" : t->design.model->block.at[finding.block]->name,
                     finding.micro, finding.what);
        if (!skip)
            ECH_FAIL(ECH_ENUMERIC,
                     "step %lld: NaN or infinity, %s; the update was withheld. Lower "
                     "optimizer.learning_rate, or set training.on_nonfinite=skip",
                     (long long)t->step + 1, what);
        ech_progress_say(t->progress, "step %lld: NaN or infinity, %s; update skipped",
                         (long long)t->step + 1, what);
    }
    return skip ? ECH_OK : ECH_EABORTED;
}

static ech_status log_step(trainer *t, double seconds, int64_t bytes_before)
{
    const ech_readings *r = ech_exec_readings(t->session.exec);
    int64_t G = t->config->training.global_batch_size, T = t->config->data.sequence_length;
    if (!is_first(t)) return ECH_OK;
    int64_t sent = ech_exec_reduce_count(t->session.exec).bytes +
                   ech_exec_other_count(t->session.exec).bytes - bytes_before;
    ech_step_metrics metrics = {.step = t->step,
                                .loss = r->loss,
                                .learning_rate = r->learning_rate,
                                .grad_norm = r->grad_norm,
                                .tokens = t->tokens,
                                .samples = t->step * G,
                                .step_seconds = seconds,
                                .tokens_per_second = (double)(G * T) / seconds,
                                .flops_per_second = t->flops / seconds,
                                .bytes_sent = sent,
                                .peak_bytes = t->session.plan->arena_bytes,
                                .skipped = r->withheld};
    return ech_progress_step(t->progress, &metrics);
}

static ech_status train_step(trainer *t)
{
    ech_exec *exec = t->session.exec;
    double start = ech_clock_now();
    int64_t sent = ech_exec_reduce_count(exec).bytes + ech_exec_other_count(exec).bytes;
    ech_exec_ask(exec, asked_to_stop, asked_to_save);
    asked_to_save = 0;
    ECH_TRY(ech_exec_run(exec, ECH_LIST_TRAIN, t->step));
    const ech_readings *r = ech_exec_readings(exec);
    if (r->withheld) ECH_TRY(stop_on_nonfinite(t));
    t->loss = r->loss;
    t->step++;
    t->tokens += t->config->training.global_batch_size * t->config->data.sequence_length;
    return log_step(t, ech_clock_now() - start, sent);
}

static ech_status validate(trainer *t)
{
    double start = ech_clock_now(), loss = 0, tokens = 0;
    int64_t G = t->config->training.global_batch_size;
    int64_t samples =
        ech_data_samples(ech_token_file_tokens(t->valid), t->config->data.sequence_length);
    int64_t wanted = t->config->training.validate_samples;
    if (wanted > 0 && wanted < samples) samples = wanted;
    ech_loader_options options = loader_options(t, false, samples);
    ech_loader *loader;
    ECH_TRY(ech_loader_create(t->valid, &options, 0, &loader));
    ech_exec_set_loader(t->session.exec, ECH_EVALUATE, loader);
    ech_status status = ECH_OK;
    for (int64_t step = 0; step * G < samples && status == ECH_OK; step++) {
        status = ech_exec_run(t->session.exec, ECH_LIST_VALIDATE, step);
        loss += ech_exec_readings(t->session.exec)->loss_sum;
        tokens += ech_exec_readings(t->session.exec)->tokens;
    }
    ech_loader_destroy(loader);
    ECH_TRY(status);
    if (!is_first(t)) return ECH_OK;
    return ech_progress_validation(t->progress, t->step, tokens > 0 ? loss / tokens : 0,
                                   (int64_t)tokens, ech_clock_now() - start);
}

static ech_status save_with(trainer *t, const ech_checkpoint_info *info)
{
    double start = ech_clock_now();
    ech_exec_set_save(t->session.exec, t->config->checkpoint.directory, info);
    ECH_TRY(ech_exec_run(t->session.exec, ECH_LIST_SAVE, t->step));
    t->saved_step = t->step;
    if (!is_first(t)) return ECH_OK;
    char name[32];
    snprintf(name, sizeof name, "step-%08lld", (long long)t->step);
    ECH_TRY(ech_checkpoint_prune(t->config->checkpoint.directory, t->config->checkpoint.keep));
    return ech_progress_checkpoint(t->progress, t->step, name,
                                   ech_exec_saved_bytes(t->session.exec), ech_clock_now() - start);
}

static ech_status save(trainer *t)
{
    if (t->saved_step == t->step) return ECH_OK;
    ech_text yaml = {0}, config = {0}, tokenizer = {0}, tokenizer_config = {0};
    ech_config_print(t->config, &yaml);
    t->design.model->family->export_json(t->config, t->design.tokenizer->end_of_text, &config);
    t->design.tokenizer->export_json(&tokenizer, &tokenizer_config);
    ech_checkpoint_info info = {.step = t->step,
                                .optimizer_count = ech_exec_updates(t->session.exec),
                                .samples = t->step * t->config->training.global_batch_size,
                                .skipped_steps = t->skipped,
                                .loss = t->loss,
                                .ranks = t->design.world,
                                .run_yaml = yaml.at,
                                .config_json = config.at,
                                .tokenizer_json = tokenizer.at,
                                .tokenizer_config_json = tokenizer_config.at};
    ech_status status = save_with(t, &info);
    ech_text_free(&yaml);
    ech_text_free(&config);
    ech_text_free(&tokenizer);
    ech_text_free(&tokenizer_config);
    return status;
}

static ech_status check_ranks(trainer *t)
{
    ECH_TRY(ech_exec_run(t->session.exec, ECH_LIST_CHECK, t->step));
    if (ech_exec_readings(t->session.exec)->hash_differs)
        ECH_FAIL(ECH_EINTERNAL,
                 "step %lld: parameters are no longer bit-identical across ranks; resume from a "
                 "checkpoint, and suspect memory or the network of one machine",
                 (long long)t->step);
    return ECH_OK;
}

static ech_status run_due(trainer *t)
{
    const ech_readings *r = ech_exec_readings(t->session.exec);
    bool stop = r->stop && t->step < t->config->training.steps;
    if (ech_calendar_due(&t->calendar, ECH_LIST_CHECK, t->step)) ECH_TRY(check_ranks(t));
    if (ech_calendar_due(&t->calendar, ECH_LIST_VALIDATE, t->step)) ECH_TRY(validate(t));
    if (ech_calendar_due(&t->calendar, ECH_LIST_SAVE, t->step) || r->save_now || stop) ECH_TRY(save(t));
    t->stopped = stop;
    return ECH_OK;
}

static ech_status loop(trainer *t)
{
    if (t->step >= t->config->training.steps && t->saved_step == t->step && is_first(t))
        ech_progress_say(t->progress, "all %lld steps were done already", (long long)t->step);
    else if (t->step == 0 && t->config->training.steps == 0) return run_due(t);
    while (ech_calendar_due(&t->calendar, ECH_LIST_TRAIN, t->step) && !t->stopped) {
        ECH_TRY(train_step(t));
        ECH_TRY(run_due(t));
    }
    /* Nobody leaves before everyone is here: a launcher ends the job when one process exits. */
    return ech_group_barrier(ech_exec_world(t->session.exec));
}

static ech_status run(trainer *t)
{
    ECH_TRY(ech_setup_resolve(t->config, ech_comm_size(t->comm), ech_comm_local_size(t->comm)));
    ECH_TRY(ech_design_create(t->config, ech_comm_size(t->comm), &t->design));
    ECH_TRY(open_data(t));
    ECH_TRY(ech_session_create(&t->design, t->comm, false, &t->session));
    t->calendar = ech_calendar_of(t->config);
    t->flops = ech_model_flops(t->design.model,
                               t->config->training.global_batch_size * t->config->data.sequence_length,
                               t->config->data.sequence_length);
    ECH_TRY(begin(t));
    ECH_TRY(begin_progress(t));
    ech_loader_options options = loader_options(t, true, INT64_MAX);
    ECH_TRY(ech_loader_create(t->train, &options, t->step, &t->loader));
    ech_exec_set_loader(t->session.exec, ECH_TRAIN, t->loader);
    return loop(t);
}

ech_status ech_train_rank(ech_comm *comm, void *context)
{
    ech_training *training = context;
    trainer t = {.comm = comm, .config = ech_config_copy(training->config)};
    ech_status status = run(&t);
    if (is_first(&t)) training->stopped = t.stopped;
    ech_progress_destroy(t.progress);
    ech_loader_destroy(t.loader);
    ech_session_destroy(&t.session);
    ech_token_file_close(t.train);
    ech_token_file_close(t.valid);
    ech_design_destroy(&t.design);
    ech_config_destroy(t.config);
    return status;
}
