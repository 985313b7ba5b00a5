/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of the log, and notes as lines of metrics.jsonl and serves.jsonl, TensorBoard's events
 * and log lines.
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
#include "app/metrics.h"
#include "app/record_writer.h"
#include "app/train/histograms.h"
#include "base/terminal.h"
#include "app/train/tensorboard.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/utf8.h"
#include "base/visible.h"

/* Records that may be queued: minutes of steps, in less memory than a batch. */
enum { MOST_NOTES = 256 };

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
    double step_seconds; /* moving average; below 0: no step so far */
    double valid_seconds; /* of the last validation, or projected; 0: none so far */
    bool any;            /* a plain line of a step has been printed */
    ech_spikes spikes;
    ech_record_writer *writer;
};

/* ---- loss spikes: by medians, since a mean would follow the first spike ---- */

static double median_of(const double *values, int n, double from)
{
    ech_numbers numbers = {0};
    for (int i = 0; i < n; i++) ECH_PUSH(numbers, fabs(values[i] - from));
    double median = ech_median(&numbers);
    free(numbers.at);
    return median;
}

double ech_spikes_take(ech_spikes *spikes, double loss, bool *begins)
{
    const double factor = 1.5, deviations = 6;
    int n = spikes->seen < ECH_SPIKES_WINDOW ? (int)spikes->seen : ECH_SPIKES_WINDOW;
    *begins = false;
    if (!isfinite(loss)) return 0;
    double median = median_of(spikes->loss, n, 0); /* losses are above 0 */
    double usual = median + deviations * median_of(spikes->loss, n, median);
    bool high = n >= ECH_SPIKES_FEWEST && median > 0 && loss >= factor * median && loss >= usual;
    spikes->loss[spikes->seen++ % ECH_SPIKES_WINDOW] = loss;
    *begins = high && !spikes->high;
    spikes->count += *begins;
    spikes->high = high;
    return high ? loss / median : 0;
}

/* ---- records ---- */

/* Four blanks before a line make it code in Markdown. */
static void append_code(const char *text, ech_text *out)
{
    for (const char *at = text; *at;) {
        int n = (int)strcspn(at, "\n");
        ech_text_append(out, "    %.*s\n", n, at);
        at += n + (at[n] == '\n');
    }
}

/* Frees the record. */
static void add(ech_journal *journal, ech_text *record)
{
    ech_journal_add(journal, record->at, record->n);
    ech_text_free(record);
}

/* Writes a line of metrics.jsonl unbuffered and frees it: after a kill at most the last line is
 * incomplete. */
static void add_json(ech_progress *p, ech_text *json)
{
    ech_text_append(json, "}\n");
    add(p->metrics, json);
}

static void add_scalars(ech_progress *p, double at, int64_t step, const ech_event_scalar *scalars,
                        int n)
{
    ech_text event = {0};
    if (!p->events) return;
    ech_event_scalars(at, step, scalars, n, &event);
    add(p->events, &event);
}

/* A loss, and those of the others that are numbers. */
static void add_finite(ech_progress *p, double at, int64_t step, const ech_event_scalar *scalars,
                       int n)
{
    add_scalars(p, at, step, scalars, 1);
    for (int i = 1; i < n; i++)
        if (isfinite(scalars[i].value)) add_scalars(p, at, step, &scalars[i], 1);
}

static void begin_line(const ech_progress *p, int64_t step, ech_text *out)
{
    ech_text_append(out, "step %5" PRId64 "/%" PRId64 " | ", step, p->steps);
}

/* ---- training steps ---- */

/* Above 1, the peak was measured while another program used the cores: then mfu is not known. */
static double mfu(const ech_progress *p, const ech_step_metrics *m)
{
    double part = m->flops_per_second / p->peak_flops;
    return p->peak_flops > 0 && part <= 1 ? part : (double)NAN;
}

/* Runs without loss scaling do not show it. */
static bool is_scaled(const ech_step_metrics *m)
{
    return m->loss_scale > 1 || m->next_scale > 1 || m->overflows > 0;
}

