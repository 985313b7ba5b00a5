/* SPDX-License-Identifier: Apache-2.0
 *
 * The start of all commands: from a run file to a configuration, from that to the design (model,
 * layout and schedule), and from the design to a rank's plan and session. The caller releases every
 * *out. Nothing is collective unless stated.
 */
#ifndef ECH_APP_SETUP_SETUP_H
#define ECH_APP_SETUP_SETUP_H

#include "app/serve_log.h"
#include "exec/exec.h"
#include "layout/cluster.h"
#include "layout/profile.h"
#include "schedule/plan.h"

/* Reads a configuration: defaults, then the run file, then the n assignments "section.key=value" of
 * the command line. Completes the model section from model.init_from (ech_setup_fill_model) and
 * checks all sections. Errors: all that is wrong, logged with key and value. */
ech_status ech_setup_config(const char *run_file, char *const *assignments, int n,
                            ech_config **out);
/* The same; from `text`, which the user wrote and calls `name`, unless that is NULL. plans: for a
 * plan, which neither reads data nor writes: data.train and log.directory may be missing. */
ech_status ech_setup_config_own(const char *name, const char *text, bool plans,
                                char *const *assignments, int n, ech_config **out);
/* The same, for a look at keys: required keys may be missing. */
ech_status ech_setup_config_partial(const char *name, const char *text, char *const *assignments,
                                    int n, ech_config **out);
/* The configuration of ech_template_of_model instead of a run file. */
ech_status ech_setup_config_of_model(const char *folder, int ranks, char *const *assignments, int n,
                                     ech_config **out);
/* Reads a configuration from the text of a saved run file, which may come from a stranger: no paths
 * are expanded. The model section must be complete: nothing is read from model.init_from, which may
 * be set. `name` is for errors. */
ech_status ech_setup_config_text(const char *text, const char *name, char *const *assignments,
                                 int n, ech_config **out);
/* ech_setup_config_text of a checkpoint's run.yaml. */
ech_status ech_setup_config_saved(const ech_checkpoint *checkpoint, ech_config **out);
/* A configuration with defaults, not checked. */
ech_status ech_setup_defaults(ech_config **out);

/* Checks that this build and this machine can compute with the configuration's device. `instead`:
 * an alternative for the error. */
ech_status ech_setup_check_device(const ech_config *config, const char *instead);
/* Checks that `local_ranks` ranks of this machine may compute on the device; ranks share a device
 * only if parallel.share_device is true. */
ech_status ech_setup_check_sharing(const ech_config *config, const ech_device *device,
                                   int local_ranks);

/* memory.device_limit of a design for a device that is not in this machine, unless the run file
 * sets it. */
#define ECH_LIMIT_UNKNOWN INT64_MAX

/* The number of ranks that the parallel section specifies: pipeline x data x context x tensor,
 * where auto counts as 1; with stage_replicas their sum x context x tensor; plus servers and
 * evaluators. 0: unspecified, since pipeline and data are auto, context and tensor are 1, and there
 * are no evaluators. */
int64_t ech_setup_ranks(const ech_config *config);
/* The design of a run, the same for all ranks. Made once per process; its ranks only read it. */
typedef struct ech_design {
    const ech_config *config;       /* resolved; borrowed */
    const ech_tokenizer *tokenizer; /* borrowed; NULL: none is known */
    int32_t end_of_text; /* the tokenizer's, unless the caller sets it; -1: none is known */
    ech_model *model;
    double sample_flops; /* ech_model_flops */
    /* Units of work in a sample (samples.def): its tokens, of texts; otherwise 1. */
    int64_t sample_units;
    ech_layout *layout;
    ech_schedule *schedule;
    ech_profile *profile;       /* measured costs of blocks; NULL: none */
    ech_serve_log *serves; /* the order in which pushes are served; NULL: in order of arrival */
    const ech_kernels *kernels; /* static */
    int world;                  /* number of ranks, without evaluators: ech_layout.world */
    int first_rank;             /* the job's rank that is rank 0 here; above 0 for an evaluator */
    /* fp64 although the run file has another type, and memory.recompute was chosen for fp64: errors
     * about memory say so */
    bool in_fp64;
    /* plans and simulations are for its devices, not for this machine; NULL: they are for this
     * machine. Borrowed; see ech_design_set_cluster. */
    const ech_cluster *cluster;
} ech_design;

/* Resolves the configuration in place (replaces every "auto", for `ranks` ranks including
 * evaluators, `local_ranks` of them on this machine) and makes model, layout and schedule from it.
 * tokenizer NULL: model.vocab_size must be set. The design borrows both. Errors: all that is wrong
 * with the configuration, each with its key and value. */
ech_status ech_design_create(ech_config *config, const ech_tokenizer *tokenizer, int ranks,
                             int local_ranks, ech_design *out);
/* Makes plans and simulations be for the cluster, which decides which ranks are alike. */
void ech_design_set_cluster(ech_design *design, const ech_cluster *cluster);
/* A design of one rank on the data of `other`. Borrows config: a copy of other's, changed with
 * ech_config_set_alone. */
ech_status ech_design_create_alone(const ech_design *other, ech_config *config, ech_design *out);
/* The design of an evaluator, rank `rank` of the job with the design `other`: one rank with the
 * whole model, which validates in the same micro-batches. Borrows config: a copy of other's, which
 * it changes. */
ech_status ech_design_create_evaluator(const ech_design *other, int rank, ech_config *config,
                                       ech_design *out);
