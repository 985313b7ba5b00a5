/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a verification. Private to app/verify. "The layout" is the run with all ranks, "the single rank" the one
 * that rank 0 trains beside it.
 */
#ifndef ECH_APP_VERIFY_VERIFIER_H
#define ECH_APP_VERIFY_VERIFIER_H

#include "app/verify/apart.h"
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
    ech_config *config[2]; /* of the layout and the single rank; NULL: not made yet */
    ech_design compared;   /* of the layout; borrows from the run's design */
    ech_design reference;  /* of the single rank */
    ech_replay *replay;    /* NULL: the schedule is synchronous, and nothing delayed */
    ech_apart *apart;      /* NULL: replicas are not apart */
    int replica;           /* where they are: the one that is compared */
    ECH_LIST(ech_copy) copy;
    double *mine; /* [turns][own[params]] gradients of this rank; then weights if turns > 1 */
    double *
        states; /* [turns][own_state[params]] optimizer states of this rank before each update of a span */
    int64_t *own_state; /* [params + 1] offset of each parameter's in a row of `states` */
    int64_t *own; /* [params + 1] offset of each of this rank's parameters in a row of `mine` */
    double *gradients; /* on rank 0: of all copies, unsharded, of one training step */
    int64_t *first;    /* [params + 1] offset of each parameter in the unsharded model */
    ech_schedule
        schedule; /* which list comes when: a delay is verified from the second training step on */
    ech_list_kind list; /* that the layout has run */
    int turn;           /* the training step of the train list that is compared */
    bool taken;         /* the single rank has the layout's gradients of that training step */
    int64_t step;       /* number of that training step in the run, from 0 */
} ech_verifier;

int ech_verifier_params(const ech_verifier *v); /* number of parameter tensors of the model */
const ech_param *ech_verifier_param(const ech_verifier *v, int param);
/* Whether steps read other weights than the newest. */
bool ech_verifier_is_replayed(const ech_verifier *v);
/* Lists the copies and allocates memory for gradients. */
void ech_verifier_prepare(ech_verifier *v);
void ech_verifier_free(ech_verifier *v);

/* The ech_exec_observe of the layout's ranks, whose context is the verifier. Before clipping it stores the gradients of
 * each training step in `mine`, and from the second one of a span on the weights and states before the update. */
void ech_verifier_observe_layout(void *context, ech_exec *exec, const ech_step *step);
/* On rank 0, when the single rank's gradients are complete: compares them with the layout's and replaces them by the
 * layout's, so that norm, clipping and optimizer get the same numbers on both sides. */
void ech_verifier_exchange_gradients(ech_verifier *v, ech_exec *exec);

/* On rank 0: compares two losses. `what` names them; if their error is above *worst, it is stored there. */
void ech_verifier_compare_losses(ech_verifier *v, const char *what, double layout, double single,
                                 double *worst);
/* On rank 0: compares what blocks have reported of a training step, number by number. */
void ech_verifier_compare_reports(ech_verifier *v, const double *layout, const double *single);
/* Gathers the layout's gradients of the current training step on rank 0. Collective. */
ech_status ech_verifier_gather_gradients(ech_verifier *v);
/* Compares the layout's weights and optimizer states with the single rank's and copies them to it: turn 0: the newest;
 * above 0: those before that training step's update. Collective. */
ech_status ech_verifier_exchange_weights(ech_verifier *v, int turn);

#endif
