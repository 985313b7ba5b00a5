/* SPDX-License-Identifier: Apache-2.0
 *
 * The texts of a report: title, facts, and the summary for the terminal.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "app/count.h"
#include "app/report/html.h"
#include "app/report/parts.h"

/* ---- facts ---- */

/* A fact whose value is to be appended. Facts without one are left out. The text moves with the
 * next fact. */
static ech_text *add_fact(ech_report *report, const char *key)
{
    ECH_PUSH(report->page.facts, (ech_report_fact){.key = key});
    return &report->page.facts.at[report->page.facts.n - 1].value;
}

#define ADD_FACT(report, key, ...) ech_text_append(add_fact((report), (key)), __VA_ARGS__)

static void make_title(ech_report *report)
{
    const ech_layout *layout = report->design.layout;
    ech_text *title = &report->title;
    ech_text_append(title, "%s on %s", report->design.model->family->name,
                    ECH_COUNT(layout->world, "rank"));
    if (layout->world > 1) {
        ech_text_append(title, ": ");
        ech_print_axes(&report->design, title);
    }
    if (layout->stages > 1) ech_text_append(title, ", %s", report->config->parallel.schedule);
    report->page.title = title->at;
}

static void add_model_facts(ech_report *report)
{
    const ech_config *config = report->config;
    const ech_layout *layout = report->design.layout;
    const ech_model *model = report->design.model;
    int turns = report->design.schedule->turns;
    ech_text *described = add_fact(report, "model");
    ech_text_append(described, "%s, %s", model->family->name,
                    ECH_COUNT((int64_t)model->block.n - 2, "layer"));
    if (ech_family_reads(config, "model.hidden_size"))
        ech_text_append(described, ", width %" PRId64, config->model.hidden_size);
    ADD_FACT(report, "parameters", "%s", ECH_DIGITS(ech_model_params(model)));
    ech_print_axes(&report->design, add_fact(report, "layout"));
    ech_text *schedule = add_fact(report, "schedule");
    ech_text_append(schedule, "%s", config->parallel.schedule);
    if (turns > 1) ech_text_append(schedule, ", drained every %d steps", turns);
    ADD_FACT(report, "ranks", "%d of %s", layout->world,
             ECH_COUNT(config->parallel.threads, "thread"));
    ADD_FACT(report, "compute type", "%s", ech_config_name(config, "precision.compute"));
    ADD_FACT(report, "comm", "%s", ech_config_name(config, "parallel.comm"));
    ADD_FACT(report, "batch", "%s a step, as %s of %s",
             ECH_COUNT(config->training.global_batch_size, "sample"),
             ECH_COUNT(layout->micro_batches, "micro-batch"),
             ECH_COUNT(layout->micro_batch, "sample"));
    if (ech_model_reads_texts(config))
        ADD_FACT(report, "sequence length", "%" PRId64 " tokens", config->data.sequence_length);
}

/* What it was trained on, and how. */
static void add_training_facts(ech_report *report)
{
    const ech_config *config = report->config;
    ADD_FACT(report, "data", "%s", config->data.train);
    ADD_FACT(report, "shares for training, validation, test", "%s", config->data.split);
    ADD_FACT(report, "validation data", "%s", config->data.valid);
    ADD_FACT(report, "tokenizer", "%s",
             config->data.tokenizer[0] ? config->data.tokenizer : "none is known");
    ech_text *optimizer = add_fact(report, "optimizer");
    ech_text_append(optimizer, "%s, ", ech_config_name(config, "optimizer.name"));
    if (config->optimizer.relative_step == 1)
        ech_text_append(optimizer, "relative steps");
    else
        ech_text_append(optimizer, "learning rate %g, %s", config->optimizer.learning_rate,
                        ech_config_name(config, "optimizer.schedule"));
    if (config->optimizer.warmup_steps > 0)
        ech_text_append(optimizer, ", %s of warm-up",
                        ECH_COUNT(config->optimizer.warmup_steps, "step"));
    if (config->optimizer.weight_decay > 0)
        ech_text_append(optimizer, ", weight decay %g", config->optimizer.weight_decay);
    if (config->optimizer.clip_norm > 0)
        ech_text_append(optimizer, ", clipped at %g", config->optimizer.clip_norm);
    ADD_FACT(report, "run file", "%s/run.yaml", report->directory);
}

static double median_of(const ech_report_points *points)
{
    ech_numbers numbers = {0};
    for (size_t i = 0; i < points->n; i++)
        if (isfinite(points->at[i].value)) ECH_PUSH(numbers, points->at[i].value);
    double median = ech_median(&numbers);
    free(numbers.at);
    return median;
}

static void add_loss(ech_report *report, const char *key, const ech_report_points *points)
{
    double last = points->n ? points->at[points->n - 1].value : 0;
    if (points->n) ADD_FACT(report, key, isfinite(last) ? "%.4f" : "not finite", last);
}

/* "2026-11-29 08:33:29 UTC". */
static void add_date(ech_report *report, const char *key, double seconds)
{
    char text[40];
    time_t whole = (time_t)seconds;
    struct tm parts;
    if (!(seconds > 0 && seconds < 1e11) || !gmtime_r(&whole, &parts)) return;
    strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts);
    ADD_FACT(report, key, "%s", text);
}

