/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics.jsonl, TensorBoard's events and the status line.
 */
#include "app/train/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "app/count.h"
#include "app/train/event_file.h"
#include "app/train/metrics.h"
#include "app/train/status_line.h"
#include "base/file.h"
#include "base/journal.h"
#include "base/memory.h"

struct ech_progress {
    ech_progress_setup setup;
    int64_t start; /* which of this directory's, from 1 */
    ech_journal *metrics;
    ech_events *events; /* NULL: none are wanted */
    ech_status_line line;
    double step_seconds; /* smoothed; below 0: no step so far */
    bool any;            /* a plain line of a step was printed */
};

/* Writes the line and frees it. At once: whoever kills the run finds all lines but a torn last one. */
static void write_metrics(ech_progress *progress, ech_text *json)
{
    ech_text_append(json, "}\n");
    ech_journal_add(progress->metrics, json->at, json->n);
    ech_text_free(json);
}

static void write_start(ech_progress *progress)
{
    const ech_progress_setup *setup = &progress->setup;
    ech_text json = {0};
    ech_metrics_int(&json, "step", setup->first_step);
    ech_metrics_int(&json, "start", progress->start);
    ech_metrics_int(&json, "time", (int64_t)time(NULL));
    ech_metrics_int(&json, "ranks", setup->ranks);
    ech_metrics_text(&json, "layout", setup->layout ? setup->layout : "");
    write_metrics(progress, &json);
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

static ech_status open_events(ech_progress *progress)
{
    const ech_progress_setup *setup = &progress->setup;
    const int64_t step = setup->first_step;
    ech_text words = {0};
    ECH_TRY(ech_events_open(setup->directory, step, progress->start, &progress->events));
    ech_text_append(&words, "start %" PRId64 " behind step %" PRId64 ", on %d rank%s",
                    progress->start, step, setup->ranks, setup->ranks == 1 ? "" : "s");
    if (setup->layout && setup->layout[0]) ech_text_append(&words, ": %s", setup->layout);
    ech_events_text(progress->events, step, "start", words.at);
    words.n = 0;
    append_code(setup->run_yaml ? setup->run_yaml : "", &words);
    if (words.n) ech_events_text(progress->events, step, "run file", words.at);
    ech_text_free(&words);
    return ECH_OK;
}

static ech_status open_files(ech_progress *progress)
{
    const ech_progress_setup *setup = &progress->setup;
    char *path = ech_file_join(setup->directory, "metrics.jsonl");
    ech_status status = ech_file_make_folder(setup->directory);
    if (status == ECH_OK) status = ech_metrics_cut(path, setup->first_step, &progress->start);
    if (status == ECH_OK) status = ech_journal_open(path, false, &progress->metrics);
    free(path);
    ECH_TRY(status);
    progress->start++;
    if (setup->tensorboard) ECH_TRY(open_events(progress));
    write_start(progress);
    return ECH_OK;
}

ech_status ech_progress_create(const ech_progress_setup *setup, ech_progress **out)
{
    ech_progress *progress = ech_calloc(1, sizeof *progress);
    progress->setup = *setup;
    progress->step_seconds = -1;
    ech_status_line_begin(&progress->line);
    ech_status st = open_files(progress);
    /* Borrowed for this call only. */
    progress->setup.directory = progress->setup.layout = progress->setup.run_yaml = NULL;
    if (st != ECH_OK) {
        ech_progress_destroy(progress);
        return st;
    }
    *out = progress;
    return ECH_OK;
}

void ech_progress_destroy(ech_progress *progress)
{
    if (!progress) return;
    ech_status_line_end(&progress->line);
    ech_journal_close(progress->metrics);
    ech_events_close(progress->events);
    free(progress);
}

/* Above 1 the peak was measured while something else held the cores: then it says nothing. */
static double mfu(const ech_progress *progress, const ech_step_metrics *m)
{
    double share = m->flops_per_second / progress->setup.peak_flops;
    return progress->setup.peak_flops > 0 && share <= 1 ? share : (double)NAN;
}

static void write_step(ech_progress *progress, const ech_step_metrics *m)
{
    ech_text json = {0};
    ech_metrics_int(&json, "step", m->step);
    ech_metrics_real(&json, "loss", m->loss);
    ech_metrics_real(&json, "learning_rate", m->learning_rate);
    ech_metrics_real(&json, "grad_norm", m->grad_norm);
    ech_metrics_int(&json, "tokens", m->tokens);
    ech_metrics_int(&json, "samples", m->samples);
    ech_metrics_real(&json, "step_seconds", m->step_seconds);
    ech_metrics_real(&json, "tokens_per_second", m->tokens_per_second);
    ech_metrics_real(&json, "flops_per_second", m->flops_per_second);
    ech_metrics_real(&json, "mfu", mfu(progress, m));
    ech_metrics_int(&json, "bytes_sent", m->bytes_sent);
    ech_metrics_int(&json, "peak_bytes", m->peak_bytes);
    ech_text_append(&json, ",\"skipped\":%s", m->skipped ? "true" : "false");
    write_metrics(progress, &json);
}

/* Of this process, at its largest; with ranks that are threads, of all of them. */
static double process_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? 1024.0 * (double)usage.ru_maxrss : (double)NAN;
}