void ech_design_destroy(ech_design *design); /* frees what the design does not borrow */
/* Opens the corpus of a split. *out is NULL for ECH_SPLIT_VALID if the run does not validate. */
ech_status ech_design_open_data(const ech_design *design, ech_split split, ech_corpus **out);
/* Replaces training.epochs by training.steps in the design's configuration, and logs that. */
ech_status ech_design_resolve_epochs(ech_config *config, const ech_design *design);
/* The same for a configuration that has no design yet, without a line in the log. */
ech_status ech_setup_count_steps(ech_config *config);
/* What the run reads of a corpus for training. */
void ech_design_count_data(const ech_design *design, const ech_corpus *corpus,
                           ech_corpus_counts *out);
/* Appends it: "8,000 samples, ...". `between` divides its two parts. */
void ech_print_data(const ech_design *design, const ech_corpus_counts *counts, const char *between,
                    ech_text *out);
/* Appends what one epoch of the token file PREFIX has with samples of T tokens, a line for each way
 * of packing. */
ech_status ech_print_packings(const char *prefix, int64_t T, ech_text *out);
/* Bytes of the device arena of the rank that needs the most, regardless of the limit. */
int64_t ech_design_device_bytes(const ech_design *design);
/* The options of a rank's loader. `shuffle`: true for training. `last`: samples from this position
 * in the reading order on are replaced by padding; INT64_MAX: none. */
ech_loader_options ech_design_reads(const ech_design *design, int rank, bool shuffle, int64_t last);
/* Makes a rank's plan. forward_only: without gradients, optimizer and train list, for evaluation
 * and sampling. Errors: it exceeds memory.device_limit or host_limit (then a table of its memory is
 * logged); as for the checker. With a log of serves, the train list is bound to its first span. */
ech_status ech_design_plan(const ech_design *design, int rank, bool forward_only, ech_plan **out);
/* The same without the checker (check/check.h): for plans that are compared, not run. */
ech_status ech_design_plan_unchecked(const ech_design *design, int rank, ech_plan **out);
/* Makes a plan without lists (ech_plan_request.listless). */
ech_plan *ech_design_buckets(const ech_design *design, int rank);
/* True if every rank's arenas fit into memory.device_limit and host_limit. *longest (optional):
 * blocks of the longest segment of recomputation. */
bool ech_design_fits(const ech_design *design, int *longest);
/* Checks that the log of serves, if there is one, has all spans of training steps [step, end). */
ech_status ech_design_check_serves(const ech_design *design, int64_t step, int64_t end);
/* Checks that a run that continues from `step` may repeat the log: the log has all spans, and is
 * not the one that the run itself writes. */
ech_status ech_design_check_repeat(const ech_design *design, int64_t step);
/* Makes an outline of a rank's plan: only the steps of the train list, or with forward_only of all
 * other lists (ech_plan_request.outline). */
ech_status ech_design_outline(const ech_design *design, int rank, bool forward_only,
                              ech_plan **out);
/* Makes an outline of a rank's plan with all lists (ech_plan_request.every_list), not checked and
 * not bound. */
ech_plan *ech_design_lists(const ech_design *design, int rank);
/* Makes a plan that has only the train list, is not checked and regards no limit
 * (ech_plan_request.brief), or an outline of that. */
ech_plan *ech_design_sketch(const ech_design *design, int rank, bool outline);
/* ech_check_plans of all n ranks' lists of a kind, and on a device with queues ech_check_queues. */
ech_status ech_design_check_plans(const ech_design *design, const ech_plan *const *plans, int n,
                                  ech_list_kind list);
/* Appends "    parameters          12.3 MiB ...", a line per kind of memory, and the sum. */
void ech_print_memory(const ech_plan *plan, ech_text *out);

/* A rank's plan and the engine that runs it. */
typedef struct ech_session {
    ech_plan *plan;
    ech_exec *exec;
    char base[ECH_CHECKPOINT_DIGITS + 1]; /* ech_checkpoint_info.base; "": unknown */
} ech_session;
ech_status ech_session_create(const ech_design *design, ech_comm *comm, bool forward_only,
                              ech_session *out); /* collective over `comm` */
/* The same on this machine's device for its rank `local_rank`, regardless of the endpoint's
 * device. */
ech_status ech_session_create_on(const ech_design *design, ech_comm *comm, int local_rank,
                                 bool forward_only, ech_session *out);
void ech_session_destroy(ech_session *session);
/* Makes the loader of the session's batches for a purpose and passes it to the engine, which
 * borrows it. It begins with the batch of `first_step` (0: the first), is shuffled for ECH_TRAIN,
 * and has samples before position `last` (ech_design_reads). */
ech_status ech_session_read(const ech_session *session, const ech_design *design,
                            const ech_corpus *corpus, ech_purpose purpose, int64_t first_step,
                            int64_t last, ech_loader **out);

typedef ech_status (*ech_rank_main)(ech_comm *comm, void *context);
/* Calls `main` on every rank with its endpoint (ech_comm), which is closed afterwards: for `local`
 * on `ranks` threads, for `mpi` (ranks 0) on this process's rank. A rank's error aborts the others.
 * deadline: seconds after which a wait for another rank fails. Returns the error of the lowest rank
 * of this process that failed by itself, not because of another rank, and makes it this thread's
 * last error; ECH_EUSAGE if this build lacks the backend. Collective over processes of `mpi`. */
ech_status ech_run_ranks(ech_comm_kind kind, int ranks, double deadline, ech_rank_main main,
                         void *context);
typedef ech_status (*ech_design_main)(ech_comm *comm, const ech_design *design, void *context);
/* ech_run_ranks for the ranks of a design, including evaluators. */
ech_status ech_design_run(const ech_design *design, ech_design_main main, void *context);

#endif
