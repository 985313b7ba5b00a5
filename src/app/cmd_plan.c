/* SPDX-License-Identifier: Apache-2.0
 *
 * echelon plan RUN.yaml [--ranks N] [--per-machine M] [--steps] [--simulate] [--json] [--svg FILE]
 *              [section.key=value ...]
 */
#include <stdio.h>
#include <string.h>

#include "app/plan/report.h"
#include "app/setup/run_arguments.h"
#include "base/file.h"

static const char about[] =
    "Shows what the run file asks for, without running anything: who holds what, the schedule in "
    "time, the buckets in which gradients are reduced, every byte of memory by kind, and what is "
    "sent. A run "
    "that does not fit is refused with the table of what takes the bytes."
    "\v" ECH_RUN_NOTE;

enum {
    OPTION_STEPS = 's',
    OPTION_JSON = 'j',
    OPTION_PER_MACHINE = 'm',
    OPTION_SIMULATE = 't',
    OPTION_SVG = 'g'
};

static const struct argp_option options[] = {
    {"per-machine", OPTION_PER_MACHINE, "M", 0,
     "ranks on one machine, which share its cores and memory (all, but not more than cores)", 0},
    {"steps", OPTION_STEPS, NULL, 0, "every step of a training step, too", 0},
    {"simulate", OPTION_SIMULATE, NULL, 0,
     "step time, bubble, micro-batches in flight, bytes per link; in seconds with parallel.profile",
     0},
    {"json", OPTION_JSON, NULL, 0, "as one JSON object", 0},
    {"svg", OPTION_SVG, "FILE", 0, "draws the timeline into FILE as well", 0},
    {0}};

static const struct argp_child children[] = {{&ech_run_argp, 0, NULL, 0}, {0}};

typedef struct plan_arguments {
    ech_run_arguments run;
    int per_machine; /* 0: not given */
    const char *svg; /* NULL: no picture */
    bool json;
    ech_plan_options options;
} plan_arguments;

static error_t parse(int key, char *text, struct argp_state *state)
{
    plan_arguments *in = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &in->run;
        return 0;
    case OPTION_PER_MACHINE:
        in->per_machine = (int)ech_option_int(state, "--per-machine", text, 1, ECH_MOST_RANKS);
        return 0;
    case OPTION_STEPS:
        in->options.steps = true;
        return 0;
    case OPTION_SIMULATE:
        in->options.simulate = true;
        return 0;
    case OPTION_SVG:
        in->svg = text;
        return 0;
    case OPTION_JSON:
        in->json = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static ech_status find_ranks(const ech_config *config, const plan_arguments *in, int *ranks,
                             int *local_ranks)
{
    int cores = ech_device_find("cpu")->cores();
    ECH_TRY(ech_run_ranks_of(config, in->run.ranks, ranks));
    *local_ranks = in->per_machine ? in->per_machine : *ranks;
    if (strcmp(config->parallel.comm, "local") == 0 || *local_ranks > *ranks)
        *local_ranks = *ranks;
    else if (!in->per_machine && *local_ranks > cores)
        *local_ranks = cores;
    return ECH_OK;
}

static ech_status write_svg(const ech_plan_report *report, const char *path)
{
    ech_text svg = {0};
    ech_status status = ech_plan_report_svg(report, &svg);
    if (status == ECH_OK) status = ech_file_write(path, svg.at, svg.n);
    ech_text_free(&svg);
    return status;
}

static ech_status print_report(const ech_design *design, const plan_arguments *in)
{
    ech_plan_report report;
    ech_text text = {0};
    ECH_TRY(ech_plan_report_create(design, &in->options, &report));
    ech_status status = ECH_OK;
    if (in->json)
        status = ech_plan_report_json(&report, &text);
    else
        ech_plan_report_text(&report, &text);
    if (status == ECH_OK) fwrite(text.at, 1, text.n, stdout);
    if (status == ECH_OK && in->svg) status = write_svg(&report, in->svg);
    ech_text_free(&text);
    ech_plan_report_destroy(&report);
    return status;
}

static ech_status plan(const ech_run *run, const plan_arguments *in)
{
    int ranks = 1, local_ranks = 1;
    ech_design design;
    ECH_TRY(find_ranks(run->config, in, &ranks, &local_ranks));
    ECH_TRY(ech_design_create(run->config, run->tokenizer, ranks, local_ranks, &design));
    ech_status status = print_report(&design, in);
    ech_design_destroy(&design);
    return status;
}

ech_status ech_command_plan(int argc, char **argv, int *code)
{
    (void)code;
    const struct argp argp = {.options = options,
                              .parser = parse,
                              .args_doc = ECH_RUN_USAGE,
                              .doc = about,
                              .children = children};
    plan_arguments in = {0};
    ech_run run = {0};
    argp_parse(&argp, argc, argv, 0, NULL, &in);
    ech_status status = ech_run_open(&in.run, &run);
    if (status == ECH_OK) status = plan(&run, &in);
    ech_run_close(&run);
    ech_run_arguments_free(&in.run);
    return status;
}
