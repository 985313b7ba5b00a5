/* SPDX-License-Identifier: Apache-2.0
 *
 * echelon report RUNDIR [--out FILE.html]
 */
#include <stdio.h>

#include "program/command.h"
#include "program/options.h"
#include "app/report/report.h"
#include "app/setup/plugins.h"
#include "base/visible.h"

static const char about[] =
    "Writes one self-contained HTML page about a run: its keys, loss and speed over time, the "
    "timeline of all ranks as predicted and as measured, and the memory of each rank. RUNDIR is "
    "the run's log.directory; the run may still be in progress.\vThe measured timeline needs a run "
    "with log.trace=true. Its steps also go to RUNDIR/trace.json, for ui.perfetto.dev. The "
    "prediction is a simulation with the block costs of parallel.profile, or of the recorded steps "
    "if the run file has no profile.";

typedef struct report_arguments {
    const char *directory, *out, *plugins;
} report_arguments;

static const ech_option options[] = {ECH_PATH(report_arguments, out, "out", 'o', "FILE",
                                              "where the page is written (RUNDIR/report.html)"),
                                     ECH_PATHS(report_arguments, plugins, "plugins", 0, "FILES",
                                               "the run's plugins (as training.plugins)"),
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
    if (in.plugins) ECH_TRY(ech_plugins_load(in.plugins));
    ech_status status = ech_report_run(in.directory, in.out, &text);
    if (status == ECH_OK) ech_visible_append(&shown, text.at, text.n, true, true);
    if (status == ECH_OK) fputs(shown.at, stdout); /* a stranger's run may have any names */
    return status;
}
