/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a verification. Private to app/verify. "The layout" is the run with all ranks. "The
 * single rank" is the run that rank 0 trains in addition, by the protocol's serial program.
 */
#ifndef ECH_APP_VERIFY_VERIFIER_H
#define ECH_APP_VERIFY_VERIFIER_H

#include "app/verify/follower.h"
#include "app/verify/replay.h"

/* A parameter on the first replica of a stage; a tied one has a copy on each stage that uses it. */
typedef struct ech_copy {
    int stage, param;
    int64_t at; /* in ech_verifier.gradients */
    /* On rank 0, for gradients that are sent as selections: the replicas' unsent gradients
     * (residuals), in the residual's shape; the same after the step, if it updates; the sum of the
     * former; and the sum of all that was sent. */
    double *kept, *next, *before, *sent;
} ech_copy;

/* A tensor of a parameter to compare: its gradient, the weights, or a state. */
typedef struct ech_compared {
    const ech_copy *copy;
    /* How it is held: within a span, members of a group have shards of the weights, as of
     * gradients. */
    ech_held_kind kind;
    const ech_shape *shape;
    const char *name; /* of a state */
    int state;        /* its index in the layout */
    bool adds;    /* for compressed gradients, ranks of a stage have addends, each with its boxes */
    bool is_kept; /* the residual of a gradient that is sent as a selection */
} ech_compared;

typedef struct ech_verifier {
    ech_verification *result; /* on rank 0; else NULL */
    ech_pool *pool;           /* owns the arrays; NULL: there are none yet */
    ech_comm *comm;
    const ech_serial *serial; /* the protocol's */
    ech_compared_run layout;
    /* of the layout, the single rank, and the twin if it has its own; or NULL */
    ech_config *config[3];
    ech_design compared;   /* of the layout; borrows from the run's design */
    ech_design reference;  /* of the single rank */
    ech_design inverted;   /* of the twin, if it differs */
    ech_follower single, twin; /* on rank 0 */
    int workers; /* number of workers with separate gradients; 1: all samples are one worker's */
    int *stage_of;    /* [params] in the layout */
    /* on rank 0: [stages] by the last gradients, or only [0], for all stages: withheld.c */
    bool *withheld;
    double clip_norm; /* norm to which each stage clips its gradients; 0: the plan clips */
    ECH_LIST(ech_copy) copy;
    /* [turns][own[params]] gradients of this rank; then weights if turns > 1 */
    double *mine;
    /* [turns][own_state[params]] optimizer states of this rank before each update of a span */
    double *states;
    int64_t *own_state; /* [params * ECH_MAX_STATES + 1] offset of each in a row of `states` */
    int64_t *own;       /* [params + 1] offset of each parameter in a row of `mine` */
    double *gradients;  /* on rank 0: of all copies, unsharded, of one training step */
    int64_t *first;     /* [params + 1] offset of each parameter in the unsharded model */
    /* Which list runs when: a delay is verified from the second training step on. */
    ech_schedule schedule;
    /* ---- the program's position ---- */
    ech_list_kind list; /* that the layout has run */
    int64_t span;       /* its first training step */
    int turns;          /* its training steps */
    int turn, worker;
    ech_serial_copy operand;
    ech_serial_equation *equation, *equation_states;
    int64_t step;      /* number of the training step in the run, from 0 */
    int64_t clock;     /* the step whose samples the worker has; pushes have their own */
    int64_t updates;   /* before the next one, with the withheld ones */
    ech_serve *serves; /* [pushes of a span] */
    int64_t *pushed;   /* [workers] pushes of the run */
    int64_t *unnumbered; /* [workers] withheld updates that did not count as updates */
} ech_verifier;

/* An array of zeros that lives as long as the verification. */
void *ech_verifier_alloc(ech_verifier *v, size_t n, size_t bytes);
int ech_verifier_params(const ech_verifier *v); /* number of parameter tensors of the model */
const ech_param *ech_verifier_param(const ech_verifier *v, int param);

/* True if each worker's gradient is a separate update, by a fraction of the learning rate. */
bool ech_verifier_clocks(const ech_verifier *v);
/* Runs the program for the list that the layout has run. Collective. */
ech_status ech_verifier_interpret(ech_verifier *v, const ech_serial_step *program);

/* ---- data of the layout's ranks (gather.c) ---- */

/* Lists the copies and allocates memory for gradients. */
void ech_verifier_prepare(ech_verifier *v);
/* The observer (ech_exec_observe) of the layout's ranks; its context is the verifier. Before
 * gradient clipping it stores the gradients of each training step in `mine`; from the second step
 * of a span on, also the weights and states before the update. */
void ech_verifier_observe_layout(void *context, ech_exec *exec, const ech_step *step);
/* The weights, or a state, that it stored before the update of a span's training step `turn` >
 * 0. */
