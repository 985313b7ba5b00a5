/* SPDX-License-Identifier: Apache-2.0
 *
 * What the calendar calls besides training steps: validation, the comparison of ranks, saving; and
 * what follows a step that was withheld.
 */
#include <stdio.h>
#include <string.h>

#include "app/train/trainer.h"
#include "base/clock.h"

/* An asynchronous schedule has gone on by the time it is known: the step cannot be run again. */
static ech_status explain_asynchronous(ech_trainer *t)
{
    t->skipped++;
    if (strcmp(t->config->training.on_nonfinite, "skip") == 0) {
        if (ech_trainer_is_first(t))
            ech_progress_say(t->progress,
                             "step %lld: NaN or infinity; stages where it showed skipped their "
                             "update",
                             (long long)t->step + 1);
        return ECH_OK;
    }
    if (!ech_trainer_is_first(t)) return ECH_EABORTED;
    ECH_FAIL(ECH_ENUMERIC,
             "step %lld: NaN or infinity in the loss or in gradients; lower "
             "optimizer.learning_rate, set training.on_nonfinite=skip, or find its place with a "
             "synchronous schedule, such as parallel.schedule=1f1b",
             (long long)t->step + 1);
}

ech_status ech_trainer_explain_nonfinite(ech_trainer *t)
{
    ech_finding finding;
    if (t->design.schedule->weights != ECH_WEIGHTS_FLUSHED) return explain_asynchronous(t);
    ECH_TRY(ech_exec_find_nonfinite(t->session.exec, t->step, &finding));
    bool skip = strcmp(t->config->training.on_nonfinite, "skip") == 0;
    t->skipped++;
    if (ech_trainer_is_first(t)) {
        char what[320];
        if (finding.rank < 0)
            snprintf(what, sizeof what,
                     "not found again when the step was repeated (a passing fault "
                     "of the machine?)");
        else if (finding.block < 0)
            snprintf(what, sizeof what, "in rank %d before the first micro-batch: %s", finding.rank,
                     finding.what);
        else
            snprintf(what, sizeof what, "first in rank %d, block %s, micro-batch %d: %s",
                     finding.rank, t->design.model->block.at[finding.block]->name, finding.micro,
                     finding.what);
        if (!skip && finding.rank >= 0 && finding.block < 0)
            ECH_FAIL(ECH_ENUMERIC,
                     "step %lld: NaN or infinity, %s; the weights have it already: begin with "
                     "others (model.init_from, or an older checkpoint)",
                     (long long)t->step + 1, what);
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

/* Samples of each validation. */
static int64_t count_samples(const ech_trainer *t)
{
    int64_t all = ech_corpus_samples(t->valid), wanted = t->config->training.validate_samples;
    return wanted > 0 && wanted < all ? wanted : all;
}

ech_status ech_trainer_begin_validation(ech_trainer *t)
{
    if (!t->calendar.validates) return ECH_OK;
    ech_loader_options options =
        ech_design_reads(&t->design, ech_comm_rank(t->comm), false, count_samples(t));
    ECH_TRY(ech_loader_create(t->valid, &options, 0, &t->valid_loader));
    ech_exec_set_loader(t->session.exec, ECH_EVALUATE, t->valid_loader);
    return ECH_OK;
}

ech_status ech_trainer_validate(ech_trainer *t)
{
    double start = ech_clock_now(), loss = 0, tokens = 0;
    int64_t G = t->config->training.global_batch_size, samples = count_samples(t);
    for (int64_t step = 0; step * G < samples; step++) {
        ECH_TRY(ech_exec_run(t->session.exec, ECH_LIST_VALIDATE, step));
        loss += ech_exec_readings(t->session.exec)->loss_sum;
        tokens += ech_exec_readings(t->session.exec)->tokens;
    }
    ech_loader_rewind(t->valid_loader, 0); /* the next one's first batches will be there */
    const ech_validation_metrics metrics = {.step = t->step,
                                            .loss = tokens > 0 ? loss / tokens : 0,
                                            .tokens = (int64_t)tokens,
                                            .seconds = ech_clock_now() - start};
    if (ech_trainer_is_first(t)) ech_progress_validation(t->progress, &metrics);
    return ECH_OK;
}

/* Of the last checkpoint, if it is there since this was asked last. */
static void tell_of_saved(ech_trainer *t)
{
    ech_saved saved;
    if (!ech_exec_take_saved(t->session.exec, &saved) || !ech_trainer_is_first(t)) return;
    ech_checkpoint_metrics metrics = {.step = saved.step,
                                      .bytes = saved.bytes,
                                      .seconds = saved.seconds,
                                      .stall_seconds = t->stall_seconds,
                                      .waited_seconds = saved.waited_seconds};
    snprintf(metrics.name, sizeof metrics.name, "step-%08lld", (long long)saved.step);
    ech_progress_checkpoint(t->progress, &metrics);
}

ech_status ech_trainer_follow_save(ech_trainer *t, bool failed)
{
    if (failed) {
        ech_status status = ech_exec_finish_save(t->session.exec);
        return status == ECH_OK ? ECH_EABORTED : status;
    }
    tell_of_saved(t);
    return ECH_OK;
}

ech_status ech_trainer_finish_save(ech_trainer *t)
{
    double start = ech_clock_now();
    ECH_TRY(ech_exec_finish_save(t->session.exec));
    t->stall_seconds += ech_clock_now() - start;
    tell_of_saved(t);
    return ECH_OK;
}

/* The list may wait for the checkpoint before, which is told of then. */
static ech_status save_with(ech_trainer *t, const ech_checkpoint_info *info)
{
    double start = ech_clock_now();
    ech_exec_set_save(t->session.exec, t->config->checkpoint.directory, info,
                      t->config->checkpoint.keep);
    ECH_TRY(ech_exec_run(t->session.exec, ECH_LIST_SAVE, t->step));
    double stall = ech_clock_now() - start;
    t->saved_step = t->step;
    if (!t->session.plan->snapshots) t->stall_seconds = stall; /* it is this one that is there */
    tell_of_saved(t);
    t->stall_seconds = stall;
    return ECH_OK;
}

/* Made once: a vocabulary of many thousand words takes its time. */
static ech_checkpoint_info make_texts(const ech_trainer *t)
{
    ech_text yaml = {0}, config = {0}, tokenizer = {0}, tokenizer_config = {0};
    ech_config_print(t->config, &yaml);
    t->design.model->family->export_json(t->config,
                                         ech_tokenizer_begin_of_text(t->design.tokenizer),
                                         ech_tokenizer_end_of_text(t->design.tokenizer),
                                         ech_exec_saved_dtype(t->session.exec), &config);
    ech_tokenizer_export(t->design.tokenizer, &tokenizer, &tokenizer_config);
    return (ech_checkpoint_info){.run_yaml = yaml.at,
                                 .config_json = config.at,
                                 .tokenizer_json = tokenizer.at,
                                 .tokenizer_config_json = tokenizer_config.at};
}

void ech_trainer_begin_saves(ech_trainer *t)
{
    if (!ech_trainer_is_first(t)) return;
    t->texts = make_texts(t);
    /* Who goes on from a checkpoint finds the metrics of all steps before it. */
    ech_exec_gate_saves(t->session.exec, ech_progress_settle, t->progress);
}

ech_status ech_trainer_save(ech_trainer *t)
{
    if (t->saved_step == t->step) return ECH_OK;
    ech_checkpoint_info info = t->texts;
    info.step = t->step;
    info.optimizer_count = ech_exec_updates(t->session.exec);
    info.samples = t->step * t->config->training.global_batch_size;
    info.skipped_steps = t->skipped;
    info.loss = t->loss;
    info.ranks = t->design.world;
    return save_with(t, &info);
}

ech_status ech_trainer_check_ranks(ech_trainer *t)
{
    ECH_TRY(ech_exec_run(t->session.exec, ECH_LIST_CHECK, t->step));
    if (ech_exec_readings(t->session.exec)->hash_differs)
        ECH_FAIL(ECH_EINTERNAL,
                 "step %lld: parameters are no longer bit-identical across ranks; resume from a "
                 "checkpoint, and suspect memory or the network of one machine",
                 (long long)t->step);
    return ECH_OK;
}
