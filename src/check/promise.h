/* SPDX-License-Identifier: Apache-2.0
 *
 * What a protocol PROMISES of a rank's bucket in each turn: which facts (effects.def) hold when the
 * turn has ended, over which ranks gradients are summed, and which elements the rank updates. It is
 * told by the paper's equation (promises.def), by what the model declares of parameters, and by
 * where the run file puts states and weights; not by how the planner has cut the bucket. Private to
 * src/check.
 */
#ifndef ECH_CHECK_PROMISE_H
#define ECH_CHECK_PROMISE_H

#include "check/checker.h"

typedef unsigned ech_facts; /* a bit each */
enum {
#define FACT(name, text) ECH_FACT_AT_##name,
#define EFFECT(...)
#include "check/effects.def"
    ECH_FACTS
};
enum {
#define FACT(name, text) ECH_FACT_##name = 1 << ECH_FACT_AT_##name,
#define EFFECT(...)
#include "check/effects.def"
    /* Those of a round of statistics. */
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

/* Elements of a bucket. */
typedef struct ech_interval {
    int64_t first, n;
} ech_interval;

typedef struct ech_promise {
    ech_facts due;                       /* at the end of a turn */
    int rounds;                          /* of the optimizer's statistics */
    ech_facts of_round[ECH_MAX_ROUNDS];  /* [rounds] due when the round has ended */
    ech_layout_group group, factors;     /* over which gradients, and left or right factors, are summed */
    ech_step_kind update, spread;        /* the steps that give UPDATE and WHOLE */
    bool commits;                        /* its parameters are layer states */
    ech_interval part;                   /* this rank's of equal parts, one for each who sums a part */
    ech_interval updates;                /* what this rank updates */
} ech_promise;

/* out: [buckets]. Errors: a bucket's group is not who adds to its parameters; its shard, what the rank
 * updates, or keeps of its weights, is not what is promised. */
ech_status ech_promises_find(const ech_plan *plan, ech_promise *out);

/* Of all ranks' plans: of each bucket the members of its group count each element once in the norm,
 * and update it once, or each of them updates all. */
ech_status ech_check_shares(const ech_plan *const *plans, int n);

#endif