/* A key in units of work: "valid_tokens", "samples_per_second". Returns `key`. */
enum { KEY_BYTES = 64 };
static const char *unit_key(const ech_progress *p, const char *before, const char *after,
                            char key[KEY_BYTES])
{
    snprintf(key, KEY_BYTES, "%s%ss%s", before, p->row->unit, after);
    return key;
}

/* Whether the count of units says no more than the count of samples. */
static bool counts_samples(const ech_progress *p)
{
    return strcmp(p->row->unit, "sample") == 0;
}

/* spike: 0: the loss is none. */
static void write_step(ech_progress *p, const ech_note *note, double spike)
{
    const ech_step_metrics *m = &note->step;
    char key[KEY_BYTES];
    ech_text json = {0};
    ech_metrics_int(&json, "step", m->step);
    ech_metrics_real(&json, "loss", m->loss);
    ech_metrics_real(&json, "learning_rate", m->learning_rate);
    ech_metrics_real(&json, "grad_norm", m->grad_norm);
    if (!counts_samples(p)) ech_metrics_int(&json, unit_key(p, "", "", key), m->units);
    ech_metrics_int(&json, "samples", m->samples);
    ech_metrics_real(&json, "step_seconds", m->step_seconds);
    ech_metrics_real(&json, "time", round(note->wall_time * 1e3) / 1e3);
    ech_metrics_real(&json, unit_key(p, "", "_per_second", key), m->units_per_second);
    ech_metrics_real(&json, "flops_per_second", m->flops_per_second);
    ech_metrics_real(&json, "mfu", mfu(p, m));
    ech_metrics_int(&json, "bytes_sent", m->bytes_sent);
    ech_metrics_int(&json, "peak_bytes", m->peak_bytes);
    ech_metrics_int(&json, "host_bytes", m->host_bytes);
    ech_metrics_real(&json, "idle", m->idle);
    if (m->pushes) ech_metrics_real(&json, "staleness", m->staleness);
    if (m->factored) {
        ech_metrics_real(&json, "compression_rank", m->rank);
        ech_metrics_real(&json, "compression_rank_short", m->rank_short);
    }
    ech_text_append(&json, ",\"skipped\":%s", m->skipped ? "true" : "false");
    if (is_scaled(m)) {
        ech_metrics_real(&json, "loss_scale", m->loss_scale);
        ech_text_append(&json, ",\"overflow\":%s", m->overflow ? "true" : "false");
        ech_metrics_int(&json, "overflows", m->overflows);
        ech_metrics_real(&json, "next_loss_scale", m->next_scale);
    }
    ech_expert_metrics_json(&m->experts, &json);
    ech_code_metrics_json(&m->codes, &json);
    if (spike > 0) ech_metrics_real(&json, "loss_spike", spike);
    add_json(p, &json);
}

/* The largest memory of this process so far; with ranks that are threads, of all of them. */
static double process_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? 1024.0 * (double)usage.ru_maxrss : (double)NAN;
}

static void show_step(ech_progress *p, const ech_note *note)
{
    const double gib = 1 << 30;
    const ech_step_metrics *m = &note->step;
    char speed[KEY_BYTES], seen[KEY_BYTES];
    const ech_event_scalar scalars[] = {
        {"loss/train", m->loss},
        {"optimizer/learning_rate", m->learning_rate},
        {"optimizer/grad_norm", m->grad_norm},
        {unit_key(p, "speed/", "_per_second", speed), m->units_per_second},
        {"speed/tflops", m->flops_per_second / 1e12},
        {"speed/mfu_percent", 100 * mfu(p, m)},
        {"speed/step_seconds", m->step_seconds},
        {"memory/arena_gib", (double)m->peak_bytes / gib},
        {"memory/host_arena_gib", (double)m->host_bytes / gib},
        {"memory/process_gib", process_bytes() / gib},
        {unit_key(p, "run/", "", seen), (double)m->units},
        {"run/restarts", (double)(p->start - 1)},
        {"run/idle_percent", 100 * m->idle},
    };
    const ech_event_scalar scale = {"optimizer/loss_scale", m->loss_scale};
    const ech_event_scalar staleness = {"optimizer/staleness", m->staleness};
    const ech_event_scalar ranks[] = {{"compression/rank", m->rank},
                                      {"compression/rank_short", m->rank_short}};
    add_scalars(p, note->wall_time, m->step, scalars, sizeof scalars / sizeof *scalars);
    if (m->factored) add_scalars(p, note->wall_time, m->step, ranks, 2);
    if (is_scaled(m)) add_scalars(p, note->wall_time, m->step, &scale, 1);
    if (m->pushes) add_scalars(p, note->wall_time, m->step, &staleness, 1);
}