double *ech_verifier_own_weights(const ech_verifier *v, int turn);
double *ech_verifier_own_state(const ech_verifier *v, int turn, int param, int state);
/* Sends x of `rank` to `to` on rank 0. Collective. */
ech_status ech_verifier_send(ech_verifier *v, int rank, void *x, size_t bytes, void *to);
/* Gathers a tensor in `whole` on rank 0. `mine`: this rank's part (NULL: none). Collective. */
ech_status ech_verifier_gather(ech_verifier *v, const ech_compared *x, double *mine, double *whole);
/* Gathers the layout's gradients of the current training step on rank 0, which passes them to the
 * single rank and its twin. Collective. */
ech_status ech_verifier_gather_gradients(ech_verifier *v);
/* Sets the single rank's READ to the weights from which the program's worker computed its gradient.
 * Does nothing in a span's first training step, which reads the span's initial weights.
 * Collective. */
ech_status ech_verifier_gather_read(ech_verifier *v);

/* ---- the order of pushes (order.c) ---- */

/* Gets v->serves. Errors: it differs from the log that the run repeats. Collective. */
ech_status ech_verifier_gather_serves(ech_verifier *v);
/* On rank 0. ECH_EINTERNAL: the worker cannot have that push then. */
ech_status ech_verifier_check_order(ech_verifier *v);
/* The same where pushes are summed. Also an error: a summand used weights of another step, or the
 * number of dropped pushes is wrong. */
ech_status ech_verifier_check_sum_order(ech_verifier *v);

/* ---- comparisons (compare.c), on rank 0 ---- */

/* Notes an error of that parameter of the copy; stores it in *worst if it is larger. */
void ech_verifier_note(ech_verifier *v, const char *what, int param, double error, double *worst);
/* max|a - b| over max(max|b|, floor). A NaN on either side is an infinite error. */
double ech_verifier_error(const double *a, const double *b, int64_t n, double floor_);
/* The largest finite number of the layout's gradient, divided by the loss scale; above 0. */
double ech_verifier_largest_gradient(const ech_verifier *v, const ech_copy *copy);
/* Compares two losses. `what` names them; stores their error in *worst if it is larger. */
void ech_verifier_compare_losses(ech_verifier *v, const char *what, double layout, double single,
                                 double *worst);
/* Compare for the training step: its loss; the reports of blocks, number by number; the single
 * rank's gradients before it got the layout's. */
void ech_verifier_compare_loss(ech_verifier *v);
void ech_verifier_compare_reports(ech_verifier *v);
void ech_verifier_compare_gradients(ech_verifier *v);
/* Compares the layout's weights and optimizer states after the training step with the single
 * rank's (SUM: weights with that copy) and copies them to it and its twin. Collective. */
ech_status ech_verifier_exchange_weights(ech_verifier *v);

/* ---- the unit ---- */

double ech_verifier_epsilon(ech_dtype dtype); /* of a type's numbers; 0 for codes (follower.c) */
/* The model computes inputs from outputs with changed last bits (disturbed.c): for the twin. */
void ech_verifier_disturb(ech_model *model);

/* ---- updates that are withheld (withheld.c), on rank 0 ---- */

/* True if the layout's gradients of the stage's next update are finite. */
bool ech_verifier_layout_updates(const ech_verifier *v, int stage);
/* Finds the updates that both sides withhold, by the gradients of RUN and of GATHER. Notes an
 * infinite error where one side withholds its update. */
void ech_verifier_find_withheld(ech_verifier *v);
/* True if both withhold that stage's update: its gradients are then not compared. */
bool ech_verifier_is_withheld(const ech_verifier *v, int stage);
/* Counts the single rank's updates in the RUN that has just ended. */
void ech_verifier_count_updates(ech_verifier *v);

/* ---- gradients that are sent as selections (chosen.c) ---- */

/* True if the copy's gradient is. The single rank's gradients are then not compressed: rank 0
 * replays the replicas' selections. */
bool ech_verifier_chooses(const ech_verifier *v, const ech_copy *copy);
/* Gathers the candidates of the replicas' selections, this rank's in `mine`, and on rank 0 selects:
 * the copy's `gradients` (NULL on others) become the sum of the candidates. Collective. */
ech_status ech_verifier_choose(ech_verifier *v, ech_copy *copy, double *mine, double *gradients);
/* On rank 0, when all copies' gradients are there: the residuals become those after the step,
 * unless the layout withholds the update. */
void ech_verifier_keep(const ech_verifier *v, const ech_copy *copy);
/* On rank 0: adds the replicas' residuals to the single rank's gradient, as the layout's ranks
 * do. */
void ech_verifier_add_kept(const ech_verifier *v, const ech_copy *copy, double *gradient);
/* On rank 0: compares the layout's residuals `all` with copy->kept, and copies them there. */
void ech_verifier_compare_kept(ech_verifier *v, const ech_compared *x, const double *all);

#endif
