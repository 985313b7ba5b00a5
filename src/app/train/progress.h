/* SPDX-License-Identifier: Apache-2.0
 *
 * The log of training: the status line (or plain lines), metrics.jsonl and TensorBoard's events. Rank 0 only.
 * Once open, no error of these files ends the run (base/journal.h).
 *
 * Calls submit numbers to a record writer (app/record_writer.h), whose thread formats and writes them in
 * order. If a disk stalls, training waits once 256 records are queued, since none is dropped.
 */
#ifndef ECH_APP_TRAIN_PROGRESS_H
#define ECH_APP_TRAIN_PROGRESS_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ech_progress ech_progress;

typedef struct ech_progress_setup {
    const char *directory; /* the run directory, created if missing */
    int64_t steps;         /* of the whole run */
    int64_t first_step;    /* steps done before this start: metrics of later steps are dropped */
    int64_t every;         /* plain lines: one every so many steps (and the first and last) */
    double peak_flops;     /* measured, of all ranks: for mfu */
    int ranks;
    const char *layout;   /* as text (ech_print_axes); "" or NULL: none */
    const char *run_yaml; /* the resolved run file, for TensorBoard; may be NULL */
    bool tensorboard;
} ech_progress_setup;

/* One training step; the JSON keys have the same names. */
typedef struct ech_step_metrics {
    int64_t step; /* steps done: 1 after the first */
    double loss, learning_rate, grad_norm;
    int64_t tokens;  /* seen since the run's start */
    int64_t samples; /* likewise */
    double step_seconds, tokens_per_second, flops_per_second;
    int64_t bytes_sent; /* by rank 0 in this step: all axes, and scalars */
    int64_t peak_bytes; /* of the arena */
    bool skipped;       /* the update was withheld (NaN or infinity) */
} ech_step_metrics;

typedef struct ech_validation_metrics {
    int64_t step;   /* JSON key "step" */
    double loss;    /* "valid_loss": mean over the tokens */
    int64_t tokens; /* "valid_tokens": with a target */
    double seconds; /* "seconds" */
} ech_validation_metrics;

/* A completed checkpoint. */
typedef struct ech_checkpoint_metrics {
    int64_t step;
    char name[32]; /* JSON key "checkpoint" */
    int64_t bytes;
    double seconds;        /* from the start of writing until it was committed */
    double stall_seconds;  /* for which training waited for it */
    double waited_seconds; /* of these, for the checkpoint before it */
} ech_checkpoint_metrics;

/* The end of the process's training. */
typedef struct ech_end_metrics {
    int64_t step;
    int64_t skipped_steps; /* updates withheld since the run's start */
} ech_end_metrics;

/* Opens DIRECTORY/metrics.jsonl for appending, after dropping lines of steps > first_step (rewritten
 * atomically) and a torn last line, and an event file; both say that the run starts. */
ech_status ech_progress_create(const ech_progress_setup *setup, ech_progress **out);
/* Flushes, and ends the status line. Accepts NULL. */
void ech_progress_destroy(ech_progress *progress);

/* Writes {"step":..,"loss":..,...,"mfu":..} and draws the status line (or prints a plain line); for a loss
 * spike (app/train/note.h) also "loss_spike", and a log line where spikes begin. */
void ech_progress_step(ech_progress *progress, const ech_step_metrics *metrics);
/* Writes {"step":..,"valid_loss":..,"valid_tokens":..,"seconds":..} and a log line. */
void ech_progress_validation(ech_progress *progress, const ech_validation_metrics *metrics);
/* Writes {"step":..,"checkpoint":"step-00000100",...} and a log line. */
void ech_progress_checkpoint(ech_progress *progress, const ech_checkpoint_metrics *metrics);
/* Writes {"step":..,"skipped_steps":..,"loss_spikes":..}, and a log line unless both are 0. */
void ech_progress_end(ech_progress *progress, const ech_end_metrics *metrics);
/* Prints a log line. */
void ech_progress_say(ech_progress *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Waits until all calls so far are written. From any thread. */
void ech_progress_settle(ech_progress *progress);

#endif
