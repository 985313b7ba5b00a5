/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of one rank's training. Private to app/train. A step is a training step here.
 */
#ifndef ECH_APP_TRAIN_TRAINER_H
#define ECH_APP_TRAIN_TRAINER_H

#include <stdatomic.h>

#include "app/step_profile/step_profile.h"
#include "app/trace/trace.h"
#include "app/train/evaluations.h"
#include "app/train/histograms.h"
#include "app/train/progress.h"
#include "app/train/samples.h"
#include "app/train/train.h"
#include "schedule/calendar.h"
#include "schedule/protocol/protocol.h"

/* A checkpoint that is kept for its validation loss. */
typedef struct ech_best {
    int64_t step;
    double loss;
} ech_best;

/* ech_train_rank (train.c) sets comm, design, config, lock and began_at, and releases what
 * ech_trainer_begin made. */
struct ech_trainer {
    ech_comm *comm;
    const ech_training *training;
    const ech_design *design;
    ech_config *config;       /* a copy of the design's, with data.identity; owned */
    bool accepts_plugins;     /* on resume, accept other plugins: training.plugin_hashes = any */
    bool accepts_data; /* on resume, accept data other than the checkpoint's: data.identity = any */
    ech_session session;
    ech_calendar calendar;     /* which lists run after which steps */
    ech_corpus *train, *valid; /* valid: NULL without validation */
    ech_loader *loader, *valid_loader;
    ech_progress *progress;         /* rank 0; else NULL */
    ech_evaluations *evaluations;   /* rank 0 of a run with evaluators; else NULL */
    ech_trace *trace;               /* NULL: log.trace is off */
    ech_step_profile *step_profile; /* NULL: no --profile */
    ech_histograms *histograms;     /* NULL: log.histograms is 0 */
    ech_samples *samples;           /* rank 0 of a run with log.sample; else NULL */
    int lock[2];        /* rank 0: locked descriptors of log and checkpoint directory, or -1 */
    bool told_moved;    /* the saving thread has warned that the run directory was moved */
    int64_t step;       /* steps done since the run began */
    int turns;          /* steps of the list that ran last */
    int lost;           /* workers that have died, as last reported */
    int64_t saved_step; /* step of this run's newest checkpoint, complete or not; -1: none */
    /* saved_step when an update was last finite; -1: none. ech_checkpoint_prune keeps this
     * checkpoint. */
    int64_t proven;
    int64_t skipped;    /* updates withheld for a NaN or infinity since the run began */
    int64_t withheld;   /* consecutive withheld updates up to the last step */
    int64_t tokens;     /* trained on since the run began, over all ranks */
    double loss;        /* of the last step; NaN: no token counted as a target */
    double flops;       /* number of FLOPs of one step, over all ranks */
    char *model_folder; /* rank 0: folder of the config.json that the model came from; NULL: new */
    ech_checkpoint_info texts; /* rank 0: text files that each checkpoint gets: run.yaml ... */
    double stall_seconds;      /* for which training waited for the newest checkpoint */
    double stall_before;       /* and for the previous one */
    double began_at; /* start of training.time_limit: ech_clock_now minus earlier starts */
    bool stopped;    /* a signal or training.time_limit ends training after this step */
    bool exhausted;  /* training.patience ends training after this step */
    ech_validated validated; /* validations of the run so far */
    ech_best *best;          /* [best_n], at most calendar.best; in no order; owned */
    int best_n;
    double valid_bytes; /* rank 0: of the validation's text; 0: unknown; below 0: not counted yet */
    double seconds;     /* of the last step, as is `last` */
    ech_readings last;
};

/* Rank 0 logs and writes files for all. */
static inline bool ech_trainer_is_first(const ech_trainer *t)
{
    return ech_comm_rank(t->comm) == 0;
}

/* Opens data, session, logs and loaders, and restores the newest checkpoint or initializes.
 * Collective. */
ech_status ech_trainer_begin(ech_trainer *t);