/* Pauses between starts count as wall time, but not as training. */
static void add_time_facts(ech_report *report)
{
    const ech_metrics_series *m = &report->metrics;
    const ech_timeline clock = {.seconds = true};
    double training = 0;
    for (size_t i = 0; i < m->step_seconds.n; i++)
        if (m->step_seconds.at[i].value > 0) training += m->step_seconds.at[i].value;
    if (m->time.n) {
        double first = m->time.at[0].value, last = m->time.at[m->time.n - 1].value;
        double began = first - (m->step_seconds.n ? m->step_seconds.at[0].value : 0);
        add_date(report, "first step", began);
        add_date(report, "last step", last);
        if (last >= began && last - began < 1e11)
            ADD_FACT(report, "wall time", "%s", ECH_SPAN(last - began));
    }
    if (training > 0) ech_timeline_time(&clock, training, add_fact(report, "time in steps"));
}

static void add_metric_facts(ech_report *report)
{
    const ech_metrics_series *metrics = &report->metrics;
    const ech_timeline clock = {.seconds = true};
    double units = median_of(&metrics->units_per_second);
    double seconds = median_of(&metrics->step_seconds);
    size_t validations = metrics->valid_loss.n;
    add_loss(report, "last loss", &metrics->loss);
    add_loss(report, "last validation loss", &metrics->valid_loss);
    double perplexity = validations ? exp(metrics->valid_loss.at[validations - 1].value) : INFINITY;
    if (ech_report_is_drawn(perplexity))
        ADD_FACT(report, "last validation perplexity", "%.*f", perplexity < 1e4 ? 2 : 0,
                 perplexity);
    if (metrics->steps)
        ADD_FACT(report, "steps done", "%" PRId64 " of %" PRId64, metrics->steps,
                 report->config->training.steps);
    if (metrics->restarts.n) ADD_FACT(report, "restarts", "%zu", metrics->restarts.n);
    if (units > 0 && units < 1e15)
        ADD_FACT(report,
                 ech_model_reads_texts(report->config) ? "tokens per second (median)"
                                                       : "samples per second (median)",
                 "%s", ECH_DIGITS(llround(units)));
    if (seconds > 0) ech_timeline_time(&clock, seconds, add_fact(report, "step time (median)"));
}

/* Which training steps the measured timeline shows. */
static void append_measured_steps(const ech_report *report, ech_text *out)
{
    int turns = report->design.schedule->turns;
    const ech_recording *recording = &report->recording;
    int64_t first = recording->rank[0].first_step + (int64_t)(recording->lists - 1) * turns +
                    1; /* people count from 1 */
    if (turns == 1)
        ech_text_append(out, "step %" PRId64, first);
    else
        ech_text_append(out, "steps %" PRId64 " to %" PRId64, first, first + turns - 1);
}

static void add_bubble_facts(ech_report *report)
{
    const ech_timeline *predicted = report->page.predicted, *measured = report->page.measured;
    int turns = report->design.schedule->turns;
    if (predicted) {
        ADD_FACT(report, "bubble predicted", "%.1f %%", 100 * predicted->bubble);
        ech_timeline_collectives(predicted, turns, add_fact(report, "collectives predicted"));
        ADD_FACT(report, "predicted from", "%s", report->basis);
    }
    if (measured) {
        ADD_FACT(report, "bubble measured", "%.1f %%", 100 * measured->bubble);
        ech_timeline_collectives(measured, turns, add_fact(report, "collectives measured"));
        append_measured_steps(report, add_fact(report, "measured timeline"));
    }
}

/* The ranks that need most. */
static void add_memory_fact(ech_report *report)
{
    const ech_plan *most = report->plans.alike.at[0].plan, *host = most;
    for (size_t c = 1; c < report->plans.alike.n; c++) {
        const ech_plan *plan = report->plans.alike.at[c].plan;
        if (plan->arena_bytes[ECH_SPACE_HOST] > host->arena_bytes[ECH_SPACE_HOST]) host = plan;
        if (plan->arena_bytes[ECH_SPACE_DEVICE] > most->arena_bytes[ECH_SPACE_DEVICE]) most = plan;
    }
    ADD_FACT(report, "peak memory", "%s (rank %d)", ECH_BYTES(most->arena_bytes[ECH_SPACE_DEVICE]),
             most->rank);
    ADD_FACT(report, "host memory", "%s (rank %d)", ECH_BYTES(host->arena_bytes[ECH_SPACE_HOST]),
             host->rank);
}

void ech_report_add_facts(ech_report *report)
{
    make_title(report);
    add_metric_facts(report);
    add_time_facts(report);
    add_model_facts(report);
    add_training_facts(report);
    add_bubble_facts(report);
    add_memory_fact(report);
}

/* ---- the terminal ---- */

void ech_report_print_bubble(const ech_report *report, ech_text *out)
{
    enum { BUBBLE, STEP, COLLECTIVES, LINES };
    static const char *const titles[] = {"bubble:", "step:", "collectives:"};
    static const char *const words[] = {"predicted", "measured"};
    const ech_timeline *const timelines[] = {report->page.predicted, report->page.measured};
    int turns = report->design.schedule->turns;
    for (int line = 0; line < LINES; line++) {
        const char *before = titles[line];
        for (int i = 0; i < 2; i++) {
            const ech_timeline *timeline = timelines[i];
            ECH_FREED_TEXT text = {0};
            if (timeline && line == BUBBLE)
                ech_text_append(&text, "%.1f %%", 100 * timeline->bubble);
            else if (timeline && line == STEP)
                ech_timeline_time(timeline, timeline->end / turns, &text);
            else if (timeline)
                ech_timeline_collectives(timeline, turns, &text);
            if (!text.n) continue;
            ech_text_append(out, "%s %s %s", before, words[i], text.at);
            before = ",";
        }
        if (*before == ',') ech_text_append(out, "\n");
    }
    if (report->page.predicted) ech_text_append(out, "predicted from %s\n", report->basis);
}
