/* SPDX-License-Identifier: Apache-2.0
 *
 * Evaluations of checkpoints (parallel.evaluators; TFJob's Evaluator). Rank 0, the chief, hands
 * each checkpoint, once it is committed, to an evaluator that has none, the oldest first, and
 * writes what comes back into the metrics. An evaluator reads model/ of it and validates: so it
 * never sees one that is half written. One that checkpoint.keep has removed meanwhile comes back as
 * such.
 *
 * Rank 0 and an evaluator have messages of two kinds, which no training step waits for: the number
 * of a step, and what became of its checkpoint. A busy evaluator sends signs of life, an idle one
 * nothing; both pass signals on that came to them alone. One that is silent for parallel.deadline
 * while it is busy is an error.
 */
#ifndef ECH_APP_TRAIN_EVALUATIONS_H
#define ECH_APP_TRAIN_EVALUATIONS_H

#include "app/setup/setup.h"
#include "app/train/progress.h"

/* ---- rank 0 ---- */

typedef struct ech_evaluations ech_evaluations;

/* deadline: parallel.deadline. The rest is borrowed. Not collective, as none of these. */
ech_status ech_evaluations_create(ech_comm *comm, const ech_layout *layout, double deadline,
                                  ech_progress *progress, ech_evaluations **out);
/* Ends messages that are under way, which there are after a failure alone. Accepts NULL. */
void ech_evaluations_destroy(ech_evaluations *all);
/* The checkpoint of that step was committed, and is to be evaluated. */
void ech_evaluations_add(ech_evaluations *all, int64_t step);
/* Takes what has come, and gives out what is due; does not wait. Errors: an evaluator is silent;
 * those of ech_comm_test. */
ech_status ech_evaluations_follow(ech_evaluations *all);
/* The same for a while, until there is nothing left. *left: checkpoints that are not evaluated. */
ech_status ech_evaluations_await(ech_evaluations *all, int *left);
/* Ends the evaluators, of busy ones the evaluation too, and says which checkpoints were not
 * evaluated. */
ech_status ech_evaluations_end(ech_evaluations *all);

/* ---- evaluators ---- */

/* An evaluator from its first checkpoint to its end, which rank 0 says. Errors: a checkpoint cannot
 * be read, though it is there. */
ech_status ech_evaluator_run(ech_comm *comm, const ech_design *design);

/* ---- between the two ---- */

enum {
    ECH_EVALUATION_TAG = (1 << 20) - 16, /* of their messages */
    ECH_EVALUATOR_ENDS = -1              /* in place of a step */
};

typedef enum ech_evaluation_kind {
    ECH_EVALUATION_DONE,
    ECH_EVALUATION_REMOVED, /* the checkpoint is not there any more */
    ECH_EVALUATION_GOES_ON, /* a sign of life */
    ECH_EVALUATION_ASKED,   /* by a signal, for `step` (ech_train_ask) */
    ECH_EVALUATION_LAST     /* the evaluator's last word */
} ech_evaluation_kind;

typedef struct ech_evaluation {
    int64_t kind, step;
    double loss; /* of ECH_EVALUATION_DONE, as the next two */
    int64_t tokens;
    double seconds;
} ech_evaluation;

#endif
