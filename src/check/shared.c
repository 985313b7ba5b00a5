/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks the weights that all ranks share.
 *
 * Central: a rank that updates weights in shared memory must know that all ranks have read the old
 * ones. They have when a fold over all ranks has ended that each rank begins after its last read.
 * check/versions.c checks that a rank reads others' weights only after they were published.
 *
 * Lock-free: a span begins with the weights that each rank has offered, and ends with all
 * additions. So all ranks meet twice: each begins to add after the first barrier, before which it
 * has offered all its shards; it pulls all weights after the second, before which it has added
 * everything. A fold over all ranks after these pulls ends the span, so that the next one offers
 * nothing earlier.
 *
 * With several clusters all ranks meet once more, between these two: after that barrier there is
 * only a round of relays. The ring token is at the first cluster when the list begins, and is
 * passed by messages between neighbours, which check/plans.c pairs one to one, so there is exactly
 * one. Its holder relays all buckets, once; no other rank does. Visits follow each other around the
 * ring, at the prescribed turns.
 *
 * check/plans.c proves that all ranks take part in folds and barriers.
 */
#include "check/promise.h"
#include "schedule/operands.h"

typedef struct shared_check {
    const ech_plan *plan;
    const ech_list *list;
    ech_known known;
    int read; /* the last step that reads weights; -1: none */
    int met;  /* the last fold after it; -1: none since */
    int meetings;
    int meeting;         /* the last barrier; -1: none */
    int offered, pulled; /* buckets: before the first barrier, and after the second */
    int last_offer, last_add, last_pull; /* -1: none yet */
    int clusters;
    bool leads, has_ring_token; /* the rank is its cluster's first; and has the ring token now */
    int visit, relays;          /* the next visit to this cluster, and number of relays in it */
    int last_relay, came;       /* -1: none yet */
    bool ended;
} shared_check;

static bool folds(const ech_step *step)
{
    return step->kind == ECH_STEP_REDUCE && step->group == ECH_GROUP_WORLD;
}

/* True if the step begins after the end of `other`, of that lane. */
static bool knows(const shared_check *c, const ech_step *step, ech_lane lane, int other)
{
    return step->lane == lane || c->known.step[step->lane][lane] >= other;
}

/* ---- central ---- */

static ech_status update(const shared_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    const ech_bucket *bucket = &c->plan->bucket.at[step->index];
    int64_t first;
    if (ech_bucket_updated(bucket, &first) == bucket->elements) return ECH_OK; /* its own */
    if (c->met >= 0 && knows(c, step, ECH_LANE_REDUCE, c->met)) return ECH_OK;
    return ECH_REJECT(c, s, "does not wait until all ranks have read the weights of bucket %d",
                      step->index);
}

static ech_status check_central(shared_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    if (folds(step) && knows(c, step, ECH_LANE_COMPUTE, c->read)) c->met = s;
    if (ech_step_params(step) == ECH_PARAMS_UPDATE) ECH_TRY(update(c, s));
    if (ech_step_params(step) != ECH_PARAMS_READ) return ECH_OK;
    c->read = s;
    c->met = -1;
    return ECH_OK;
}

/* ---- lock-free ---- */

/* Buckets with weights in shared memory. */
static int shared_by_all(const shared_check *c)
{
    return ech_plan_shared(c->plan, (int)c->plan->bucket.n);
}

static int last_meeting(const shared_check *c)
{
    return c->clusters > 1 ? 3 : 2;
}

static ech_status meet(shared_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    int before = c->meetings ? c->last_add : c->last_offer;
    int wanted = shared_by_all(c);
    if (c->meetings == 2 && c->leads && c->last_relay >= 0) before = c->last_relay;
    if (c->meetings == last_meeting(c) || (c->meetings == 0 && c->offered != wanted))
        return ECH_REJECT(c, s, "comes when %d of %d buckets are offered", c->offered, wanted);
    if (!knows(c, step, ECH_LANE_COMPUTE, before))
        return ECH_REJECT(c, s, "does not wait for step %d", before);
    c->meetings++;
    c->meeting = s;
    return ECH_OK;
}

static ech_status pull(shared_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    bool last = step->version == c->list->updates + 1;
    if (!last) return ECH_OK;
    if (c->meetings != last_meeting(c) || !knows(c, step, ECH_LANE_REDUCE, c->meeting))
        return ECH_REJECT(c, s, "does not wait until all ranks have added");
    c->pulled++;
    c->last_pull = s;
    return ECH_OK;
}

static ech_status add(shared_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    c->last_add = s;
    if (c->meetings == 1 && knows(c, step, ECH_LANE_REDUCE, c->meeting)) return ECH_OK;
    return ECH_REJECT(c, s, "does not wait until all ranks have offered");
}

/* ---- the ring token ---- */

/* The first cluster has it. */
static void begin_ring_token(shared_check *c)
{
    const ech_schedule_ring *ring = &c->plan->schedule->ring;
    int cluster = ech_ring_cluster(ring, c->plan->rank);
    c->clusters = ring->clusters;
    c->leads = ech_ring_leader(ring, cluster) == c->plan->rank;
    c->has_ring_token = cluster == 0;
    c->visit = cluster;
}

