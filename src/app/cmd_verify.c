/* SPDX-License-Identifier: Apache-2.0
 *
 * echelon verify RUN.yaml [--ranks N] [--steps S] [--tolerance E] [section.key=value ...]
 */
#include <stdio.h>

#include "app/count.h"
#include "app/setup/run_arguments.h"
#include "app/verify/verify.h"

static const char about[] =
    "Trains a few steps in fp64 under the run file's layout and beside it on one rank, on the same "
    "micro-batches in order, and compares the loss, every gradient (after its reduction, before "
    "clipping) and every updated weight."
    "\v" ECH_RUN_NOTE "\n\n"
    "An error is max|a-b| / max(max|b|, 1e-3 x RMS of the whole gradient) of a tensor; weights "
    "whose "
    "gradient is nothing but rounding are left out and counted. Exit codes: 0 within the "
    "tolerance, "
    "1 not, 2 wrong usage or run file.";

enum { OPTION_STEPS = 's', OPTION_TOLERANCE = 't', MOST_STEPS = 100000 };

static const struct argp_option options[] = {
    {"steps", OPTION_STEPS, "S", 0, "training steps to compare (2)", 0},
    {"tolerance", OPTION_TOLERANCE, "E", 0, "largest error that passes (1e-10)", 0},
    {0}};

static const struct argp_child children[] = {{&ech_run_argp, 0, NULL, 0}, {0}};

typedef struct verify_arguments {
    ech_run_arguments run;
    int64_t steps;
    double tolerance;
} verify_arguments;

static error_t parse(int key, char *text, struct argp_state *state)
{
    verify_arguments *in = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &in->run;
        return 0;
    case OPTION_STEPS:
        in->steps = ech_option_int(state, "--steps", text, 1, MOST_STEPS);
        return 0;
    case OPTION_TOLERANCE:
        in->tolerance = ech_option_real(state, "--tolerance", text);
        if (in->tolerance <= 0) argp_error(state, "--tolerance %s: must be above 0", text);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void print_result(const ech_verification *v, const ech_comm *comm)
{
    char compared[ECH_COUNT_BYTES], left_out[ECH_COUNT_BYTES];
    int ranks = ech_comm_size(comm);
    printf("layout     %d rank%s (%s): %s\n", ranks, ranks > 1 ? "s" : "", ech_comm_name(comm),
           v->layout);
    printf("against    1 rank, %s, in fp64\n", v->replayed
                                                   ? "the serial replay of its delayed updates"
                                                   : "the same micro-batches in order");
    printf("steps      %lld\n", (long long)v->steps);
    printf("errors     loss       %.1e\n", v->worst_loss);
    if (!v->replayed) printf("           gradients  %.1e\n", v->worst_gradient);
    printf("           weights    %.1e  (%s elements compared, %s left out: no gradient)\n",
           v->worst_weight, ech_count_text(v->compared, compared),
           ech_count_text(v->left_out, left_out));
    if (v->worst_at[0]) printf("worst      %.1e  at %s\n", v->worst, v->worst_at);
    if (v->bits_compared)
        printf("bits       %s\n", v->bits_bad[0] ? v->bits_bad : "the same in the run's precision");
    if (v->passed)
        printf("PASSED     within %g\n", v->tolerance);
    else
        printf("FAILED     not within %g, first at %s\n", v->tolerance,
               v->first_bad[0] ? v->first_bad : v->bits_bad);
    fflush(stdout);
}

/* The result is rank 0's; so is the exit code for it. */
typedef struct verify_run {
    ech_verification verification;
    bool failed;
} verify_run;

static ech_status verify_rank(ech_comm *comm, void *context)
{
    verify_run *run = context;
    ECH_TRY(ech_verify_rank(comm, &run->verification));
    if (ech_comm_rank(comm) != 0) return ECH_OK;
    print_result(&run->verification, comm);
    run->failed = !run->verification.passed;
    return ECH_OK;
}

static ech_status verify(const ech_run *given, const verify_arguments *in, int *code)
{
    verify_run run = {.verification = {.config = given->config,
                                       .tokenizer = given->tokenizer,
                                       .steps = in->steps,
                                       .tolerance = in->tolerance,
                                       .also_bits = true}};
    char steps[40], tolerance[40], *words[] = {steps, tolerance};
    snprintf(steps, sizeof steps, "--steps=%lld", (long long)in->steps);
    snprintf(tolerance, sizeof tolerance, "--tolerance=%.17g", in->tolerance);
    ech_start start = {.command = "verify",
                       .run = given,
                       .arguments = &in->run,
                       .options = words,
                       .n = 2,
                       .main = verify_rank,
                       .context = &run};
    ech_status status = ech_start_ranks(&start, code);
    if (run.failed) *code = ECH_EXIT_FAILED;
    return status;
}

ech_status ech_command_verify(int argc, char **argv, int *code)
{
    const struct argp argp = {.options = options,
                              .parser = parse,
                              .args_doc = ECH_RUN_USAGE,
                              .doc = about,
                              .children = children};
    verify_arguments in = {.steps = 2, .tolerance = 1e-10};
    ech_run run = {0};
    argp_parse(&argp, argc, argv, 0, NULL, &in);
    ech_status status = ech_run_open(&in.run, &run);
    if (status == ECH_OK) status = verify(&run, &in, code);
    ech_run_close(&run);
    ech_run_arguments_free(&in.run);
    return status;
}
