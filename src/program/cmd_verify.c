/* SPDX-License-Identifier: Apache-2.0
 *
 * echelon verify RUN.yaml [--ranks N] [--steps S] [--tolerance E] [section.key=value ...]
 */
#include <stdio.h>

#include "program/command.h"
#include "app/count.h"
#include "program/run_line.h"
#include "app/verify/verify.h"

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
    "a random last bit of each weight changes the results by more than 1e-9.";

enum { MOST_STEPS = 100000 };

typedef struct verify_arguments {
    ech_run_arguments run;
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

static void print_main(const ech_verification *v, const ech_comm *comm)
{
    char compared[ECH_COUNT_BYTES];
    int ranks = ech_comm_size(comm);
    printf("layout     %d rank%s (%s): %s\n", ranks, ranks > 1 ? "s" : "", ech_comm_name(comm),
           v->layout);
    printf("against    1 rank, %s, in %s\n",
           v->replayed ? "the serial replay of its delayed updates"
           : v->open   ? "each micro-batch with the weights that its rank had read, then their sum"
                       : "the same micro-batches in order",
           v->precision);
    if (v->open)
        printf("skipped    the order in which ranks add their updates, which is not recorded\n");
    if (v->carried)
        printf("skipped    final weights: they depend on the timing of the ring exchange\n");
    printf("steps      %lld\n", (long long)v->steps);
    printf("errors     loss       %.1e\n", v->worst_loss);
    printf("           gradients  %.1e\n", v->worst_gradient);
    printf("           weights    %.1e\n", v->worst_weight);
    printf("           states     %.1e\n", v->worst_state);
    if (v->reports) printf("           reports    %.1e\n", v->worst_report);
    if (v->validated) printf("           validation %.1e\n", v->worst_validation);
    printf("unit       %.1e  the change by a random last bit of each weight\n", v->unit);
    printf("compared   %s elements\n", ech_count_text(v->compared, compared));
    if (v->worst_at[0]) printf("worst      %.1e  at %s\n", v->worst, v->worst_at);
}

static void print_own(const ech_verification *v)
{
    printf("in %s    ", v->precision);
    if (v->worst > 0)
        printf("worst %.1e  at %s\n", v->worst, v->worst_at);
    else
        printf("the same bits\n");
}

/* One line: the verdict of the comparison that failed, or of both. */
static void print_verdict(const ech_verification *v, const ech_verification *own)
{
    const ech_verification *bad = !v->passed ? v : own && !own->passed ? own : NULL;
    if (v->ill)
        printf("ILL-CONDITIONED  with a unit above %g the comparison proves nothing; lower "
               "optimizer.learning_rate or dropout, or use more tokens\n",
               ECH_MOST_UNIT);
    else if (bad && bad->tolerance > 0)
        printf("FAILED     not within %.2g in %s, first at %s\n", bad->tolerance, bad->precision,
               bad->first_bad);
    else if (bad)
        printf("FAILED     not the same bits in %s, first at %s\n", bad->precision, bad->first_bad);
    else if (own && own->tolerance > 0)
        printf("PASSED     within %.2g, and %.2g in %s\n", v->tolerance, own->tolerance,
               own->precision);
    else
        printf("PASSED     within %.2g\n", v->tolerance);
    fflush(stdout);
}

/* The result is rank 0's; so is the exit code for it. */
typedef struct verify_run {
    ech_verifications verifications;
    bool failed, ill;
} verify_run;

static ech_status verify_rank(ech_comm *comm, const ech_design *design, void *context)
{
    verify_run *run = context;
    ech_verifications *both = &run->verifications;
    ECH_TRY(ech_verify_twice_rank(comm, design, both));
    if (ech_comm_rank(comm) != 0) return ECH_OK;
    const ech_verification *own = both->own_compared ? &both->own : NULL;
    print_main(&both->main, comm);
    if (own) print_own(own);
    print_verdict(&both->main, own);
    run->failed = !both->main.passed || (own && !own->passed);
    run->ill = both->main.ill;
    return ECH_OK;
}

static ech_status verify(const ech_run *given, void *arguments, int *code)
{
    const verify_arguments *in = arguments;
    verify_run run = {.verifications = {.main = {.steps = in->steps,
                                                 .tolerance = in->tolerance,
                                                 .widened = in->tolerance == ECH_TOLERANCE},
                                        .own = {.tolerance = ECH_TOLERANCE_FP32},
                                        .own_precision = in->own_precision}};
    char steps[40], tolerance[40], own[] = "--own-precision", *words[] = {steps, tolerance, own};
    snprintf(steps, sizeof steps, "--steps=%lld", (long long)in->steps);
    snprintf(tolerance, sizeof tolerance, "--tolerance=%.17g", in->tolerance);
    ech_start start = {.command = "verify",
                       .reads_weights = true,
                       .run = given,
                       .options = words,
                       .n = in->own_precision ? 3 : 2,
                       .main = verify_rank,
                       .context = &run};
    ech_status status = ech_start_ranks(&start, code);
    if (run.failed) *code = run.ill ? ECH_EXIT_ILL_CONDITIONED : ECH_EXIT_FAILED;
    return status;
}

ech_status ech_command_verify(int argc, char **argv, int *code)
{
    const ech_command_line line = {ECH_RUN_LINE, .about = about, .option = options, .check = check};
    verify_arguments in = {.steps = 2, .tolerance = ECH_TOLERANCE};
    return ech_run_command(&line, argc, argv, &in.run, verify, code);
}
