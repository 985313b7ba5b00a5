/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening a run, and starting its ranks: as threads, or as the rank of a launcher that started
 * this process.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/setup/initial.h"
#include "app/setup/run.h"
#include "base/file.h"
#include "base/log.h"
#include "comm/launch.h"
#include "comm/tf_config.h"

ech_status ech_run_configure(const ech_run_arguments *in, ech_config **out)
{
    char *const *assignment = in->assignment.at;
    int n = (int)in->assignment.n, ranks = in->ranks > 0 ? in->ranks : 1;
    if (in->model) return ech_setup_config_of_model(in->model, ranks, assignment, n, out);
    return ech_setup_config_own(in->file, in->text, in->plans, assignment, n, out);
}

static ech_status open_run(const ech_run_arguments *in, ech_run *out)
{
    ECH_TRY(ech_run_configure(in, &out->config));
    ECH_TRY(ech_initial_open_tokenizer(out->config, &out->tokenizer, &out->end_of_text));
    return ech_initial_resolve_begin(out->config);
}

ech_status ech_run_open(const ech_run_arguments *in, ech_run *out)
{
    *out = (ech_run){.arguments = in};
    bool quiet = ech_run_set_quiet();
    ech_status status = open_run(in, out);
    ech_log_set_quiet(quiet);
    return status;
}

bool ech_run_set_quiet(void)
{
    ech_launched launched;
    bool another_logs = ech_launched_here(&launched) && launched.rank > 0;
    return ech_log_set_quiet(another_logs || ech_log_is_quiet());
}

void ech_run_close(ech_run *run)
{
    ech_tokenizer_close(run->tokenizer);
    ech_config_destroy(run->config);
}

/* Whether its ranks are threads of this process. */
static bool has_threads(const ech_config *config)
{
    return ech_comm_has_threads((ech_comm_kind)config->parallel.comm);
}

/* All evaluators need as much memory. */
static ech_status check_evaluators(const ech_design *design)
{
    ech_ranks evaluators = ech_layout_roles(design->layout).evaluate;
    if (evaluators.n == 0) return ECH_OK;
    ECH_CLEANUP(ech_config_destroy_at) ech_config *config = ech_config_copy(design->config);
    ECH_CLEANUP(ech_design_destroy) ech_design evaluator = {0};
    ECH_CLEANUP(ech_plan_destroy_at) ech_plan *plan = NULL;
    ECH_TRY(ech_design_create_evaluator(design, evaluators.first, config, &evaluator));
    return ech_design_plan(&evaluator, 0, true, &plan);
}

/* Whether the plan fits, where that does not depend on how many ranks share a machine. */
static ech_status check_memory(const ech_config *config, const ech_design *design)
{
    ECH_CLEANUP(ech_plan_destroy_at) ech_plan *plan = NULL;
    bool is_known = config->memory.device_limit != ECH_AUTO || has_threads(config);
    if (!is_known) return ECH_OK;
    ECH_TRY(ech_design_plan(design, 0, false, &plan));
    return check_evaluators(design);
}

static ech_status check_tokens(const ech_design *design, ech_split split)
{
    ECH_CLEANUP(ech_corpus_close_at) ech_corpus *corpus = NULL;
    return ech_design_open_data(design, split, &corpus);
}

void ech_start_release(ech_prepared *p)
{
    ech_design_destroy(&p->design);
    ech_config_destroy(p->config);
    *p = (ech_prepared){0};
}

/* Threads see the same devices; which ones processes have is known once they run (cards.h). */
static ech_status check_device(const ech_config *config, int ranks, int local_ranks)
{
    const ech_device *device = ech_device_find(ech_config_name(config, "parallel.device"));
    ECH_TRY(ech_setup_check_device(config, "parallel.device=cpu"));
    const ech_comm_backend *comm = ech_comm_of_kind((ech_comm_kind)config->parallel.comm);
    ECH_TRY(ech_comm_check_device(comm, device, ranks));
    if (config->parallel.share_device == 1 && ranks > 1)
        ECH_TRY(ech_comm_share_device(comm, device));
    return has_threads(config) ? ech_setup_check_sharing(config, device, local_ranks) : ECH_OK;
}

