/* SPDX-License-Identifier: Apache-2.0
 *
 * The log of training: the status line (or plain lines), metrics.jsonl and TensorBoard's events. Rank 0 only.
 * Once open, no error of these files ends the run (base/journal.h).
 *
 * Calls submit records (notes) to a record writer (app/record_writer.h), whose thread formats and writes them
 * in order. If a disk stalls, training waits once 256 records are queued, since none is dropped.
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
    int64_t step;
    double loss;    /* JSON key "valid_loss": mean over the tokens */
    int64_t tokens; /* "valid_tokens": with a target */
    double seconds;
} ech_validation_metrics;

/* A completed checkpoint. */
typedef struct ech_checkpoint_metrics {
    int64_t step;
    char name[32]; /* JSON key "checkpoint": "step-00000100" */
    int64_t bytes;
    double seconds;        /* from the start of writing until it was committed */
    double stall_seconds;  /* for which training waited for it */
    double waited_seconds; /* of these, for the checkpoint before it */
} ech_checkpoint_metrics;

/* The end of the process's training; the JSON line also has "loss_spikes". */
typedef struct ech_end_metrics {
    int64_t step;
    int64_t skipped_steps; /* updates withheld since the run's start */
} ech_end_metrics;

/* A record: a line of metrics.jsonl and of the log. */
typedef struct ech_note {
    enum {
        ECH_NOTE_STEP, /* adds "mfu", and "loss_spike" for a spike; draws the status line */
        ECH_NOTE_VALIDATION,
        ECH_NOTE_CHECKPOINT,
        ECH_NOTE_END, /* has a log line only if a number is not 0 */
        ECH_NOTE_LINE /* only a log line, of ech_progress_say */
    } kind;
    double wall_time; /* of the event, seconds since 1970; set by ech_progress_submit */
    union {           /* by kind */
        ech_step_metrics step;
        ech_validation_metrics validation;
        ech_checkpoint_metrics checkpoint;
        ech_end_metrics end;
        char *line; /* freed when it is written */
    };
} ech_note;

/* Opens DIRECTORY/metrics.jsonl for appending, after dropping lines of steps > first_step and an
 * incomplete last line, and an event file; both record that the run starts. */
ech_status ech_progress_create(const ech_progress_setup *setup, ech_progress **out);
/* Flushes, and ends the status line. Accepts NULL. */
void ech_progress_destroy(ech_progress *progress);
ECH_DESTROY_AT(ech_progress, ech_progress_destroy)

void ech_progress_submit(ech_progress *progress, const ech_note *note);
/* Prints a log line. */
void ech_progress_say(ech_progress *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Waits until all records so far are written. From any thread. */
void ech_progress_settle(ech_progress *progress);

/* ---- loss spikes ---- */

enum { ECH_SPIKES_WINDOW = 50, ECH_SPIKES_FEWEST = 20 };

typedef struct ech_spikes {
    double loss[ECH_SPIKES_WINDOW]; /* the last finite losses */
    int64_t seen, count;            /* number of losses; of spikes, consecutive ones once */
    bool high;                      /* the last loss was a spike */
} ech_spikes;

/* Adds a step's loss. Returns loss / median of the window if the loss is a spike, else 0. It is a spike if it
 * is at least 1.5 times the median and exceeds it by at least six times the median absolute deviation, so that
 * noisy losses have none; never among the first 20. *begins: the loss is a spike and the one before was none. */
double ech_spikes_take(ech_spikes *spikes, double loss, bool *begins);

#endif