static void show_experts(ech_progress *p, const ech_note *note)
{
    const ech_expert_metrics *m = &note->step.experts;
    const ech_event_scalar scalars[] = {
        {"experts/load_most", m->most},         {"experts/dropped", m->dropped},
        {"experts/router_entropy", m->entropy}, {"loss/auxiliary", m->auxiliary},
        {"loss/importance", m->importance},     {"loss/load", m->load},
    };
    if (m->experts)
        add_scalars(p, note->wall_time, note->step.step, scalars, sizeof scalars / sizeof *scalars);
}

static int64_t whole_number(double value)
{
    return value >= 0 && value < 1e15 ? llround(value) : 0;
}

/* none: no token counted as a target. */
static void append_loss(double loss, bool none, const char *what, ech_text *out)
{
    if (none)
        ech_text_append(out, "%sloss: none, no token is a target", what);
    else
        ech_text_append(out, "%sloss %.4f", what, loss);
}

/* Number of validations after steps `first` and later. */
static int64_t validations_from(const ech_progress *p, int64_t first)
{
    int64_t every = p->validate_every, last = p->steps - 1;
    if (!p->validates || first > p->steps) return 0;
    if (every == 0 || first > last) return 1;
    return last / every - (first > 0 ? (first - 1) / every : 0) + 1;
}

/* Seconds for the steps after `step`, and for the validations after steps `validated` and later. */
static double seconds_left(const ech_progress *p, int64_t step, int64_t validated)
{
    double steps = p->step_seconds > 0 ? p->step_seconds : 0;
    return (double)(p->steps - step) * steps +
           (double)validations_from(p, validated) * p->valid_seconds;
}

static void format_step(const ech_progress *p, const ech_step_metrics *m, ech_text *out)
{
    char speed[ECH_COUNT_BYTES], flops[ECH_COUNT_BYTES], span[ECH_COUNT_BYTES];
    double left = seconds_left(p, m->step, m->step);
    /* The most important comes first: a narrow terminal truncates the end. */
    begin_line(p, m->step, out);
    append_loss(m->loss, isnan(m->loss) && !m->skipped, "", out);
    ech_text_append(out, " | ETA %s", ech_count_span(left, span));
    if (m->skipped) ech_text_append(out, " | %supdate skipped", m->overflow ? "overflow, " : "");
    if (m->next_scale != m->loss_scale) ech_text_append(out, " | loss scale %.0f", m->next_scale);
    ech_text_append(out, " | norm %.2f | lr %.1e | %s %s/s | %s", m->grad_norm, m->learning_rate,
                    ech_count_text(whole_number(m->units_per_second), speed),
                    p->row->texts ? "tok" : "samples",
                    ech_count_scaled(m->flops_per_second, "FLOP/s", flops));
    if (isfinite(mfu(p, m)))
        ech_text_append(out,
                        p->load > 0 ? " (mfu %.0f%%, peak measured at load %.1f)" : " (mfu %.0f%%)",
                        100 * mfu(p, m), p->load);
    if (m->pushes) ech_text_append(out, " | staleness %.1f", m->staleness);
    if (m->factored) ech_text_append(out, " | rank %.1f", m->rank);
}