/* Checks that the launcher has given processes the run's roles. */
static ech_status check_roles(const ech_design *design)
{
    const ech_tf_config *given = ech_tf_config_adopted();
    ech_roles roles = ech_layout_roles(design->layout);
    if (!given || (given->workers == roles.train.n && given->servers == roles.serve.n))
        return ECH_OK;
    ECH_FAIL(ECH_EUSAGE,
             "TF_CONFIG has %s (chief and worker) and %s (ps), but the run has %s and %s; change "
             "the replicas of the job, or parallel.servers and the degrees of parallel.*",
             ECH_COUNT(given->workers, "worker"), ECH_COUNT(given->servers, "server"),
             ECH_COUNT(roles.train.n, "worker"), ECH_COUNT(roles.serve.n, "server"));
}

/* A run writes its resolved run file into its directory. A directory without metrics has no
 * earlier one that this may replace. */
static ech_status check_run_file(const ech_run_arguments *given, const char *directory)
{
    ECH_FREED char *written = ech_file_join(directory, "run.yaml");
    bool is_read = !given->text && !given->model && ech_file_are_same(given->file, written);
    if (!is_read || ech_file_has(directory, "metrics.jsonl")) return ECH_OK;
    ECH_FAIL(ECH_EUSAGE,
             "%s: the run would replace this file by its resolved run file; rename it, or name "
             "another log.directory",
             given->file);
}

/* Checks that need no running rank, so that errors are printed once. */
static ech_status check_start(const ech_start *start, const ech_design *design, int local_ranks)
{
    const ech_config *given = start->run->config;
    int ranks = ech_layout_ranks(design->layout);
    if (ech_layout_roles(design->layout).evaluate.n && !start->trains)
        return ech_config_complain(given, "parallel.evaluators",
                                   "`echelon %s` uses no evaluators; set parallel.evaluators=0, "
                                   "and start %s",
                                   start->command, ECH_COUNT(design->world, "rank"));
    if (start->trains) ECH_TRY(check_run_file(start->run->arguments, given->log.directory));
    ECH_TRY(check_roles(design));
    ECH_TRY(check_device(design->config, ranks, local_ranks));
    if (start->reads_weights) ECH_TRY(ech_initial_expect(given));
    ECH_TRY(check_memory(given, design));
    ECH_TRY(check_tokens(design, ECH_SPLIT_TRAIN));
    return check_tokens(design, ECH_SPLIT_VALID);
}

ech_status ech_start_prepare(const ech_start *start, int ranks, int local_ranks, ech_prepared *out)
{
    const ech_run *run = start->run;
    *out = (ech_prepared){.config = ech_config_copy(run->config)};
    ECH_TRY(ech_design_create(out->config, run->tokenizer, ranks, local_ranks, &out->design));
    out->design.end_of_text = run->end_of_text;
    return check_start(start, &out->design, local_ranks);
}

ech_status ech_run_ranks_of(const ech_config *config, int given, int *ranks)
{
    int64_t asked = given ? given : ech_setup_ranks(config);
    if (asked > ECH_MOST_RANKS)
        return ech_config_complain(config, "parallel.data", "at most %d ranks", ECH_MOST_RANKS);
    *ranks = asked ? (int)asked : 1;
    return ECH_OK;
}

/* The first rank whose preparation failed repeats it, now logging all errors; the others return
 * ECH_EABORTED. */
static ech_status report_once(ech_comm *comm, ech_group *world, const ech_start *start,
                              ech_status status)
{
    ECH_CLEANUP(ech_start_release) ech_prepared p = {0};
    int size = ech_comm_size(comm);
    double first = status == ECH_OK ? 0 : size - ech_group_index(world), mine = first;
    ECH_TRY(ech_group_fold(world, ECH_FOLD_MAX, &first, 1));
    if (first == 0) return ECH_OK;
    ech_status said = ECH_EABORTED;
    if (first == mine) said = ech_start_prepare(start, size, ech_comm_local_size(comm), &p);
    if (said == ECH_OK) said = ech_fail_at(__FILE__, __LINE__, status, "%s", ech_last_error());
    (void)ech_group_barrier(world); /* whoever returns ends the others: not before it is said */
    return said;
}

