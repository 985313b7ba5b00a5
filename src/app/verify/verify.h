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
    const ech_config *config; /* checked, not resolved */
    const ech_tokenizer *tokenizer;
    int64_t steps;    /* training steps to compare; asynchronous: rounded up to whole spans */
    double tolerance; /* 1e-10; with `bits`, not looked at */
    bool bits;        /* in the run's own precision, without any difference */
    bool also_bits;   /* where the layout is `exact`, both */
    /* out, on rank 0 */
    bool passed;
    char layout[256];    /* "3 stages x 2 replicas x 2 tensor, 1f1b" */
    bool replayed;       /* asynchronous: against the serial replay; no gradients are compared */
    bool exact;          /* the layout differs from one rank only in what must not change a bit */
    double worst;        /* the largest error of all */
    char worst_at[256];  /* "step 2, gradient of model.layers.1....": where it was */
    char first_bad[256]; /* the first tensor out of tolerance, "" if there is none */
    double worst_loss, worst_gradient, worst_weight;
    bool bits_compared; /* with also_bits: the second comparison was made */
    char bits_bad[256]; /* where it found a difference, "" if nowhere; also fails `passed` */
    int64_t compared, left_out; /* elements of updated weights compared, and left out as noise */
} ech_verification;

/* Runs the configuration's layout and one rank (same micro-batches, in order) and compares loss,
 * every gradient (after reduction, before clipping) and every updated weight after each step; an
 * asynchronous schedule with its serial replay, losses of each step and weights after each span.
 * Collective; an ech_rank_main over an ech_verification shared by the process's ranks. */
ech_status ech_verify_rank(ech_comm *comm, void *verification);

#endif
