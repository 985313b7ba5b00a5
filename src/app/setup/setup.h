/* SPDX-License-Identifier: Apache-2.0
 *
 * The start of all commands: from a run file to a configuration, from that to the design (model, layout and
 * schedule), and from the design to a rank's plan and session.
 */
#ifndef ECH_APP_SETUP_SETUP_H
#define ECH_APP_SETUP_SETUP_H

#include "exec/exec.h"
#include "layout/profile.h"

/* Reads a configuration: defaults, then the run file, then the command line's "section.key=value" words.
 * Completes the model section by model.init_from (ech_setup_fill_model) and checks all of it. */
ech_status ech_setup_config(const char *run_file, char *const *assignments, int n,
                            ech_config **out);
/* The same from text, without model.init_from; `name` is for errors. */
ech_status ech_setup_config_text(const char *text, const char *name, char *const *assignments,
                                 int n, ech_config **out);
/* The same from a checkpoint's run.yaml. */
ech_status ech_setup_config_saved(const ech_checkpoint *checkpoint, char *const *assignments, int n,
                                  ech_config **out);
/* The defaults, for `echelon help`. */
ech_status ech_setup_defaults(ech_config **out);

/* The number of ranks by the degrees of the parallel section, where auto counts as 1; 0: all are auto or 1, with
 * pipeline and data auto. */
int64_t ech_setup_ranks(const ech_config *config);
/* Changes the configuration to one rank without parallelism, which trains the same model on the same
 * micro-batches. Before or after it is resolved. */
void ech_setup_alone(ech_config *config);

/* The design of a run, the same for all ranks. Made once per process; its ranks only read it. */
typedef struct ech_design {
    const ech_config *config;       /* resolved; borrowed */
    const ech_tokenizer *tokenizer; /* borrowed; NULL: none is known */
    int32_t end_of_text;            /* the token that ends a text; -1: none is known */
    ech_model *model;
    ech_layout *layout;
    ech_schedule *schedule;
    ech_profile *profile; /* measured costs of blocks; NULL: none */
    const ech_kernels *kernels;
    int world;
} ech_design;

/* Resolves the configuration in place (replaces every "auto", for `world` ranks, `local_ranks` of them on this
 * machine) and makes model, layout and schedule from it. tokenizer NULL: model.vocab_size must be set. Errors:
 * all that is wrong with the configuration, each with its key and value. */
ech_status ech_design_create(ech_config *config, const ech_tokenizer *tokenizer, int world,
                             int local_ranks, ech_design *out);
/* A design of one rank on the same data as `other`. config: a copy of other's, changed by ech_setup_alone. */
ech_status ech_design_create_alone(const ech_design *other, ech_config *config, ech_design *out);
void ech_design_destroy(ech_design *design); /* frees its members */
/* Opens the corpus to train or validate on; *out is NULL if the run does not validate. */
ech_status ech_design_open_data(const ech_design *design, ech_split split, ech_corpus **out);
/* Loader options of a rank: shuffled for training; for validation, samples up to position `last`. */
ech_loader_options ech_design_reads(const ech_design *design, int rank, bool shuffle, int64_t last);
/* A rank's plan. Errors: it exceeds memory.device_limit; a table of its memory is printed then. */
ech_status ech_design_plan(const ech_design *design, int rank, bool forward_only, ech_plan **out);
/* A plan with only the steps of its train list (ech_plan_request.outline). */
ech_status ech_design_outline(const ech_design *design, int rank, ech_plan **out);
/* Appends "    parameters          12.3 MiB ...", a line per kind of memory, and the sum. */
void ech_print_memory(const ech_plan *plan, ech_text *out);

/* A rank's plan and the engine that runs it. */
typedef struct ech_session {
    ech_plan *plan;
    ech_exec *exec;
} ech_session;
ech_status ech_session_create(const ech_design *design, ech_comm *comm, bool forward_only,
                              ech_session *out); /* collective */
void ech_session_destroy(ech_session *session);
/* Makes the loader of the session's batches for a purpose (ech_design_reads; shuffled for ECH_TRAIN), which begins
 * at `first_step` and has samples up to position `last`. The caller destroys it. */
ech_status ech_session_read(const ech_session *session, const ech_design *design,
                            const ech_corpus *corpus, ech_purpose purpose, int64_t first_step,
                            int64_t last, ech_loader **out);

/* Opens endpoints and runs `main` on every rank: for `local` on a thread per rank, for `mpi` on this process's
 * rank. Returns the first error of a rank of this process. */
typedef ech_status (*ech_rank_main)(ech_comm *comm, void *context);
ech_status ech_run_ranks(ech_comm_kind comm, int ranks, double deadline, ech_rank_main main,
                         void *context);
/* The same for the ranks of a design. */
typedef ech_status (*ech_design_main)(ech_comm *comm, const ech_design *design, void *context);
ech_status ech_design_run(const ech_design *design, ech_design_main main, void *context);

#endif
