/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a command needs a job, and the job's command line.
 */
#include "program/launch.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/log.h"
#include "comm/launch.h"
#include "comm/tf_config.h"
#include "program/command.h"
#include "program/job/job.h"
#include "program/run_arguments.h"

/* "train --option RUN.yaml section.key=value". --ranks is the launcher's; threads have none. */
static void add_words(const ech_launch_request *request, bool by_launcher, ech_launch_line *out)
{
    const ech_run_line *line = request->line;
    char ranks[32];
    bool begins_option = line->file[0] == '-'; /* of a file that followed "--" */
    ECH_FREED char *file = begins_option ? ech_file_join(".", line->file) : ech_strdup(line->file);
    snprintf(ranks, sizeof ranks, "--ranks=%d", line->ranks);
    ech_launch_line_add(out, request->command);
    if (!by_launcher && line->ranks > 1) ech_launch_line_add(out, ranks);
    for (int i = 0; i < request->n; i++) ech_launch_line_add(out, request->options[i]);
    ech_launch_line_add(out, file);
    for (size_t i = 0; i < line->assignment.n; i++)
        ech_launch_line_add(out, line->assignment.at[i]);
    ech_launch_line_add(out, NULL);
}

/* Runs this program as a job: by a launcher, or as one process with all ranks. */
static ech_status start_job(const ech_launch_request *request, const ech_prepared *p,
                            ech_launch_by by, int *code)
{
    ECH_CLEANUP(ech_launch_line_free) ech_launch_line line = {0};
    ech_job job = {.line = &line,
                   .ranks = ech_layout_ranks(p->design.layout),
                   .first_evaluator = ech_layout_roles(p->design.layout).evaluate.first,
                   .by_launcher = by != ECH_LAUNCH_NOBODY,
                   .stop_signal = request->stop_signal,
                   .deadline = p->config->parallel.deadline,
                   .restarts = request->restarts,
                   .checkpoints = request->restarts ? p->config->checkpoint.directory : NULL};
    int job_code = ECH_EXIT_FAILED;
    ECH_TRY(ech_launch_self(job.ranks, by, &line));
    add_words(request, job.by_launcher, &line);
    ech_status status = ech_job_run(&job, &job_code);
    bool is_ours = job_code == ECH_EXIT_DONE || job_code == ECH_EXIT_USAGE ||
                   job_code == ECH_EXIT_ILL_CONDITIONED || job_code == ECH_EXIT_STOPPED;
    *code = is_ours ? job_code : ECH_EXIT_FAILED;
    return status;
}

/* Opens the run, checks it, and starts the job. */
static ech_status check_and_start(const ech_launch_request *request,
                                  const ech_run_arguments *arguments, ech_launch_by by, int *code)
{
    ECH_CLEANUP(ech_run_close) ech_run run = {0};
    ECH_CLEANUP(ech_start_release) ech_prepared p = {0};
    const ech_start start = {.command = request->command,
                             .run = &run,
                             .reads_weights = request->reads_weights,
                             .trains = request->trains};
    int ranks = 1;
    ECH_TRY(ech_run_open(arguments, &run));
    if (request->adjust) request->adjust(run.config);
    ECH_TRY(ech_run_ranks_of(run.config, arguments->ranks, &ranks));
    ECH_TRY(ech_start_prepare(&start, ranks, ranks, &p));
    return start_job(request, &p, by, code);
}

/* What starts the ranks if a job does. A run whose file or TF_CONFIG is wrong needs none: the
 * library reports what is wrong. */
static bool needs_job(const ech_launch_request *request, const ech_run_arguments *arguments,
                      int *ranks, ech_launch_by *by)
{
    ECH_CLEANUP(ech_config_destroy_at) ech_config *config = NULL;
    bool quiet = ech_log_set_quiet(true);
    ech_status status = ech_run_configure(arguments, &config);
    if (status == ECH_OK) status = ech_tf_config_adopt((int)config->parallel.evaluators);
    ech_log_set_quiet(quiet);
    if (status != ECH_OK) return false;
    ech_comm_kind comm = (ech_comm_kind)config->parallel.comm;
    bool are_threads = ech_comm_has_threads(comm);
    if (!are_threads && *ranks == 0) *ranks = 1;
    bool by_launcher = !are_threads && *ranks > 1;
    *by = !by_launcher ? ECH_LAUNCH_NOBODY : comm == ECH_COMM_ucx ? ECH_LAUNCH_OWN : ECH_LAUNCH_MPI;
    return !ech_comm_lacks(comm) && (by_launcher || request->restarts);
}

ech_status ech_launch_ranks(const ech_launch_request *request, ech_launch_outcome *out)
{
    const ech_run_line *line = request->line;
    ech_launch_by by;
    ech_launched launched;
    *out = (ech_launch_outcome){.ranks = line->ranks, .code = ECH_EXIT_DONE};
    ech_run_arguments arguments = ech_run_line_arguments(line);
    bool needs = needs_job(request, &arguments, &out->ranks, &by);
    if (ech_launched_here(&launched)) {
        free(arguments.assignment.at);
        out->ranks = line->ranks;
        if (!request->restarts) return ECH_OK;
        ECH_FAIL(ECH_EUSAGE,
                 "--restarts %d: %s started this process as a rank, which cannot start the job "
                 "again; let echelon start the ranks with --ranks N, or repeat the job: "
                 "examples/slurm.sh and examples/mpirun.sh do so",
                 request->restarts, launched.by);
    }
    out->is_done = needs;
    arguments.ranks = out->ranks;
    ech_status status =
        out->is_done ? check_and_start(request, &arguments, by, &out->code) : ECH_OK;
    free(arguments.assignment.at);
    return status;
}
