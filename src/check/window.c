/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks the weights that all ranks share.
 *
 * Central: who updates some in the window knows that all ranks have read what was there. They have
 * when a fold over all ranks has ended, which each begins behind its last read. That a rank reads
 * what others have written only when they have published it check/versions.c does.
 *
 * Lock-free: a span begins with what each has offered, and ends with what all have added. So ranks
 * meet twice: each begins to add behind the first meeting, before which it has offered all its
 * shards, and pulls all weights behind the second, before which it has added all. A fold over all
 * ranks behind these pulls ends the span, so that the next one offers nothing before.
 *
 * Of several clusters ranks meet once more, between the two last: behind that relays alone come, a
 * round of them. The token is the first cluster's when the list begins, and comes and goes by
 * messages between neighbours, which check/plans.c pairs one to one: so there is one. Who has it
 * relays all buckets, once; nobody else does. Visits follow each other around the ring, as often as
 * turns say.
 *
 * That all take part in folds and meetings check/plans.c proves.
 */
#include "check/promise.h"
#include "schedule/operands.h"

typedef struct window_check {
    const ech_plan *plan;
    const ech_list *list;
    ech_known known;
    int read; /* the last step that reads weights; -1: none has */
    int met;  /* the last fold that comes after it; -1: none has since */
    int meetings;
    int meeting;         /* the last of these; -1: none */
    int offered, pulled; /* buckets: before the first meeting, and behind the second */
    int last_offer, last_add, last_pull; /* -1: none yet */
    int clusters;
    bool leads, has_token; /* the rank is its cluster's first; and has it now */
    int visit, relays;     /* the next visit to this cluster, and what it has relayed */
    int last_relay, came;  /* -1: none yet */
    bool ended;
} window_check;

static bool folds(const ech_step *step)
{
    return step->kind == ECH_STEP_REDUCE && step->group == ECH_GROUP_WORLD;
}

/* Whether the step knows that `other`, of that lane, has ended. */
static bool knows(const window_check *c, const ech_step *step, ech_lane lane, int other)
{
    return step->lane == lane || c->known.step[step->lane][lane] >= other;
}

/* ---- central ---- */

static ech_status update(const window_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    const ech_bucket *bucket = &c->plan->bucket.at[step->index];
    int64_t first;
    if (ech_bucket_updated(bucket, &first) == bucket->elements) return ECH_OK; /* its own */
    if (c->met >= 0 && knows(c, step, ECH_LANE_REDUCE, c->met)) return ECH_OK;
    return ech_list_reject(c->plan, c->list, s,
                           "does not wait until all ranks have read the weights of bucket %d",
                           step->index);
}

static ech_status check_central(window_check *c, int s)
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

static int last_meeting(const window_check *c)
{
    return c->clusters > 1 ? 3 : 2;
}

static ech_status meet(window_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    int before = c->meetings ? c->last_add : c->last_offer;
    int wanted = (int)c->plan->bucket.n;
    if (c->meetings == 2 && c->leads && c->last_relay >= 0) before = c->last_relay;
    if (c->meetings == last_meeting(c) || (c->meetings == 0 && c->offered != wanted))
        return ech_list_reject(c->plan, c->list, s, "comes when %d of %d buckets are offered",
                               c->offered, wanted);
    if (!knows(c, step, ECH_LANE_COMPUTE, before))
        return ech_list_reject(c->plan, c->list, s, "does not wait for step %d", before);
    c->meetings++;
    c->meeting = s;
    return ECH_OK;
}

static ech_status pull(window_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    bool last = step->version == c->list->updates + 1;
    if (!last) return ECH_OK;
    if (c->meetings != last_meeting(c) || !knows(c, step, ECH_LANE_REDUCE, c->meeting))
        return ech_list_reject(c->plan, c->list, s, "does not wait until all ranks have added");
    c->pulled++;
    c->last_pull = s;
    return ECH_OK;
}

static ech_status add(window_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    c->last_add = s;
    if (c->meetings == 1 && knows(c, step, ECH_LANE_REDUCE, c->meeting)) return ECH_OK;
    return ech_list_reject(c->plan, c->list, s, "does not wait until all ranks have offered");
}

/* ---- the token ---- */

/* The first cluster has it. */
static void begin_token(window_check *c)
{
    const ech_layout *layout = c->plan->layout;
    int cluster = ech_layout_cluster(layout, c->plan->rank);
    c->clusters = layout->clusters;
    c->leads = ech_layout_leader(layout, cluster) == c->plan->rank;
    c->has_token = cluster == 0;
    c->visit = cluster;
}

