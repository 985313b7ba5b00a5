/* SPDX-License-Identifier: Apache-2.0
 *
 * echelon train RUN.yaml [--ranks N] [--restarts K] [section.key=value ...]
 */
#include <echelon.h>
#include <signal.h>
#include <stdlib.h>

#include "base/text.h"
#include "program/command.h"
#include "program/job/job.h"
#include "program/launch.h"

static const char about[] =
    "Trains as the run file says, from the run's newest checkpoint that verifies, or from "
    "the beginning. Without --ranks this process joins the ranks that mpirun or srun "
    "started, or is the only one."
    "\v" ECH_RUN_NOTE "\n\n"
    "Signals: SIGUSR1 saves a checkpoint and goes on; SIGUSR2, SIGTERM, SIGHUP and Ctrl-C "
    "finish the step, save and stop, as training.time_limit does; a second Ctrl-C stops "
    "without saving. (To an mpirun of your own send SIGUSR2: it turns SIGTERM into a "
    "kill.)\n\n"
    "--restarts K: restarts a job from its newest checkpoint, at most K times, if one of its "
    "ranks is killed, fails, or waits too long for another. It is not "
    "restarted after exit codes 0, 2 and 75, when it was told to stop, when it failed by "
    "itself before its first step, or when two starts have failed by themselves and saved "
    "no new checkpoint; signals from outside (SIGKILL, SIGTERM) are no such failures.\n\n"
    "--profile: when training ends, prints the step profile, which shows where the time of a step "
    "went. It has every kind of kernel and of step, by lane, with the time that it would take at "
    "this machine's own rates of matrix products and of memory. It also shows what the compute "
    "lane waited for. "
    "The first step does not count. The same, of all ranks, is written to "
    "step_profile.jsonl in log.directory.\n\n"
    "Exit codes: 0 all steps are done; 1 failed; 2 wrong usage or run file; 75 saved "
    "after a signal or the time limit, and the same command goes on.";

enum { MOST_RESTARTS = 1000000 };

typedef struct train_arguments {
    ech_run_line run;
    int restarts;
    bool profile;
} train_arguments;

static const ech_option options[] = {
    ECH_RUN_RANKS,
    ECH_INT(train_arguments, restarts, "restarts", 0, "K", 0, MOST_RESTARTS,
            "start again after a failure, at most K times"),
    ECH_FLAG(train_arguments, profile, "profile", 0,
             "show where the time of a step goes, against what this machine can do"),
    ECH_REFUSED("cluster", "FILE",
                "train runs on this machine; use it without that, or predict the time on that "
                "cluster with echelon plan --cluster FILE"),
    {0}};

/* Seconds of the job's earlier starts. */
static double elapsed(void)
{
    const char *text = getenv(ECH_ELAPSED_VARIABLE);
    double seconds = 0;
    return text && ech_text_to_real(text, &seconds) && seconds > 0 ? seconds : 0;
}

/* Blocks signals until the process knows whether it has ranks itself, whose threads handle them:
 * without handlers these signals would end it. The log's reader may end at any time. */
static void hold_signals(void)
{
    sigset_t held;
    sigemptyset(&held);
    sigaddset(&held, SIGUSR1);
    sigaddset(&held, SIGUSR2);
    sigaddset(&held, SIGTERM);
    sigprocmask(SIG_BLOCK, &held, NULL);
    signal(SIGPIPE, SIG_IGN);
}

/* Trains in this process. */
static echelon_status train(const train_arguments *in, int ranks, int *code)
{
    const echelon_train_options wanted = {.size = sizeof wanted,
                                          .ranks = ranks,
                                          .profile = in->profile,
                                          .catch_signals = true,
                                          .elapsed = elapsed()};
    echelon_run *run = NULL;
    echelon_training *training;
    echelon_status status = ech_run_line_open(&in->run, &run);
    if (status == ECHELON_OK) status = echelon_train_start(run, &wanted, &training);
    echelon_run_close(run);
    if (status != ECHELON_OK) return status;
    (void)echelon_train_run(training, 0, NULL); /* the end has its status, too */
    if (echelon_train_is_stopped(training)) *code = ECH_EXIT_STOPPED;
    return echelon_train_finish(training);
}

ech_status ech_command_train(int argc, char **argv, int *code)
{
    const ech_command_line line = {ECH_RUN_LINE, .about = about, .option = options};
    train_arguments in = {0};
    ech_launch_outcome outcome;
    char *words[] = {"--profile"};
    hold_signals();
    ech_command_line_parse(&line, argc, argv, &in);
    const ech_launch_request request = {.command = "train",
                                        .line = &in.run,
                                        .options = words,
                                        .n = in.profile,
                                        .reads_weights = true,
                                        .trains = true,
                                        .stop_signal = SIGUSR2,
                                        .restarts = in.restarts};
    ech_status status = ech_launch_ranks(&request, &outcome);
    *code = outcome.code;
    if (status == ECH_OK && !outcome.is_done) status = (ech_status)train(&in, outcome.ranks, code);
    free(in.run.assignment.at);
    return status;
}
