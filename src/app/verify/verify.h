/* SPDX-License-Identifier: Apache-2.0
 *
 * Verification: a layout against one rank.
 */
#ifndef ECH_APP_VERIFY_VERIFY_H
#define ECH_APP_VERIFY_VERIFY_H

#include "app/setup/setup.h"

/* What was compared and how far apart it was. */
typedef struct ech_verification {
    /* in */
    int64_t steps;      /* training steps to compare; asynchronous: rounded up to whole spans */
    double tolerance;   /* ECH_TOLERANCE; 0: without any difference */
    bool own_precision; /* in the run's own precision instead of fp64 */
    /* out, on rank 0 */
    bool passed;
    char layout[256];      /* "3 stages x 2 replicas x 2 tensor, 1f1b" */
    const char *precision; /* "fp64" */
    bool replayed;         /* asynchronous: against the serial replay */
    bool exact;            /* the layout differs from one rank only in what must not change a bit */
    bool validated;        /* there is validation data */
    double worst;          /* the largest error of all */
    char worst_at[256];    /* "step 2, gradient of model.layers.1....": where it was */
    char first_bad[256];   /* the first tensor out of tolerance, "" if there is none */
    double worst_loss, worst_gradient, worst_weight, worst_state, worst_validation;
    int64_t compared; /* elements of gradients, weights and states */
} ech_verification;

/* Largest errors that pass. In fp64 about ten times the worst of 1,400 random run files (1.2e-12), as
 * tests/app/test_verify_random.c draws them; in fp32. */
#define ECH_TOLERANCE      1e-11
#define ECH_TOLERANCE_FP32 1e-5

/* Runs the design and one rank (same micro-batches, in order), step by step, and compares
 * the loss and every gradient (after reduction, before clipping); then the one rank takes over the layout's
 * gradients, and what norms, clipping and optimizer make of them, weights and states, is compared; then it
 * takes over these, too. So nothing that was allowed in one step adds up over others. An asynchronous
 * schedule is compared with its serial replay in the same way, states at the end of a span. At last a batch of validation. Collective; an ech_design_main over an ech_verification shared by
 * the process's ranks. */
ech_status ech_verify_rank(ech_comm *comm, const ech_design *design, void *verification);

/* In fp64, and then in the run's own precision where that is another: without any difference where the layout
 * is exact, otherwise only if asked for, within own.tolerance, or eight times the rounding that the errors in
 * fp64 come to in fp32: a run that amplifies the one amplifies the other. */
typedef struct ech_verifications {
    ech_verification main,
        own;            /* in: what main needs; own.tolerance, of layouts that are not exact */
    bool own_precision; /* in: asked for */
    bool own_compared;  /* out, on rank 0 */
} ech_verifications;
ech_status ech_verify_twice_rank(ech_comm *comm, const ech_design *design, void *verifications);

#endif
