/* SPDX-License-Identifier: Apache-2.0
 *
 * Failures of a planned run: the checkpoint's size and time, the best interval, and goodput.
 */
#include "app/advice/advice.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "app/count.h"
#include "draw/chart.h"
#include "schedule/states.h"

enum { SEED = 45 };
static const double hour = 3600, day = 86400;

ech_status ech_advice_check(const ech_advice_options *options, const ech_cluster *cluster,
                            const char *path)
{
    if (options->emit_for) ECH_TRY(ech_emit_check(options->emit_for));
    if (!(options->mtbf_hours > 0)) return ECH_OK;
    if (!cluster) ECH_FAIL(ECH_EUSAGE, "--mtbf: needs the speeds of a cluster; add --cluster FILE");
    if (!(cluster->storage_bandwidth > 0))
        ECH_FAIL(ECH_EUSAGE,
                 "%s: storage.bandwidth: not set; --mtbf needs the bytes per second that all "
                 "ranks together write",
                 path);
    return ECH_OK;
}

/* Bytes of model/ and state/: every parameter and optimizer state once, whatever the layout. */
static double checkpoint_bytes(const ech_plan *plan, const ech_config *config)
{
    double bytes = 0;
    ech_dtype saved = config->checkpoint.dtype == ECH_SAVED_FP32   ? ECH_F32
                      : config->checkpoint.dtype == ECH_SAVED_BF16 ? ECH_BF16
                                                                   : plan->types.compute;
    for (int i = 0; i < (int)plan->model->param.n; i++) {
        const ech_param *param = &plan->model->param.at[i];
        const ech_plan_param *p = &plan->param[i];
        double elements = (double)ech_shape_whole(&param->shape);
        ech_dtype in_file = ech_saved_weight_dtype(param, saved);
        int master = p->first_state + p->master;
        ech_dtype stored = p->master < 0 ? ech_plan_param_dtype(plan, i)
                                         : ech_plan_state_dtype(plan, &plan->state.at[master].is);
        bytes += elements * (double)ech_dtype_bytes(in_file);
        if (in_file != stored) bytes += elements * (double)ech_dtype_bytes(stored);
        for (int s = 0; s < p->states; s++) {
            const ech_state *state = &plan->state.at[p->first_state + s].is;
            if (s != p->master) bytes += (double)ech_plan_state_bytes(plan, state);
        }
    }
    return bytes;
}

/* A checkpoint of the same run on one rank has the same tensors. */
static ech_status find_checkpoint(const ech_design *design, double *bytes)
{
    ech_design alone;
    ECH_CLEANUP(ech_config_destroy_at) ech_config *config = ech_config_copy(design->config);
    ech_config_set_alone(config);
    config->training.global_batch_size = ech_model_least_samples(config);
    config->training.micro_batch_size = config->training.global_batch_size;
    ech_status status = ech_design_create_alone(design, config, &alone);
    if (status == ECH_OK) {
        ech_plan *plan = ech_design_sketch(&alone, 0, true);
        *bytes = checkpoint_bytes(plan, config);
        ech_plan_destroy(plan);
    }
    ech_design_destroy(&alone);
    return status;
}

/* The most bytes that a rank copies when a checkpoint begins; 0: training waits for the whole
 * checkpoint. The run's own plan has no copies if it saves only at the end. */
static int64_t most_snapshot(const ech_design *design)
{
    const ech_layout *layout = design->layout;
    ech_design saving = *design;
    ech_plan *plan = NULL; /* of the stage */
    int64_t most = 0;
    if (design->config->checkpoint.background != 1) return 0;
    ECH_CLEANUP(ech_config_destroy_at) ech_config *config = ech_config_copy(design->config);
    config->checkpoint.every = 1;
    if (config->training.steps < 2) config->training.steps = 2;
    saving.config = config;
    for (int rank = 0; rank < layout->world; rank++) {
        if (rank == 0 || layout->coordinates[rank].stage != layout->coordinates[rank - 1].stage) {
            ech_plan_destroy(plan);
            plan = ech_design_sketch(&saving, rank, true);
        }
        int64_t bytes = ech_plan_snapshot_bytes(plan, rank);
        if (bytes > most) most = bytes;
    }
    ech_plan_destroy(plan);
    return most;
}

