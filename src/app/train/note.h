/* SPDX-License-Identifier: Apache-2.0
 *
 * The records that training submits to its record writer (notes), and the files and lines that they become
 * (pages). For progress.c.
 */
#ifndef ECH_APP_TRAIN_NOTE_H
#define ECH_APP_TRAIN_NOTE_H

#include <stdbool.h>
#include <stdint.h>

#include "app/status_line.h"
#include "app/train/event_file.h"
#include "app/train/progress.h"
#include "base/journal.h"

/* ---- loss spikes ---- */

enum { ECH_SPIKES_WINDOW = 50, ECH_SPIKES_FEWEST = 20 };

typedef struct ech_spikes {
    double loss[ECH_SPIKES_WINDOW]; /* the last finite losses */
    int64_t seen, count;            /* number of losses; of spikes, consecutive ones once */
    bool high;                      /* the last loss was a spike */
} ech_spikes;

/* Adds a step's loss. Returns loss / median of the window if the loss is a spike, else 0. It is a spike if it
 * is at least 1.5 times the median and exceeds it by at least six times the median absolute deviation, so that
 * noisy losses have none; never among the first 20. *begins: a spike whose predecessor was none. */
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
    double wall_time; /* of the event, seconds since 1970 */
    union {
        ech_step_metrics step;
        ech_validation_metrics validation;
        ech_checkpoint_metrics checkpoint;
        ech_end_metrics end;
        char *line; /* a log line; owned */
    };
} ech_note;

/* The files and the status line. Only the writer's thread uses them once it runs. */
typedef struct ech_pages {
    int64_t steps, every; /* as in ech_progress_setup */
    double peak_flops;
    int64_t start; /* number of this start of the run, from 1 */
    ech_journal *metrics;
    ech_events *events; /* NULL: no TensorBoard */
    ech_status_line line;
    double step_seconds; /* moving average; below 0: no step so far */
    bool any;            /* a plain line of a step has been printed */
    ech_spikes spikes;
} ech_pages;

/* Closes a line of metrics.jsonl, writes it unbuffered and frees it: after a kill at most the last line is
 * incomplete. */
void ech_pages_add(ech_pages *pages, ech_text *json);
/* The ech_record_writer_setup.write: writes an ech_note to an ech_pages. */
void ech_note_write(void *pages, void *note);

#endif
