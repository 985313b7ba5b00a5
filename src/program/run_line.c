/* SPDX-License-Identifier: Apache-2.0
 *
 * From words to a run.
 */
#include "program/run_line.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "program/run_arguments.h"

const ech_word ech_run_file = {offsetof(ech_run_line, file), "which run file?", false};

/* The first word is the run file, the others set keys. */
void ech_run_take_word(void *arguments, char *word, const struct argp_state *state)
{
    ech_run_line *in = arguments;
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

echelon_status ech_run_line_open(const ech_run_line *line, echelon_run **out)
{
    bool quiet = ech_run_set_quiet();
    echelon_status status =
        line->model ? echelon_run_open_model(line->model, out) : echelon_run_open(line->file, out);
    ech_log_set_quiet(quiet);
    for (size_t i = 0; i < line->assignment.n && status == ECHELON_OK; i++)
        status = echelon_run_add_word(*out, line->assignment.at[i]);
    return status;
}

ech_run_arguments ech_run_line_arguments(const ech_run_line *line)
{
    ech_run_arguments arguments = {.file = line->file, .ranks = line->ranks};
    for (size_t i = 0; i < line->assignment.n; i++)
        ECH_PUSH(arguments.assignment, line->assignment.at[i]);
    return arguments;
}
