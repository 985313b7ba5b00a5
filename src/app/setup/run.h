/* SPDX-License-Identifier: Apache-2.0
 *
 * A run before its ranks start, and the start of its ranks.
 */
#ifndef ECH_APP_SETUP_RUN_H
#define ECH_APP_SETUP_RUN_H

#include "app/setup/setup.h"

enum { ECH_MOST_RANKS = 65536 };

typedef struct ech_run_arguments {
    char *file;                  /* the run file */
    const char *text;            /* the run file's text, in which case file is its name; or NULL */
    const char *model;           /* a model folder in place of the run file; NULL: none */
    bool plans;                  /* it only plans: data and folders need not be named */
    int ranks;                   /* --ranks; 0: not given */
    ECH_LIST(char *) assignment; /* "section.key=value" */
} ech_run_arguments;

/* A run before its ranks start. The tokenizer, slow to open, is opened once per process; all ranks
 * of the process read it. */
typedef struct ech_run {
    const ech_run_arguments *arguments;
    ech_config *config;       /* run file and assignments, checked, not resolved */
    ech_tokenizer *tokenizer; /* NULL: none is known */
    int32_t end_of_text;      /* the token that ends a text; -1: none is known */
} ech_run;

/* Reads the configuration and opens the tokenizer. *out is to be closed with ech_run_close, also
 * after a failure; it borrows the arguments. */
ech_status ech_run_open(const ech_run_arguments *arguments, ech_run *out);
void ech_run_close(ech_run *run);

/* *ranks is `given` (--ranks); if that is 0, ech_setup_ranks; if that is also 0, 1. Errors: above
 * ECH_MOST_RANKS. */
ech_status ech_run_ranks_of(const ech_config *config, int given, int *ranks);

/* How to start the ranks of a command. Pointers are borrowed. */
typedef struct ech_start {
    const char *command; /* "train" */
    const ech_run *run;
    char *const *options; /* [n] the command's own options, for the command line of a job */
    int n;
    void (*prepare)(void); /* NULL, or called in each process with ranks before they start */
    ech_design_main main;  /* executed by every rank, with `context` */
    void *context;
    bool reads_weights; /* check that there are weights (ech_initial_expect) */
    /* `main` handles evaluators; otherwise a run with some is refused */
    bool evaluates;
    /* the ranks must be in this process, which starts no job: otherwise the run is refused */
    bool stays;
    int stop_signal; /* tells a rank of a job to save and stop; 0: ranks are killed */
    int restarts;    /* of the job after failures, at most */
} ech_start;

/* Makes the design and executes start->main on every rank: as a rank if a launcher started this
 * process, otherwise with all ranks. Errors of the run file are reported before any rank starts. If
 * no launcher started this process, it may have to start the ranks as a job (app/job/job.h): if
 * several ranks are to be processes (parallel.comm mpi), or if start->restarts is not 0. Then it
 * sets *code to the job's exit code, or to ECH_EXIT_FAILED if app/exit_code.h does not have it. */
ech_status ech_start_ranks(const ech_start *start, int *code);

#endif
