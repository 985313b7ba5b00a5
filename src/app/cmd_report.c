/* SPDX-License-Identifier: Apache-2.0
 *
 * echelon report RUNDIR [--out FILE.html]
 */
#include <stdio.h>

#include "app/command.h"
#include "app/options.h"
#include "app/report/report.h"
#include "base/visible.h"

static const char about[] =
    "One HTML page about a run, that needs nothing else to be read: what it was, how loss and "
    "speed went, who computed what when, predicted and measured, and where the memory is. RUNDIR "
    "is the run's log.directory; a run that is under way may be reported on."
    "\vThe measured timeline needs a run with log.trace=true. Its steps also go to "
    "RUNDIR/trace.json, for ui.perfetto.dev. Predicted is what the simulator makes of the costs of "
    "blocks: from parallel.profile if the run file has it, otherwise from the recorded steps.";

typedef struct report_arguments {
    const char *directory, *out;
} report_arguments;

static const ech_option options[] = {ECH_PATH(report_arguments, out, "out", 'o', "FILE",
                                              "where the page is written (RUNDIR/report.html)"),
                                     {0}};

static const ech_word words[] = {
    {offsetof(report_arguments, directory), "which run directory?", true}};

ech_status ech_command_report(int argc, char **argv, int *code)
{
    (void)code;
    const ech_command_line line = {
        .usage = "RUNDIR", .about = about, .option = options, .word = words, .words = 1};
    report_arguments in = {0};
    ECH_FREED_TEXT text = {0}, shown = {0};
    ech_command_line_parse(&line, argc, argv, &in);
    ech_status status = ech_report_run(in.directory, in.out, &text);
    if (status == ECH_OK) ech_visible_append(&shown, text.at, text.n, true, true);
    if (status == ECH_OK) fputs(shown.at, stdout); /* a stranger's run may have any names */
    return status;
}