/* Number of visits before the end of a turn, and in all. */
static int visits_of(const shared_check *c, int turn)
{
    return (turn + 1) / c->plan->schedule->ring.turns;
}

static int all_visits(const shared_check *c)
{
    return visits_of(c, c->list->turns - 1) + c->clusters;
}

static ech_status pass_ring_token(shared_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    bool sends = ech_step_sends(step);
    const ech_schedule_ring *ring = &c->plan->schedule->ring;
    int cluster = ech_ring_cluster(ring, c->plan->rank);
    int peer = ech_ring_leader(ring, cluster + (sends ? 1 : c->clusters - 1));
    if (!c->leads || c->clusters < 2)
        return ECH_REJECT(c, s, "is of a rank that never has the token");
    if (step->peer != peer)
        return ECH_REJECT(c, s, "has peer %d, not the neighbour, %d", step->peer, peer);
    if (sends != c->has_ring_token)
        return ECH_REJECT(c, s, sends ? "sends a token that is not here" : "makes two tokens");
    if (sends &&
        (c->relays != shared_by_all(c) || !knows(c, step, ECH_LANE_COMPUTE, c->last_relay)))
        return ECH_REJECT(c, s, "does not wait for what is relayed");
    c->has_ring_token = !sends;
    c->relays = 0;
    if (sends)
        c->visit += c->clusters;
    else
        c->came = s;
    return ECH_OK;
}

static ech_status relay(shared_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    bool known = c->came < 0 || knows(c, step, ECH_LANE_RECEIVE, c->came);
    bool drains = ech_step_relays_last(c->plan, c->list, step);
    if (!c->has_ring_token || !known) return ECH_REJECT(c, s, "does not have the token");
    bool shared = !c->plan->bucket.at[step->index].commits;
    if (!shared || ech_plan_shared(c->plan, step->index) != c->relays || step->count != c->visit ||
        step->count >= all_visits(c))
        return ECH_REJECT(c, s, "is not of bucket %d and visit %d", c->relays, c->visit);
    if (c->meetings != (drains ? 2 : 1) || (drains && !knows(c, step, ECH_LANE_REDUCE, c->meeting)))
        return ECH_REJECT(c, s, "comes after %d meetings", c->meetings);
    if (!drains && step->count + 1 != visits_of(c, step->turn))
        return ECH_REJECT(c, s, "comes after turn %d", step->turn);
    c->relays++;
    c->last_relay = s;
    return ECH_OK;
}

/* The last visit to this cluster is over: a later one would be another round. */
static bool has_relayed(const shared_check *c)
{
    int next = c->visit + (c->has_ring_token && c->relays > 0 ? c->clusters : 0);
    return c->clusters < 2 || !c->leads || next >= all_visits(c);
}

/* A single rank meets no other. */
static ech_status check_lock_free(shared_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    if (step->kind == ECH_STEP_OFFER) {
        c->offered++;
        c->last_offer = s;
        if (c->meetings) return ECH_REJECT(c, s, "comes after the first meeting");
    }
    if (step->kind == ECH_STEP_MEET) return meet(c, s);
    if (step->kind == ECH_STEP_RELAY) return relay(c, s);
    if (step->kind == ECH_STEP_SEND_RING_TOKEN || step->kind == ECH_STEP_RECV_RING_TOKEN)
        return pass_ring_token(c, s);
    if (step->kind == ECH_STEP_ADD) return add(c, s);
    if (step->kind == ECH_STEP_PULL) return pull(c, s);
    if (folds(step) && c->last_pull >= 0 && knows(c, step, ECH_LANE_COMPUTE, c->last_pull))
        c->met = s;
    if (step->kind != ECH_STEP_READ) return ECH_OK;
    if (!has_relayed(c)) return ECH_REJECT(c, s, "comes before the token's visit %d", c->visit);
    c->ended = c->met >= 0 && knows(c, step, ECH_LANE_REDUCE, c->met);
    if (c->ended && c->pulled == shared_by_all(c)) return ECH_OK;
    return ECH_REJECT(c, s, "comes before all ranks have pulled all weights");
}

ech_status ech_check_shared(const ech_plan *plan, const ech_list *list)
{
    shared_check c = {.plan = plan,
                      .list = list,
                      .known = ech_known_begin(),
                      .read = -1,
                      .met = -1,
                      .meeting = -1,
                      .last_offer = -1,
                      .last_add = -1,
                      .last_relay = -1,
                      .came = -1,
                      .last_pull = -1};
    const ech_protocol_promise *of = ech_protocol_promise_of(plan);
    bool shares = of->update == ECH_STEP_ADD && plan->layout->world > 1;
    if (shares) begin_ring_token(&c);
    for (int s = 0; s < (int)list->step.n; s++) {
        ech_known_learn(&c.known, list, &list->step.at[s]);
        if (of->spread == ECH_STEP_PUBLISH) ECH_TRY(check_central(&c, s));
        if (shares) ECH_TRY(check_lock_free(&c, s));
    }
    return ECH_OK;
}