/* Fills `texts`, which needs `progress` on rank 0; part of ech_trainer_begin. Not collective. */
ech_status ech_trainer_begin_saves(ech_trainer *t);

/* Warns about keys without effect in this run: a warm-up or decay longer than it, a split, a
 * mask. */
void ech_trainer_warn_of_nothing(const ech_trainer *t);

/* Checks on rank 0 that the run may repeat the log of serves: each worker's restored clock must
 * match it. */
ech_status ech_trainer_check_clocks(const ech_trainer *t);
/* After a train list: logs the pushes that were served, if there are any. Collective. */
ech_status ech_trainer_log_serves(ech_trainer *t);

/* ---- validation (validate.c). Collective. ---- */

/* Fills `best` from the checkpoints of the run up to the present step. */
ech_status ech_trainer_begin_validations(ech_trainer *t);
/* The mean loss over the validation data, which is logged. *stops: a rank was asked to stop, so the
 * validation ended early; then *loss is NaN. */
ech_status ech_trainer_validate(ech_trainer *t, double *loss, bool *stops);
/* Validates as the calendar says: also counts for training.patience (`exhausted`) and
 * checkpoint.keep_best. *keeps: the step's checkpoint is to be kept, so it must be saved. */
ech_status ech_trainer_validate_due(ech_trainer *t, bool *stops, bool *keeps);
/* Whether the step that a checkpoint was restored from still needs its validation, which a stop has
 * cut short. */
bool ech_trainer_owes_validation(const ech_trainer *t);
/* The validation loss of the present step; NaN: it has none. */
double ech_trainer_valid_loss(const ech_trainer *t);
/* Logs the best checkpoint at the end of training. Rank 0. */
void ech_trainer_say_best(const ech_trainer *t);

/* Whether local replicas have just been averaged, or there are none: then all have the same
 * weights, which a checkpoint can record. */
bool ech_trainer_may_save(const ech_trainer *t);

/* Saves a checkpoint unless this step's is there already. With checkpoint.background it returns
 * once the snapshot is made, before the files are written. Collective. */
ech_status ech_trainer_save(ech_trainer *t);

/* After a train list: logs the checkpoint that was completed since the last call, if there is one.
 * `failed`: a checkpoint could not be written (ech_readings.save_failed, the same on all ranks).
 * Then it returns that error, on ranks that have none ECH_EABORTED. Collective: all ranks must call
 * it. */
ech_status ech_trainer_follow_save(ech_trainer *t, bool failed);
/* Waits until the checkpoint that is being written is complete, and logs it. Errors: it could not
 * be written. To be called on all ranks. */
ech_status ech_trainer_finish_save(ech_trainer *t);

/* After a withheld update: counts it and reports where the first NaN or infinity was (rank, block,
 * micro-batch), for which a synchronous schedule repeats the step. Continues or fails as
 * training.on_nonfinite and nonfinite_limit say. Collective. */
ech_status ech_trainer_explain_nonfinite(ech_trainer *t);

/* True if servers apply workers' gradients one by one. */
static inline bool ech_trainer_pushes(const ech_trainer *t)
{
    return ech_layout_group_size(t->design->layout, t->design->model, 0, ECH_GROUP_PUSHED) > 0;
}

/* Number of workers that count training steps independently. */
static inline int ech_trainer_clocks(const ech_trainer *t)
{
    return ech_protocol_of(t->design->layout)->clocks(t->design->layout);
}

/* True if no training step follows. The same on all ranks. */
bool ech_trainer_is_done(const ech_trainer *t);

/* True if this rank was asked to stop by a signal or training.time_limit. Other ranks learn it with
 * the next list of training or validation. */
bool ech_trainer_wants_to_stop(const ech_trainer *t);

/* True if this process was told to stop; and, once, true if it was told to save a checkpoint
 * (signals.c). */
const atomic_bool *ech_train_asked_to_stop(void);
bool ech_train_take_save(void);

#endif
