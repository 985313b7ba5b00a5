/* SPDX-License-Identifier: Apache-2.0
 *
 * The texts of a report: title, facts, and the summary for the terminal.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "app/count.h"
#include "app/plan/axes_text.h"
#include "app/report/html.h"
#include "app/report/parts.h"

static const char *plural(int64_t n)
{
    return n == 1 ? "" : "s";
}

static const char *make_title(const ech_report *report)
{
    const ech_layout *layout = report->design.layout;
    ECH_FREED_TEXT text = {0};
    ech_text_append(&text, "%s on %d rank%s", report->design.model->family->name, layout->world,
                    plural(layout->world));
    if (layout->world > 1) {
        ech_text_append(&text, ": ");
        ech_print_axes(&report->design, &text);
    }
    if (layout->stages > 1) ech_text_append(&text, ", %s", report->config->parallel.schedule);
    const char *title = ech_pool_format(report->pool, "%s", text.at);
    return title;
}

/* ---- facts ---- */

/* Takes the text. */
static void add_fact(ech_report *report, const char *key, ech_text *value)
{
    if (value->n) {
        const char *text = ech_pool_format(report->pool, "%s", value->at);
        ECH_PUSH(report->page.facts, (ech_report_fact){.key = key, .value = text});
    }
    ech_text_free(value);
}

#define ADD_FACT(report, key, ...)                                                                 \
    do {                                                                                           \
        ech_text value_ = {0};                                                                     \
        ech_text_append(&value_, __VA_ARGS__);                                                     \
        add_fact(report, key, &value_);                                                            \
    } while (0)

static void add_model_facts(ech_report *report)
{
    const ech_config *config = report->config;
    const ech_layout *layout = report->design.layout;
    char count[ECH_COUNT_BYTES];
    ech_text text = {0};
    ADD_FACT(report, "model", "%s, %" PRId64 " layers, width %" PRId64,
             report->design.model->family->name, report->design.model->layers,
             report->design.model->width);
    ADD_FACT(report, "parameters", "%s",
             ech_count_text(ech_model_params(report->design.model), count));
    ech_print_axes(&report->design, &text);
    add_fact(report, "layout", &text);
    ech_text_append(&text, "%s", config->parallel.schedule);
    if (report->design.schedule->turns > 1)
        ech_text_append(&text, ", drained every %d steps", report->design.schedule->turns);
    add_fact(report, "schedule", &text);
    ADD_FACT(report, "ranks", "%d of %" PRId64 " thread%s", layout->world, config->parallel.threads,
             plural(config->parallel.threads));
    ADD_FACT(report, "compute type", "%s", ech_config_name(config, "precision.compute"));
    ADD_FACT(report, "comm", "%s", ech_config_name(config, "parallel.comm"));
    ADD_FACT(report, "batch",
             "%" PRId64 " sample%s a step, as %" PRId64 " micro-batch%s of %" PRId64 " sample%s",
             config->training.global_batch_size, plural(config->training.global_batch_size),
             layout->micro_batches, layout->micro_batches == 1 ? "" : "es", layout->micro_batch,
             plural(layout->micro_batch));
    ADD_FACT(report, "sequence length", "%" PRId64 " tokens", config->data.sequence_length);
}

static void add_optimizer(ech_report *report)
{
    const ech_config *config = report->config;
    int64_t warmup = config->optimizer.warmup_steps;
    ech_text text = {0};
    ech_text_append(&text, "%s, learning rate %g, %s", ech_config_name(config, "optimizer.name"),
                    config->optimizer.learning_rate, ech_config_name(config, "optimizer.schedule"));
    if (warmup > 0)
        ech_text_append(&text, ", %" PRId64 " step%s of warm-up", warmup, plural(warmup));
    if (config->optimizer.weight_decay > 0)
        ech_text_append(&text, ", weight decay %g", config->optimizer.weight_decay);
    if (config->optimizer.clip_norm > 0)
        ech_text_append(&text, ", clipped at %g", config->optimizer.clip_norm);
    add_fact(report, "optimizer", &text);
}

