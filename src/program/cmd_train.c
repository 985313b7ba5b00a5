/* SPDX-License-Identifier: Apache-2.0
 *
 * echelon train RUN.yaml [--ranks N] [--restarts K] [section.key=value ...]
 */
#include <signal.h>
#include <stdlib.h>

#include "program/command.h"
#include "app/job/job.h"
#include "program/run_line.h"
#include "app/train/train.h"

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
    ech_run_arguments run;
    int restarts;
    bool profile;
} train_arguments;

static const ech_option options[] = {
    ECH_RUN_RANKS,
    ECH_INT(train_arguments, restarts, "restarts", 0, "K", 0, MOST_RESTARTS,
            "start again after a failure, at most K times"),
    ECH_FLAG(train_arguments, profile, "profile", 0,
             "show where the time of a step goes, against what this machine can do"),
    {0}};

/* Seconds of the job's earlier starts. */
static double elapsed(void)
{
    const char *text = getenv(ECH_ELAPSED_VARIABLE);
    double seconds = 0;
    return text && ech_text_to_real(text, &seconds) && seconds > 0 ? seconds : 0;
}

static ech_status train(const ech_run *run, void *given, int *code)
{
    const train_arguments *arguments = given;
    ech_training training = {.profile = arguments->profile, .elapsed = elapsed()};
    char *words[] = {"--profile"};
    ech_start start = {.command = "train",
                       .reads_weights = true,
                       .evaluates = true,
                       .run = run,
                       .options = words,
                       .n = arguments->profile,
                       .prepare = ech_train_catch_signals,
                       .main = ech_train_rank,
                       .context = &training,
                       .stop_signal = SIGUSR2,
                       .restarts = arguments->restarts};
    ech_status status = ech_start_ranks(&start, code);
    if (training.stopped) *code = ECH_EXIT_STOPPED;
    return status;
}

ech_status ech_command_train(int argc, char **argv, int *code)
{
    const ech_command_line line = {ECH_RUN_LINE, .about = about, .option = options};
    train_arguments arguments = {0};
    ech_train_hold_signals();
    return ech_run_command(&line, argc, argv, &arguments.run, train, code);
}
