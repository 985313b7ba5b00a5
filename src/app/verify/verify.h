/* SPDX-License-Identifier: Apache-2.0
 *
 * `echelon verify`: compares training under a layout with training on one rank. The error of a
 * tensor a against the reference b is max|a - b| / max|b| (docs/design/correctness.md).
 */
#ifndef ECH_APP_VERIFY_VERIFY_H
#define ECH_APP_VERIFY_VERIFY_H

#include "app/setup/setup.h"

/* A training run that is compared with another: its session and training data. */
typedef struct ech_compared_run {
    const ech_design *design; /* borrowed */
    ech_session session;
    ech_corpus *data;
    ech_loader *loader;
} ech_compared_run;

/* Makes session, data and loader, and initializes the parameters. run->design must be set. Release
 * with ech_compared_run_close, also after an error. Collective over `comm`. */
ech_status ech_compared_run_open(ech_compared_run *run, ech_comm *comm);
/* *loss: of the first global batch of validation data with the newest weights. *validates: there is
 * such data; else *loss is not set. Collective. */
ech_status ech_compared_run_validate(ech_compared_run *run, bool *validates, double *loss);
void ech_compared_run_close(ech_compared_run *run);

/* A comparison and its result. */
typedef struct ech_verification {
    /* in */
    /* Training steps to compare; rounded up to full spans, or to where replicas meet. */
    int64_t steps;
    double tolerance;   /* the largest error that passes; 0: numbers must be equal */
    bool widened;       /* tolerance becomes ten units, if that is more */
    bool own_precision; /* in the run's own precision instead of fp64 */
    /* out, on rank 0 */
    bool passed;
    bool ill; /* not passed, though within the tolerance: the layout is not exact, and the unit is
                 above ECH_MOST_UNIT */
    double unit; /* what a random last bit of each weight changes the results by */
    char layout[256];      /* "3 stages x 2 replicas x 2 tensor, 1f1b" */
    const char *precision; /* "fp64" */
    bool replayed; /* the schedule is asynchronous: compared with its serial replay (replay.h) */
    bool open;     /* the order in which ranks add is open: what each had read is taken from it */
    bool carried;  /* and so are weights after a span in which a token has gone around clusters */
    /* the layout must give the same bits as one rank (docs/design/correctness.md) */
    bool exact;
    bool validated;      /* validation losses were compared, too */
    double worst;        /* the largest error */
    char worst_at[256];  /* where the largest error was: "step 2, gradient of model.layers.1...." */
    char first_bad[256]; /* the first tensor out of tolerance, "" if there is none */
    double worst_loss, worst_gradient, worst_weight, worst_state, worst_validation; /* errors */
    double worst_report; /* of what layers report, if they do: `reports` numbers of a step */
    int64_t reports;
    int64_t compared; /* number of elements of gradients, weights and states */
} ech_verification;

/* In fp64 results that rounding changes by more than this prove nothing. */
#define ECH_MOST_UNIT 1e-9
/* Default tolerances. That of fp64 is about ten times the largest error of 1,400 random run files
 * (1.2e-12), drawn as in tests/app/test_verify_random.c. */
#define ECH_TOLERANCE      1e-11
#define ECH_TOLERANCE_FP32 1e-5

/* Trains the design's layout and, on rank 0 beside it, a single rank on the same micro-batches.
 * After each training step it compares the loss and every gradient (reduced, not yet clipped) and
 * copies the layout's gradients to the single rank; then it compares the weights and optimizer
 * states that both make of these gradients, and copies them, too. So rounding errors do not
 * accumulate over training steps. An asynchronous schedule is compared with its serial replay in
 * the same way. Last, it compares the loss of a validation batch. Errors do not include a
 * comparison that fails: see `passed`. An ech_design_main whose context is an ech_verification.
 * Collective. */
ech_status ech_verify_rank(ech_comm *comm, const ech_design *design, void *verification);

/* Two comparisons: `main` in fp64, then `own` in the run's own precision. The second is made if the
 * layout is exact, with tolerance 0, or else if own_precision asks for it and the run's precision
 * is not fp64. Then the tolerance is own.tolerance, which is fp32's, as much coarser as the
 * precision is (2^13 times in fp16, 2^16 times in bf16), or ten of the units of that precision.
 * Codes of 8-bit states may then differ by one, and fp16 runs have their loss scale (for auto
 * 4096); all other comparisons are with a loss scale of 1. */
typedef struct ech_verifications {
    ech_verification main, own; /* in: main's inputs, own.tolerance; out: results */
    bool own_precision;         /* in: make the second comparison for any layout */
    bool own_compared;          /* out, on rank 0: it was made */
} ech_verifications;
/* An ech_design_main whose context is an ech_verifications. Collective. */
ech_status ech_verify_twice_rank(ech_comm *comm, const ech_design *design, void *verifications);

#endif
