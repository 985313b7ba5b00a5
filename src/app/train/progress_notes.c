/* SPDX-License-Identifier: Apache-2.0
 *
 * Notes other than training steps. Each writes a line of metrics.jsonl or serves.jsonl, and appends
 * its log line, if any, to `text`.
 */
#include "app/train/progress_notes.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "app/count.h"
#include "app/metrics.h"
#include "app/train/histograms.h"
#include "base/utf8.h"
#include "base/visible.h"

/* The first scalar, a loss, and each of the others that is a number. */
static void add_finite(ech_progress *p, double at, int64_t step, const ech_event_scalar *scalars,
                       int n)
{
    ech_progress_add_scalars(p, at, step, scalars, 1);
    for (int i = 1; i < n; i++)
        if (isfinite(scalars[i].value)) ech_progress_add_scalars(p, at, step, &scalars[i], 1);
}

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

static void append_bits(double bits_per_byte, ech_text *out)
{
    if (isfinite(bits_per_byte)) ech_text_append(out, " | %.4f bits per byte", bits_per_byte);
}

static void append_accuracy(double accuracy, double of_5, ech_text *out)
{
    if (isfinite(accuracy))
        ech_text_append(out, " | accuracy %.2f%%, of five %.2f%%", 100 * accuracy, 100 * of_5);
}

static void write_validation(ech_progress *p, const ech_note *note, ech_text *text)
{
    const ech_validation_metrics *m = &note->validation;
    const ech_event_scalar scalars[] = {{"loss/validation", m->loss},
                                        {"loss/validation_bits_per_byte", m->bits_per_byte},
                                        {"accuracy/validation", m->accuracy},
                                        {"accuracy/validation_of_5", m->accuracy_of_5}};
    ech_text json = {0};
    char key[ECH_UNIT_KEY_BYTES];
    ech_metrics_int(&json, "step", m->step);
    ech_metrics_real(&json, "valid_loss", m->loss);
    ech_metrics_int(&json, ech_progress_unit_key(p, "valid_", "", key), m->units);
    if (p->row->accuracy) {
        ech_metrics_real(&json, "valid_accuracy", m->accuracy);
        ech_metrics_real(&json, "valid_accuracy_of_5", m->accuracy_of_5);
    } else {
        ech_metrics_real(&json, "valid_bits_per_byte", m->bits_per_byte);
    }
    ech_metrics_real(&json, "seconds", m->seconds);
    if (m->patience) ech_metrics_int(&json, "valid_waited", m->waited);
    p->valid_seconds = m->seconds;
    ech_progress_add_json(p, &json);
    add_finite(p, note->wall_time, m->step, scalars, p->row->accuracy ? 4 : 2);
    ech_progress_begin_line(p, m->step, text);
    ech_progress_append_loss(m->loss, m->units == 0, "validation ", text);
    append_bits(m->bits_per_byte, text);
    if (p->row->accuracy) append_accuracy(m->accuracy, m->accuracy_of_5, text);
    ech_text_append(text, " | %s %ss | %.1f s", ECH_DIGITS(m->units), p->row->unit, m->seconds);
    if (m->patience && m->waited)
        ech_text_append(text, " | no improvement: %" PRId64 " of %" PRId64, m->waited, m->patience);
}

static void write_evaluation(ech_progress *p, const ech_note *note, ech_text *text)
{
    const ech_evaluation_metrics *m = &note->evaluation;
    const ech_event_scalar scalars[] = {{"loss/evaluation", m->loss},
                                        {"loss/evaluation_bits_per_byte", m->bits_per_byte},
                                        {"accuracy/evaluation", m->accuracy},
                                        {"accuracy/evaluation_of_5", m->accuracy_of_5}};
    ech_text json = {0};
    char key[ECH_UNIT_KEY_BYTES];
    ech_metrics_int(&json, "step", m->step);
    ech_metrics_text(&json, "evaluation", m->name);
    ech_metrics_real(&json, "evaluation_loss", m->removed ? (double)NAN : m->loss);
    ech_metrics_int(&json, ech_progress_unit_key(p, "evaluation_", "", key), m->units);
    if (p->row->accuracy) {
        ech_metrics_real(&json, "evaluation_accuracy", m->removed ? (double)NAN : m->accuracy);
        ech_metrics_real(&json, "evaluation_accuracy_of_5",
                         m->removed ? (double)NAN : m->accuracy_of_5);
    } else {
        ech_metrics_real(&json, "evaluation_bits_per_byte",
                         m->removed ? (double)NAN : m->bits_per_byte);
    }
    ech_metrics_real(&json, "seconds", m->seconds);
    if (m->removed) ech_text_append(&json, ",\"removed\":true");
    ech_progress_add_json(p, &json);
    ech_progress_begin_line(p, m->step, text);
    if (m->removed) {
        ech_text_append(text,
                        "%s was removed before an evaluator got to it; a higher checkpoint.keep, "
                        "or more parallel.evaluators, would keep up",
                        m->name);
        return;
    }
    add_finite(p, note->wall_time, m->step, scalars, p->row->accuracy ? 4 : 2);
    ech_progress_append_loss(m->loss, m->units == 0, "evaluation ", text);
    append_bits(m->bits_per_byte, text);
    if (p->row->accuracy) append_accuracy(m->accuracy, m->accuracy_of_5, text);
    ech_text_append(text, " | %s %ss | %.1f s", ECH_DIGITS(m->units), p->row->unit, m->seconds);
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
