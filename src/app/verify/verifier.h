/* SPDX-License-Identifier: Apache-2.0
 *
 * For verify/ alone: a verification under way.
 */
#ifndef ECH_APP_VERIFY_VERIFIER_H
#define ECH_APP_VERIFY_VERIFIER_H

#include "app/verify/replay.h"
#include "app/verify/verify.h"

/* A parameter as the first replica of a stage has it: where stages share one, each has its copy. */
typedef struct ech_copy {
    int stage, param;
    int64_t at; /* in ech_verifier.gradients */
} ech_copy;

typedef struct ech_verifier {
    ech_verification *result; /* rank 0 */
    ech_comm *comm;
    ech_compared_run layout, single;
    ech_config *config[2];          /* of the two; NULL: there is none yet */
    ech_design compared, reference; /* likewise; `compared` shares what the run's design owns */
    ech_replay *replay;
    ECH_LIST(ech_copy) copy;
    double *
        mine; /* this rank's of the layout's gradients, one step behind the other; then of weights */
    int64_t *own;      /* [params + 1] where each begins in a step's */
    double *gradients; /* rank 0: of all copies, whole, of one step */
    int64_t *first;    /* [params + 1] where each begins in the whole model */
    int turn;          /* the step of the list that is compared */
    bool taken;        /* it has been given the layout's gradient */
    int64_t step;
} ech_verifier;

int ech_verifier_params(const ech_verifier *v); /* of the model */
bool ech_verifier_is_asynchronous(const ech_verifier *v);
/* The copies, and memory for gradients. */
void ech_verifier_prepare(ech_verifier *v);
void ech_verifier_free(ech_verifier *v);

/* For ech_exec_observe, `context` the verifier. The layout's: keeps each step's gradients before they are
 * clipped, and within a span the weights that are updated by them. */
void ech_verifier_observe_layout(void *context, ech_exec *exec, const ech_step *step);
/* The single rank's gradients are whole: compares them with the layout's, and puts those in their place, so
 * that norms, clipping and the optimizer work on the same numbers on both sides. On rank 0. */
void ech_verifier_exchange_gradients(ech_verifier *v, ech_exec *exec);

/* Both sides' loss of a training step of the list, on rank 0. */
void ech_verifier_compare_loss(ech_verifier *v);
void ech_verifier_compare_validation(ech_verifier *v, double layout, double single);
/* Brings the gradients of the turn to rank 0. Collective. */
ech_status ech_verifier_bring_gradients(ech_verifier *v);
/* Compares with the single rank's, and gives it, the weights that the layout had at the turn's update; the
 * newest weights and states. Collective. */
ech_status ech_verifier_exchange_weights(ech_verifier *v);
ech_status ech_verifier_exchange_newest(ech_verifier *v);

#endif
