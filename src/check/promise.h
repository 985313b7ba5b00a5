/* SPDX-License-Identifier: Apache-2.0
 *
 * What a protocol PROMISES for a rank's bucket in each turn, as facts (effects.def): for example
 * that its gradients are summed, clipped and applied. Promises follow from the paper's equation
 * (promises.def), from what the model and optimizer declare, and from where the run file places
 * states and weights; they are independent of how the planner cuts buckets. This also tracks the
 * facts that a list has established. Private to src/check.
 */
#ifndef ECH_CHECK_PROMISE_H
#define ECH_CHECK_PROMISE_H

#include "check/checker.h"

typedef unsigned ech_facts; /* one bit each */
enum {
#define FACT(name, text) ECH_FACT_AT_##name,
#include "check/effects.def"
    ECH_FACTS
};
enum {
#define FACT(name, text) ECH_FACT_##name = 1 << ECH_FACT_AT_##name,
#include "check/effects.def"
    ECH_FACTS_OF_ROUND = ECH_FACT_UPDATE - ECH_FACT_STATISTICS
};

/* A row of promises.def. */
typedef struct ech_protocol_promise {
    enum { ECH_ADDS_ALL, ECH_ADDS_OWN, ECH_ADDS_PUSH } adds;
    enum { ECH_UPDATES_ZERO, ECH_UPDATES_SHARE, ECH_UPDATES_ALONE, ECH_UPDATES_SERVER } updates;
    enum { ECH_NORMS_SUM, ECH_NORMS_SENDER } norms;
    ech_step_kind update, spread;
    enum { ECH_MEETS_TURN, ECH_MEETS_LIST } meets;
    enum { ECH_STATES_SUM, ECH_STATES_MEAN } states;
} ech_protocol_promise;
const ech_protocol_promise *ech_protocol_promise_of(const ech_plan *plan);
/* True if servers update the rank's weights. */
bool ech_promise_is_served(const ech_plan *plan);

typedef struct ech_promise {
    ech_facts due;                      /* facts due at the end of a turn */
    int rounds;                         /* of the optimizer's statistics */
    ech_facts of_round[ECH_MAX_ROUNDS]; /* additional facts due at the end of that round */
    ech_layout_group group, factors;    /* over which gradients, and factors, are summed */
    ech_step_kind update, spread;       /* the steps that establish UPDATE and WHOLE */
    bool commits;                       /* its parameters are layer states */
    bool frozen;                        /* no steps work on it */
    bool shares;                        /* each member of its group updates a part */
    bool averages; /* layer states that differ between workers; the list's end is their mean */
} ech_promise;
/* The promise for such states at the list's end. */
ech_promise ech_promise_of_mean(const ech_plan *plan);
/* Errors: the bucket's group is not the set of ranks that add to its parameters; its shard, or the
 * part that the rank updates or stores, differs from the promise. */
ech_status ech_promise_find(const ech_plan *plan, const ech_list *list, int bucket,
                            ech_promise *out);
/* Checks all ranks' plans: the members of each bucket's group count each element once in the norm,
 * and update it once, or each member updates all. */
ech_status ech_check_shares(const ech_plan *const *plans, int n);

/* The progress of a bucket, or of a piece of it, in a turn. */
typedef struct ech_course {
    ech_facts has;
    int rounds;     /* rounds of statistics that have begun */
    int round;      /* the last step of these that is on another piece's path, + 1; 0: none */
    bool scattered; /* only this rank's part of the sum exists */
    int step;       /* the last step that advanced it */
    int turn;
} ech_course;

typedef struct ech_bucket_state {
    ech_promise promise;
    ech_course now;
    /* [pieces] Gradients that have left for the host, of even and of odd turns: the next turn may
     * write its gradients during the update. left: pieces whose update has not ended. */
    ech_course *away[2];
    int left[2];
    int sum; /* value with the turn's gradient sum so far; 0: nothing has written it */
    /* [turns] for layer states: the last step that writes that turn's gradients, + 1 */
    int *written_in;
    int accessed; /* the last step that accesses gradients, except one micro-batch's, + 1 */
    struct ech_micro_gradients {
        int step, accessed; /* the last step that writes them, and that accesses them, + 1 */
        bool summed;
    } * of;     /* [micro-batches] of the turn */
    int summed; /* number of micro-batches summed */
    bool met;   /* other ranks' updates of the whole list have arrived */
    bool mean;  /* its turns are over: the promise is the one of the list's end */
} ech_bucket_state;

typedef struct ech_turns {
    const ech_plan *plan;
    const ech_list *list;
    ech_bucket_state *bucket;
    ech_known known;
    int read; /* the last step that fetched a turn's scalars for updates on the host */
} ech_turns;
/* Begins a turn. Servers have no gradients of their own: the sum is there at the beginning of a
 * turn, or once a push has arrived. */
void ech_turns_begin(const ech_turns *t, ech_bucket_state *b);
/* Applies the effects of a step to its bucket, or to all buckets. Errors: a prerequisite is
 * missing, or is not known to have ended; no promise requires the effect; it is repeated. */
ech_status ech_turns_take(ech_turns *t, int s);
/* Errors: a turn is incomplete. */
ech_status ech_turns_end(const ech_turns *t);
/* The text of the first of these facts. */
const char *ech_fact_text(ech_facts facts);
/* The gradients of the step's micro-batch. */
struct ech_micro_gradients *ech_turns_micro(const ech_turns *t, int s, int bucket);
/* Notes that a step writes the value with the sum so far; begins a sum if the turn has none. */
ech_status ech_turns_write_sum(const ech_turns *t, int s, int bucket, int value);

#endif
