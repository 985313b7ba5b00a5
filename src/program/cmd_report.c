/* SPDX-License-Identifier: Apache-2.0
 *
 * echelon report RUNDIR [--out FILE.html]
 * echelon report RUNDIR RUNDIR ... [--out FILE.html]
 */
#include <stdio.h>
#include <stdlib.h>

#include "program/command.h"
#include "program/options.h"
#include "app/report/report.h"
#include "app/setup/plugins.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/path.h"
#include "base/visible.h"

static const char about[] =
    "Writes one self-contained HTML page about a run: its keys, loss and speed over time, the "
    "timeline of all ranks as predicted and as measured, and the memory of each rank. RUNDIR is "
    "the run's log.directory; the run may still be in progress. Of several runs, prints a table "
    "with a column for each: loss, dates, speed, layout and data, what differs first; with --out "
    "also writes a page with all runs in each chart.\vThe measured timeline needs a run with "
    "log.trace=true. Its steps also go to RUNDIR/trace.json, for ui.perfetto.dev. The "
    "prediction is a simulation with the block costs of parallel.profile, or of the recorded steps "
    "if the run file has no profile.";

typedef struct report_arguments {
    ECH_LIST(char *) directory;
    const char *out, *plugins;
} report_arguments;

static const ech_option options[] = {
    ECH_PATH(report_arguments, out, "out", 'o', "FILE",
             "where the page is written (one run: RUNDIR/report.html; several: none)"),
    ECH_PATHS(report_arguments, plugins, "plugins", 0, "FILES",
              "the run's plugins (as training.plugins)"),
    {0}};

static void take_word(void *arguments, char *word, const struct argp_state *state)
{
    report_arguments *in = arguments;
    ECH_FREED_TEXT path = {0}, why = {0};
    if (!ech_file_exists(word) && !ech_path_expand(word, false, &path, &why))
        argp_error(state, "%s: %s", word, why.at);
    ECH_PUSH(in->directory, ech_strdup(path.n > 0 ? path.at : word));
}

static void check(void *arguments, const struct argp_state *state)
{
    const report_arguments *in = arguments;
    if (in->directory.n == 0) argp_error(state, "which run directory?");
}

static ech_status report(const report_arguments *in, ech_text *text)
{
    ECH_TRY(in->plugins ? ech_plugins_load(in->plugins) : ECH_OK);
    if (in->directory.n > 1)
        return ech_report_compare(in->directory.at, (int)in->directory.n, in->out, text);
    return ech_report_run(in->directory.at[0], in->out, text);
}

ech_status ech_command_report(int argc, char **argv, int *code)
{
    (void)code;
    const ech_command_line line = {.usage = "RUNDIR [RUNDIR ...]",
                                   .about = about,
                                   .option = options,
                                   .take = take_word,
                                   .check = check};
    report_arguments in = {0};
    ECH_FREED_TEXT text = {0}, shown = {0};
    ech_command_line_parse(&line, argc, argv, &in);
    ech_status status = report(&in, &text);
    for (size_t i = 0; i < in.directory.n; i++) free(in.directory.at[i]);
    free(in.directory.at);
    if (status == ECH_OK) ech_visible_append(&shown, text.at, text.n, true, true);
    if (status == ECH_OK) fputs(shown.at, stdout); /* a stranger's run may have any names */
    return status;
}
