/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of the log, and the submission of notes.
 */
#include "app/train/progress_notes.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "app/metrics.h"
#include "base/clock.h"
#include "base/file.h"

/* Records that may be queued: minutes of steps, in less memory than a batch. */
enum { MOST_NOTES = 256 };

static void write_start(ech_progress *p, const ech_progress_setup *setup)
{
    ech_text json = {0};
    ech_metrics_int(&json, "step", setup->first_step);
    ech_metrics_int(&json, "start", p->start);
    ech_metrics_int(&json, "time", (int64_t)time(NULL));
    ech_metrics_int(&json, "ranks", setup->ranks);
    ech_metrics_text(&json, "layout", setup->layout ? setup->layout : "");
    ech_progress_add_json(p, &json);
}

static ech_status open_events(ech_progress *p, const ech_progress_setup *setup)
{
    const int64_t step = setup->first_step;
    ECH_FREED_TEXT words = {0}, yaml = {0};
    ech_text events = {0};
    ECH_TRY(ech_event_file_open(setup->directory, step, p->start, &p->events));
    ech_text_append(&words, "start %" PRId64 " after step %" PRId64 ", on %s", p->start, step,
                    ECH_COUNT(setup->ranks, "rank"));
    if (setup->layout && setup->layout[0]) ech_text_append(&words, ": %s", setup->layout);
    ech_event_text(ech_clock_wall(), step, "start", words.at, &events);
    ech_progress_append_code(setup->run_yaml ? setup->run_yaml : "", &yaml);
    if (yaml.n) ech_event_text(ech_clock_wall(), step, "run file", yaml.at, &events);
    ech_progress_add(p->events, &events);
    return ECH_OK;
}

/* A run without pushes leaves another run's log as it is. */
static ech_status open_serves(ech_progress *p, const ech_progress_setup *setup)
{
    ECH_FREED char *path = ech_file_join(setup->directory, ECH_SERVE_LOG_NAME);
    if (!setup->serves) return ECH_OK;
    ECH_TRY(ech_serve_log_truncate(path, setup->first_step));
    ECH_TRY(ech_journal_open(path, false, &p->serves));
    ech_journal_add(p->serves, setup->serves, strlen(setup->serves));
    return ECH_OK;
}

static ech_status open_files(ech_progress *p, const ech_progress_setup *setup)
{
    ECH_FREED char *path = ech_file_join(setup->directory, "metrics.jsonl");
    ECH_TRY(ech_file_make_folder(setup->directory));
    ECH_TRY(ech_metrics_truncate(path, setup->first_step, &p->start));
    ECH_TRY(ech_journal_open(path, false, &p->metrics));
    p->start++;
    ECH_TRY(open_serves(p, setup));
    if (setup->tensorboard) ECH_TRY(open_events(p, setup));
    write_start(p, setup);
    return ECH_OK;
}

ech_status ech_progress_create(const ech_progress_setup *setup, ech_progress **out)
{
    ECH_CLEANUP(ech_progress_destroy_at) ech_progress *p = ech_calloc(1, sizeof *p);
    ECH_FREED_TEXT what = {0};
    *p = (ech_progress){.steps = setup->steps,
                        .every = setup->every,
                        .validates = setup->validates,
                        .validate_every = setup->validate_every,
                        .row = ech_sample_row_of(setup->samples),
                        .peak_flops = setup->peak_flops,
                        .load = setup->load,
                        .step_seconds = -1};
    ech_text_append(&what, "%s: metrics and lines of the log", setup->directory);
    const ech_record_writer_setup writer = {.what = what.at,
                                            .record_bytes = sizeof(ech_note),
                                            .records = MOST_NOTES,
                                            .write = ech_progress_write_note,
                                            .context = p};
    ech_terminal_line_begin(&p->line);
    ECH_TRY(open_files(p, setup));
    ECH_TRY(ech_record_writer_begin(&writer, &p->writer));
    *out = p;
    p = NULL;
    return ECH_OK;
}

void ech_progress_destroy(ech_progress *progress)
{
    if (!progress) return;
    ech_record_writer_end(progress->writer);
    ech_terminal_line_end(&progress->line);
    ech_journal_close(progress->metrics);
    ech_journal_close(progress->events);
    ech_journal_close(progress->serves);
    free(progress);
}

/* ---- notes ---- */

void ech_progress_submit(ech_progress *progress, const ech_note *note)
{
    ech_note *slot = ech_record_writer_slot(progress->writer);
    *slot = *note;
    slot->wall_time = ech_clock_wall();
    ech_record_writer_submit(progress->writer);
}

void ech_progress_say(ech_progress *progress, const char *format, ...)
{
    va_list arguments;
    ech_note note = {.kind = ECH_NOTE_LINE};
    va_start(arguments, format);
    bool made = vasprintf(&note.line, format, arguments) >= 0;
    va_end(arguments);
    if (made) ech_progress_submit(progress, &note);
}

void ech_progress_settle(ech_progress *progress)
{
    ech_record_writer_flush(progress->writer);
}
