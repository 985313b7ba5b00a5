/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens the files of the log and submits records to their writer.
 */
#include "app/train/progress.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "app/metrics.h"
#include "app/train/note.h"
#include "app/record_writer.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"

/* Records that may be queued: minutes of steps, in less memory than a batch. */
enum { MOST_NOTES = 256 };

struct ech_progress {
    ech_pages pages;
    ech_record_writer *writer;
};

static void write_start(ech_pages *pages, const ech_progress_setup *setup)
{
    ech_text json = {0};
    ech_metrics_int(&json, "step", setup->first_step);
    ech_metrics_int(&json, "start", pages->start);
    ech_metrics_int(&json, "time", (int64_t)time(NULL));
    ech_metrics_int(&json, "ranks", setup->ranks);
    ech_metrics_text(&json, "layout", setup->layout ? setup->layout : "");
    ech_pages_add(pages, &json);
}

/* Four blanks before a line make it code in Markdown. */
static void append_code(const char *text, ech_text *out)
{
    for (const char *at = text; *at;) {
        int n = (int)strcspn(at, "\n");
        ech_text_append(out, "    %.*s\n", n, at);
        at += n + (at[n] == '\n');
    }
}

static ech_status open_events(ech_pages *pages, const ech_progress_setup *setup)
{
    const int64_t step = setup->first_step;
    ECH_FREED_TEXT words = {0};
    ECH_TRY(ech_events_open(setup->directory, step, pages->start, &pages->events));
    ech_text_append(&words, "start %" PRId64 " after step %" PRId64 ", on %d rank%s", pages->start,
                    step, setup->ranks, setup->ranks == 1 ? "" : "s");
    if (setup->layout && setup->layout[0]) ech_text_append(&words, ": %s", setup->layout);
    ech_events_text(pages->events, step, "start", words.at);
    words.n = 0;
    append_code(setup->run_yaml ? setup->run_yaml : "", &words);
    if (words.n) ech_events_text(pages->events, step, "run file", words.at);
    return ECH_OK;
}

static ech_status open_files(ech_pages *pages, const ech_progress_setup *setup)
{
    ECH_FREED char *path = ech_file_join(setup->directory, "metrics.jsonl");
    ech_status status = ech_file_make_folder(setup->directory);
    if (status == ECH_OK) status = ech_metrics_truncate(path, setup->first_step, &pages->start);
    if (status == ECH_OK) status = ech_journal_open(path, false, &pages->metrics);
    ECH_TRY(status);
    pages->start++;
    if (setup->tensorboard) ECH_TRY(open_events(pages, setup));
    write_start(pages, setup);
    return ECH_OK;
}

static ech_status begin_writer(ech_progress *progress, const ech_progress_setup *setup)
{
    ECH_FREED_TEXT what = {0};
    ech_text_append(&what, "%s: metrics and lines of the log", setup->directory);
    const ech_record_writer_setup writer = {.what = what.at,
                                            .record_bytes = sizeof(ech_note),
                                            .records = MOST_NOTES,
                                            .write = ech_note_write,
                                            .context = &progress->pages};
    return ech_record_writer_begin(&writer, &progress->writer);
}

ech_status ech_progress_create(const ech_progress_setup *setup, ech_progress **out)
{
    ech_progress *progress = ech_calloc(1, sizeof *progress);
    progress->pages = (ech_pages){.steps = setup->steps,
                                  .every = setup->every,
                                  .peak_flops = setup->peak_flops,
                                  .step_seconds = -1};
    ech_status_line_begin(&progress->pages.line);
    ech_status status = open_files(&progress->pages, setup);
    if (status == ECH_OK) status = begin_writer(progress, setup);
    if (status != ECH_OK) {
        ech_progress_destroy(progress);
        return status;
    }
    *out = progress;
    return ECH_OK;
}

void ech_progress_destroy(ech_progress *progress)
{
    if (!progress) return;
    ech_record_writer_end(progress->writer);
    ech_status_line_end(&progress->pages.line);
    ech_journal_close(progress->pages.metrics);
    ech_events_close(progress->pages.events);
    free(progress);
}

/* ---- notes ---- */

static ech_note *begin_note(ech_progress *progress, ech_note_kind kind)
{
    ech_note *note = ech_record_writer_slot(progress->writer);
    note->kind = kind;
    note->wall_time = ech_clock_wall();
    return note;
}

void ech_progress_step(ech_progress *progress, const ech_step_metrics *metrics)
{
    begin_note(progress, ECH_NOTE_STEP)->step = *metrics;
    ech_record_writer_submit(progress->writer);
}

void ech_progress_validation(ech_progress *progress, const ech_validation_metrics *metrics)
{
    begin_note(progress, ECH_NOTE_VALIDATION)->validation = *metrics;
    ech_record_writer_submit(progress->writer);
}

void ech_progress_checkpoint(ech_progress *progress, const ech_checkpoint_metrics *metrics)
{
    begin_note(progress, ECH_NOTE_CHECKPOINT)->checkpoint = *metrics;
    ech_record_writer_submit(progress->writer);
}

void ech_progress_end(ech_progress *progress, const ech_end_metrics *metrics)
{
    begin_note(progress, ECH_NOTE_END)->end = *metrics;
    ech_record_writer_submit(progress->writer);
}

void ech_progress_say(ech_progress *progress, const char *format, ...)
{
    va_list arguments;
    char *text = NULL;
    va_start(arguments, format);
    if (vasprintf(&text, format, arguments) < 0) text = NULL;
    va_end(arguments);
    if (!text) return;
    begin_note(progress, ECH_NOTE_LINE)->line = text;
    ech_record_writer_submit(progress->writer);
}

void ech_progress_settle(ech_progress *progress)
{
    ech_record_writer_flush(progress->writer);
}
