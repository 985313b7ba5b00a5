/* SPDX-License-Identifier: Apache-2.0
 *
 * Notes other than training steps. Each writes a line of metrics.jsonl or serves.jsonl, and appends
 * its log line, if any, to `text`.
 */
#include "app/train/progress_notes.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/count.h"
#include "app/metrics.h"
#include "app/train/histograms.h"
#include "base/utf8.h"
#include "base/visible.h"

/* Many batches: so many that a log without a status line would be silent for long. */
static void show_validating(ech_progress *p, const ech_validating *m)
{
    const int64_t many = 100, lines = 10;
    ECH_FREED_TEXT text = {0};
    bool last = m->done == m->all, due = m->all >= many && m->done % (m->all / lines) == 0;
    p->valid_seconds = m->seconds / (double)m->done * (double)m->all;
    double rest = p->valid_seconds - m->seconds;
    if (last && m->step == p->steps) ech_terminal_line_erase(&p->line);
    if (last || (!p->line.columns && !due)) return;
    ech_progress_begin_line(p, m->step, &text);
    ech_text_append(&text, "validating: %" PRId64 " of %" PRId64 " batches | ETA %s", m->done,
                    m->all, ECH_SPAN(ech_progress_seconds_left(p, m->step, m->step + 1) + rest));
    if (p->line.columns)
        ech_terminal_line_draw(&p->line, text.at, false);
    else
        ech_terminal_line_say(&p->line, text.at);
}

/* Appends PREFIXNAME and the number to a line of metrics.jsonl. */
static void append_real(const char *prefix, const char *name, double value, ech_text *json)
{
    char key[ECH_UNIT_KEY_BYTES];
    snprintf(key, sizeof key, "%s%s", prefix, name);
    ech_metrics_real(json, key, value);
}

static void append_found(const ech_progress *p, const ech_validation *found, const char *prefix,
                         ech_text *json)
{
    char key[ECH_UNIT_KEY_BYTES];
    append_real(prefix, "loss", found->loss, json);
    ech_metrics_int(json, ech_progress_unit_key(p, prefix, "", key), found->tokens);
    if (p->row->accuracy) {
        append_real(prefix, "accuracy", found->accuracy, json);
        append_real(prefix, "accuracy_of_5", found->accuracy_of_5, json);
    } else {
        append_real(prefix, "bits_per_byte", found->bits_per_byte, json);
    }
    ech_metrics_real(json, "seconds", found->seconds);
}

/* Writes the events "loss/WHAT" and so on, and appends the log line; what: "validation" or
 * "evaluation". */
static void show_found(ech_progress *p, const ech_note *note, int64_t step,
                       const ech_validation *found, const char *what, ech_text *text)
{
    static const char *const parts[][2] = {
        {"loss/", ""}, {"loss/", "_bits_per_byte"}, {"accuracy/", ""}, {"accuracy/", "_of_5"}};
    const double values[] = {found->loss, found->bits_per_byte, found->accuracy,
                             found->accuracy_of_5};
    for (int i = 0; i < (p->row->accuracy ? 4 : 2); i++) {
        char tag[64];
        snprintf(tag, sizeof tag, "%s%s%s", parts[i][0], what, parts[i][1]);
        const ech_event_scalar scalar = {tag, values[i]};
        if (i == 0 || isfinite(values[i]))
            ech_progress_add_scalars(p, note->wall_time, step, &scalar, 1);
    }
    ech_progress_begin_line(p, step, text);
    ech_text_append(text, "%s ", what);
    ech_progress_append_loss(found->loss, found->tokens == 0, text);
    if (isfinite(found->bits_per_byte))
        ech_text_append(text, " | %.4f bits per byte", found->bits_per_byte);
    if (p->row->accuracy && isfinite(found->accuracy))
        ech_text_append(text, " | accuracy %.2f%%, of five %.2f%%", 100 * found->accuracy,
                        100 * found->accuracy_of_5);
    ech_text_append(text, " | %s %ss | %.1f s", ECH_DIGITS(found->tokens), p->row->unit,
                    found->seconds);
}

static void write_validation(ech_progress *p, const ech_note *note, ech_text *text)
{
    const ech_validation_metrics *m = &note->validation;
    ech_text json = {0};
    ech_metrics_int(&json, "step", m->step);
    append_found(p, &m->found, "valid_", &json);
    if (m->patience) ech_metrics_int(&json, "valid_waited", m->waited);
    p->valid_seconds = m->found.seconds;
    ech_progress_add_json(p, &json);
    show_found(p, note, m->step, &m->found, "validation", text);
    if (m->patience && m->waited)
        ech_text_append(text, " | no improvement: %" PRId64 " of %" PRId64, m->waited, m->patience);
}

static void write_evaluation(ech_progress *p, const ech_note *note, ech_text *text)
{
    const ech_evaluation_metrics *m = &note->evaluation;
    ech_text json = {0};
    ech_metrics_int(&json, "step", m->step);
    ech_metrics_text(&json, "evaluation", m->name);
    append_found(p, &m->found, "evaluation_", &json);
    if (m->removed) ech_text_append(&json, ",\"removed\":true");
    ech_progress_add_json(p, &json);
    if (!m->removed) {
        show_found(p, note, m->step, &m->found, "evaluation", text);
        return;
    }
    ech_progress_begin_line(p, m->step, text);
    ech_text_append(text,
                    "%s was removed before an evaluator got to it; a higher checkpoint.keep, or "
                    "more parallel.evaluators, would keep up",
                    m->name);
}