static ech_advice_interval measure(const ech_failures *of, double step, double interval)
{
    int64_t steps = (int64_t)fmax(1, round(interval / step));
    return (ech_advice_interval){
        steps, ech_goodput_simulate(of, (double)steps * step, ECH_GOODPUT_FAILURES, SEED)};
}

static ech_status find_failures(const ech_design *design, ech_advice *out)
{
    int64_t snapshot = most_snapshot(design);
    const ech_advice_options *options = &out->options;
    const ech_cluster *cluster = design->cluster;
    ech_advice_failures *f = &out->failures;
    f->ranks = design->world;
    ECH_TRY(find_checkpoint(design, &f->checkpoint_bytes));
    double written = f->checkpoint_bytes / cluster->storage_bandwidth;
    f->of = (ech_failures){.between = options->mtbf_hours * hour / f->ranks,
                           .restart = options->restart_seconds,
                           .repair = options->repair_hours * hour,
                           .stall = snapshot ? (double)snapshot / cluster->device_host : written,
                           .writing = snapshot ? written : 0,
                           .spares = options->spares};
    f->rarely = ech_goodput_spares(&f->of, 1e-3);
    f->best.steps = ech_goodput_best(&f->of, f->step, ECH_GOODPUT_FAILURES, SEED, &f->best.goodput);
    f->young = measure(&f->of, f->step, ech_goodput_young(&f->of));
    f->daly = measure(&f->of, f->step, ech_goodput_daly(&f->of));
    return ECH_OK;
}

ech_status ech_advice_create(const ech_design *design, const ech_advice_options *options,
                             double step, ech_advice *out)
{
    *out = (ech_advice){.options = *options, .failures.step = step};
    if (options->emit_for) ECH_TRY(ech_emit(design, options->emit_for, &out->emitted));
    if (!(options->mtbf_hours > 0)) return ECH_OK;
    if (!(step > 0))
        ECH_FAIL(ECH_EUSAGE, "--mtbf: the lists are too long to simulate, so that the time of a "
                             "step is unknown; use fewer micro-batches or ranks");
    return find_failures(design, out);
}

void ech_advice_free(ech_advice *advice)
{
    ech_emitted_free(&advice->emitted);
    *advice = (ech_advice){0};
}

/* ---- what is said about it ---- */

static void print_part(double part, const char *what, ech_text *out)
{
    if (part >= 5e-5) ech_text_append(out, "            %6.2f %%  %s\n", 100 * part, what);
}

static void print_failures(const ech_advice *advice, double days, ech_text *out)
{
    const ech_advice_failures *f = &advice->failures;
    const ech_goodput *g = &f->best.goodput;
    ech_text_append(out,
                    "failures    of %s, %.3g a day; a checkpoint of %s stops training for "
                    "%.3g s",
                    ECH_COUNT(f->ranks, "rank"), g->failures * day,
                    ECH_BYTES((int64_t)f->checkpoint_bytes), f->of.stall);
    if (f->of.writing > 0) ech_text_append(out, ", and is complete %.3g s later", f->of.writing);
    ech_text_append(out, "\n            %6.2f %%  goodput with checkpoint.every=%lld (%s)",
                    100 * g->useful, (long long)f->best.steps,
                    ECH_SPAN((double)f->best.steps * f->step));
    if (g->useful > 0) ech_text_append(out, ": %.3g days instead of %.3g", days / g->useful, days);
    ech_text_append(out, "\n");
    print_part(g->saving, "training that waits for checkpoints", out);
    print_part(g->lost, "steps that are repeated", out);
    print_part(g->restarting, "restarts", out);
    print_part(g->waiting, "waiting for repair", out);
    ech_text_append(out,
                    "            Young: every %lld steps, %.2f %%; Daly: every %lld steps, "
                    "%.2f %%\n",
                    (long long)f->young.steps, 100 * f->young.goodput.useful,
                    (long long)f->daly.steps, 100 * f->daly.goodput.useful);
    if (f->of.spares < f->rarely)
        ech_text_append(out, "            with --spares %d one failure in 1,000 waits for repair\n",
                        f->rarely);
}

void ech_advice_text(const ech_advice *advice, double days, ech_text *out)
{
    if (advice->options.mtbf_hours > 0) print_failures(advice, days, out);
    if (advice->options.emit_for) ech_emitted_text(&advice->emitted, out);
}

