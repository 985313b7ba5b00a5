/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a verification. Private to app/verify. "The layout" is the run with all ranks, "the single rank" the one
 * that rank 0 trains beside it.
 */
#ifndef ECH_APP_VERIFY_VERIFIER_H
#define ECH_APP_VERIFY_VERIFIER_H

#include "app/verify/apart.h"
#include "app/verify/pushed.h"
#include "app/verify/replay.h"

/* A parameter on the first replica of a stage; a tied parameter has a copy on each stage that uses it. */
typedef struct ech_copy {
    int stage, param;
    int64_t at; /* in ech_verifier.gradients */
    /* On rank 0, of gradients that are sent as selections: what replicas have not sent, in the residual's shape; the sum of that before
     * the step; and what all have sent. */
    double *kept, *before, *sent;
} ech_copy;

/* What is compared of a parameter: its gradient, the weights, or a state. */
typedef struct ech_compared {
    const ech_copy *copy;
    ech_held_kind
        kind; /* as what it is held: of weights amid a span members of a group have their shards, like gradients */
    const ech_shape *shape;
    const char *name; /* of a state */
    int state;        /* its number in the layout */
    bool
        adds; /* ranks of a stage have addends of it, each with its boxes: those of compressed gradients */
} ech_compared;

typedef struct ech_added ech_added; /* added.h */

typedef struct ech_verifier {
    ech_verification *result; /* on rank 0; else NULL */
    ech_comm *comm;
    ech_comm *alone; /* the single rank's; NULL: not made yet */
    ech_compared_run layout, single;
    ech_config *config[3]; /* of the layout, the single rank and the twin; NULL: not made yet, or the second */
    ech_design compared;   /* of the layout; borrows from the run's design */
    ech_design reference;  /* of the single rank */
    ech_design inverted;   /* of the twin, if not that */
    ech_compared_run twin; /* of the single rank, for the unit (unit.c) */
    ech_comm *twin_alone;
    ech_replay *twin_replay;
    ech_pushed *twin_pushed;
    ech_apart *twin_apart;
    double *twin_gradients; /* [first[params]] */
    bool twin_taken;        /* as `taken` */
    ech_replay *replay;    /* NULL: the schedule is synchronous, and nothing delayed */
    ech_apart *apart;      /* NULL: replicas are not apart */
    ech_pushed *pushed;    /* NULL: servers update once a training step, or there are none */
    ech_added *added;      /* NULL: ranks are not lock-free */
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
/* For the observer of a single rank, after a step of its train list: loads the weights that the next
 * step reads (replay; may be NULL), and returns whether the gradients are complete. */
bool ech_verifier_has_gradients(ech_compared_run *run, ech_replay *replay, const ech_step *step);
/* On rank 0, when the single rank's gradients are complete: compares them with the layout's and replaces them by the
 * layout's, so that norm, clipping and optimizer get the same numbers on both sides. */
void ech_verifier_exchange_gradients(ech_verifier *v, ech_exec *exec);

/* Sends x of `rank` to `to` on rank 0. Collective. */
ech_status ech_verifier_send(ech_verifier *v, int rank, void *x, size_t bytes, void *to);
/* Gathers a tensor in `whole` on rank 0. `mine`: what this rank has (NULL: nothing). Collective. */
ech_status ech_verifier_gather(ech_verifier *v, const ech_compared *x, double *mine, double *whole);
/* Notes an error of that parameter of the copy; if it is above *worst, it is stored there. */
void ech_verifier_note(ech_verifier *v, const char *what, int param, double error, double *worst);
/* max|a - b| over max(max|b|, floor). A NaN on either side is an infinite error. */
double ech_verifier_error(const double *a, const double *b, int64_t n, double floor_);

/* ---- gradients that are sent as selections (chosen.c) ---- */

/* Whether the copy's are. The single rank's gradients are not compressed then: rank 0 replays what replicas choose. */
bool ech_verifier_chooses(const ech_verifier *v, const ech_copy *copy);
void ech_verifier_free_chosen(ech_copy *copy);
/* Gathers what replicas choose from, of which `mine` is this rank's, and on rank 0 chooses: the copy's `gradients` (NULL on others)
 * become the sum of what they choose from. Collective. */
ech_status ech_verifier_choose(ech_verifier *v, ech_copy *copy, double *mine, double *gradients);
/* On rank 0: adds what replicas had not sent before to the single rank's gradient, as the layout's ranks do to theirs. */
void ech_verifier_add_kept(const ech_verifier *v, const ech_copy *copy, double *gradient);
/* Compares the layout's residuals with copy->kept, and copies them there. x: the residual. Collective. */
ech_status ech_verifier_compare_kept(ech_verifier *v, ech_copy *copy, const ech_compared *x,
                                     double *mine);

/* ---- the unit (unit.c), on rank 0 ---- */

/* Opens the twin; clip_norm: of its replay. */
ech_status ech_unit_open(ech_verifier *v, double clip_norm);
void ech_unit_close(ech_verifier *v);
/* Trains the twin for the training step that the single rank trains next. */
ech_status ech_unit_train(ech_verifier *v);
/* Gives the twin the single rank's weights, changed, before a training step or a span of pushes. */
void ech_unit_begin(ech_verifier *v);
/* Replays the span of pushes on the twin. loss: the single rank's, of each training step. */
ech_status ech_unit_push(ech_verifier *v, const ech_serve *serves, const double *loss);
/* Notes how far n numbers of the twin are from the single rank's. */
void ech_unit_note(ech_verifier *v, const double *twin, const double *single, int64_t n,
                   double floor_);
/* The same of a tensor of the twin, which then becomes the layout's. */
void ech_unit_compare(ech_verifier *v, const ech_tensor *x, const double *single,
                      const double *layout, double floor_);

/* A loss that is summed over the tokens of several runs. */
typedef struct ech_tokens_loss {
    double sum, tokens;
} ech_tokens_loss;
/* Adds the loss and the tokens of the run's last list. */
void ech_tokens_loss_add(ech_tokens_loss *loss, const ech_compared_run *run);
/* On rank 0: compares the layout's loss of a training step with the mean of the single rank's runs,
 * and notes how far the twin's mean is from that. */
void ech_verifier_compare_mean(ech_verifier *v, double layout, const ech_tokens_loss *single,
                               const ech_tokens_loss *twin);
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
