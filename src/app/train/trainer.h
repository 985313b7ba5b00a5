/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of one rank's training. Private to app/train.
 */
#ifndef ECH_APP_TRAIN_TRAINER_H
#define ECH_APP_TRAIN_TRAINER_H

#include "app/step_profile/step_profile.h"
#include "app/trace/trace.h"
#include "app/train/progress.h"
#include "app/train/train.h"

typedef struct ech_trainer {
    ech_comm *comm;
    const ech_design *design;
    const ech_config *config; /* the design's */
    ech_session session;
    ech_calendar calendar;
    ech_corpus *train, *valid; /* valid: NULL without validation */
    ech_loader *loader, *valid_loader;
    ech_progress *progress;         /* rank 0 */
    ech_trace *trace;               /* NULL: no log.trace */
    ech_step_profile *step_profile; /* NULL: no --profile */
    int lock[2];                    /* rank 0: locks on log and checkpoint directory, or -1 */
    bool told_moved; /* the saving thread has warned that the run directory was moved */
    int64_t step, saved_step, skipped, tokens;
    int64_t proven; /* the newest checkpoint's step after which a step was finite; -1: none */
    int64_t idle;   /* consecutive updates that were withheld */
    double loss, flops;
    char
        *model_folder; /* rank 0: folder with the config.json that the model came from; NULL: new */
    ech_checkpoint_info texts; /* rank 0: the texts of every checkpoint */
    double stall_seconds;      /* for which training waited for the checkpoint begun last */
    double began_at;           /* from here training.time_limit counts, seconds on the clock */
    bool stopped;
} ech_trainer;

/* Rank 0 logs and writes files for all. */
static inline bool ech_trainer_is_first(const ech_trainer *t)
{
    return ech_comm_rank(t->comm) == 0;
}

/* Opens the data, makes the session, and restores the newest checkpoint or initializes. Collective. */
ech_status ech_trainer_begin(ech_trainer *t);

/* Makes the texts of all checkpoints; after ech_progress_create. Not collective. */
ech_status ech_trainer_begin_saves(ech_trainer *t);
/* The number of samples of each validation. */
int64_t ech_trainer_samples(const ech_trainer *t);

/* Saves a checkpoint unless this step is saved. Collective. */
ech_status ech_trainer_save(ech_trainer *t);

/* After a train list: logs a checkpoint that has been completed since. `failed` (the same on all ranks): fails
 * because one could not be written. */
ech_status ech_trainer_follow_save(ech_trainer *t, bool failed);
/* Waits for the checkpoint that is being written, and logs it. */
ech_status ech_trainer_finish_save(ech_trainer *t);

/* After a withheld update: reports where the first NaN or infinity was, then continues or fails as
 * training.on_nonfinite says. Collective. */
ech_status ech_trainer_explain_nonfinite(ech_trainer *t);

#endif
