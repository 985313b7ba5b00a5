/* SPDX-License-Identifier: Apache-2.0
 *
 * What a protocol PROMISES of a rank's bucket in each turn, as facts (effects.def): by the paper's
 * equation (promises.def), by what model and optimizer declare of parameters, and by where the run
 * file puts states and weights; not by how the planner has cut the bucket. And how far the buckets
 * of a list have come. Private to src/check.
 */
#ifndef ECH_CHECK_PROMISE_H
#define ECH_CHECK_PROMISE_H

#include "check/checker.h"

typedef unsigned ech_facts; /* a bit each */
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
} ech_protocol_promise;
const ech_protocol_promise *ech_protocol_promise_of(const ech_plan *plan);
/* Whether servers update the rank's weights. */
bool ech_promise_is_served(const ech_plan *plan);

typedef struct ech_promise {
    ech_facts due;                      /* when a turn has ended */
    int rounds;                         /* of the optimizer's statistics */
    ech_facts of_round[ECH_MAX_ROUNDS]; /* due, too, when that round has ended */
    ech_layout_group group, factors;    /* over which gradients, and factors, are summed */
    ech_step_kind update, spread;       /* the steps that give UPDATE and WHOLE */
    bool commits;                       /* its parameters are layer states */
    bool shares;                        /* each member of its group updates a part */
} ech_promise;
/* Errors: the bucket's group is not who adds to its parameters; its shard, what the rank updates,
 * or keeps of its weights, is not what is promised. */
ech_status ech_promise_find(const ech_plan *plan, const ech_list *list, int bucket,
                            ech_promise *out);
/* Of all ranks' plans: the members of each bucket's group count each element once in the norm, and
 * update it once, or each of them updates all. */
ech_status ech_check_shares(const ech_plan *const *plans, int n);

/* How far a bucket, or a piece of it, has come in a turn. */
typedef struct ech_course {
    ech_facts has;
    int rounds;     /* of statistics that have begun */
    bool scattered; /* the sum is there of this rank's part alone */
    int step;       /* the last that has brought it there */
    int turn;
} ech_course;

typedef struct ech_bucket_state {
    ech_promise promise;
    ech_course now;
    /* [pieces] Gradients that have left for the host, of even turns and of odd ones: those of the
     * next turn may be written while the update runs. left: pieces whose update has not ended. */
    ech_course *away[2];
    int left[2];
    int sum; /* the value with the sum so far of the turn's gradients; 0: nothing has written it */
    int *written_in; /* [turns] of layer states: the last step that writes that turn's, + 1 */
    int accessed; /* the last step that accesses gradients, but for those of one micro-batch, + 1 */
    struct ech_micro_gradients {
        int step, accessed; /* the last that writes them, and that accesses them, + 1 */
        bool summed;
    } * of;     /* [micro-batches] of the turn */
    int summed; /* of these */
    bool met;   /* others' updates of the whole list have come */
} ech_bucket_state;

typedef struct ech_turns {
    const ech_plan *plan;
    const ech_list *list;
    ech_bucket_state *bucket;
    ech_known known;
    int read; /* the last step that has fetched a turn's scalars for updates on the host */
} ech_turns;
/* Servers have no gradients of their own: the sum's are there when a turn begins, or a push has
 * come. */
void ech_turns_begin(const ech_turns *t, ech_bucket_state *b);
/* What the step does to its bucket, or to all. Errors: what it needs has not been done, or is not
 * known to have ended; nobody has promised it; it is done again. */
ech_status ech_turns_take(ech_turns *t, int s);
/* Errors: a turn has not ended. */
ech_status ech_turns_end(const ech_turns *t);
/* The text of the first of these facts. */
const char *ech_fact_text(ech_facts facts);
/* Of a micro-batch's step. */
struct ech_micro_gradients *ech_turns_micro(const ech_turns *t, int s, int bucket);
/* A step writes the value with the sum so far, and begins one if the turn has none. */
ech_status ech_turns_write_sum(const ech_turns *t, int s, int bucket, int value);

#endif
