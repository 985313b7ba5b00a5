/* SPDX-License-Identifier: Apache-2.0
 *
 * Lock-free training. Rank r adds its update u_r = -v g_r(w) to weights in shared memory, which all
 * ranks share, without a lock. w is what it last pulled from there, possibly while others were
 * adding (Hogwild!: Recht et al. 2011).
 *
 * HogWild++ (Zhang, Hsieh, Akella 2016): clusters of ranks have weights of their own, and a token
 * circulates in the ring of clusters. Its visit v is at cluster v mod n, whose first rank relays
 * the additions of all its ranks, and sends the ring token on. The next visit begins
 * parallel.token_updates turns later. So visits begin after the same turns on all ranks, and a list
 * knows which visits are its rank's. The ring token waits for ranks; ranks wait neither for it nor
 * for each other, unless one is that many turns ahead of another. Additions after a cluster's last
 * visit are missing on other clusters; so after the last turn, once all ranks have met, the ring
 * token circulates once more.
 */
#include <limits.h>

#include "schedule/protocol/roles.h"

static const ech_bucket_stage stages[] = {
    ECH_BUCKET_WRITE,
    ECH_BUCKET_NORM,
    ECH_BUCKET_ADD,
    ECH_BUCKET_PULL,
};

/* The next bucket from `bucket` on that has weights in shared memory: layer states are each rank's
 * own. The number of buckets: there is none. */
static int next_shared(const ech_framing *f, int bucket)
{
    while (bucket < (int)f->plan->bucket.n && f->plan->bucket.at[bucket].commits) bucket++;
    return bucket;
}

/* ---- the ring token ---- */

static int clusters_of(const ech_framing *f)
{
    return f->plan->schedule->ring.clusters;
}

/* True if the list's rank has the ring token at that visit. */
static bool leads(const ech_framing *f, int visit)
{
    return ech_ring_leader(&f->plan->schedule->ring, visit) == f->plan->rank;
}

static int add_message(ech_framing *f, ech_step_kind kind, int turn, int peer, int after)
{
    int here = ech_frame_add(f, kind, turn, -1, after);
    ech_step *step = &f->list->step.at[here];
    step->peer = ech_ring_leader(&f->plan->schedule->ring, peer);
    step->bytes = f->plan->persistent.at[f->plan->ring_token].bytes;
    return here;
}

/* Receives the ring token of the previous visit, and relays the cluster's additions. */
static void take(ech_framing *f, int visit, int turn, int after)
{
    int before = clusters_of(f) + visit - 1, received = -1;
    if (visit > 0) received = add_message(f, ECH_STEP_RECV_RING_TOKEN, turn, before, f->passed);
    int first = next_shared(f, 0);
    for (int b = first; b < (int)f->plan->bucket.n; b = next_shared(f, b + 1)) {
        int relay = ech_frame_add(f, ECH_STEP_RELAY, turn, b, b > first ? -1 : after);
        if (b == first && received >= 0) ech_list_add_after(f->list, received);
        if (b == first && f->passed >= 0) ech_list_add_after(f->list, f->passed);
        f->list->step.at[relay].count = visit;
    }
}

/* After the last visit it stays. */
static void visit_next(ech_framing *f, int turn, int after)
{
    int visit = f->visits++, turns = f->plan->schedule->ring.turns;
    if (!leads(f, visit)) return;
    take(f, visit, turn, after);
    if (f->visits < f->list->turns / turns + clusters_of(f))
        f->passed = add_message(f, ECH_STEP_SEND_RING_TOKEN, turn, visit + 1,
                                ech_frame_last_compute(f->list));
}

static void end_turn(ech_framing *f, int turn)
{
    bool goes_on = (turn + 1) % f->plan->schedule->ring.turns == 0;
    if (clusters_of(f) > 1 && goes_on) visit_next(f, turn, -1);
}

/* Ranks of a cluster run their turns concurrently. */
static void schedule(const ech_config *config, const ech_layout *layout, ech_schedule *out)
{
    int64_t ranks = config->parallel.cluster_ranks, updates = config->parallel.token_updates;
    int64_t turns = (updates + ranks - 1) / ranks;
    ech_protocol_pulls(config, layout, out);
    if (!ech_strategy_is_ring(config)) return;
    out->ring = (ech_schedule_ring){.clusters = layout->world / (int)ranks,
                                    .ranks = (int)ranks,
                                    .turns = turns < INT_MAX ? (int)turns : INT_MAX};
}

/* ---- the list ---- */

/* A barrier of all ranks; `after`: a step that this rank has completed by then. Returns the MEET;
 * -1: there are no other ranks. */
static int add_meet(ech_framing *f, int after)
{
    if (!ech_frame_is_shared(f->plan, ECH_GROUP_WORLD)) return -1;
    int meet = ech_frame_add(f, ECH_STEP_MEET, 0, -1, after);
    f->list->step.at[meet].group = ECH_GROUP_WORLD;
    return meet;
}

/* A span begins with the common weights in shared memory. */
static void begin(ech_framing *f)
{
    for (int b = next_shared(f, 0); b < (int)f->plan->bucket.n; b = next_shared(f, b + 1))
        ech_frame_add(f, ECH_STEP_OFFER, 0, b, -1);
    f->met = add_meet(f, ech_frame_last_compute(f->list));
}

