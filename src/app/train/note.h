/* SPDX-License-Identifier: Apache-2.0
 *
 * What training hands to the thread that writes: plain notes, and the files and lines they end up in.
 * For progress.c.
 */
#ifndef ECH_APP_TRAIN_NOTE_H
#define ECH_APP_TRAIN_NOTE_H

#include <stdbool.h>
#include <stdint.h>

#include "app/status_line.h"
#include "app/train/event_file.h"
#include "app/train/progress.h"
#include "base/journal.h"

/* ---- losses that are far above those before them ---- */

enum { ECH_SPIKES_WINDOW = 50, ECH_SPIKES_FEWEST = 20 };

typedef struct ech_spikes {
    double loss[ECH_SPIKES_WINDOW]; /* the last ones, of steps that counted */
    int64_t seen, count;            /* losses; spikes */
    bool high;                      /* the last loss was one */
} ech_spikes;

/* The next step's loss: how many times the median of the window it is, if that makes it a spike, else 0. It
 * is one if it is at least 1.5 times the median, and by six times their median deviation from it
 * above it, so that losses that are always uneven have none; of fewer than 20 losses nothing is known.
 * *begins: the loss before was none. */
double ech_spikes_take(ech_spikes *spikes, double loss, bool *begins);

typedef enum ech_note_kind {
    ECH_NOTE_STEP,
    ECH_NOTE_VALIDATION,
    ECH_NOTE_CHECKPOINT,
    ECH_NOTE_END,
    ECH_NOTE_LINE
} ech_note_kind;

typedef struct ech_note {
    ech_note_kind kind;
    double wall_time; /* when it was true, seconds since 1970 */
    union {
        ech_step_metrics step;
        ech_validation_metrics validation;
        ech_checkpoint_metrics checkpoint;
        ech_end_metrics end;
        char *line; /* owned; for people alone, stays above the status line */
    };
} ech_note;

/* Where notes are written to: the writing thread's own once that runs. */
typedef struct ech_pages {
    int64_t steps, every; /* as in ech_progress_setup */
    double peak_flops;
    int64_t start; /* which of this directory's, from 1 */
    ech_journal *metrics;
    ech_events *events; /* NULL: none are wanted */
    ech_status_line line;
    double step_seconds; /* smoothed; below 0: no step so far */
    bool any;            /* a plain line of a step was printed */
    ech_spikes spikes;
} ech_pages;

/* Ends the line of metrics, writes it and frees it. At once: whoever kills the run finds all lines that
 * were written, but a torn last one. */
void ech_pages_add(ech_pages *pages, ech_text *json);
/* As ech_record_writer_setup wants it: writes the note (an ech_note) on the pages (ech_pages). */
void ech_note_write(void *pages, void *note);

#endif
