/* SPDX-License-Identifier: Apache-2.0
 *
 * What a plan for a cluster says: the time of a step and its interval, rates, what training costs,
 * and where the time goes.
 */
#include <math.h>

#include "app/count.h"
#include "app/plan/report.h"

static const double day = 86400;

/* FLOPs of products that all ranks execute in a step, recomputation included; 0: unknown. */
static double executed_flops(const ech_plan_report *report)
{
    const ech_layout *layout = report->design->layout;
    double flops = 0;
    if (layout->sums == ECH_SUMS_SERVERS) return 0; /* lists have more turns than are run */
    for (int c = 0; c < layout->classes.n; c++) {
        const ech_plan *plan = report->listed[c];
        const ech_list *list = &plan->list[ECH_LIST_TRAIN];
        double of_rank = 0;
        for (size_t s = 0; s < list->step.n; s++) {
            const ech_step *step = &list->step.at[s];
            if (ech_step_kind_phase(step->kind) < 0) continue;
            const ech_block *block = plan->model->block.at[step->block];
            for (int i = step->first_call; i < step->first_call + step->calls; i++)
                of_rank += 2 * ech_call_multiplies(block, &block->program[step->phase].at[i],
                                                   step->phase, list->extent);
        }
        flops += of_rank * layout->classes.ranks[c];
    }
    return flops / report->design->schedule->turns;
}

ech_plan_forecast ech_plan_forecast_of(const ech_plan_report *report)
{
    const ech_design *design = report->design;
    const ech_simulation *simulation = &report->simulation;
    const ech_layout *layout = design->layout;
    ech_plan_forecast f = {.seconds = simulation->end / design->schedule->turns};
    double tokens =
        (double)design->config->training.global_batch_size * (double)design->sample_units;
    f.low = f.seconds * (1 - design->cluster->step_spread);
    f.high = f.seconds * (1 + design->cluster->step_spread);
    f.tokens_per_second = tokens / f.seconds;
    f.tokens = report->options.tokens > 0 ? report->options.tokens
                                          : tokens * (double)design->config->training.steps;
    f.days = f.tokens / f.tokens_per_second / day;
    f.device_hours = f.days * 24 * layout->world;
    f.model_flops = ech_plan_step_flops(design) / f.seconds / layout->world;
    f.executed_flops = executed_flops(report) / f.seconds / layout->world;
    f.peak = design->cluster->flops[ech_model_types(design->config).compute];
    double all = simulation->end * layout->world;
    for (int rank = 0; rank < layout->world; rank++) {
        int i = ech_layout_plan_of(layout, simulation->plans, rank);
        double waits = 0;
        f.part[ECH_FORECAST_PRODUCTS] += simulation->products[i] / all;
        f.part[ECH_FORECAST_KERNELS] += (simulation->busy[i] - simulation->products[i]) / all;
        f.part[ECH_FORECAST_UPDATES] += simulation->updates[i] / all;
        for (int lane = 0; lane < ECH_LANES; lane++) {
            bool stages = lane == ECH_LANE_RECEIVE || lane == ECH_LANE_SEND;
            int part = stages                        ? ECH_FORECAST_STAGES
                       : lane == ECH_LANE_COLLECTIVE ? ECH_FORECAST_LAYERS
                       : lane == ECH_LANE_REDUCE     ? ECH_FORECAST_SUMS
                       : lane == ECH_LANE_GATHER     ? ECH_FORECAST_GATHERS
                                                     : ECH_FORECAST_REST;
            f.part[part] += simulation->waits[i][lane] / all;
            waits += simulation->waits[i][lane];
        }
        double known = simulation->busy[i] + simulation->updates[i] + waits;
        f.part[ECH_FORECAST_REST] += fmax(0, simulation->end - known) / all;
    }
    return f;
}

double ech_plan_days(const ech_plan_report *report)
{
    if (!report->design->cluster || !report->checked) return 0;
    return ech_plan_forecast_of(report).days;
}

const char *ech_plan_forecast_part(int part)
{
    static const char *const names[ECH_FORECAST_PARTS] = {
        [ECH_FORECAST_PRODUCTS] = "matrix products and attention",
        [ECH_FORECAST_KERNELS] = "other kernels",
        [ECH_FORECAST_UPDATES] = "norms and updates",
        [ECH_FORECAST_LAYERS] = "waiting for collectives within layers",
        [ECH_FORECAST_STAGES] = "waiting for other stages: the bubble and messages",
        [ECH_FORECAST_SUMS] = "waiting for sums of gradients",
        [ECH_FORECAST_GATHERS] = "waiting for weights from their shards",
        [ECH_FORECAST_REST] = "the rest: copies, and ranks that have finished",
    };
    return names[part];
}

static void print_training(const ech_plan_forecast *f, bool texts, ech_text *out)
{
    ech_text_append(out,
                    ECH_PLAN_INDENT "%s: ", ECH_SCALED(f->tokens, texts ? "tokens" : "samples"));
    if (f->days < 2)
        ech_text_append(out, "%s", ECH_SPAN(f->days * day));
    else
        ech_text_append(out, "%.1f days", f->days);
    ech_text_append(out, ", %.3g device hours\n", f->device_hours);
}

static void print_rate(double flops, double peak, const char *what, ech_text *out)
{
    ech_text_append(out, ECH_PLAN_INDENT "%s a rank", ECH_SCALED(flops, "FLOP/s"));
    if (peak > 0) ech_text_append(out, ", %.1f %% of its peak", 100 * flops / peak);
    ech_text_append(out, " (%s)\n", what);
}

void ech_plan_print_forecast(const ech_plan_report *report, ech_text *out)
{
    const ech_cluster *cluster = report->design->cluster;
    if (!cluster || !report->checked) return;
    ech_plan_forecast f = ech_plan_forecast_of(report);
    ech_text_append(out, "cluster     %s: ", cluster->name);
    ech_timeline_time(&report->timeline, f.seconds, out);
    ech_text_append(out, " a step (between ");
    ech_timeline_time(&report->timeline, f.low, out);
    ech_text_append(out, " and ");
    ech_timeline_time(&report->timeline, f.high, out);
    bool texts = ech_model_reads_texts(report->design->config);
    ech_text_append(out, "), %s\n",
                    ECH_SCALED(f.tokens_per_second, texts ? "tokens/s" : "samples/s"));
    print_training(&f, texts, out);
    print_rate(f.model_flops, f.peak, "recomputation not counted", out);
    if (f.executed_flops > 0) print_rate(f.executed_flops, f.peak, "as executed", out);
    for (int part = 0; part < ECH_FORECAST_PARTS; part++)
        if (f.part[part] >= 5e-4)
            ech_text_append(out, ECH_PLAN_INDENT "%5.1f %%  %s\n", 100 * f.part[part],
                            ech_plan_forecast_part(part));
}
