/* SPDX-License-Identifier: Apache-2.0
 *
 * echelon report RUNDIR [--out FILE.html]
 */
#include <stdio.h>

#include "app/command.h"
#include "app/report/report.h"
#include "base/visible.h"

static const char about[] =
    "One HTML page about a run, that needs nothing else to be read: what it was, how loss and "
    "speed "
    "went, who computed what when, predicted and measured, and where the memory is. RUNDIR is "
    "the run's log.directory; a run that is under way may be reported on."
    "\vThe measured timeline needs a run with log.trace=true. Its steps also go to "
    "RUNDIR/trace.json, for ui.perfetto.dev. Predicted is what the simulator makes of the costs of "
    "blocks: from parallel.profile if the run file has it, otherwise from the recorded steps.";

static const struct argp_option options[] = {
    {"out", 'o', "FILE", 0, "where the page is written (RUNDIR/report.html)", 0}, {0}};

typedef struct report_arguments {
    const char *directory, *out;
} report_arguments;

static error_t parse(int key, char *text, struct argp_state *state)
{
    report_arguments *in = state->input;
    switch (key) {
    case 'o':
        in->out = text;
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num > 0) argp_error(state, "%s: one word too many", text);
        in->directory = text;
        return 0;
    case ARGP_KEY_END:
        if (!in->directory) argp_error(state, "which run directory?");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

ech_status ech_command_report(int argc, char **argv, int *code)
{
    (void)code;
    const struct argp argp = {
        .options = options, .parser = parse, .args_doc = "RUNDIR", .doc = about};
    report_arguments in = {0};
    ech_text words = {0}, shown = {0};
    argp_parse(&argp, argc, argv, 0, NULL, &in);
    ech_status status = ech_report_run(in.directory, in.out, &words);
    if (status == ECH_OK) ech_visible_append(&shown, words.at, words.n, true, true);
    if (status == ECH_OK) fputs(shown.at, stdout); /* a stranger's run may have any names */
    ech_text_free(&shown);
    ech_text_free(&words);
    return status;
}