/* parallel.node_ranks = auto is the number of ranks on the rank's own machine, and all ranks must
 * sum in the same order. The first rank logs the error; the others return ECH_EABORTED. */
static ech_status check_machines(ech_group *world, const ech_prepared *p)
{
    double most = (double)p->config->parallel.node_ranks, least = -most;
    ECH_TRY(ech_group_fold(world, ECH_FOLD_MAX, &most, 1));
    ECH_TRY(ech_group_fold(world, ECH_FOLD_MAX, &least, 1));
    if (most + least <= 0) return ECH_OK;
    ech_status said = ECH_EABORTED;
    if (ech_group_index(world) == 0)
        said = ech_config_complain(p->config, "parallel.node_ranks",
                                   "machines have %.0f to %.0f ranks of this run; start equally "
                                   "many on each, or set parallel.node_ranks to one number on all",
                                   -least, most);
    (void)ech_group_barrier(world); /* whoever returns ends the others: not before it is said */
    return said;
}

/* Ranks that a user's launcher started have no parent that has checked the run. Each checks it for
 * itself, since files may be missing on one machine only. */
static ech_status launched_main(ech_comm *comm, void *context)
{
    const ech_start *start = context;
    ECH_CLEANUP(ech_start_release) ech_prepared p = {0};
    ECH_CLEANUP(ech_group_destroy_at) ech_group *world = NULL;
    ECH_TRY(ech_group_create_world(comm, "start", &world));
    bool quiet = ech_log_set_quiet(true);
    ech_status ready = ech_start_prepare(start, ech_comm_size(comm), ech_comm_local_size(comm), &p);
    ech_log_set_quiet(quiet);
    ECH_TRY(report_once(comm, world, start, ready));
    ECH_TRY(check_machines(world, &p));
    return start->main(comm, &p.design, start->context);
}

/* As the rank of a launcher that started this process. */
static ech_status run_launched(const ech_start *start, const ech_launched *launched)
{
    const ech_config *config = start->run->config;
    int ranks = start->run->arguments->ranks;
    ech_start copy = *start;
    if (has_threads(config))
        return ech_config_complain(config, "parallel.comm",
                                   "%s started %lld processes, and each would train alone; use "
                                   "parallel.comm=mpi or ucx (nccl on GPUs), or no launcher",
                                   launched->by, (long long)launched->size);
    if (ranks && launched->size && launched->size != ranks)
        ECH_FAIL(ECH_EUSAGE,
                 "--ranks %d, but %s started %lld; leave --ranks out: it would start a launcher of "
                 "its own",
                 ranks, launched->by, (long long)launched->size);
    if (start->prepare) ECH_TRY(start->prepare(start->context));
    return ech_run_ranks((ech_comm_kind)config->parallel.comm, 0, config->parallel.deadline,
                         launched_main, &copy);
}

ech_status ech_start_ranks(const ech_start *start)
{
    const ech_config *config = start->run->config;
    ECH_CLEANUP(ech_start_release) ech_prepared p = {0};
    ech_launched launched;
    int ranks = 1;
    ECH_TRY(ech_tf_config_adopt((int)config->parallel.evaluators));
    const char *lacks = ech_comm_lacks((ech_comm_kind)config->parallel.comm);
    if (lacks) return ech_config_complain(config, "parallel.comm", "%s", lacks);
    if (ech_launched_here(&launched) && (!has_threads(config) || launched.size > 1))
        return run_launched(start, &launched);
    ECH_TRY(ech_run_ranks_of(config, start->run->arguments->ranks, &ranks));
    ECH_TRY(ech_start_prepare(start, ranks, ranks, &p));
    if (!has_threads(config) && ranks > 1)
        return ech_config_complain(config, "parallel.comm",
                                   "%d ranks would be processes, which a library does not start; "
                                   "use parallel.comm=local, or start the processes with a "
                                   "launcher (mpirun, srun, torchrun)",
                                   ranks);
    if (start->prepare) ECH_TRY(start->prepare(start->context));
    return ech_design_run(&p.design, start->main, start->context);
}
