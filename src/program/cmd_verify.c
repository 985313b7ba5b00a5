/* SPDX-License-Identifier: Apache-2.0
 *
 * echelon verify RUN.yaml [--ranks N] [--steps S] [--tolerance E] [section.key=value ...]
 */
#include <echelon.h>
#include <stdio.h>
#include <stdlib.h>

#include "program/command.h"
#include "program/launch.h"

static const char about[] =
    "Trains a few steps in fp64 under the run file's layout and beside it on one rank, on the same "
    "micro-batches in order, and compares step by step: the loss and every gradient (after its "
    "reduction, before clipping); every weight and optimizer state, against the optimizer applied "
    "by one rank to the layout's gradient; then both go on from the same weights. At last the loss "
    "of a batch of validation."
    "\v" ECH_RUN_NOTE "\n\n"
    "An error is max|a-b| / max|b| of a tensor, of a gradient at least over 1e-3 x RMS of the "
    "whole gradient. A layout that must not change a bit is also compared in the run's own "
    "precision, any other with --own-precision: what is fast is not what fp64 runs. Exit codes: 0 "
    "within the tolerances, 1 not, 2 wrong usage or run file, 3 ill-conditioned: within them, but "
    "a random last bit of each weight changes the results by more than 1e-9, or every update was "
    "withheld since no gradient was finite.";

enum { MOST_STEPS = 100000 };
static const double DEFAULT_TOLERANCE = 1e-11; /* which the library widens to ten units */

typedef struct verify_arguments {
    ech_run_line run;
    int64_t steps;
    double tolerance;
    bool own_precision;
} verify_arguments;

static const ech_option options[] = {
    ECH_RUN_RANKS,
    ECH_INT(verify_arguments, steps, "steps", 's', "S", 1, MOST_STEPS,
            "training steps to compare (2)"),
    ECH_REAL(verify_arguments, tolerance, "tolerance", 't', "E",
             "largest error in fp64 that passes (1e-11, or ten units)"),
    ECH_FLAG(verify_arguments, own_precision, "own-precision", 'o',
             "then compare in the run's own precision, too (1e-5 in fp32, 0.08 in fp16, 0.66 in "
             "bf16, or ten units)"),
    {0}};

static void check(void *arguments, const struct argp_state *state)
{
    const verify_arguments *in = arguments;
    if (in->tolerance <= 0) argp_error(state, "--tolerance %g: must be above 0", in->tolerance);
}

/* The exit code for the result, which rank 0's process has: of the first comparison that has not
 * passed. */
static int code_of(const echelon_verification *result)
{
    int code = ECH_EXIT_DONE;
    for (int i = 0; i < echelon_verification_count(result); i++) {
        echelon_comparison c = {.size = sizeof c};
        (void)echelon_verification_at(result, i, &c);
        if (!c.passed && code == ECH_EXIT_DONE)
            code = c.ill_conditioned ? ECH_EXIT_ILL_CONDITIONED : ECH_EXIT_FAILED;
    }
    return code;
}

/* Verifies in this process. */
static echelon_status verify(const verify_arguments *in, int ranks, int *code)
{
    const echelon_verify_options wanted = {.size = sizeof wanted,
                                           .ranks = ranks,
                                           .steps = in->steps,
                                           .tolerance = in->tolerance,
                                           .own_precision = in->own_precision};
    echelon_run *run = NULL;
    echelon_verification *result = NULL;
    echelon_status status = ech_run_line_open(&in->run, &run);
    if (status == ECHELON_OK) status = echelon_verify(run, &wanted, &result);
    if (status == ECHELON_OK) {
        fputs(echelon_verification_text(result), stdout);
        fflush(stdout);
        *code = code_of(result);
    }
    echelon_verification_free(result);
    echelon_run_close(run);
    return status;
}

ech_status ech_command_verify(int argc, char **argv, int *code)
{
    const ech_command_line line = {ECH_RUN_LINE, .about = about, .option = options, .check = check};
    verify_arguments in = {.steps = 2, .tolerance = DEFAULT_TOLERANCE};
    ech_launch_outcome outcome;
    char steps[40], tolerance[40], own[] = "--own-precision", *words[] = {steps, tolerance, own};
    ech_command_line_parse(&line, argc, argv, &in);
    snprintf(steps, sizeof steps, "--steps=%lld", (long long)in.steps);
    snprintf(tolerance, sizeof tolerance, "--tolerance=%.17g", in.tolerance);
    const ech_launch_request request = {.command = "verify",
                                        .line = &in.run,
                                        .options = words,
                                        .n = in.own_precision ? 3 : 2,
                                        .reads_weights = true};
    ech_status status = ech_launch_ranks(&request, &outcome);
    *code = outcome.code;
    if (status == ECH_OK && !outcome.is_done) status = (ech_status)verify(&in, outcome.ranks, code);
    free(in.run.assignment.at);
    return status;
}
