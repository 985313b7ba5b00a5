/* SPDX-License-Identifier: Apache-2.0
 *
 * From words to a run.
 */
#include "program/run_line.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "comm/launch.h"

const ech_word ech_run_file = {offsetof(ech_run_arguments, file), "which run file?", false};

/* The first word is the run file, the others set keys. */
void ech_run_take_word(void *arguments, char *word, const struct argp_state *state)
{
    ech_run_arguments *in = arguments;
    bool sets_key = strchr(word, '=') != NULL;
    if (!in->file && !in->model && (!sets_key || ech_file_exists(word)))
        in->file = word;
    else if (sets_key)
        ECH_PUSH(in->assignment, word);
    else
        argp_error(state,
                   "%s: not understood; the %s is %s, and keys are set with section.key=value",
                   word, in->file ? "run file" : "model", in->file ? in->file : in->model);
}

ech_status ech_run_command(const ech_command_line *line, int argc, char **argv,
                           ech_run_arguments *arguments,
                           ech_status (*main)(const ech_run *run, void *arguments, int *code),
                           int *code)
{
    ECH_CLEANUP(ech_run_close) ech_run run = {0};
    ech_launched launched;
    ech_command_line_parse(line, argc, argv, arguments);
    /* Before MPI starts, only rank 0 of a launcher's processes logs. */
    bool another_logs = ech_launched_here(&launched) && launched.rank > 0;
    bool quiet = ech_log_set_quiet(another_logs || ech_log_is_quiet());
    ech_status status = ech_run_open(arguments, &run);
    ech_log_set_quiet(quiet);
    if (status == ECH_OK) status = main(&run, arguments, code);
    free(arguments->assignment.at);
    return status;
}
