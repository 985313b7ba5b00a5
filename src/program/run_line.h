/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line of all commands on a run file, RUN.yaml [--ranks N] [section.key=value ...].
 */
#ifndef ECH_PROGRAM_RUN_LINE_H
#define ECH_PROGRAM_RUN_LINE_H

#include "app/setup/run.h"
#include "program/options.h"

/* The row of --ranks for a command whose struct of arguments begins with an ech_run_arguments. */
#define ECH_RUN_RANKS                                                                              \
    ECH_INT(ech_run_arguments, ranks, "ranks", 'n', "N", 1, ECH_MOST_RANKS,                        \
            "ranks; with parallel.comm=mpi this starts mpirun itself")
/* The other fields of this command's ech_command_line. */
#define ECH_RUN_LINE                                                                               \
    .usage = "RUN.yaml [section.key=value ...]", .word = &ech_run_file, .words = 1,                \
    .take = ech_run_take_word
extern const ech_word ech_run_file;
void ech_run_take_word(void *arguments, char *word, const struct argp_state *state);
/* Text of --help after its options. */
#define ECH_RUN_NOTE                                                                               \
    "Words like training.steps=100 set keys in place of the run file. "                            \
    "'echelon help keys' lists every key with its bounds, default and meaning."

/* Parses the line into `arguments`, opens the run and calls `main`, whose status it returns. *code:
 * the process's exit code, as in app/exit_code.h; set by `main`. */
ech_status ech_run_command(const ech_command_line *line, int argc, char **argv,
                           ech_run_arguments *arguments,
                           ech_status (*main)(const ech_run *run, void *arguments, int *code),
                           int *code);

#endif
