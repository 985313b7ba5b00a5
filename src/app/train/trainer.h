/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of one rank's training, shared by the files that train it. Private to them.
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
    ech_trace *trace;               /* NULL: nothing is recorded */
    ech_step_profile *step_profile; /* NULL: nobody asked where the time goes */
    int lock[2];                    /* rank 0: of the folders it writes into, or -1 */
    bool told_moved; /* the run directory is not where it was; of the saving thread */
    int64_t step, saved_step, skipped, tokens;
    int64_t proven; /* the last saved step that a finite step followed; -1: none */
    int64_t idle;   /* updates in a row that were withheld */
    double loss, flops;
    char *model_folder; /* rank 0: with config.json, that the model is from; NULL: it is new */
    ech_checkpoint_info texts; /* rank 0: of every checkpoint, with no numbers */
    double stall_seconds;      /* that training stood still for the checkpoint begun last */
    double began_at;           /* seconds on the clock; what training.time_limit counts from */
    bool stopped;
} ech_trainer;

/* Rank 0 speaks and writes for all. */
static inline bool ech_trainer_is_first(const ech_trainer *t)
{
    return ech_comm_rank(t->comm) == 0;
}

/* Opens data, builds the session, restores the newest checkpoint or initialises. Collective. */
ech_status ech_trainer_begin(ech_trainer *t);

/* --profile: measures this machine, then begins; at the end rank 0 prints the table of all ranks and
 * writes it to step_profile.jsonl in the run directory. Collective. */
ech_status ech_trainer_begin_step_profile(ech_trainer *t);
ech_status ech_trainer_finish_step_profile(ech_trainer *t);
/* From now on the rank is about that; nothing without --profile. */
void ech_trainer_switch_to(ech_trainer *t, ech_activity activity);

/* Behind the beginning of progress: makes what is the same in all checkpoints. Not collective. */
ech_status ech_trainer_begin_saves(ech_trainer *t);
/* From now on batches of the next validation are read ahead, while training goes on. Not collective. */
ech_status ech_trainer_begin_validation(ech_trainer *t);

/* What the calendar calls besides training steps. Collective. */
ech_status ech_trainer_validate(ech_trainer *t);
ech_status ech_trainer_save(ech_trainer *t); /* unless this step is saved already */

/* After training steps: tells of a checkpoint that is there by now; fails, on every rank, when one
 * could not be written. */
ech_status ech_trainer_follow_save(ech_trainer *t, bool failed);
/* Waits for the checkpoint that is under way, and tells of it. */
ech_status ech_trainer_finish_save(ech_trainer *t);

/* After a withheld step: names the place of the first NaN or infinity, then goes on or fails, as
 * training.on_nonfinite says. Collective. */
ech_status ech_trainer_explain_nonfinite(ech_trainer *t);

#endif
