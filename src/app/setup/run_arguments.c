/* SPDX-License-Identifier: Apache-2.0
 *
 * RUN.yaml [--ranks N] [section.key=value ...].
 */
#include "app/setup/run_arguments.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"

static const struct argp_option options[] = {
    {"ranks", 'n', "N", 0, "ranks; with parallel.comm=mpi this starts mpirun itself", 0}, {0}};

/* The first word is the run file, the others set keys. */
static void take_word(ech_run_arguments *in, char *word, const struct argp_state *state)
{
    bool sets_key = strchr(word, '=') != NULL;
    if (!in->file && (!sets_key || ech_file_exists(word)))
        in->file = word;
    else if (sets_key)
        ECH_PUSH(in->assignment, word);
    else
        argp_error(state,
                   "%s: not understood; the run file is %s, and keys are set with "
                   "section.key=value",
                   word, in->file);
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    ech_run_arguments *in = state->input;
    switch (key) {
    case 'n':
        in->ranks = (int)ech_option_int(state, "--ranks", text, 1, ECH_MOST_RANKS);
        return 0;
    case ARGP_KEY_ARG:
        take_word(in, text, state);
        return 0;
    case ARGP_KEY_END:
        if (!in->file) argp_error(state, "which run file?");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp ech_run_argp = {.options = options, .parser = parse};

void ech_run_arguments_free(ech_run_arguments *arguments)
{
    free(arguments->assignment.at);
    *arguments = (ech_run_arguments){0};
}