/* What it was trained on, and how. */
static void add_training_facts(ech_report *report)
{
    const ech_config *config = report->config;
    ADD_FACT(report, "data", "%s", config->data.train);
    if (config->data.split[0])
        ADD_FACT(report, "shares for training, validation, test", "%s", config->data.split);
    ADD_FACT(report, "validation data", "%s", config->data.valid);
    ADD_FACT(report, "tokenizer", "%s",
             config->data.tokenizer[0] ? config->data.tokenizer : "none is known");
    add_optimizer(report);
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

static void append_seconds(double seconds, ech_text *out)
{
    const ech_timeline clock = {.seconds = true};
    ech_timeline_time(&clock, seconds, out);
}

static void add_loss(ech_report *report, const char *key, const ech_report_points *points)
{
    if (!points->n) return;
    const ech_report_point *last = &points->at[points->n - 1];
    if (isfinite(last->value))
        ADD_FACT(report, key, "%.4f", last->value);
    else
        ADD_FACT(report, key, "not finite");
}

static void add_perplexity(ech_report *report, const ech_report_points *losses)
{
    if (!losses->n) return;
    double perplexity = exp(losses->at[losses->n - 1].value);
    if (ech_report_is_drawn(perplexity))
        ADD_FACT(report, "last validation perplexity", "%.*f", perplexity < 1e4 ? 2 : 0,
                 perplexity);
}

static void add_metric_facts(ech_report *report)
{
    const ech_metrics_series *metrics = &report->metrics;
    double tokens = median_of(&metrics->tokens_per_second);
    double seconds = median_of(&metrics->step_seconds);
    char count[ECH_COUNT_BYTES];
    ech_text text = {0};
    if (metrics->steps)
        ADD_FACT(report, "steps done", "%" PRId64 " of %" PRId64, metrics->steps,
                 report->config->training.steps);
    if (metrics->restarts.n) ADD_FACT(report, "restarts", "%zu", metrics->restarts.n);
    add_loss(report, "last loss", &metrics->loss);
    add_loss(report, "last validation loss", &metrics->valid_loss);
    add_perplexity(report, &metrics->valid_loss);
    if (tokens > 0 && tokens < 1e15)
        ADD_FACT(report, "tokens per second (median)", "%s",
                 ech_count_text(llround(tokens), count));
    if (seconds > 0) append_seconds(seconds, &text);
    add_fact(report, "step time (median)", &text);
}

static double step_time(const ech_report *report, const ech_timeline *timeline)
{
    return timeline->end / report->design.schedule->turns;
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

static void add_collectives(ech_report *report, const char *key, const ech_timeline *timeline)
{
    ech_text text = {0};
    ech_timeline_collectives(timeline, report->design.schedule->turns, &text);
    add_fact(report, key, &text);
}

static void add_bubble_facts(ech_report *report)
{
    ech_text text = {0};
    if (report->has_predicted) {
        ADD_FACT(report, "bubble predicted", "%.1f %%", 100 * report->predicted.bubble);
        add_collectives(report, "collectives predicted", &report->predicted);
        ADD_FACT(report, "predicted from", "%s", report->basis);
    }
    if (report->has_measured) {
        ADD_FACT(report, "bubble measured", "%.1f %%", 100 * report->measured.bubble);
        add_collectives(report, "collectives measured", &report->measured);
        append_measured_steps(report, &text);
        add_fact(report, "measured timeline", &text);
    }
}

/* The rank that needs most. */
static void add_memory_fact(ech_report *report)
{
    const ech_plan *most = NULL;
    char need[32];
    for (size_t c = 0; c < report->plans.alike.n; c++) {
        const ech_plan_class *alike = &report->plans.alike.at[c];
        if (!most || alike->plan->arena_bytes > most->arena_bytes) most = alike->plan;
    }
    ADD_FACT(report, "peak memory", "%s (rank %d)",
             ech_text_from_bytes(most->arena_bytes, need, sizeof need), most->rank);
}

void ech_report_add_facts(ech_report *report)
{
    report->page.title = make_title(report);
    add_model_facts(report);
    add_training_facts(report);
    add_metric_facts(report);
    add_bubble_facts(report);
    add_memory_fact(report);
}

/* ---- the terminal ---- */

/* "predicted WORDS, measured WORDS", of those timelines that there are. */
static void print_both(const ech_report *report, const char *title,
                       void (*print)(const ech_report *report, const ech_timeline *timeline,
                                     ech_text *out),
                       ech_text *out)
{
    const ech_timeline *timeline[] = {&report->predicted, &report->measured};
    const bool has[] = {report->has_predicted, report->has_measured};
    const char *const words[] = {"predicted", "measured"};
    size_t from = out->n;
    for (int i = 0; i < 2; i++) {
        ech_text text = {0};
        if (has[i]) print(report, timeline[i], &text);
        if (text.n)
            ech_text_append(out, "%s %s %s", out->n == from ? title : ",", words[i], text.at);
        ech_text_free(&text);
    }
    if (out->n > from) ech_text_append(out, "\n");
}

static void print_bubble(const ech_report *report, const ech_timeline *timeline, ech_text *out)
{
    (void)report;
    ech_text_append(out, "%.1f %%", 100 * timeline->bubble);
}

static void print_step(const ech_report *report, const ech_timeline *timeline, ech_text *out)
{
    ech_timeline_time(timeline, step_time(report, timeline), out);
}

static void print_collectives(const ech_report *report, const ech_timeline *timeline, ech_text *out)
{
    ech_timeline_collectives(timeline, report->design.schedule->turns, out);
}

void ech_report_print_bubble(const ech_report *report, ech_text *out)
{
    print_both(report, "bubble:", print_bubble, out);
    print_both(report, "step:", print_step, out);
    print_both(report, "collectives:", print_collectives, out);
    if (report->has_predicted) ech_text_append(out, "predicted from %s\n", report->basis);
}
