/* SPDX-License-Identifier: Apache-2.0
 *
 * What commands on a run file take alike: RUN.yaml [--ranks N] [section.key=value ...].
 */
#ifndef ECH_APP_SETUP_RUN_ARGUMENTS_H
#define ECH_APP_SETUP_RUN_ARGUMENTS_H

#include "app/options.h"
#include "app/setup/setup.h"

enum { ECH_MOST_RANKS = 65536 };

typedef struct ech_run_arguments {
    char *file;
    int ranks; /* 0: not given */
    ECH_LIST(char *) assignment;
} ech_run_arguments;

/* A row of a command's options, whose arguments begin with an ech_run_arguments. */
#define ECH_RUN_RANKS                                                                              \
    ECH_INT(ech_run_arguments, ranks, "ranks", 'n', "N", 1, ECH_MOST_RANKS,                        \
            "ranks; with parallel.comm=mpi this starts mpirun itself")
/* The rest of its line. */
#define ECH_RUN_LINE                                                                               \
    .usage = "RUN.yaml [section.key=value ...]", .word = &ech_run_file, .words = 1,                \
    .take = ech_run_take_word
extern const ech_word ech_run_file;
void ech_run_take_word(void *arguments, char *word, const struct argp_state *state);
/* The text behind its options. */
#define ECH_RUN_NOTE                                                                               \
    "Words like training.steps=100 set keys in place of the run file. "                            \
    "'echelon help keys' lists every key with its bounds, default and meaning."

/* A run as its commands begin with it. The tokenizer is opened once a process, which may take its time:
 * all ranks of the process read it. */
typedef struct ech_run {
    ech_config *config;       /* the run file and the keys, checked, not resolved */
    ech_tokenizer *tokenizer; /* NULL: none is known */
    int32_t end_of_text;      /* the token that ends a text; -1: none is known */
} ech_run;
/* Parses the line into `arguments`, opens the run that they name, and has `main` do the command's part. */
ech_status ech_run_command(const ech_command_line *line, int argc, char **argv,
                           ech_run_arguments *arguments,
                           ech_status (*main)(const ech_run *run, void *arguments, int *code),
                           int *code);

/* --ranks if it is given (not 0), else what the parallel section asks for, else 1. */
ech_status ech_run_ranks_of(const ech_config *config, int given, int *ranks);

/* What a run is started with. */
typedef struct ech_start {
    const char *command; /* "train" */
    const ech_run *run;
    const ech_run_arguments *arguments;
    char *const *options; /* the command's own, to be handed on */
    int n;
    void (*prepare)(void); /* NULL, or before the first rank, in processes that have ranks */
    ech_design_main main;
    void *context;
    bool reads_weights; /* of model.init_from, which a plan does without */
    int stop_signal;    /* what ranks of a launcher are asked to stop with; 0: they are killed */
    int restarts;       /* of the job after failures, at most */
} ech_start;

/* Runs main on every rank, with the design that the run file makes. With parallel.comm mpi and --ranks, and if no launcher started this
 * process, it runs a launcher instead, whose exit code goes to *code. What a run file asks for
 * wrongly is refused before. */
ech_status ech_start_ranks(const ech_start *start, int *code);

#endif
