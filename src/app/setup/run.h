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

/* Makes this thread quiet unless it is to log before MPI starts: only rank 0 of a launcher's
 * processes does. Returns the previous setting (base/log.h). */
bool ech_run_set_quiet(void);

/* Reads the configuration: the run file, or the model's folder, and the assignments. */
ech_status ech_run_configure(const ech_run_arguments *arguments, ech_config **out);
/* Reads the configuration and opens the tokenizer; of a launcher's processes rank 0 logs. *out is
 * to be closed with ech_run_close, also after a failure; it borrows the arguments. */
ech_status ech_run_open(const ech_run_arguments *arguments, ech_run *out);
void ech_run_close(ech_run *run);

/* *ranks is `given` (--ranks); if that is 0, ech_setup_ranks; if that is also 0, 1. Errors: above
 * ECH_MOST_RANKS. */
ech_status ech_run_ranks_of(const ech_config *config, int given, int *ranks);

/* How to start the ranks of a command. Pointers are borrowed. */
typedef struct ech_start {
    const char *command; /* "train" */
    const ech_run *run;
    /* NULL, or called with `context` before this process's ranks start; a failure ends the start */
    ech_status (*prepare)(void *context);
    ech_design_main main;  /* executed by every rank, with `context` */
    void *context;
    bool reads_weights; /* check that there are weights (ech_initial_expect) */
    /* `main` writes the run directory, and handles evaluators; otherwise a run with some is
     * refused */
    bool trains;
} ech_start;

/* Makes the design and executes start->main on every rank of this process: as a rank if a launcher
 * started this process, otherwise with all ranks, as threads. Errors of the run file are reported
 * before any rank starts; ECH_EUSAGE if the ranks would be processes that no launcher started. */
ech_status ech_start_ranks(const ech_start *start);

/* The design of a run whose ranks are about to start, made once per process for all of its
 * ranks. */
typedef struct ech_prepared {
    ech_config *config;
    ech_design design;
} ech_prepared;
/* Makes the design for so many ranks and checks all that needs no running rank, so that errors are
 * reported once. *out is the caller's to release, also after a failure. */
ech_status ech_start_prepare(const ech_start *start, int ranks, int local_ranks, ech_prepared *out);
void ech_start_release(ech_prepared *prepared);

#endif