static void write_step_note(ech_progress *p, const ech_note *note)
{
    const ech_step_metrics *m = &note->step;
    const double newest = 0.1; /* weight: an average of the last ten steps or so */
    ECH_FREED_TEXT text = {0};
    bool begins, last = m->step == p->steps, due = last || !p->any || m->step % p->every == 0;
    double spike = ech_spikes_take(&p->spikes, m->loss, &begins);
    write_step(p, note, spike);
    show_step(p, note);
    show_experts(p, note);
    if (p->step_seconds < 0) p->step_seconds = m->step_seconds;
    p->step_seconds += newest * (m->step_seconds - p->step_seconds);
    format_step(p, m, &text);
    if (p->line.columns)
        ech_terminal_line_draw(&p->line, text.at, last);
    if (last) ech_terminal_line_keep(&p->line); /* what follows comes below it */
    if (!p->line.columns && due) ech_terminal_line_say(&p->line, text.at);
    p->any = true;
    if (m->next_scale != m->loss_scale && !p->line.columns && !due) /* no such step goes unsaid */
        ech_terminal_line_say(&p->line, text.at);
    if (!begins) return;
    text.n = 0;
    begin_line(p, m->step, &text);
    ech_text_append(&text, "loss spike: %.4f is %.1f times the median of the losses before it",
                    m->loss, spike);
    ech_terminal_line_say(&p->line, text.at);
}

/* ---- other notes: each writes a line of metrics.jsonl, and appends its log line, if any, to
 * `text` ---- */

/* Many batches: so many that a log without a status line would be silent for long. */
static void show_validating(ech_progress *p, const ech_validating *m)
{
    const int64_t many = 100, lines = 10;
    ECH_FREED_TEXT text = {0};
    char span[ECH_COUNT_BYTES];
    bool last = m->done == m->all, due = m->all >= many && m->done % (m->all / lines) == 0;
    p->valid_seconds = m->seconds / (double)m->done * (double)m->all;
    double rest = p->valid_seconds - m->seconds;
    if (last && m->step == p->steps) ech_terminal_line_erase(&p->line);
    if (last || (!p->line.columns && !due)) return;
    begin_line(p, m->step, &text);
    ech_text_append(&text, "validating: %" PRId64 " of %" PRId64 " batches | ETA %s", m->done,
                    m->all, ech_count_span(seconds_left(p, m->step, m->step + 1) + rest, span));
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
    char count[ECH_COUNT_BYTES], key[KEY_BYTES];
    ech_metrics_int(&json, "step", m->step);
    ech_metrics_real(&json, "valid_loss", m->loss);
    ech_metrics_int(&json, unit_key(p, "valid_", "", key), m->units);
    if (p->row->accuracy) {
        ech_metrics_real(&json, "valid_accuracy", m->accuracy);
        ech_metrics_real(&json, "valid_accuracy_of_5", m->accuracy_of_5);
    } else {
        ech_metrics_real(&json, "valid_bits_per_byte", m->bits_per_byte);
    }
    ech_metrics_real(&json, "seconds", m->seconds);
    if (m->patience) ech_metrics_int(&json, "valid_waited", m->waited);
    p->valid_seconds = m->seconds;
    add_json(p, &json);
    add_finite(p, note->wall_time, m->step, scalars, p->row->accuracy ? 4 : 2);
    begin_line(p, m->step, text);
    append_loss(m->loss, m->units == 0, "validation ", text);
    append_bits(m->bits_per_byte, text);
    if (p->row->accuracy) append_accuracy(m->accuracy, m->accuracy_of_5, text);
    ech_text_append(text, " | %s %ss | %.1f s", ech_count_text(m->units, count), p->row->unit,
                    m->seconds);
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
    char count[ECH_COUNT_BYTES], key[KEY_BYTES];
    ech_metrics_int(&json, "step", m->step);
    ech_metrics_text(&json, "evaluation", m->name);
    ech_metrics_real(&json, "evaluation_loss", m->removed ? (double)NAN : m->loss);
    ech_metrics_int(&json, unit_key(p, "evaluation_", "", key), m->units);
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
    add_json(p, &json);
    begin_line(p, m->step, text);
    if (m->removed) {
        ech_text_append(text,
                        "%s was removed before an evaluator got to it; a higher checkpoint.keep, "
                        "or more parallel.evaluators, would keep up",
                        m->name);
        return;
    }
    add_finite(p, note->wall_time, m->step, scalars, p->row->accuracy ? 4 : 2);
    append_loss(m->loss, m->units == 0, "evaluation ", text);
    append_bits(m->bits_per_byte, text);
    if (p->row->accuracy) append_accuracy(m->accuracy, m->accuracy_of_5, text);
    ech_text_append(text, " | %s %ss | %.1f s", ech_count_text(m->units, count), p->row->unit,
                    m->seconds);
}

