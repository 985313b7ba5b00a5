/* SPDX-License-Identifier: Apache-2.0
 *
 * From a run directory to the page.
 */
#include "app/report/report.h"
#include "schedule/peaks.h"

#include <stdlib.h>
#include <string.h>

#include "app/report/parts.h"
#include "app/setup/run.h"
#include "app/trace/trace.h"
#include "base/file.h"
#include "base/writing.h"

/* ---- timelines: what the simulator predicts, what was recorded ---- */

static const ech_plan *const *plans_of(const ech_report *report)
{
    return (const ech_plan *const *)report->outline;
}

/* Each rank has its own peers, and so its own outline. */
static ech_status add_outlines(ech_report *report)
{
    const ech_plan_report *plans = &report->plans;
    report->outline = ech_calloc((size_t)report->design.world, sizeof *report->outline);
    for (int rank = 0; rank < report->design.world; rank++) {
        ECH_TRY(ech_design_outline(&report->design, rank, false, &report->outline[rank]));
        ech_plan_make_outline(report->outline[rank], plans->alike.at[plans->class_of[rank]].plan);
    }
    return ECH_OK;
}

/* The recording, or a sentence why there is none. */
static ech_status read_recording(ech_report *report)
{
    ECH_FREED_TEXT why = {0};
    ECH_FREED char *folder = ech_file_join(report->directory, "trace");
    if (ech_file_is_folder(folder)) {
        ECH_TRY(add_outlines(report));
        ECH_TRY(ech_recording_read(folder, plans_of(report), report->design.world,
                                   &report->recording, &why));
    } else
        ech_text_append(&why, "no steps were recorded; train with log.trace=true");
    if (why.n) ech_text_append(&report->missing, "no measured timeline: %s\n", why.at);
    return ECH_OK;
}

/* Whether steps have collectives; the run's own times have none of them. */
static bool has_collectives(const ech_report *report)
{
    for (int rank = 0; rank < report->design.world; rank++) {
        const ech_list *list = &report->outline[rank]->list[ECH_LIST_TRAIN];
        for (size_t s = 0; s < list->step.n; s++)
            if (list->step.at[s].lane == ECH_LANE_COLLECTIVE) return true;
    }
    return false;
}

/* With the run's own costs of blocks instead of a profile's. */
static ech_status predict_again(ech_report *report)
{
    ech_simulation simulation;
    ech_profile *own = ech_recording_profile(&report->recording);
    ech_costs costs = ech_costs_of(report->config, own, NULL);
    ech_status status = ech_simulate(plans_of(report), report->recording.ranks, ECH_LIST_TRAIN,
                                     &costs, &simulation);
    if (status == ECH_OK) {
        ech_simulation_timeline(&simulation, plans_of(report), ECH_LIST_TRAIN, &report->predicted);
        ech_timeline_finish(&report->predicted);
        ech_simulation_free(&simulation);
    }
    ech_profile_destroy(own);
    return status;
}

static ech_status predict(ech_report *report)
{
    const ech_layout *layout = report->design.layout;
    if (!report->design.profile && report->recording.ranks) {
        report->basis = has_collectives(report) ? "the run's own block times; collectives free"
                                                : "the run's own block times";
        ECH_TRY(predict_again(report));
    } else {
        report->basis = report->design.profile ? report->config->parallel.profile
                                               : "blocks that cost the same, free messages";
        report->predicted = report->plans.timeline;
        report->plans.timeline = (ech_timeline){0};
    }
    ech_recording_number(layout, &report->predicted);
    report->page.predicted = &report->predicted;
    return ECH_OK;
}

/* Sets the page's timelines, and writes the trace to `path` where there is a measured one. */
static ech_status add_timelines(ech_report *report, const char *path)
{
    const ech_layout *layout = report->design.layout;
    if (!report->plans.checked) {
        ech_text_append(&report->missing,
                        "no timelines: the lists of %d ranks are too long to simulate\n",
                        layout->world);
        return ECH_OK;
    }
    ECH_TRY(read_recording(report));
    ECH_TRY(predict(report));
    if (!report->recording.ranks) return ECH_OK;
    if (!ech_recording_has_one_clock(&report->recording)) {
        ech_text_append(&report->missing,
                        "no measured timeline and no trace.json: the ranks' clocks differ by "
                        "more than was measured at the start; record fewer steps\n");
        return ECH_OK;
    }
    ech_recording_timeline(&report->recording, &report->measured);
    ech_recording_number(layout, &report->measured);
    report->page.measured = &report->measured;
    ECH_FREED char *folder = ech_file_join(report->directory, "trace");
    return ech_trace_merge(folder, report->recording.ranks, path);
}

