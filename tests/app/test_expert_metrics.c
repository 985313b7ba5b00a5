/* SPDX-License-Identifier: Apache-2.0
 *
 * What gates report, as people see it: by hand from numbers of two layers, as a line of
 * metrics.jsonl, and read back from such lines as the picture of experts x steps.
 */
#include <math.h>
#include <string.h>

#include "app/fixture.h"
#include "app/report/parts.h"
#include "app/train/progress.h"
#include "kernel/kernel.h"
#include "unit.h"

enum { E = 4, LAYERS = 2, OTHER = 3, STEPS = 300 };

/* Layer 0 is in balance, layer 1 has all rows at expert 2; between them is a report of another
 * kind. */
static ech_expert_metrics take(void)
{
    int64_t n = ech_gate_partial(E);
    ech_reported gate = {.kind = ECH_GATE_REPORT, .name = "layer", .numbers = n};
    ech_reported other = {.kind = "another", .name = "layer", .numbers = OTHER};
    ech_block blocks[LAYERS] = {{.index = 0}, {.index = 1}};
    double reports[2 * (2 * E + ECH_GATE_SUMS) + OTHER] = {0};
    double *second = reports + n + OTHER;
    ech_model model = {.reports = 2 * n + OTHER};
    ech_expert_metrics m;
    for (int i = 0; i < OTHER; i++) reports[n + i] = 1e9;
    for (int e = 0; e < E; e++) reports[e] = 10;
    reports[2 * E + ECH_GATE_ENTROPY] = 40 * log(4);
    reports[2 * E + ECH_GATE_ROWS] = second[2 * E + ECH_GATE_ROWS] = 40;
    reports[2 * E + ECH_GATE_GROUPS] = second[2 * E + ECH_GATE_GROUPS] = 8;
    reports[2 * E + ECH_GATE_AUXILIARY] = 8 * 0.01;
    second[2] = 40;
    second[E + 2] = 15;
    second[2 * E + ECH_GATE_UNSENT] = 5;
    second[2 * E + ECH_GATE_AUXILIARY] = 8 * 0.04;
    second[2 * E + ECH_GATE_IMPORTANCE] = 8 * 0.5;
    ECH_PUSH(blocks[0].report, gate);
    ECH_PUSH(blocks[0].report, other);
    ECH_PUSH(blocks[1].report, gate);
    blocks[1].first_report = n + OTHER;
    for (int b = 0; b < LAYERS; b++) ECH_PUSH(model.block, &blocks[b]);
    ech_expert_metrics_take(&model, reports, &m);
    for (int b = 0; b < LAYERS; b++) free(blocks[b].report.at);
    free(model.block.at);
    return m;
}

static bool near(double a, double b)
{
    return fabs(a - b) < 1e-6;
}

TEST(layers_are_put_together)
{
    ech_expert_metrics m = take();
    assert_int_equal(m.experts, E);
    assert_true(near(m.most, 4) && near(m.dropped, 20.0 / 80) && near(m.entropy, log(4) / 2));
    assert_true(near(m.auxiliary, 0.05) && near(m.importance, 0.5) && near(m.load, 0));
    assert_int_equal(m.loads, E);
    assert_true(near((double)m.of[0], 0.5) && near((double)m.of[2], 2.5));
}

/* A model without gates has no key of theirs. */
TEST(models_without_experts_show_none)
{
    ech_model model = {0};
    ech_expert_metrics m;
    ech_text json = {0};
    ech_expert_metrics_take(&model, NULL, &m);
    ech_expert_metrics_json(&m, &json);
    assert_int_equal(json.n, 0);
}

TEST(lines_are_read_back_and_drawn)
{
    char folder[300], path[330];
    ech_progress *progress;
    snprintf(folder, sizeof folder, "%s/experts", fixture_folder);
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    const ech_progress_setup setup = {
        .directory = folder, .steps = STEPS, .every = STEPS, .ranks = 1, .tensorboard = true};
    assert_int_equal(ech_progress_create(&setup, &progress), ECH_OK);
    for (int64_t s = 1; s <= STEPS; s++) {
        ech_note note = {.kind = ECH_NOTE_STEP,
                         .step = {.step = s, .loss = 1, .step_seconds = 1, .experts = take()}};
        ech_progress_submit(progress, &note);
    }
    ech_progress_destroy(progress);
    ech_metrics_series series;
    ech_text svg = {0};
    assert_int_equal(ech_metrics_series_read(path, &series), ECH_OK);
    assert_int_equal(series.skipped, 0);
    assert_int_equal(series.loads.experts, E);
    assert_int_equal(series.loads.step.n, STEPS);
    assert_true(near((double)series.loads.value.at[2], 2.5));
    ech_report_heatmap_svg(&series.loads, &svg);
    int cells = 0, red = 0;
    for (const char *at = svg.at; (at = strstr(at, "<title>expert ")); at++) cells++;
    for (const char *at = svg.at; (at = strstr(at, "#ff0000")); at++) red++;
    assert_true(cells == 120 * E && red == 120); /* expert 2 alone is above twice the mean */
    ech_text_free(&svg);
    ech_metrics_series_free(&series);
}

ALL_TESTS(fixture_setup, fixture_teardown)