/* How many visits there are before turn's end, and in all. */
static int visits_of(const window_check *c, int turn)
{
    return (turn + 1) / c->plan->layout->token_turns;
}

static int all_visits(const window_check *c)
{
    return visits_of(c, c->list->turns - 1) + c->clusters;
}

static ech_status pass_token(window_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    bool sends = ech_step_sends(step);
    const ech_layout *layout = c->plan->layout;
    int cluster = ech_layout_cluster(layout, c->plan->rank);
    int peer = ech_layout_leader(layout, cluster + (sends ? 1 : c->clusters - 1));
    if (!c->leads || c->clusters < 2)
        return ech_list_reject(c->plan, c->list, s, "is of a rank that never has the token");
    if (step->peer != peer)
        return ech_list_reject(c->plan, c->list, s, "has peer %d, not the neighbour, %d",
                               step->peer, peer);
    if (sends != c->has_token)
        return ech_list_reject(c->plan, c->list, s,
                               sends ? "sends a token that is not here" : "makes two tokens");
    if (sends &&
        (c->relays != (int)c->plan->bucket.n || !knows(c, step, ECH_LANE_COMPUTE, c->last_relay)))
        return ech_list_reject(c->plan, c->list, s, "does not wait for what is relayed");
    c->has_token = !sends;
    c->relays = 0;
    if (sends)
        c->visit += c->clusters;
    else
        c->came = s;
    return ECH_OK;
}

static ech_status relay(window_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    bool known = c->came < 0 || knows(c, step, ECH_LANE_RECEIVE, c->came);
    bool drains = ech_step_relays_last(c->plan, c->list, step);
    if (!c->has_token || !known)
        return ech_list_reject(c->plan, c->list, s, "does not have the token");
    if (step->index != c->relays || step->count != c->visit || step->count >= all_visits(c))
        return ech_list_reject(c->plan, c->list, s, "is not of bucket %d and visit %d", c->relays,
                               c->visit);
    if (c->meetings != (drains ? 2 : 1) || (drains && !knows(c, step, ECH_LANE_REDUCE, c->meeting)))
        return ech_list_reject(c->plan, c->list, s, "comes behind %d meetings", c->meetings);
    if (!drains && step->count + 1 != visits_of(c, step->turn))
        return ech_list_reject(c->plan, c->list, s, "comes behind turn %d", step->turn);
    c->relays++;
    c->last_relay = s;
    return ECH_OK;
}

/* The last visit to this cluster has been: what comes next would be another round. */
static bool has_relayed(const window_check *c)
{
    int next = c->visit + (c->has_token && c->relays > 0 ? c->clusters : 0);
    return c->clusters < 2 || !c->leads || next >= all_visits(c);
}

/* Alone a rank meets nobody. */
static ech_status check_lock_free(window_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    if (step->kind == ECH_STEP_OFFER) {
        c->offered++;
        c->last_offer = s;
        if (c->meetings)
            return ech_list_reject(c->plan, c->list, s, "comes behind the first meeting");
    }
    if (step->kind == ECH_STEP_MEET) return meet(c, s);
    if (step->kind == ECH_STEP_RELAY) return relay(c, s);
    if (step->kind == ECH_STEP_SEND_TOKEN || step->kind == ECH_STEP_RECV_TOKEN)
        return pass_token(c, s);
    if (step->kind == ECH_STEP_ADD) return add(c, s);
    if (step->kind == ECH_STEP_PULL) return pull(c, s);
    if (folds(step) && c->last_pull >= 0 && knows(c, step, ECH_LANE_COMPUTE, c->last_pull))
        c->met = s;
    if (step->kind != ECH_STEP_READ) return ECH_OK;
    if (!has_relayed(c))
        return ech_list_reject(c->plan, c->list, s, "comes before the token's visit %d", c->visit);
    c->ended = c->met >= 0 && knows(c, step, ECH_LANE_REDUCE, c->met);
    if (c->ended && c->pulled == (int)c->plan->bucket.n) return ECH_OK;
    return ech_list_reject(c->plan, c->list, s, "comes before all ranks have pulled all weights");
}

ech_status ech_check_window(const ech_plan *plan, const ech_list *list)
{
    window_check c = {.plan = plan,
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
    if (shares) begin_token(&c);
    for (int s = 0; s < (int)list->step.n; s++) {
        ech_known_learn(&c.known, list, &list->step.at[s]);
        if (of->spread == ECH_STEP_PUBLISH) ECH_TRY(check_central(&c, s));
        if (shares) ECH_TRY(check_lock_free(&c, s));
    }
    return ECH_OK;
}