static void show_step(ech_progress *progress, const ech_step_metrics *m)
{
    const double gib = 1 << 30;
    const ech_event_scalar scalars[] = {
        {"loss/train", m->loss},
        {"optimizer/learning_rate", m->learning_rate},
        {"optimizer/grad_norm", m->grad_norm},
        {"speed/tokens_per_second", m->tokens_per_second},
        {"speed/tflops", m->flops_per_second / 1e12},
        {"speed/mfu_percent", 100 * mfu(progress, m)},
        {"speed/step_seconds", m->step_seconds},
        {"memory/arena_gib", (double)m->peak_bytes / gib},
        {"memory/process_gib", process_bytes() / gib},
        {"run/tokens", (double)m->tokens},
        {"run/restarts", (double)(progress->start - 1)},
    };
    if (progress->events)
        ech_events_scalars(progress->events, m->step, scalars, sizeof scalars / sizeof *scalars);
}

static int64_t whole_number(double value)
{
    return value >= 0 && value < 1e15 ? llround(value) : 0;
}

static void format_step(const ech_progress *progress, const ech_step_metrics *m, ech_text *out)
{
    char speed[ECH_COUNT_BYTES], flops[ECH_COUNT_BYTES], span[ECH_COUNT_BYTES];
    double left = (double)(progress->setup.steps - m->step) * progress->step_seconds;
    double share = mfu(progress, m);
    /* What is looked at most comes first: a narrow terminal cuts the end off. */
    ech_text_append(out, "step %5" PRId64 "/%" PRId64 " | loss %.4f | ETA %s", m->step,
                    progress->setup.steps, m->loss, ech_count_span(left, span));
    if (m->skipped) ech_text_append(out, " | update skipped");
    ech_text_append(out, " | norm %.2f | lr %.1e", m->grad_norm, m->learning_rate);
    ech_text_append(out, " | %s tok/s | %s",
                    ech_count_text(whole_number(m->tokens_per_second), speed),
                    ech_count_scaled(m->flops_per_second, "FLOP/s", flops));
    if (isfinite(share)) ech_text_append(out, " (mfu %.0f%%)", 100 * share);
}

/* Of the last ten steps or so. */
static void smooth(ech_progress *progress, double seconds)
{
    const double share = 0.1;
    if (progress->step_seconds < 0)
        progress->step_seconds = seconds;
    else
        progress->step_seconds += share * (seconds - progress->step_seconds);
}

void ech_progress_step(ech_progress *progress, const ech_step_metrics *metrics)
{
    write_step(progress, metrics);
    show_step(progress, metrics);
    smooth(progress, metrics->step_seconds);
    bool last = metrics->step == progress->setup.steps;
    bool due = last || !progress->any || metrics->step % progress->setup.every == 0;
    ech_text text = {0};
    format_step(progress, metrics, &text);
    if (progress->line.columns)
        ech_status_line_draw(&progress->line, text.at, last);
    else if (due)
        ech_status_line_say(&progress->line, text.at);
    progress->any = true;
    ech_text_free(&text);
}

void ech_progress_validation(ech_progress *progress, int64_t step, double loss, int64_t tokens,
                             double seconds)
{
    ech_text json = {0};
    char count[ECH_COUNT_BYTES];
    ech_metrics_int(&json, "step", step);
    ech_metrics_real(&json, "valid_loss", loss);
    ech_metrics_int(&json, "valid_tokens", tokens);
    ech_metrics_real(&json, "seconds", seconds);
    write_metrics(progress, &json);
    const ech_event_scalar scalar = {"loss/validation", loss};
    if (progress->events) ech_events_scalars(progress->events, step, &scalar, 1);
    ech_progress_say(progress,
                     "step %5" PRId64 "/%" PRId64 " | validation loss %.4f | %s tokens | %.1f s",
                     step, progress->setup.steps, loss, ech_count_text(tokens, count), seconds);
}

static void format_checkpoint(const ech_progress *progress, const ech_checkpoint_metrics *m,
                              ech_text *out)
{
    char size[32];
    ech_text_append(out, "step %5" PRId64 "/%" PRId64 " | saved %s | %s | %.1f s", m->step,
                    progress->setup.steps, m->name,
                    ech_text_from_bytes(m->bytes, size, sizeof size), m->seconds);
    if (m->stall_seconds < m->seconds)
        ech_text_append(out, ", training stood still for %.2f s", m->stall_seconds);
    if (m->waited_seconds >= 0.01)
        ech_text_append(out, "; waited %.1f s for the checkpoint before", m->waited_seconds);
}

void ech_progress_checkpoint(ech_progress *progress, const ech_checkpoint_metrics *m)
{
    ech_text json = {0}, text = {0};
    ech_metrics_int(&json, "step", m->step);
    ech_metrics_text(&json, "checkpoint", m->name);
    ech_metrics_int(&json, "bytes", m->bytes);
    ech_metrics_real(&json, "seconds", m->seconds);
    ech_metrics_real(&json, "stall_seconds", m->stall_seconds);
    ech_metrics_real(&json, "waited_seconds", m->waited_seconds);
    write_metrics(progress, &json);
    format_checkpoint(progress, m, &text);
    ech_progress_say(progress, "%s", text.at);
    ech_text_free(&text);
}

void ech_progress_say(ech_progress *progress, const char *format, ...)
{
    va_list arguments;
    char *text = NULL;
    va_start(arguments, format);
    if (vasprintf(&text, format, arguments) < 0) text = NULL;
    va_end(arguments);
    if (text) ech_status_line_say(&progress->line, text);
    free(text);
}