static void write_histogram(ech_progress *p, const ech_note *note)
{
    const ech_histogram *m = &note->histogram;
    ech_text json = {0}, event = {0};
    ech_metrics_int(&json, "step", m->step);
    ech_histogram_json(m, &json);
    ech_progress_add_json(p, &json);
    if (p->events) ech_histogram_event(note->wall_time, m, &event);
    if (p->events) ech_progress_add(p->events, &event);
    free(m->count);
}

/* TensorBoard's text is Markdown. */
static void write_sample(ech_progress *p, const ech_note *note, ech_text *text)
{
    enum { SHOWN = 120 };
    const ech_sampled *m = &note->sample;
    ECH_FREED_TEXT whole = {0}, code = {0}, tag = {0}, shown = {0};
    ech_text json = {0}, event = {0};
    ech_metrics_int(&json, "step", m->step);
    ech_metrics_text(&json, "sample", m->prompt);
    ech_metrics_text(&json, "text", m->text);
    ech_progress_add_json(p, &json);
    ech_text_append(&whole, "%s%s", m->prompt, m->text);
    ech_progress_append_code(whole.at, &code);
    ech_text_append(&tag, "samples/%d", m->index);
    if (p->events) ech_event_text(note->wall_time, m->step, tag.at, code.at, &event);
    if (p->events) ech_progress_add(p->events, &event);
    ech_progress_begin_line(p, m->step, text);
    size_t n = strlen(whole.at), some = n < SHOWN ? n : ech_utf8_valid(whole.at, SHOWN);
    ech_visible_append(&shown, whole.at, some, false, true);
    ech_text_append(text, "sample: %s%s", shown.at ? shown.at : "", some < n ? " ..." : "");
    free(m->prompt);
    free(m->text);
}

static void write_checkpoint(ech_progress *p, const ech_checkpoint_metrics *m, ech_text *text)
{
    ech_text json = {0};
    ech_metrics_int(&json, "step", m->step);
    ech_metrics_text(&json, "checkpoint", m->name);
    ech_metrics_int(&json, "bytes", m->bytes);
    ech_metrics_real(&json, "seconds", m->seconds);
    ech_metrics_real(&json, "stall_seconds", m->stall_seconds);
    ech_metrics_real(&json, "waited_seconds", m->waited_seconds);
    ech_progress_add_json(p, &json);
    ech_progress_begin_line(p, m->step, text);
    ech_text_append(text, "saved %s | %s | %.1f s", m->name, ECH_BYTES(m->bytes), m->seconds);
    if (m->stall_seconds < m->seconds)
        ech_text_append(text, ", training stood still for %.2f s", m->stall_seconds);
    if (m->waited_seconds >= 0.01)
        ech_text_append(text, "; waited %.1f s for the checkpoint before", m->waited_seconds);
}

static void write_end(ech_progress *p, const ech_end_metrics *m, ech_text *text)
{
    ech_text json = {0};
    ech_metrics_int(&json, "step", m->step);
    ech_metrics_int(&json, "skipped_steps", m->skipped_steps);
    ech_metrics_int(&json, "loss_spikes", p->spikes.count);
    ech_progress_add_json(p, &json);
    if (m->skipped_steps)
        ech_text_append(text, "updates skipped for a NaN or infinity: %" PRId64 " of %" PRId64,
                        m->skipped_steps, m->step);
    if (p->spikes.count)
        ech_text_append(text, "%sloss spikes since this start: %" PRId64, text->n ? "; " : "",
                        p->spikes.count);
}

/* A span's lines at once, so that none is there in part. */
static void write_serves(ech_progress *p, const ech_span_serves *served)
{
    ech_text lines = {0};
    ech_serve_log_add(served->step, served->serve, served->pushes, &lines);
    ech_progress_add(p->serves, &lines);
    free(served->serve);
}

void ech_progress_write_note(void *progress, void *record)
{
    ech_progress *p = progress;
    const ech_note *note = record;
    ECH_FREED_TEXT text = {0};
    switch (note->kind) {
    case ECH_NOTE_STEP:
        ech_progress_write_step(p, note);
        break;
    case ECH_NOTE_VALIDATING:
        show_validating(p, &note->validating);
        break;
    case ECH_NOTE_VALIDATION:
        write_validation(p, note, &text);
        break;
    case ECH_NOTE_EVALUATION:
        write_evaluation(p, note, &text);
        break;
    case ECH_NOTE_HISTOGRAM:
        write_histogram(p, note);
        break;
    case ECH_NOTE_SAMPLE:
        write_sample(p, note, &text);
        break;
    case ECH_NOTE_CHECKPOINT:
        write_checkpoint(p, &note->checkpoint, &text);
        break;
    case ECH_NOTE_END:
        write_end(p, &note->end, &text);
        break;
    case ECH_NOTE_LINE:
        ech_terminal_line_say(&p->line, note->line);
        free(note->line);
        break;
    case ECH_NOTE_SERVES:
        write_serves(p, &note->serves);
    }
    if (text.n) ech_terminal_line_say(&p->line, text.at);
}
