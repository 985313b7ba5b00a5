/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line of all commands on a run file, RUN.yaml [--ranks N] [section.key=value ...].
 */
#ifndef ECH_PROGRAM_RUN_LINE_H
#define ECH_PROGRAM_RUN_LINE_H

#include <echelon.h>

#include "base/memory.h"
#include "program/options.h"

typedef struct ech_run_line {
    char *file;                  /* RUN.yaml; a word of argv */
    const char *model;           /* a model folder in place of the run file; NULL: none */
    int ranks;                   /* --ranks; 0: not given */
    ECH_LIST(char *) assignment; /* "section.key=value", words of argv */
} ech_run_line;

/* The row of --ranks for a command whose struct of arguments begins with an ech_run_line. */
#define ECH_RUN_RANKS                                                                              \
    ECH_INT(ech_run_line, ranks, "ranks", 'n', "N", 1, ECHELON_MOST_RANKS,                         \
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

/* Opens the line's run for the library, with its words. The caller closes *out. */
echelon_status ech_run_line_open(const ech_run_line *line, echelon_run **out);

#endif
