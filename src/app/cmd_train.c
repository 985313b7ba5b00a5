/* SPDX-License-Identifier: Apache-2.0
 *
 * echelon train RUN.yaml [--ranks N] [section.key=value ...]
 */
#include <signal.h>

#include "app/run_arguments.h"
#include "app/train.h"

static const char about[] =
    "Trains as the run file says, from the newest checkpoint that verifies, or from the beginning. "
    "Without --ranks it joins the ranks that mpirun or srun started, or is the only one."
    "\v" ECH_RUN_NOTE "\n\n"
    "Signals: SIGUSR1 saves a checkpoint and goes on; SIGUSR2, SIGTERM and Ctrl-C finish the step, "
    "save and stop. (To an mpirun of your own send SIGUSR2: it turns SIGTERM into a kill.) Exit "
    "codes: 0 all steps are done, 1 failed, 2 wrong usage or run file, 75 saved after a signal: "
    "the "
    "same command goes on.";

static const struct argp_child children[] = {{&ech_run_argp, 0, NULL, 0}, {0}};

static error_t parse(int key, char *text, struct argp_state *state)
{
    (void)text;
    if (key != ARGP_KEY_INIT) return ARGP_ERR_UNKNOWN;
    state->child_inputs[0] = state->input;
    return 0;
}

/* In the ranks only: a process that runs a launcher translates signals for it. */
static ech_status train_rank(ech_comm *comm, void *context)
{
    ech_train_catch_signals();
    return ech_train_rank(comm, context);
}

static ech_status train(const ech_config *config, const ech_run_arguments *arguments, int *code)
{
    ech_training training = {.config = config};
    ech_start start = {.command = "train",
                       .config = config,
                       .arguments = arguments,
                       .main = train_rank,
                       .context = &training,
                       .stop_signal = SIGUSR2};
    ech_status status = ech_start_ranks(&start, code);
    if (training.stopped) *code = ECH_EXIT_STOPPED;
    return status;
}

ech_status ech_command_train(int argc, char **argv, int *code)
{
    const struct argp argp = {
        .parser = parse, .args_doc = ECH_RUN_USAGE, .doc = about, .children = children};
    ech_run_arguments arguments = {0};
    ech_config *config = NULL;
    argp_parse(&argp, argc, argv, 0, NULL, &arguments);
    ech_status status = ech_run_config(&arguments, &config);
    if (status == ECH_OK) status = train(config, &arguments, code);
    ech_config_destroy(config);
    ech_run_arguments_free(&arguments);
    return status;
}