static json_t *interval_json(const ech_advice_interval *interval, double step)
{
    const ech_goodput *g = &interval->goodput;
    return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "steps", (json_int_t)interval->steps,
                     "seconds", (double)interval->steps * step, "goodput", g->useful, "saving",
                     g->saving, "lost", g->lost, "restarting", g->restarting, "waiting",
                     g->waiting);
}

static json_t *failures_json(const ech_advice *advice, double days)
{
    const ech_advice_failures *f = &advice->failures;
    const ech_advice_options *o = &advice->options;
    const ech_goodput *g = &f->best.goodput;
    json_t *out = json_pack(
        "{s:f, s:f, s:f, s:i, s:f, s:f, s:f, s:f, s:o, s:o, s:o, s:i}", "mtbf_hours", o->mtbf_hours,
        "restart_seconds", o->restart_seconds, "repair_hours", o->repair_hours, "spares", o->spares,
        "checkpoint_bytes", f->checkpoint_bytes, "stall_seconds", f->of.stall, "writing_seconds",
        f->of.writing, "failures_per_day", g->failures * day, "best",
        interval_json(&f->best, f->step), "young", interval_json(&f->young, f->step), "daly",
        interval_json(&f->daly, f->step), "enough_spares", f->rarely);
    if (g->useful > 0) json_object_set_new(out, "days", json_real(days / g->useful));
    return out;
}

void ech_advice_json(const ech_advice *advice, double days, json_t *out)
{
    if (advice->options.mtbf_hours > 0)
        json_object_set_new(out, "failures", failures_json(advice, days));
    if (advice->options.emit_for)
        json_object_set_new(out, "emitted", ech_emitted_json(&advice->emitted));
}

/* ---- the figure ---- */

enum { POINTS = 7, SIMULATED = 20000 };

/* The goodput of `ranks` ranks with the best interval. */
static double goodput_of(const ech_advice_failures *f, double ranks, bool waits, bool spared)
{
    ech_goodput g;
    ech_failures of = f->of;
    of.between *= f->ranks / ranks;
    if (!waits) of.repair = 0;
    if (!spared) of.spares = 0;
    ech_goodput_best(&of, f->step, SIMULATED, SEED, &g);
    return g.useful;
}

ech_status ech_advice_svg(const ech_advice *advice, ech_text *out)
{
    const ech_advice_failures *f = &advice->failures;
    double value[3][POINTS];
    char name[POINTS][ECH_COUNT_BYTES], spares[64];
    const char *names[POINTS];
    if (!(advice->options.mtbf_hours > 0))
        ECH_FAIL(ECH_EUSAGE, "goodput is not known: the plan was made without --mtbf");
    int before = 0; /* points of fewer ranks; the first has one or more */
    while (before < POINTS / 2 && f->ranks >> (before + 1) >= 1) before++;
    for (int p = 0; p < POINTS; p++) {
        double ranks = floor(f->ranks * pow(2, p - before));
        names[p] = ech_count_text((int64_t)ranks, name[p]);
        value[0][p] = goodput_of(f, ranks, false, true);
        value[1][p] = goodput_of(f, ranks, true, true);
        value[2][p] = goodput_of(f, ranks, true, false);
    }
    ECH_FREED_TEXT about = {0};
    ech_text_append(&about,
                    "a rank fails every %.4g h; restart %.4g s, repair %.4g h; checkpoints "
                    "of %s",
                    advice->options.mtbf_hours, f->of.restart, advice->options.repair_hours,
                    ECH_BYTES((int64_t)f->checkpoint_bytes));
    snprintf(spares, sizeof spares, "%s", ECH_COUNT(f->of.spares, "spare machine"));
    ech_chart chart = {.title = "Goodput against ranks",
                       .subtitle = about.at,
                       .axis = "ranks",
                       .points = POINTS,
                       .point = names,
                       .marked = before,
                       .n = 3,
                       .series = {{"no wait for repair", value[0]},
                                  {spares, value[1]},
                                  {"no spare machine", value[2]}}};
    if (f->of.spares == 0) chart.n = 2;
    ech_chart_svg(&chart, out);
    return ECH_OK;
}
