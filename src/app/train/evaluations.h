/* SPDX-License-Identifier: Apache-2.0
 *
 * Evaluation of checkpoints on separate ranks during training (parallel.evaluators; TFJob's
 * Evaluator). Rank 0, the chief, assigns each committed checkpoint, oldest first, to an idle
 * evaluator, and writes the results into the metrics. An evaluator reads the checkpoint's model/
 * and runs validation. It only sees committed checkpoints. If it cannot read one, rank 0 decides
 * whether checkpoint.keep has removed it: rank 0 has done that, and a network file system may show
 * it to the evaluator later.
 *
 * Rank 0 sends an evaluator step numbers, and the evaluator sends back what became of each
 * checkpoint. No training step waits for these messages. A busy evaluator sends heartbeats, an idle
 * one nothing. Both sides forward signals that only they received. A busy evaluator that is silent
 * for parallel.deadline is an error.
 */
#ifndef ECH_APP_TRAIN_EVALUATIONS_H
#define ECH_APP_TRAIN_EVALUATIONS_H

#include "app/setup/setup.h"
#include "app/train/progress.h"

/* ---- rank 0 ---- */

typedef struct ech_evaluations ech_evaluations;

/* Borrows all. No call here is collective. */
ech_status ech_evaluations_create(ech_comm *comm, const ech_layout *layout,
                                  const ech_config *config, ech_progress *progress,
                                  ech_evaluations **out);
/* Ends pending messages, which exist only after a failure. Accepts NULL. */
void ech_evaluations_destroy(ech_evaluations *all);
/* Adds the committed checkpoint of a step to those to evaluate. */
void ech_evaluations_add(ech_evaluations *all, int64_t step);
/* Processes messages that have arrived and assigns waiting checkpoints; does not wait. Errors: an
 * evaluator is silent, or cannot read a checkpoint that exists; as for ech_comm_test. */
ech_status ech_evaluations_follow(ech_evaluations *all);
/* The same repeatedly for a limited time, until no work is left. *left: checkpoints not yet
 * evaluated. */
ech_status ech_evaluations_await(ech_evaluations *all, int *left);
/* Ends the evaluators, also during an evaluation, and logs which checkpoints were not evaluated. */
ech_status ech_evaluations_end(ech_evaluations *all);

/* ---- evaluators ---- */

/* Runs an evaluator until rank 0 ends it. */
ech_status ech_evaluator_run(ech_comm *comm, const ech_design *design);

/* ---- messages ---- */

enum {
    ECH_EVALUATION_TAG = (1 << 20) - 16, /* tag of the messages */
    ECH_EVALUATOR_ENDS = -1              /* in place of a step */
};

typedef enum ech_evaluation_kind {
    ECH_EVALUATION_DONE,
    ECH_EVALUATION_FAILED,  /* the checkpoint cannot be read, or does not exist any more */
    ECH_EVALUATION_GOES_ON, /* heartbeat */
    ECH_EVALUATION_ASKED,   /* a signal arrived, for `step` (ech_train_ask) */
    ECH_EVALUATION_LAST     /* the evaluator's last message */
} ech_evaluation_kind;

typedef struct ech_evaluation {
    int64_t kind, step;
    ech_validation found; /* only for ECH_EVALUATION_DONE */
    int64_t status; /* this and the next field: only for ECH_EVALUATION_FAILED */
    char why[512];
} ech_evaluation;

#endif
