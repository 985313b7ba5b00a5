/* SPDX-License-Identifier: Apache-2.0
 *
 * The log of training: the status line (or plain lines), metrics.jsonl, serves.jsonl and
 * TensorBoard's events. Rank 0 only, not collective. Once open, no error of these files ends the
 * run (base/journal.h). A step is a training step here.
 *
 * Calls submit records (notes) to a record writer (app/record_writer.h), whose thread formats and
 * writes them in order. If a disk is slow, training waits once 256 records are queued, since none
 * is dropped.
 */
#ifndef ECH_APP_TRAIN_PROGRESS_H
#define ECH_APP_TRAIN_PROGRESS_H

#include "app/codes.h"
#include "app/experts.h"
#include "app/serve_log.h"
#include "app/train/validation.h"
#include "base/status.h"
#include "layer/samples.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ech_progress ech_progress;

typedef struct ech_progress_setup {
    const char *directory; /* the run directory, created if missing */
    int64_t steps;         /* of the whole run */
    int64_t first_step;    /* steps done before this start: metrics of later steps are removed */
    /* steps per logged line without a terminal; the first and the last are also logged */
    int64_t every;
    bool validates;         /* after the last step, and as the next says */
    int64_t validate_every; /* steps; 0: only after the last step */
    double peak_flops; /* measured, of all ranks: for mfu */
    double load;       /* of the machine when it was measured, by others; 0: it was idle */
    int ranks;
    ech_sample_kind samples; /* counts are of this kind's units */
    const char *layout;   /* as text (ech_print_axes); "" or NULL: none */
    const char *run_yaml; /* the resolved run file, for TensorBoard; may be NULL */
    const char *serves;   /* first line of a start in serves.jsonl; NULL: there are no pushes */
    bool tensorboard;
} ech_progress_setup;

/* One step; the JSON keys have the names of the fields, with the kind's unit of work: "tokens" and
 * "tokens_per_second", or "samples" and "samples_per_second". */
typedef struct ech_step_metrics {
    int64_t step;                          /* steps done: 1 after the first */
    double loss, learning_rate, grad_norm; /* grad_norm: before clipping */
    int64_t units, samples;                /* trained on since the run began, over all ranks */
    double step_seconds;
    double units_per_second, flops_per_second; /* over all ranks */
    int64_t bytes_sent; /* sent by rank 0 in this step, along all axes and for scalars */
    int64_t peak_bytes, host_bytes; /* sizes of rank 0's arenas, of device and host */
    bool skipped;                   /* the update was withheld (NaN or infinity) */
    double loss_scale; /* of this step; it and the next three have JSON keys if the run has one */
    bool overflow;     /* skipped for an overflow under a dynamic loss scale */
    int64_t overflows; /* since the run began */
    double idle;       /* ech_readings.idle */
    bool pushes;       /* servers update at each push */
    double staleness;  /* ech_readings.staleness, if so */
    bool factored;     /* gradients are sent as factors */
    double rank, rank_short; /* if so; JSON keys "compression_rank", "compression_rank_short" */
    double next_scale; /* the next step's; JSON key "next_loss_scale" */
    ech_expert_metrics experts;
    ech_code_metrics codes;
} ech_step_metrics;

/* JSON keys of `found`, each after "valid_": "loss", "tokens" or "samples", and "accuracy" and
 * "accuracy_of_5" where samples have classes, otherwise "bits_per_byte". */
typedef struct ech_validation_metrics {
    int64_t step;
    ech_validation found;
    int64_t patience; /* training.patience; 0: there is none */
    int64_t waited;   /* if so: validations since the last improvement; JSON key "valid_waited" */
} ech_validation_metrics;

/* A validation that is under way; only for the status line. */
typedef struct ech_validating {
    int64_t step;
    int64_t done, all; /* batches */
    double seconds;    /* for `done` */
} ech_validating;

/* Evaluation of a checkpoint by an evaluator. JSON keys as above, each after "evaluation_". */
typedef struct ech_evaluation_metrics {
    int64_t step;
    char name[32]; /* JSON key "evaluation": "step-00000100" */
    ech_validation found;
    /* JSON key if true: the checkpoint was removed before it was read, and numbers are NaN */
    bool removed;
} ech_evaluation_metrics;