/* ---- what the run was ---- */

enum { MOST_CONFIG = 1 << 20 }; /* bytes */

/* The resolved run file stands for itself: what it was filled from, weights and tokenizers, may be
 * gone. */
static ech_status read_config(ech_report *report)
{
    ECH_FREED char *path = ech_file_join(report->directory, "run.yaml");
    size_t n;
    if (!ech_file_exists(path))
        ECH_FAIL(ECH_EUSAGE,
                 "%s: does not exist; name a run directory (log.directory of a run file)", path);
    ECH_TRY(ech_file_read(path, MOST_CONFIG, &report->run_file, &n));
    report->page.run_file = report->run_file;
    ECH_TRY(ech_family_map_folder(report->directory));
    ECH_TRY(ech_setup_config_text(report->run_file, path, NULL, 0, &report->config));
    /* Its steps are in the traces; their order is of no use here, and its file may have moved. */
    ech_config_replace_text(&report->config->parallel.serve_log, "");
    return ECH_OK;
}

/* A profile may have stayed where the run was. It serves the prediction alone: the run file says
 * how the model is partitioned. */
static void check_profile(ech_report *report)
{
    char **profile = &report->config->parallel.profile;
    if (!*profile[0] || ech_file_exists(*profile)) return;
    ech_text_append(&report->missing, "no prediction from parallel.profile: %s is not there\n",
                    *profile);
    ech_config_replace_text(profile, "");
}

static ech_status open_design(ech_report *report)
{
    int ranks = 1;
    ECH_TRY(read_config(report));
    check_profile(report);
    ECH_TRY(ech_run_ranks_of(report->config, 0, &ranks));
    ECH_TRY(ech_design_create(report->config, NULL, ranks, ranks, &report->design));
    return ech_plan_report_create(&report->design, &(ech_plan_options){0}, &report->plans);
}

/* ---- charts and memory ---- */

static ech_status read_metrics(ech_report *report)
{
    ECH_FREED char *path = ech_file_join(report->directory, "metrics.jsonl");
    const ech_metrics_series *m = &report->metrics;
    bool texts = ech_model_reads_texts(report->config);
    if (ech_file_exists(path))
        ECH_TRY(ech_metrics_series_read(path, &report->metrics));
    else
        ech_text_append(&report->missing,
                        "no charts: %s is not there; it begins with the first training step\n",
                        path);
    if (m->skipped)
        ech_text_append(&report->missing, "%s: %s left out that cannot be read\n", path,
                        ECH_COUNT(m->skipped, "line"));
    const ech_report_chart charts[] = {
        {"loss", m->loss, m->valid_loss, m->restarts, false},
        {.title = "gradient norm", .training = m->grad_norm, .logarithmic = true},
        {.title = texts ? "tokens per second" : "samples per second",
         .training = m->units_per_second},
        {.title = "learning rate", .training = m->learning_rate}};
    for (size_t i = 0; i < sizeof charts / sizeof *charts; i++)
        ECH_PUSH(report->page.charts, charts[i]);
    report->page.loads = &report->metrics.loads;
    report->page.exponents = &report->metrics.exponents;
    return ECH_OK;
}

/* How much of a rank's device arena each kind has when it is fullest, and what is between values:
 * all of it is the rank's peak. Returns their sum. */
