/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a verification. Private to app/verify.
 */
#ifndef ECH_APP_VERIFY_VERIFIER_H
#define ECH_APP_VERIFY_VERIFIER_H

#include "app/verify/replay.h"

/* A parameter on the first replica of a stage; a tied parameter has a copy on each stage that uses it. */
typedef struct ech_copy {
    int stage, param;
    int64_t at; /* in ech_verifier.gradients */
} ech_copy;

typedef struct ech_verifier {
    ech_verification *result; /* on rank 0; else NULL */
    ech_comm *comm;
    ech_comm *alone; /* the single rank's; NULL: not made yet */
    ech_compared_run layout, single;
    ech_config *config[2];          /* of these two; NULL: not made yet */
    ech_design compared, reference; /* likewise; `compared` borrows from the run's design */
    ech_replay *replay;             /* NULL: the schedule is synchronous */
    ECH_LIST(ech_copy) copy;
    double *mine; /* this rank's gradients under the layout, training step by step; then weights */
    int64_t *own; /* [params + 1] offset of each parameter in a training step's part of `mine` */
    double *gradients; /* on rank 0: of all copies, unsharded, of one training step */
    int64_t *first;    /* [params + 1] offset of each parameter in the whole model */
    int turn;          /* the step of the list that is compared */
    bool taken;        /* the single rank has the layout's gradients of that step */
    int64_t step;      /* its number in the run */
} ech_verifier;

int ech_verifier_params(const ech_verifier *v); /* of the model */
bool ech_verifier_is_asynchronous(const ech_verifier *v);
/* Lists the copies and allocates memory for gradients. */
void ech_verifier_prepare(ech_verifier *v);
void ech_verifier_free(ech_verifier *v);

/* The ech_exec_observe of the layout's ranks, `context` is the verifier: stores the gradients of each training
 * step before clipping, and for steps within a span the weights before their update. */
void ech_verifier_observe_layout(void *context, ech_exec *exec, const ech_step *step);
/* When the single rank's gradients are complete, on rank 0: compares them with the layout's and replaces them by
 * those, so that norm, clipping and optimizer get the same numbers on both sides. */
void ech_verifier_exchange_gradients(ech_verifier *v, ech_exec *exec);

/* Compares two losses; `what` names them, *worst is raised to their error. On rank 0. */
void ech_verifier_compare_losses(ech_verifier *v, const char *what, double layout, double single,
                                 double *worst);
/* Gathers the layout's gradients of the current training step on rank 0. Collective. */
ech_status ech_verifier_gather_gradients(ech_verifier *v);
/* Compare the layout's weights with the single rank's and copy them to it: those before the current training
 * step's update, or the newest ones with the optimizer's states. Collective. */
ech_status ech_verifier_exchange_weights(ech_verifier *v);
ech_status ech_verifier_exchange_newest(ech_verifier *v);

#endif
