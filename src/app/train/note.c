/* SPDX-License-Identifier: Apache-2.0
 *
 * Notes as lines of metrics.jsonl, TensorBoard's events and log lines.
 */
#include "app/train/note.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "app/count.h"
#include "app/metrics.h"

/* ---- medians, since a mean would follow the first spike ---- */

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

void ech_pages_add(ech_pages *pages, ech_text *json)
{
    ech_text_append(json, "}\n");
    ech_journal_add(pages->metrics, json->at, json->n);
    ech_text_free(json);
}

/* Above 1, the peak was measured while another program used the cores: then mfu is not known. */
static double mfu(const ech_pages *pages, const ech_step_metrics *m)
{
    double share = m->flops_per_second / pages->peak_flops;
    return pages->peak_flops > 0 && share <= 1 ? share : (double)NAN;
}

/* spike: 0: the loss is none. */
static void write_step(ech_pages *pages, const ech_step_metrics *m, double spike)
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
    ech_metrics_real(&json, "mfu", mfu(pages, m));
    ech_metrics_int(&json, "bytes_sent", m->bytes_sent);
    ech_metrics_int(&json, "peak_bytes", m->peak_bytes);
    ech_text_append(&json, ",\"skipped\":%s", m->skipped ? "true" : "false");
    if (spike > 0) ech_metrics_real(&json, "loss_spike", spike);
    ech_pages_add(pages, &json);
}

/* Of this process, at its largest; with ranks that are threads, of all of them. */
static double process_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? 1024.0 * (double)usage.ru_maxrss : (double)NAN;
}

static void show_step(ech_pages *pages, double at, const ech_step_metrics *m)
{
    const double gib = 1 << 30;
    const ech_event_scalar scalars[] = {
        {"loss/train", m->loss},
        {"optimizer/learning_rate", m->learning_rate},
        {"optimizer/grad_norm", m->grad_norm},
        {"speed/tokens_per_second", m->tokens_per_second},
        {"speed/tflops", m->flops_per_second / 1e12},
        {"speed/mfu_percent", 100 * mfu(pages, m)},
        {"speed/step_seconds", m->step_seconds},
        {"memory/arena_gib", (double)m->peak_bytes / gib},
        {"memory/process_gib", process_bytes() / gib},
        {"run/tokens", (double)m->tokens},
        {"run/restarts", (double)(pages->start - 1)},
    };
    if (pages->events)
        ech_events_scalars(pages->events, at, m->step, scalars, sizeof scalars / sizeof *scalars);
}

static int64_t whole_number(double value)
{
    return value >= 0 && value < 1e15 ? llround(value) : 0;
}

static void format_step(const ech_pages *pages, const ech_step_metrics *m, ech_text *out)
{
    char speed[ECH_COUNT_BYTES], flops[ECH_COUNT_BYTES], span[ECH_COUNT_BYTES];
    double left = (double)(pages->steps - m->step) * pages->step_seconds;
    double share = mfu(pages, m);
    /* The most important comes first: a narrow terminal truncates the end. */
    ech_text_append(out, "step %5" PRId64 "/%" PRId64 " | loss %.4f | ETA %s", m->step,
                    pages->steps, m->loss, ech_count_span(left, span));
    if (m->skipped) ech_text_append(out, " | update skipped");
    ech_text_append(out, " | norm %.2f | lr %.1e", m->grad_norm, m->learning_rate);
    ech_text_append(out, " | %s tok/s | %s",
                    ech_count_text(whole_number(m->tokens_per_second), speed),
                    ech_count_scaled(m->flops_per_second, "FLOP/s", flops));
    if (isfinite(share)) ech_text_append(out, " (mfu %.0f%%)", 100 * share);
}

/* Of the last ten steps or so. */
static void smooth(ech_pages *pages, double seconds)
{
    const double share = 0.1;
    if (pages->step_seconds < 0)
        pages->step_seconds = seconds;
    else
        pages->step_seconds += share * (seconds - pages->step_seconds);
}

/* Takes the text. */
static void say(ech_pages *pages, ech_text *text)
{
    ech_status_line_say(&pages->line, text->at);
    ech_text_free(text);
}

static void say_spike(ech_pages *pages, const ech_step_metrics *m, double spike)
{
    ech_text text = {0};
    ech_text_append(&text,
                    "step %5" PRId64 "/%" PRId64 " | loss spike: %.4f is %.1f times the median of "
                    "the losses before it",
                    m->step, pages->steps, m->loss, spike);
    say(pages, &text);
}

