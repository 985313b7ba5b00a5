/* SPDX-License-Identifier: Apache-2.0
 *
 * From a run file to a design that every rank shares, and from the design to a rank's plan. What all
 * commands begin with.
 */
#ifndef ECH_APP_SETUP_SETUP_H
#define ECH_APP_SETUP_SETUP_H

#include "exec/exec.h"
#include "layout/profile.h"

/* A configuration that knows the names of all tables: defaults, then the run file, then the
 * command line's "section.key=value" words, checked. */
ech_status ech_setup_config(const char *run_file, char *const *assignments, int n,
                            ech_config **out);
/* The same from a text (a checkpoint's run.yaml). */
ech_status ech_setup_config_text(const char *text, const char *name, char *const *assignments,
                                 int n, ech_config **out);
/* The defaults alone: for help. */
ech_status ech_setup_defaults(ech_config **out);

/* The ranks that the parallel section asks for by its numbers; 0: it leaves them open. */
int64_t ech_setup_ranks(const ech_config *config);
/* Turns the configuration into one for a single rank without parallelism that trains the same model
 * on the same micro-batches. Before it is resolved, or after. */
void ech_setup_alone(ech_config *config);

/* What all ranks share: pure. Made once a process, and only read by its ranks. */
typedef struct ech_design {
    const ech_config *config;       /* resolved; borrowed */
    const ech_tokenizer *tokenizer; /* borrowed; NULL: none is known */
    int32_t end_of_text;            /* the token that ends a text; -1: none is known */
    ech_model *model;
    ech_layout *layout;
    ech_schedule *schedule;
    ech_profile *profile; /* what blocks cost; NULL: not known */
    const ech_kernels *kernels;
    int world;
} ech_design;

/* Resolves the configuration (fills everything that is "auto", for `world` ranks, `local_ranks` of them on
 * this machine, and refuses what no room accepts), and makes model, layout and schedule of it. tokenizer NULL: of a run
 * file that is resolved already, its vocabulary is known. */
ech_status ech_design_create(ech_config *config, const ech_tokenizer *tokenizer, int world,
                             int local_ranks, ech_design *out);
/* The design of one rank alone beside another design, on the same data. The configuration is a copy of the
 * other's, which was changed to ech_setup_alone. */
ech_status ech_design_create_alone(const ech_design *other, ech_config *config, ech_design *out);
/* The same design with a configuration that differs in what no model, layout or schedule depends on: precision.compute, and
 * keys of one rank's plan. Borrows all that the other owns: not to be destroyed. */
ech_design ech_design_with(const ech_design *other, const ech_config *config);
void ech_design_destroy(ech_design *design); /* frees what it owns, not itself */
/* Opens the tokens to train on or to validate on; NULL where there is no validation. */
ech_status ech_design_open_data(const ech_design *design, ech_split split, ech_corpus **out);
/* How a rank reads them: training shuffles; validation ends at position `last`. */
ech_loader_options ech_design_reads(const ech_design *design, int rank, bool shuffle, int64_t last);
/* A rank's plan, refused with the table of what takes the bytes if it exceeds memory.device_limit. */
ech_status ech_design_plan(const ech_design *design, int rank, bool forward_only, ech_plan **out);
/* Only the steps of its train list (see ech_plan_request). */
ech_status ech_design_outline(const ech_design *design, int rank, ech_plan **out);
/* "    parameters          12.3 MiB ..." one line a kind, and the sum. */
void ech_print_memory(const ech_plan *plan, ech_text *out);

/* One rank's running engine over its plan. */
typedef struct ech_session {
    ech_plan *plan;
    ech_exec *exec;
} ech_session;
ech_status ech_session_create(const ech_design *design, ech_comm *comm, bool forward_only,
                              ech_session *out); /* collective */
void ech_session_destroy(ech_session *session);

/* Runs `main` on every rank: on one thread per rank for `local`, on this process's own rank for
 * `mpi`. Returns the first failure of a rank of this process. */
typedef ech_status (*ech_rank_main)(ech_comm *comm, void *context);
ech_status ech_run_ranks(ech_comm_kind comm, int ranks, double deadline, ech_rank_main main,
                         void *context);
/* The same over a design, which is shared by the ranks of this process. */
typedef ech_status (*ech_design_main)(ech_comm *comm, const ech_design *design, void *context);
ech_status ech_design_run(const ech_design *design, ech_design_main main, void *context);

#endif