static void write_histogram(ech_progress *p, const ech_note *note)
{
    const ech_histogram *m = &note->histogram;
    ech_text json = {0}, event = {0};
    ech_metrics_int(&json, "step", m->step);
    ech_histogram_json(m, &json);
    add_json(p, &json);
    if (p->events) ech_histogram_event(note->wall_time, m, &event);
    if (p->events) add(p->events, &event);
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
    add_json(p, &json);
    ech_text_append(&whole, "%s%s", m->prompt, m->text);
    append_code(whole.at, &code);
    ech_text_append(&tag, "samples/%d", m->index);
    if (p->events) ech_event_text(note->wall_time, m->step, tag.at, code.at, &event);
    if (p->events) add(p->events, &event);
    begin_line(p, m->step, text);
    size_t n = strlen(whole.at), some = n < SHOWN ? n : ech_utf8_valid(whole.at, SHOWN);
    ech_visible_append(&shown, whole.at, some, false, true);
    ech_text_append(text, "sample: %s%s", shown.at ? shown.at : "", some < n ? " ..." : "");
    free(m->prompt);
    free(m->text);
}

static void write_checkpoint(ech_progress *p, const ech_checkpoint_metrics *m, ech_text *text)
{
    ech_text json = {0};
    char size[32];
    ech_metrics_int(&json, "step", m->step);
    ech_metrics_text(&json, "checkpoint", m->name);
    ech_metrics_int(&json, "bytes", m->bytes);
    ech_metrics_real(&json, "seconds", m->seconds);
    ech_metrics_real(&json, "stall_seconds", m->stall_seconds);
    ech_metrics_real(&json, "waited_seconds", m->waited_seconds);
    add_json(p, &json);
    begin_line(p, m->step, text);
    ech_text_append(text, "saved %s | %s | %.1f s", m->name,
                    ech_text_from_bytes(m->bytes, size, sizeof size), m->seconds);
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
    add_json(p, &json);
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
    add(p->serves, &lines);
    free(served->serve);
}

/* The ech_record_writer_setup.write. */
static void write_note(void *progress, void *record)
{
    ech_progress *p = progress;
    const ech_note *note = record;
    ECH_FREED_TEXT text = {0};
    switch (note->kind) {
    case ECH_NOTE_STEP:
        write_step_note(p, note);
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

/* ---- the start ---- */

static void write_start(ech_progress *p, const ech_progress_setup *setup)
{
    ech_text json = {0};
    ech_metrics_int(&json, "step", setup->first_step);
    ech_metrics_int(&json, "start", p->start);
    ech_metrics_int(&json, "time", (int64_t)time(NULL));
    ech_metrics_int(&json, "ranks", setup->ranks);
    ech_metrics_text(&json, "layout", setup->layout ? setup->layout : "");
    add_json(p, &json);
}

static ech_status open_events(ech_progress *p, const ech_progress_setup *setup)
{
    const int64_t step = setup->first_step;
    ECH_FREED_TEXT words = {0}, yaml = {0};
    ech_text events = {0};
    ECH_TRY(ech_event_file_open(setup->directory, step, p->start, &p->events));
    ech_text_append(&words, "start %" PRId64 " after step %" PRId64 ", on %d rank%s", p->start,
                    step, setup->ranks, setup->ranks == 1 ? "" : "s");
    if (setup->layout && setup->layout[0]) ech_text_append(&words, ": %s", setup->layout);
    ech_event_text(ech_clock_wall(), step, "start", words.at, &events);
    append_code(setup->run_yaml ? setup->run_yaml : "", &yaml);
    if (yaml.n) ech_event_text(ech_clock_wall(), step, "run file", yaml.at, &events);
    add(p->events, &events);
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
                                            .write = write_note,
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
