/* SPDX-License-Identifier: Apache-2.0
 *
 * A training step: its line of metrics.jsonl, its events, the status line, and loss spikes.
 */
#include "app/train/progress_notes.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/resource.h>

#include "app/count.h"
#include "app/metrics.h"

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

/* Whether the count of units says no more than the count of samples. */
static bool counts_samples(const ech_progress *p)
{
    return strcmp(p->row->unit, "sample") == 0;
}

/* spike: 0: the loss is none. */
static void write_step(ech_progress *p, const ech_note *note, double spike)
{
    const ech_step_metrics *m = &note->step;
    char key[ECH_UNIT_KEY_BYTES];
    ech_text json = {0};
    ech_metrics_int(&json, "step", m->step);
    ech_metrics_real(&json, "loss", m->loss);
    ech_metrics_real(&json, "learning_rate", m->learning_rate);
    ech_metrics_real(&json, "grad_norm", m->grad_norm);
    if (!counts_samples(p)) ech_metrics_int(&json, ech_progress_unit_key(p, "", "", key), m->units);
    ech_metrics_int(&json, "samples", m->samples);
    ech_metrics_real(&json, "step_seconds", m->step_seconds);
    ech_metrics_real(&json, "time", round(note->wall_time * 1e3) / 1e3);
    ech_metrics_real(&json, ech_progress_unit_key(p, "", "_per_second", key), m->units_per_second);
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
    ech_progress_add_json(p, &json);
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
    char speed[ECH_UNIT_KEY_BYTES], seen[ECH_UNIT_KEY_BYTES];
    const ech_event_scalar scalars[] = {
        {"loss/train", m->loss},
        {"optimizer/learning_rate", m->learning_rate},
        {"optimizer/grad_norm", m->grad_norm},
        {ech_progress_unit_key(p, "speed/", "_per_second", speed), m->units_per_second},
        {"speed/tflops", m->flops_per_second / 1e12},
        {"speed/mfu_percent", 100 * mfu(p, m)},
        {"speed/step_seconds", m->step_seconds},
        {"memory/arena_gib", (double)m->peak_bytes / gib},
        {"memory/host_arena_gib", (double)m->host_bytes / gib},
        {"memory/process_gib", process_bytes() / gib},
        {ech_progress_unit_key(p, "run/", "", seen), (double)m->units},
        {"run/restarts", (double)(p->start - 1)},
        {"run/idle_percent", 100 * m->idle},
    };
    const ech_event_scalar scale = {"optimizer/loss_scale", m->loss_scale};
    const ech_event_scalar staleness = {"optimizer/staleness", m->staleness};
    const ech_event_scalar ranks[] = {{"compression/rank", m->rank},
                                      {"compression/rank_short", m->rank_short}};
    ech_progress_add_scalars(p, note->wall_time, m->step, scalars,
                             sizeof scalars / sizeof *scalars);
    if (m->factored) ech_progress_add_scalars(p, note->wall_time, m->step, ranks, 2);
    if (is_scaled(m)) ech_progress_add_scalars(p, note->wall_time, m->step, &scale, 1);
    if (m->pushes) ech_progress_add_scalars(p, note->wall_time, m->step, &staleness, 1);
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
        ech_progress_add_scalars(p, note->wall_time, note->step.step, scalars,
                                 sizeof scalars / sizeof *scalars);
}

static int64_t whole_number(double value)
{
    return value >= 0 && value < 1e15 ? llround(value) : 0;
}

static void format_step(const ech_progress *p, const ech_step_metrics *m, ech_text *out)
{
    double left = ech_progress_seconds_left(p, m->step, m->step);
    /* The most important comes first: a narrow terminal truncates the end. */
    ech_progress_begin_line(p, m->step, out);
    ech_progress_append_loss(m->loss, isnan(m->loss) && !m->skipped, out);
    ech_text_append(out, " | ETA %s", ECH_SPAN(left));
    if (m->skipped) ech_text_append(out, " | %supdate skipped", m->overflow ? "overflow, " : "");
    if (m->next_scale != m->loss_scale) ech_text_append(out, " | loss scale %.0f", m->next_scale);
    ech_text_append(out, " | norm %.2f | lr %.1e | %s %s/s | %s", m->grad_norm, m->learning_rate,
                    ECH_DIGITS(whole_number(m->units_per_second)),
                    p->row->texts ? "tok" : "samples", ECH_SCALED(m->flops_per_second, "FLOP/s"));
    if (isfinite(mfu(p, m)))
        ech_text_append(out,
                        p->load > 0 ? " (mfu %.0f%%, peak measured at load %.1f)" : " (mfu %.0f%%)",
                        100 * mfu(p, m), p->load);
    if (m->pushes) ech_text_append(out, " | staleness %.1f", m->staleness);
    if (m->factored) ech_text_append(out, " | rank %.1f", m->rank);
}

void ech_progress_write_step(ech_progress *p, const ech_note *note)
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
    due = due || m->next_scale != m->loss_scale; /* no such step goes unsaid */
    if (due || p->line.columns) format_step(p, m, &text);
    if (p->line.columns) ech_terminal_line_draw(&p->line, text.at, last);
    if (last) ech_terminal_line_keep(&p->line); /* what follows comes below it */
    if (!p->line.columns && due) ech_terminal_line_say(&p->line, text.at);
    p->any = true;
    if (!begins) return;
    text.n = 0;
    ech_progress_begin_line(p, m->step, &text);
    ech_text_append(&text, "loss spike: %.4f is %.1f times the median of the losses before it",
                    m->loss, spike);
    ech_terminal_line_say(&p->line, text.at);
}