static void step_note(ech_pages *pages, double at, const ech_step_metrics *m)
{
    bool begins;
    double spike = ech_spikes_take(&pages->spikes, m->loss, &begins);
    write_step(pages, m, spike);
    show_step(pages, at, m);
    smooth(pages, m->step_seconds);
    bool last = m->step == pages->steps;
    bool due = last || !pages->any || m->step % pages->every == 0;
    ECH_FREED_TEXT text = {0};
    format_step(pages, m, &text);
    if (pages->line.columns)
        ech_status_line_draw(&pages->line, text.at, last);
    else if (due)
        ech_status_line_say(&pages->line, text.at);
    pages->any = true;
    if (begins) say_spike(pages, m, spike);
}

static void validation_note(ech_pages *pages, double at, const ech_validation_metrics *m)
{
    ech_text json = {0}, text = {0};
    char count[ECH_COUNT_BYTES];
    ech_metrics_int(&json, "step", m->step);
    ech_metrics_real(&json, "valid_loss", m->loss);
    ech_metrics_int(&json, "valid_tokens", m->tokens);
    ech_metrics_real(&json, "seconds", m->seconds);
    ech_pages_add(pages, &json);
    const ech_event_scalar scalar = {"loss/validation", m->loss};
    if (pages->events) ech_events_scalars(pages->events, at, m->step, &scalar, 1);
    ech_text_append(&text,
                    "step %5" PRId64 "/%" PRId64 " | validation loss %.4f | %s tokens | %.1f s",
                    m->step, pages->steps, m->loss, ech_count_text(m->tokens, count), m->seconds);
    say(pages, &text);
}

static void format_checkpoint(const ech_pages *pages, const ech_checkpoint_metrics *m,
                              ech_text *out)
{
    char size[32];
    ech_text_append(out, "step %5" PRId64 "/%" PRId64 " | saved %s | %s | %.1f s", m->step,
                    pages->steps, m->name, ech_text_from_bytes(m->bytes, size, sizeof size),
                    m->seconds);
    if (m->stall_seconds < m->seconds)
        ech_text_append(out, ", training stood still for %.2f s", m->stall_seconds);
    if (m->waited_seconds >= 0.01)
        ech_text_append(out, "; waited %.1f s for the checkpoint before", m->waited_seconds);
}

static void checkpoint_note(ech_pages *pages, const ech_checkpoint_metrics *m)
{
    ech_text json = {0}, text = {0};
    ech_metrics_int(&json, "step", m->step);
    ech_metrics_text(&json, "checkpoint", m->name);
    ech_metrics_int(&json, "bytes", m->bytes);
    ech_metrics_real(&json, "seconds", m->seconds);
    ech_metrics_real(&json, "stall_seconds", m->stall_seconds);
    ech_metrics_real(&json, "waited_seconds", m->waited_seconds);
    ech_pages_add(pages, &json);
    format_checkpoint(pages, m, &text);
    say(pages, &text);
}

static void end_note(ech_pages *pages, const ech_end_metrics *m)
{
    ech_text json = {0}, text = {0};
    ech_metrics_int(&json, "step", m->step);
    ech_metrics_int(&json, "skipped_steps", m->skipped_steps);
    ech_metrics_int(&json, "loss_spikes", pages->spikes.count);
    ech_pages_add(pages, &json);
    if (m->skipped_steps)
        ech_text_append(&text, "updates skipped for a NaN or infinity: %" PRId64 " of %" PRId64,
                        m->skipped_steps, m->step);
    if (pages->spikes.count)
        ech_text_append(&text, "%sloss spikes since this start: %" PRId64, text.n ? "; " : "",
                        pages->spikes.count);
    if (text.n) say(pages, &text);
}

void ech_note_write(void *context, void *record)
{
    ech_pages *pages = context;
    ech_note *note = record;
    switch (note->kind) {
    case ECH_NOTE_STEP:
        step_note(pages, note->wall_time, &note->step);
        return;
    case ECH_NOTE_VALIDATION:
        validation_note(pages, note->wall_time, &note->validation);
        return;
    case ECH_NOTE_CHECKPOINT:
        checkpoint_note(pages, &note->checkpoint);
        return;
    case ECH_NOTE_END:
        end_note(pages, &note->end);
        return;
    case ECH_NOTE_LINE:
        ech_status_line_say(&pages->line, note->line);
        free(note->line);
    }
}