static int64_t count_memory(const ech_report *report, int rank, int64_t bytes[ECH_MEMORY_KINDS + 1])
{
    const ech_plan *plan = report->plans.alike.at[report->plans.class_of[rank]].plan;
    ech_arena_use use = ech_plan_arena_use(plan);
    int64_t sum = 0;
    bytes[ECH_MEMORY_KINDS] = sum = use.between[ECH_SPACE_DEVICE];
    for (int kind = 0; kind < ECH_MEMORY_KINDS; kind++) {
        bool is_here = ech_memory_space((ech_memory_kind)kind) == ECH_SPACE_DEVICE;
        sum += bytes[kind] = is_here ? use.kind[kind] : 0;
    }
    return sum;
}

/* The kinds of memory that some rank has. */
static void add_memory(ech_report *report)
{
    enum { ALL = ECH_MEMORY_KINDS + 1 };
    bool used[ALL] = {false};
    int world = report->design.world, kinds = 0;
    int64_t most = 0, limit = report->config->memory.device_limit;
    int64_t *bytes = ech_pool_alloc(report->pool, (size_t)world * ALL * sizeof *bytes);
    int64_t *to = bytes; /* numbers move ahead over numbers of unused kinds */
    const char **name = ech_pool_alloc(report->pool, ALL * sizeof *name);
    for (int rank = 0; rank < world; rank++) {
        int64_t *row = bytes + (size_t)rank * ALL, sum = count_memory(report, rank, row);
        for (int kind = 0; kind < ALL; kind++) used[kind] |= row[kind] > 0;
        if (sum > most) most = sum;
    }
    for (int kind = 0; kind < ALL; kind++)
        if (used[kind])
            name[kinds++] =
                kind < ECH_MEMORY_KINDS ? ech_memory_name((ech_memory_kind)kind) : "between values";
    for (int i = 0; i < world * ALL; i++)
        if (used[i % ALL]) *to++ = bytes[i];
    /* Beside a limit far away bars would be too small to see. */
    report->page.memory =
        (ech_report_memory){world, kinds, name, bytes, limit / 4 < most ? limit : 0};
}

/* ---- the whole ---- */

ech_status ech_report_open(ech_report *report)
{
    ECH_TRY(open_design(report));
    ECH_TRY(read_metrics(report));
    ech_report_add_facts(report);
    return ECH_OK;
}

static ech_status make(ech_report *report, const char *path, bool in_folder, ech_text *summary)
{
    ECH_FREED char *trace = ech_file_join(report->directory, "trace.json");
    ECH_FREED_TEXT html = {0};
    ECH_TRY(open_design(report));
    ECH_TRY(read_metrics(report));
    ECH_TRY(add_timelines(report, trace));
    add_memory(report);
    ech_report_add_facts(report);
    ech_report_html(&report->page, &html);
    ECH_TRY(in_folder ? ech_file_write_inside(path, html.at, html.n)
                      : ech_file_write(path, html.at, html.n));
    ech_text_append(summary, "written to %s\n", path);
    if (report->page.measured)
        ech_text_append(summary, "recorded steps: %s, for ui.perfetto.dev\n", trace);
    ech_report_print_bubble(report, summary);
    if (report->missing.n) ech_text_append(summary, "%s", report->missing.at);
    return ECH_OK;
}

void ech_report_release(ech_report *report)
{
    for (size_t i = 0; i < report->page.facts.n; i++)
        ech_text_free(&report->page.facts.at[i].value);
    free(report->page.facts.at);
    free(report->page.charts.at);
    free(report->run_file);
    ech_text_free(&report->title);
    ech_text_free(&report->missing);
    ech_timeline_free(&report->predicted);
    ech_timeline_free(&report->measured);
    ech_recording_free(&report->recording);
    ech_metrics_series_free(&report->metrics);
    for (int rank = 0; rank < report->design.world && report->outline; rank++)
        ech_plan_destroy(report->outline[rank]);
    free(report->outline);
    ech_plan_report_destroy(&report->plans);
    ech_design_destroy(&report->design);
    ech_config_destroy(report->config);
    ech_pool_destroy(report->pool);
}

ech_status ech_report_run(const char *directory, const char *out, ech_text *summary)
{
    ECH_CLEANUP(ech_report_release)
    ech_report report = {.directory = directory, .pool = ech_pool_create()};
    ECH_FREED char *path = out ? ech_strdup(out) : ech_file_join(directory, "report.html");
    return make(&report, path, !out, summary);
}
