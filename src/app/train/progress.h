/* SPDX-License-Identifier: Apache-2.0
 *
 * What a person and a program read while training runs: the status line (or plain lines in a pipe),
 * metrics.jsonl and TensorBoard's events. Rank 0 only. Once open, no file of these can end the run: see base/journal.h.
 *
 * A thread of its own formats and writes all of it, in the order of the calls, at once; callers only hand
 * numbers over (app/record_writer.h). Files that stand still hold training up once some hundred calls wait,
 * since none is dropped.
 */
#ifndef ECH_APP_TRAIN_PROGRESS_H
#define ECH_APP_TRAIN_PROGRESS_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ech_progress ech_progress;

typedef struct ech_progress_setup {
    const char *directory; /* the run directory, made if need be */
    int64_t steps;         /* of the whole run */
    int64_t first_step;    /* steps done before this start: metrics of later steps are dropped */
    int64_t every;         /* plain lines: one every so many steps (and the first and last) */
    double peak_flops;     /* measured, of all ranks: for mfu */
    int ranks;
    const char *layout;   /* in words; "" or NULL: nothing to say */
    const char *run_yaml; /* the resolved run file, for TensorBoard; may be NULL */
    bool tensorboard;
} ech_progress_setup;

/* One training step, as written: keys of the same names. */
typedef struct ech_step_metrics {
    int64_t step; /* steps done: 1 after the first */
    double loss, learning_rate, grad_norm;
    int64_t tokens;  /* seen since the run's start */
    int64_t samples; /* likewise */
    double step_seconds, tokens_per_second, flops_per_second;
    int64_t bytes_sent; /* by rank 0 in this step: all axes, and scalars */
    int64_t peak_bytes; /* of the arena */
    bool skipped;       /* the update was withheld */
} ech_step_metrics;

typedef struct ech_validation_metrics {
    int64_t step;   /* as "step"; the others as "valid_loss", "valid_tokens", "seconds" */
    double loss;    /* mean over the tokens */
    int64_t tokens; /* that count */
    double seconds;
} ech_validation_metrics;

/* A checkpoint that is there. */
typedef struct ech_checkpoint_metrics {
    int64_t step;
    char name[32]; /* as "checkpoint" */
    int64_t bytes;
    double seconds;        /* from the beginning of its writing until it was committed */
    double stall_seconds;  /* that training stood still for it */
    double waited_seconds; /* of these, for the checkpoint before */
} ech_checkpoint_metrics;

/* The end of a start. */
typedef struct ech_end_metrics {
    int64_t step;
    int64_t skipped_steps; /* updates withheld since the run's start */
} ech_end_metrics;

/* Opens DIRECTORY/metrics.jsonl for appending, after dropping lines of steps > first_step (rewritten
 * atomically) and a torn last line, and an event file; both say that the run starts. */
ech_status ech_progress_create(const ech_progress_setup *setup, ech_progress **out);
/* All is written then; ends the status line. Accepts NULL. */
void ech_progress_destroy(ech_progress *progress);

/* {"step":..,"loss":..,...,"mfu":..} and the status line / plain line with ETA; of a loss that is a spike
 * (app/train/note.h) also "loss_spike", and where spikes begin a line that stays. */
void ech_progress_step(ech_progress *progress, const ech_step_metrics *metrics);
/* {"step":..,"valid_loss":..,"valid_tokens":..,"seconds":..} and a line that stays. */
void ech_progress_validation(ech_progress *progress, const ech_validation_metrics *metrics);
/* {"step":..,"checkpoint":"step-00000100",...}, keys of the same names, and a line that stays. */
void ech_progress_checkpoint(ech_progress *progress, const ech_checkpoint_metrics *metrics);
/* {"step":..,"skipped_steps":..,"loss_spikes":..}, and a line that stays unless both are 0. */
void ech_progress_end(ech_progress *progress, const ech_end_metrics *metrics);
/* A line that stays above the status line. */
void ech_progress_say(ech_progress *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Waits until all of these so far is written. From any thread. */
void ech_progress_settle(ech_progress *progress);

#endif
