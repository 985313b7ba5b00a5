/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics.jsonl and the status line.
 */
#include "app/progress.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/count.h"
#include "app/metrics.h"
#include "app/status_line.h"
#include "base/file.h"
#include "base/memory.h"

struct ech_progress {
    ech_progress_setup setup;
    char *path;
    FILE *metrics;
    ech_status_line line;
    double step_seconds; /* smoothed; below 0: no step so far */
    bool any;            /* a plain line of a step was printed */
};

static ech_status open_metrics(ech_progress *progress)
{
    ECH_TRY(ech_file_make_folder(progress->setup.directory));
    ECH_TRY(ech_metrics_cut(progress->path, progress->setup.first_step));
    progress->metrics = fopen(progress->path, "ae");
    if (!progress->metrics)
        ECH_FAIL(ECH_EIO, "%s: cannot be written: %s", progress->path, strerror(errno));
    return ECH_OK;
}

ech_status ech_progress_create(const ech_progress_setup *setup, ech_progress **out)
{
    ech_progress *progress = ech_calloc(1, sizeof *progress);
    progress->setup = *setup;
    progress->path = ech_file_join(setup->directory, "metrics.jsonl");
    progress->step_seconds = -1;
    ech_status_line_begin(&progress->line);
    ech_status st = open_metrics(progress);
    progress->setup.directory = NULL; /* borrowed for this call only */
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
    if (progress->metrics) fclose(progress->metrics);
    free(progress->path);
    free(progress);
}

/* Writes the line and frees it. Flushed at once: whoever kills the run finds all lines but a torn
 * last one. */
static ech_status write_metrics(ech_progress *progress, ech_text *json)
{
    ech_text_append(json, "\n");
    size_t written = fwrite(json->at, 1, json->n, progress->metrics);
    bool ok = written == json->n && fflush(progress->metrics) == 0;
    int error = errno;
    ech_text_free(json);
    if (!ok) ECH_FAIL(ECH_EIO, "%s: cannot be written: %s", progress->path, strerror(error));
    return ECH_OK;
}

/* Above 1 the peak was measured while something else held the cores: then it says nothing. */
static double mfu(const ech_progress *progress, const ech_step_metrics *m)
{
    double share = m->flops_per_second / progress->setup.peak_flops;
    return progress->setup.peak_flops > 0 && share <= 1 ? share : (double)NAN;
}

static ech_status write_step(ech_progress *progress, const ech_step_metrics *m)
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
    ech_text_append(&json, ",\"skipped\":%s}", m->skipped ? "true" : "false");
    return write_metrics(progress, &json);
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

ech_status ech_progress_step(ech_progress *progress, const ech_step_metrics *metrics)
{
    ECH_TRY(write_step(progress, metrics));
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
    return ECH_OK;
}

ech_status ech_progress_validation(ech_progress *progress, int64_t step, double loss,
                                   int64_t tokens, double seconds)
{
    ech_text json = {0};
    char count[ECH_COUNT_BYTES];
    ech_metrics_int(&json, "step", step);
    ech_metrics_real(&json, "valid_loss", loss);
    ech_metrics_int(&json, "valid_tokens", tokens);
    ech_metrics_real(&json, "seconds", seconds);
    ech_text_append(&json, "}");
    ECH_TRY(write_metrics(progress, &json));
    ech_progress_say(progress,
                     "step %5" PRId64 "/%" PRId64 " | validation loss %.4f | %s tokens | %.1f s",
                     step, progress->setup.steps, loss, ech_count_text(tokens, count), seconds);
    return ECH_OK;
}

ech_status ech_progress_checkpoint(ech_progress *progress, int64_t step, const char *name,
                                   int64_t bytes, double seconds)
{
    ech_text json = {0};
    char size[32];
    ech_metrics_int(&json, "step", step);
    ech_metrics_text(&json, "checkpoint", name);
    ech_metrics_int(&json, "bytes", bytes);
    ech_metrics_real(&json, "seconds", seconds);
    ech_text_append(&json, "}");
    ECH_TRY(write_metrics(progress, &json));
    ech_progress_say(progress, "step %5" PRId64 "/%" PRId64 " | saved %s | %s | %.1f s", step,
                     progress->setup.steps, name, ech_text_from_bytes(bytes, size, sizeof size),
                     seconds);
    return ECH_OK;
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