/* A completed checkpoint. */
typedef struct ech_checkpoint_metrics {
    int64_t step;
    char name[32]; /* JSON key "checkpoint": "step-00000100" */
    int64_t bytes;
    double seconds;        /* from the start of writing until the checkpoint was committed */
    double stall_seconds;  /* for which training waited for it */
    double waited_seconds; /* part of stall_seconds: wait for the previous checkpoint */
} ech_checkpoint_metrics;

enum { ECH_EXPONENT_LEAST = -160, ECH_EXPONENTS = 300 };

/* The gradients of a layer by the exponent of base 2 (app/train/histograms.h); a line of
 * metrics.jsonl. */
typedef struct ech_histogram {
    int64_t step;
    const char *layer; /* JSON key "histogram": "model.layers.3"; the model's */
    int64_t elements, zeros, nonfinite;
    double norm;       /* JSON key "layer_norm" */
    double loss_scale; /* JSON key "scale": the counts exclude it */
    /* [ECH_EXPONENTS] numbers with 2^e <= |x| < 2^(e + 1), from e = ECH_EXPONENT_LEAST on; the
     * first and the last also have what is beyond. JSON keys "first_exponent" and "counts", without
     * zeros at either end. Owned by the record; freed when it was written. */
    int64_t *count;
} ech_histogram;

/* A sampled text; a line of metrics.jsonl. */
typedef struct ech_sampled {
    int64_t step;
    int index;    /* of the prompt, from 1 */
    char *prompt; /* JSON key "sample"; it and `text` are owned; freed when they were written */
    char *text;   /* JSON key "text": what follows the prompt; UTF-8 */
} ech_sampled;

/* The end of this start's training; the JSON line also has "loss_spikes". */
typedef struct ech_end_metrics {
    int64_t step;
    int64_t skipped_steps; /* updates withheld since the run's start */
} ech_end_metrics;

/* The pushes of a span: lines of serves.jsonl. */
typedef struct ech_span_serves {
    int64_t step; /* its last step */
    int pushes;
    ech_serve *serve; /* [pushes] owned by the record; freed when it was written */
} ech_span_serves;

/* A record: a line of metrics.jsonl and of the log, or lines of serves.jsonl. */
typedef struct ech_note {
    enum {
        /* its line also has "mfu", and "loss_spike" for a spike; draws the status line */
        ECH_NOTE_STEP,
        /* draws the status line; without a terminal a line for each tenth of many batches */
        ECH_NOTE_VALIDATING,
        ECH_NOTE_VALIDATION,
        ECH_NOTE_EVALUATION,
        ECH_NOTE_HISTOGRAM, /* has no log line */
        ECH_NOTE_SAMPLE,
        ECH_NOTE_CHECKPOINT,
        ECH_NOTE_END,  /* has a log line only if a number is not 0 */
        ECH_NOTE_LINE, /* only a log line, of ech_progress_say */
        ECH_NOTE_SERVES
    } kind;
    double wall_time; /* of the event, seconds since 1970; set by ech_progress_submit */
    union {           /* by kind */
        ech_step_metrics step;
        ech_validating validating;
        ech_validation_metrics validation;
        ech_evaluation_metrics evaluation;
        ech_histogram histogram;
        ech_sampled sample;
        ech_checkpoint_metrics checkpoint;
        ech_end_metrics end;
        ech_span_serves serves;
        char *line; /* owned by the record; freed when it was written */
    };
} ech_note;

/* Truncates DIRECTORY/metrics.jsonl after first_step (ech_metrics_truncate), and if there are
 * pushes serves.jsonl, opens them for appending, and makes an event file if setup->tensorboard.
 * Both record that the run starts. Errors: ECH_EIO. */
ech_status ech_progress_create(const ech_progress_setup *setup, ech_progress **out);
/* Flushes, and ends the status line. Accepts NULL. */
void ech_progress_destroy(ech_progress *progress);
ECH_DESTROY_AT(ech_progress, ech_progress_destroy)

/* Submits a copy of the note. */
void ech_progress_submit(ech_progress *progress, const ech_note *note);
/* Prints a log line. */
void ech_progress_say(ech_progress *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Waits until all records so far are written. Any thread may call it. */
void ech_progress_settle(ech_progress *progress);

#endif
