/* SPDX-License-Identifier: Apache-2.0
 *
 * Saving, and telling of a checkpoint once it is there: its writing goes on beside training.
 */
#include <stdio.h>

#include "app/setup/carried.h"
#include "app/train/trainer.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"

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
                      t->config->checkpoint.keep, t->proven);
    ECH_TRY(ech_exec_run(t->session.exec, ECH_LIST_SAVE, t->step));
    double stall = ech_clock_now() - start;
    t->saved_step = t->step;
    if (!t->session.plan->snapshots) t->stall_seconds = stall; /* it is this one that is there */
    tell_of_saved(t);
    t->stall_seconds = stall;
    return ECH_OK;
}

/* A folder that has another place by now would be made anew: the run would train on beside its own
 * checkpoints, or among those of another run that has begun in its place, and starting it again would
 * begin it anew. */
static ech_status check_folders(ech_trainer *t)
{
    const ech_config *c = t->config;
    bool one = t->lock[1] < 0; /* for both */
    if (!ech_file_is_same(c->checkpoint.directory, t->lock[one ? 0 : 1])) {
        ech_comm_forbid_restart(t->comm);
        ECH_FAIL(ECH_EIO,
                 "%s: not the folder any more that this run began with: it was moved, removed or "
                 "replaced, and nothing is saved elsewhere; move it back, and the same command "
                 "goes on from its newest checkpoint",
                 c->checkpoint.directory);
    }
    if (!one && !t->told_moved && !ech_file_is_same(c->log.directory, t->lock[0])) {
        t->told_moved = true;
        ech_log_warn("%s: not the folder any more that this run began with: it was moved, removed "
                     "or replaced; what is logged goes where it is now, or is lost",
                     c->log.directory);
    }
    return ECH_OK;
}

/* Who goes on from a checkpoint finds the metrics of all steps before it. */
static ech_status open_gate(void *context)
{
    ech_trainer *t = context;
    ech_progress_settle(t->progress);
    return check_folders(t);
}

/* Made once: a vocabulary of many thousand words takes its time. */
ech_status ech_trainer_begin_saves(ech_trainer *t)
{
    ech_text yaml = {0};
    if (!ech_trainer_is_first(t)) return ECH_OK;
    ech_config_print(t->config, &yaml);
    t->texts.run_yaml = yaml.at;
    ECH_TRY(ech_carried_read(t->config, t->design->tokenizer, t->model_folder,
                             ech_exec_saved_dtype(t->session.exec), &t->texts));
    if (!t->texts.text[ECH_FILE_TOKENIZER].at)
        ech_progress_say(
            t->progress,
            "no tokenizer is known, so checkpoints have none; data.tokenizer names one");
    ech_exec_gate_saves(t->session.exec, open_gate, t);
    return ECH_OK;
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
    info.ranks = t->design->world;
    return save_with(t, &info);
}
