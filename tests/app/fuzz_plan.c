/* SPDX-License-Identifier: Apache-2.0
 *
 * Arbitrary bytes as a run file, through to what `echelon plan` prints: refused as wrong usage, or
 * plans of all ranks that are checked against each other. What is legal but large is left out, and
 * so are run files that name a profile, an order or a log of serves: no file is opened.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "app/plan/report.h"
#include "base/log.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { MOST_RANKS = 8, MOST_LAYERS = 32, MOST_RUNS = 256 };

static bool is_small(const ech_config *config)
{
    const char *schedule = config->parallel.schedule;
    return !config->parallel.profile[0] && !config->parallel.serve_log[0] &&
           !strchr(schedule, '/') && !strchr(schedule, '.') &&
           config->model.num_hidden_layers <= MOST_LAYERS;
}

/* Runs of a block, of all ranks. */
static bool is_short(const ech_design *design)
{
    double runs = (double)design->layout->micro_batches * (double)design->model->block.n *
                  design->schedule->turns * (double)design->config->memory.sequence_chunks *
                  design->layout->context * design->layout->tensor;
    return runs <= MOST_RUNS;
}

/* The only error allowed is wrong usage. */
static void expect(ech_status status)
{
    if (status != ECH_OK && status != ECH_EUSAGE) abort();
}

static ech_status print_plans(const ech_design *design)
{
    ech_plan_report report;
    ech_text text = {0}, object = {0}, picture = {0}, page = {0};
    ECH_TRY(ech_plan_report_create(design, &(ech_plan_options){.steps = true, .simulate = true},
                                   &report));
    if (!report.checked) abort();
    ech_plan_report_text(&report, &text);
    ech_status status = ech_plan_report_json(&report, &object);
    json_t *root = json_loadb(object.at, object.n, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(root)) abort();
    json_decref(root);
    if (status == ECH_OK) status = ech_plan_report_svg(&report, &picture);
    if (status == ECH_OK) status = ech_plan_report_html(&report, &page);
    ech_text_free(&text);
    ech_text_free(&object);
    ech_text_free(&picture);
    ech_text_free(&page);
    ech_plan_report_destroy(&report);
    return status;
}

static void plan(ech_config *config)
{
    int64_t asked = ech_setup_ranks(config);
    int world = asked == 0 ? 2 : (int)(asked > MOST_RANKS ? MOST_RANKS + 1 : asked);
    if (world > MOST_RANKS || !is_small(config)) return;
    ech_design design;
    ech_status status = ech_design_create(config, NULL, world, world, &design);
    expect(status);
    if (status != ECH_OK) return;
    if (is_short(&design)) expect(print_plans(&design));
    ech_design_destroy(&design);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    ech_config *config;
    char *text = ech_calloc(n + 1, 1);
    ech_log_set_quiet(true);
    if (n) memcpy(text, bytes, n);
    ech_status status = ech_setup_config_text(text, "fuzz", NULL, 0, &config);
    free(text);
    expect(status);
    if (status != ECH_OK) return 0;
    plan(config);
    ech_config_destroy(config);
    return 0;
}