static void expect(ech_framing *f, int turn)
{
    ech_frame_count(f, turn);
    for (int b = 0; b < (int)f->plan->bucket.n; b++)
        if (ech_bucket_is_listed(&f->plan->bucket.at[b]))
            ech_frame_add(f, ECH_STEP_LIST_ROWS, turn, b, -1);
}

static void update(ech_framing *f, int turn)
{
    ech_frame_clip(f, turn);
    ech_frame_updates(f);
}

/* Layer states become the mean of all ranks'. */
static void average(ech_framing *f, int bucket)
{
    int updates = f->list->updates;
    int after = ech_frame_average(f, ECH_STEP_DIFFERENCE, bucket, updates, -1);
    if (ech_frame_is_shared(f->plan, ECH_GROUP_REPLICAS)) {
        after = ech_frame_average(f, ECH_STEP_REDUCE_GRADS, bucket, 0, after);
        f->list->step.at[after].group = ECH_GROUP_REPLICAS;
    }
    ech_frame_average(f, ECH_STEP_OUTER_UPDATE, bucket, updates + 1, after);
}

/* A span ends with the result of all additions. */
static int end(ech_framing *f)
{
    int met = add_meet(f, ech_frame_last_compute(f->list)), clusters = clusters_of(f);
    for (int i = 0; clusters > 1 && i < clusters; i++) visit_next(f, f->list->turns - 1, met);
    if (clusters > 1) met = add_meet(f, ech_frame_last_compute(f->list));
    int first = next_shared(f, 0), buckets = (int)f->plan->bucket.n;
    for (int b = 0; b < buckets; b++)
        if (ech_protocol_averages(f->plan, &f->plan->bucket.at[b])) average(f, b);
    for (int b = first; b < buckets; b = next_shared(f, b + 1)) {
        int pull = ech_frame_add(f, ECH_STEP_PULL, 0, b, b > first ? -1 : met);
        f->list->step.at[pull].version = f->list->updates + 1;
    }
    return ech_frame_reduce_span(f);
}

/* ---- values ---- */

static int add_copy(ech_plan *plan, ech_memory_kind kind, int index)
{
    return ech_plan_add_persistent(plan, kind, index,
                                   plan->persistent.at[plan->bucket.at[index].weights].bytes);
}

/* Each cluster's weights are contiguous, so that its ranks, which write them first, have them in
 * near memory. */
static void values(ech_plan *plan)
{
    const ech_schedule_ring *ring = &plan->schedule->ring;
    int leader = ech_ring_leader(ring, ech_ring_cluster(ring, plan->rank));
    for (int c = 0; c < ring->clusters; c++)
        for (int b = 0; b < (int)plan->bucket.n; b++) {
            int value = add_copy(plan, ECH_MEMORY_COMMON, b);
            if (c == 0 && b == 0) plan->common = value;
        }
    if (ring->clusters < 2 || plan->rank != leader) return;
    for (int b = 0; b < (int)plan->bucket.n; b++) {
        int value = add_copy(plan, ECH_MEMORY_RELAYED, b);
        if (b == 0) plan->relayed = value;
    }
    plan->ring_token =
        ech_plan_add_persistent(plan, ECH_MEMORY_STAGING, ECH_STAGING_RING_TOKEN, sizeof(int64_t));
}

static int all_ranks(const ech_layout *layout)
{
    return layout->world;
}

/* The order in which ranks add is not fixed, so the weights that each had read are the layout's.
 * But no addition is lost: at a span's end w is its initial value plus all differences, or their
 * combination by the ring's token. */
static const ech_serial_step serial[] = {
    ECH_OP(CHECK),  ECH_OP(CHANGE),        ECH_WITH(STORE, BEGUN),
    ECH_OP(CLEAR),  ECH_OP(EACH_STEP),     ECH_OP(EACH_WORKER),
    ECH_OP(GATHER), ECH_OP(READ),          ECH_WITH(LOAD, READ),
    ECH_OP(CHANGE), ECH_WITH(RUN, NEWEST), ECH_OP(GRADIENTS),
    ECH_OP(MOVE),   ECH_OP(END),           ECH_OP(LOSS),
    ECH_OP(END),    ECH_OP(RING_TOKEN),    ECH_WITH(COMPARE, SUM),
    ECH_OP(END)};

const ech_protocol ech_protocol_lock_free = {
    .worker = {ECH_STAGES(stages), ECH_OWN_STATES, .begin = begin, .expect = expect,
               .update = update, .end_turn = end_turn, .end = end, .turns = ech_turns_of_span,
               .sleeps = ECH_STEP_COUNT},
    .averages = true,
    .span = "a span of lock-free ranks",
    .schedule = schedule,
    .space = ECH_SPACE_DEVICE,
    .lists_rows = ech_model_looks_up,
    ECH_SHARED_BY_MEMBERS,
    .joining = ech_protocol_gathers,
    .values = values,
    ECH_NEVER_APART,
    .clocks = ech_protocol_no_ranks,
    .adders = all_ranks,
    .skipping = {"ranks where it showed added nothing", "parallel.strategy=synchronous", ECH_SKIPS},
    .alike = ECH_GROUP_REPLICAS,
    .serial = {.open = true, .keeper = ECH_KEPT_BY_REPLICAS, .train = serial},
};
