/* SPDX-License-Identifier: Apache-2.0
 *
 * For verify/ alone: a verification under way.
 */
#ifndef ECH_APP_VERIFY_VERIFIER_H
#define ECH_APP_VERIFY_VERIFIER_H

#include "app/verify/replay.h"
#include "app/verify/verify.h"

typedef struct ech_verifier {
    ech_verification *result; /* rank 0 */
    ech_comm *comm;
    ech_contestant layout, single;
    ech_replay *replay;
    double *mine;      /* the layout's gradients, what this rank holds of them */
    int64_t *own;      /* [params] where each begins in them */
    double *gradients; /* rank 0: a stage's, all parameters one behind the other */
    double *reference; /* rank 0: the single rank's */
    int64_t *first;    /* [params + 1] where each begins in them */
    double rms;        /* of the single rank's whole gradient */
    int64_t step;
} ech_verifier;

int ech_verifier_params(const ech_verifier *v); /* of the model */
bool ech_verifier_is_asynchronous(const ech_verifier *v);

/* For ech_exec_observe, `context` the verifier: keep the gradients of the layout's ranks, or of the single
 * one, before they are clipped. */
void ech_verifier_observe_layout(void *context, ech_exec *exec, const ech_step *step);
void ech_verifier_observe_single(void *context, ech_exec *exec, const ech_step *step);

/* Both sides' loss of a training step of the list, on rank 0. */
void ech_verifier_compare_loss(ech_verifier *v, int turn);
/* Gradients (of synchronous schedules) and weights of every stage: where stages share a parameter, each has
 * its copy. Collective. */
ech_status ech_verifier_compare_tensors(ech_verifier *v);

#endif
