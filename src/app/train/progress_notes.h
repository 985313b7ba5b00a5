/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions that make lines of notes: of metrics.jsonl, serves.jsonl and the log, and events.
 * Private to progress*.c. The writer's thread calls these functions.
 */
#ifndef ECH_APP_TRAIN_PROGRESS_NOTES_H
#define ECH_APP_TRAIN_PROGRESS_NOTES_H

#include "app/record_writer.h"
#include "app/train/progress.h"
#include "app/train/spikes.h"
#include "app/train/tensorboard.h"
#include "base/journal.h"
#include "base/terminal.h"

/* Only the writer's thread uses the files and the status line once it runs. */
struct ech_progress {
    int64_t steps, every, validate_every; /* as in ech_progress_setup */
    bool validates;
    const ech_sample_row *row; /* names the unit of counts */
    double peak_flops;
    double load;   /* while the peak was measured: then mfu is too high */
    int64_t start; /* number of this start of the run, from 1 */
    ech_journal *metrics;
    ech_journal *events; /* NULL: no TensorBoard */
    ech_journal *serves; /* NULL: no pushes */
    ech_terminal_line line;
    double step_seconds;  /* moving average; below 0: no step so far */
    double valid_seconds; /* of the last validation, or projected; 0: none so far */
    bool any;             /* a plain line of a step has been printed */
    ech_spikes spikes;
    ech_record_writer *writer;
};

/* ---- progress_lines.c: parts of lines ---- */

/* Appends a text as code in Markdown: four blanks before each line. */
void ech_progress_append_code(const char *text, ech_text *out);
/* Appends the record to a file, and frees it. */
void ech_progress_add(ech_journal *journal, ech_text *record);
/* Completes a line of metrics.jsonl, writes it unbuffered and frees it: after a kill at most the
 * last line is incomplete. */
void ech_progress_add_json(ech_progress *p, ech_text *json);
/* Writes an event with n scalars at the wall time `at`, if there are event files. */
void ech_progress_add_scalars(ech_progress *p, double at, int64_t step,
                              const ech_event_scalar *scalars, int n);
/* Appends "step   12/100 | ". */
void ech_progress_begin_line(const ech_progress *p, int64_t step, ech_text *out);
/* Writes a key in units of work, "valid_tokens" or "samples_per_second", to `key`, and returns
 * it. */
enum { ECH_UNIT_KEY_BYTES = 64 };
const char *ech_progress_unit_key(const ech_progress *p, const char *before, const char *after,
                                  char key[ECH_UNIT_KEY_BYTES]);
/* Appends "loss 3.1416". none: no token counted as a target. */
void ech_progress_append_loss(double loss, bool none, ech_text *out);
/* Seconds for the steps after `step`, and for the validations after steps `validated` and later. */
double ech_progress_seconds_left(const ech_progress *p, int64_t step, int64_t validated);

/* ---- progress_step.c ---- */

/* Writes an ECH_NOTE_STEP. */
void ech_progress_write_step(ech_progress *p, const ech_note *note);

/* ---- progress_notes.c ---- */

/* Writes an ech_note of any kind: the ech_record_writer_setup.write. */
void ech_progress_write_note(void *progress, void *record);

#endif
