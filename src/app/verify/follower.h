/* SPDX-License-Identifier: Apache-2.0
 *
 * A run of one rank that follows the layout by the operations of its protocol's serial program
 * (schedule/protocol/serial.h): the single rank, which is compared, or its twin. Private to
 * app/verify. Nothing is collective.
 */
#ifndef ECH_APP_VERIFY_FOLLOWER_H
#define ECH_APP_VERIFY_FOLLOWER_H

#include "app/verify/verify.h"
#include "schedule/protocol/protocol.h"
#include "schedule/protocol/serial.h"

struct ech_verifier;

/* A loss summed over the tokens of several runs. */
typedef struct ech_tokens_loss {
    double sum, tokens;
} ech_tokens_loss;

typedef struct ech_follower {
    struct ech_verifier *of; /* borrowed: the program's position, and the layout */
    ech_compared_run run;
    ech_comm *comm;
    bool is_twin;        /* last bits of the layout's gradients are also changed */
    ech_loader **loader; /* [workers] of the same batches: samples of other workers are padding */
    int64_t *next;       /* [workers] the training step that a loader delivers next */
    int64_t *tensor;     /* [1 + ECH_MAX_STATES][params] offset of each in a copy */
    int64_t all;         /* elements of a copy: weights, then states */
    double **copy[ECH_COPIES]; /* [workers] each NULL, or [all] */
    double **past;             /* [turns + 1] weights of the last versions that RUN has updated */
    int64_t versions;          /* of the run so far */
    int64_t base;              /* the run's version that is version 0 of the span */
    /* State of RUN: */
    ech_serial_copy reads;
    double *newest;        /* [weights] weights to update: the last version */
    const double **loaded; /* [params] source of each parameter's current weights */
    int64_t micro;         /* micro-batch whose forward or backward uses them; -1: none */
    bool backward;
    bool clipped;         /* the list has reached CLIP (gradient clipping) */
    bool updates;         /* and a bucket after it */
    bool taken;           /* its gradient is complete */
    double *gradient;     /* [weights] the gradient of the samples */
    bool given;           /* the next update uses the copy GIVEN instead */
    ech_tokens_loss loss; /* of a training step */
} ech_follower;

/* Opens the run of one rank; `design` is borrowed. Close it, also after an error. */
ech_status ech_follower_open(ech_follower *f, struct ech_verifier *of, const ech_design *design);
void ech_follower_close(ech_follower *f);

/* The copy of that worker or cluster; zeros if there was none. */
double *ech_follower_copy(ech_follower *f, ech_serial_copy copy, int number);
/* Stores or loads the newest weights, and with `whole` the states. */
void ech_follower_store(const ech_follower *f, double *to, bool whole);
void ech_follower_load(const ech_follower *f, const double *from, bool whole);
/* Loads the newest layer states from a copy with states. */
void ech_follower_load_states(const ech_follower *f, const double *from);
/* Copies the layout's gradient of a parameter for the next update. */
void ech_follower_give(ech_follower *f, int param, const double *gradient);
/* Runs a training step with the samples of the program's worker. */
ech_status ech_follower_run(ech_follower *f, ech_serial_copy reads);
/* Sets the twin to the single rank, with a random last bit of each weight. */
void ech_follower_change(struct ech_verifier *v);

/* ---- arithmetic on copies (combine.c), for the operations of these names ---- */

void ech_follower_clear(ech_follower *f);
void ech_follower_add(ech_follower *f);
void ech_follower_mean(ech_follower *f);
void ech_follower_move(ech_follower *f);
void ech_follower_ring_token(ech_follower *f);
void ech_follower_meet(ech_follower *f);

#endif
