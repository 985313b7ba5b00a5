/* SPDX-License-Identifier: Apache-2.0
 *
 * The first pass: an order of F, B and W per chunk becomes steps per block, with messages where the
 * neighbouring virtual stage is on another rank. A W that directly follows its B is interleaved
 * with it block by block, so that gradients of activations die early. The two are then one
 * backward, as the papers count it, and its results are sent when it has ended. If the schedule
 * splits them, the next rank instead gets its gradient before W.
 *
 * Recomputation. R of a segment's blocks comes right before the B of its last one. It needs no
 * gradient: the R of the item's first B runs before that waits for received messages.
 *
 * Messages. A receive is posted one item of the order ahead of the item that needs it, so that it
 * can arrive while another item computes. A send begins when its values exist; they must live until
 * it has ended, and it ends when the other side has received. To know that without a query, the
 * pass looks in the other rank's order for the first message that comes back from there afterwards:
 * the step that needs that message also waits for the send, at no cost. (Forwards alone bring back
 * a message only for the next chunk; otherwise the forward after the next waits.) So training steps
 * wait for data of other ranks, never for their progress, and an order that can run with unbounded
 * buffers can run with none (checked for all ranks together in check/plans.c).
 */
#include <stdlib.h>

#include "schedule/passes.h"
#include "schedule/operands.h"
#include "schedule/segments.h"

/* A neighbour's order, as seen from this rank. */
typedef struct neighbour {
    int rank, micro_batches; /* its own, as of a list */
    int *item;               /* of its F and B by chunk and micro-batch */
    /* [its items]: this rank's first item that needs the item's later results; -1: none */
    int *returns;
} neighbour;

typedef struct lowering {
    const ech_plan *plan;
    const ech_layout *layout;
    ech_list *list;
    const ech_order *order;
    bool forwards;
    int rank;
    int *item;          /* of this rank's F and B by chunk and micro-batch */
    const int *version; /* [items], or NULL: all 0 */
    int *received;      /* [items] the receive that the item waits for, or -1 */
    ECH_LIST(neighbour) near;
    ECH_LIST(int) waits, next; /* steps, and the next of the same item or -1 */
    int *first_wait;           /* [items] */
    ech_block_lowering of_block;
} lowering;

/* ---- items by their contents ---- */

static int *index_items(const ech_order *order, int chunks, int micro_batches)
{
    size_t n = 2 * (size_t)chunks * (size_t)micro_batches;
    int *item = ech_calloc(n + 1, sizeof *item);
    for (size_t i = 0; i < n; i++) item[i] = -1;
    for (size_t i = 0; i < order->n; i++) {
        const ech_order_item *o = &order->at[i];
        if (o->action != ECH_W)
            item[((int)o->action * chunks + o->chunk) * micro_batches + o->micro] = (int)i;
    }
    return item;
}

static int find_item(const int *item, ech_action action, int chunks, int micro_batches, int chunk,
                     int micro)
{
    return item[((int)action * chunks + chunk) * micro_batches + micro];
}

/* The numbering of a rank's micro-batches in the list. */
static ech_numbering numbering_of(const lowering *l, int rank)
{
    return (ech_numbering){.micro_batches = ech_layout_micro_batches(l->layout, rank),
                           .sequence_chunks = l->list->numbering.sequence_chunks};
}

/* Translates a rank's number of a micro-batch to the number used by the rank that computes another
 * virtual stage of it. */
static int translate(const lowering *l, int from, int number, int stage, int *rank)
{
    ech_micro at = ech_micro_at(numbering_of(l, from), number);
    int64_t q = ech_layout_global_micro(l->layout, from, at.micro_batch);
    *rank = ech_layout_rank_of(l->layout, stage, q, from);
    at.micro_batch = (int)ech_layout_own_micro(l->layout, *rank, q);
    return ech_micro_number(numbering_of(l, *rank), at);
}

/* ---- neighbours ---- */

/* This rank's item that needs the result of the neighbour's item; -1: none. */
static int fed_by(const lowering *l, const neighbour *n, const ech_order_item *theirs)
{
    bool forward = theirs->action == ECH_F;
    int mine = ech_layout_neighbour(l->layout, n->rank, theirs->chunk, forward), rank;
    if (theirs->action == ECH_W || mine < 0) return -1;
    int k = translate(l, n->rank, theirs->micro, mine, &rank);
    if (rank != l->rank) return -1;
    return find_item(l->item, theirs->action, l->layout->chunks, l->list->micro_batches,
                     l->layout->virtual_stage[mine].chunk, k);
}

static void look_at(lowering *l, neighbour *n)
{
    ECH_FREED ech_order order = {0};
    int turns = l->list->turns;
    ech_numbering numbering = numbering_of(l, n->rank);
    n->micro_batches = turns * numbering.micro_batches * numbering.sequence_chunks;
    ech_schedule_order(l->plan->schedule, l->layout, n->rank, turns, l->forwards, &order);
    ech_order_expand_sequence_chunks(l->plan->schedule, &order, numbering, NULL);
    n->item = index_items(&order, l->layout->chunks, n->micro_batches);
    int next = -1;
    n->returns = ech_calloc(order.n + 1, sizeof *n->returns);
    for (size_t i = order.n; i-- > 0;) {
        int mine = fed_by(l, n, &order.at[i]);
        n->returns[i] = next;
        if (mine >= 0 && (next < 0 || mine < next)) next = mine;
    }
}

static const neighbour *find_neighbour(lowering *l, int rank)
{
    for (size_t i = 0; i < l->near.n; i++)
        if (l->near.at[i].rank == rank) return &l->near.at[i];
    neighbour n = {.rank = rank};
    look_at(l, &n);
    ECH_PUSH(l->near, n);
    return &l->near.at[l->near.n - 1];
}

/* ---- messages ---- */

static int64_t bytes_of(const lowering *l, const ech_step *step)
{
    const ech_block *block = l->plan->model->block.at[step->block];
    const int *ports;
    int64_t bytes = 0;
    size_t n = ech_step_ports(step, block, &ports);
    for (size_t i = 0; i < n; i++)
        if (ports[i] >= 0) bytes += ech_plan_message_shard(l->plan, l->list, block, ports[i], NULL);
    return bytes;
}

static void wait_at(lowering *l, int item, int step)
{
    ECH_PUSH(l->waits, step);
    ECH_PUSH(l->next, l->first_wait[item]);
    l->first_wait[item] = (int)l->waits.n - 1;
}

/* The item at which the receiver is known to have received the message of item i; -1: at the
 * end. */
static int safe_item(lowering *l, int i, int peer, int their_chunk, int their_micro)
{
    const ech_order_item *item = &l->order->at[i];
    ech_action action = item->action;
    if (l->forwards) {
        /* Orders are the same through one chunk, and no rank waits for a later one; messages to the
         * next chunk return to this rank's next chunk. */
        bool same = their_chunk == item->chunk;
        int back = find_item(l->item, action, l->layout->chunks, l->list->micro_batches,
                             their_chunk, item->micro);
        return !same ? back : i + 2 < (int)l->order->n ? i + 2 : -1;
    }
    const neighbour *n = find_neighbour(l, peer);
    int theirs =
        find_item(n->item, action, l->layout->chunks, n->micro_batches, their_chunk, their_micro);
    int mine = theirs < 0 ? -1 : n->returns[theirs];
    return mine > i ? mine : -1;
}

static int add_message(lowering *l, ech_step_kind kind, int i, int block, int peer)
{
    const ech_order_item *item = &l->order->at[i];
    int added = ech_list_add(l->list, kind);
    ech_step *step = &l->list->step.at[added];
    step->block = block;
    step->chunk = item->chunk;
    step->micro = item->micro;
    step->turn = ech_micro_at(l->list->numbering, item->micro).turn;
    step->peer = peer;
    step->bytes = bytes_of(l, step);
    if (l->of_block.last >= 0) ech_list_add_after(l->list, l->of_block.last);
    if (ech_step_sends(step) && l->of_block.outstanding >= 0)
        ech_list_add_after(l->list, l->of_block.outstanding);
    return added;
}

/* True if nothing is sent back from `block` to the block before it: nothing there is trained. */
static bool is_frozen_below(const lowering *l, int block)
{
    return l->plan->model->block.at[block]->frozen_below;
}

/* Sends the result of item i, an F or B, to the next virtual stage if that is on another rank. */
static void send(lowering *l, int i)
{
    const ech_order_item *item = &l->order->at[i];
    bool forward = item->action == ECH_F;
    int stage = ech_layout_neighbour(l->layout, l->rank, item->chunk, forward), first, end, peer;
    if (stage < 0) return;
    int theirs = translate(l, l->rank, item->micro, stage, &peer);
    if (peer == l->rank) return;
    ech_layout_blocks(l->layout, l->rank, item->chunk, &first, &end);
    if (!forward && is_frozen_below(l, first)) return;
    int step = add_message(l, forward ? ECH_STEP_SEND_ACT : ECH_STEP_SEND_GRAD, i,
                           forward ? end - 1 : first, peer);
    int safe = safe_item(l, i, peer, l->layout->virtual_stage[stage].chunk, theirs);
    if (safe >= 0) wait_at(l, safe, step);
}

/* Posts the receive of item i's input if that comes from another rank. */
static void post(lowering *l, int i)
{
    if (i >= (int)l->order->n || l->order->at[i].action == ECH_W) return;
    const ech_order_item *item = &l->order->at[i];
    bool forward = item->action == ECH_F;
    int stage = ech_layout_neighbour(l->layout, l->rank, item->chunk, !forward), first, end, peer;
    if (stage < 0) return;
    translate(l, l->rank, item->micro, stage, &peer);
    if (peer == l->rank) return;
    ech_layout_blocks(l->layout, l->rank, item->chunk, &first, &end);
    if (!forward && is_frozen_below(l, end)) return;
    l->received[i] = add_message(l, forward ? ECH_STEP_RECV_ACT : ECH_STEP_RECV_GRAD, i,
                                 forward ? first : end - 1, peer);
}

/* ---- blocks ---- */

/* The lowering of one block, set up for item i. */
static ech_block_lowering *lowering_of(lowering *l, int block, int i)
{
    const ech_order_item *item = &l->order->at[i];
    l->of_block.block = block;
    l->of_block.chunk = item->chunk;
    l->of_block.micro = item->micro;
    l->of_block.turn = ech_micro_at(l->list->numbering, item->micro).turn;
    l->of_block.version = l->version ? l->version[i] : 0;
    return &l->of_block;
}

/* The item's first block waits for the item's message; message shards are gathered first. */
static void await_received(lowering *l, int i, int block)
{
    int received = l->received[i];
    if (received < 0) return;
    /* The compute lane also waits for the message itself: only awaited steps have a deadline, and a
     * known end of their lives. */
    ECH_PUSH(l->of_block.pending, received);
    if (!ech_plan_shards_messages(l->plan)) return;
    bool backward = l->order->at[i].action == ECH_B;
    int whole = ech_lower_gather_message(lowering_of(l, block, i), backward, received);
    ECH_PUSH(l->of_block.pending, whole);
}

bool ech_order_is_joined(const ech_schedule *schedule, const ech_order *order, size_t i)
{
    if (i + 1 >= order->n || (schedule->generator && schedule->generator->splits)) return false;
    const ech_order_item *b = &order->at[i], *w = b + 1;
    return b->action == ECH_B && w->action == ECH_W && w->chunk == b->chunk && w->micro == b->micro;
}

/* If the block is the last of its segment, recomputes the whole segment. Inverted blocks are
 * recomputed one by one. */
static void recompute(lowering *l, int block, int i)
{
    int first = l->plan->segment[block];
    bool inverts = l->plan->model->block.at[block]->options.invert;
    if (first < 0 || (!inverts && ech_plan_continues_segment(l->plan, block + 1))) return;
    if (inverts) first = block;
    for (int b = first; b <= block; b++) ech_lower_phase(lowering_of(l, b, i), ECH_RECOMPUTE);
}

/* Lowers item i, together with its W if it is a joined B. Returns the number of items. */
static int lower_item(lowering *l, int i)
{
    const ech_order_item *item = &l->order->at[i];
    bool joined = ech_order_is_joined(l->plan->schedule, l->order, (size_t)i);
    int first, end;
    ech_layout_blocks(l->layout, l->rank, item->chunk, &first, &end);
    if (item->action == ECH_B) recompute(l, end - 1, i);
    await_received(l, i, item->action == ECH_F ? first : end - 1);
    for (int w = l->first_wait[i]; w >= 0; w = l->next.at[w])
        ECH_PUSH(l->of_block.pending, l->waits.at[w]);
    if (item->action == ECH_F) {
        for (int b = first; b < end; b++) ech_lower_phase(lowering_of(l, b, i), ECH_FORWARD);
        send(l, i);
        return 1;
    }
    for (int b = end - 1; b >= first; b--) {
        if (item->action == ECH_B && b < end - 1) recompute(l, b, i);
        ech_block_lowering *p = lowering_of(l, b, i);
        if (joined)
            ech_lower_backward(p);
        else
            ech_lower_phase(p, item->action == ECH_B ? ECH_BACKWARD_INPUT : ECH_BACKWARD_WEIGHT);
    }
    if (item->action == ECH_B) send(l, i);
    return joined ? 2 : 1;
}

static void release(lowering *l)
{
    for (size_t i = 0; i < l->near.n; i++) {
        free(l->near.at[i].item);
        free(l->near.at[i].returns);
    }
    free(l->near.at);
    free(l->item);
    free(l->received);
    free(l->waits.at);
    free(l->next.at);
    free(l->first_wait);
    free(l->of_block.pending.at);
    free(l->of_block.weight_done.at);
}

void ech_pass_lower(const ech_plan *plan, ech_list *list, const ech_order *order,
                    const int *version)
{
    size_t n = order->n + 1;
    lowering l = {
        .plan = plan,
        .layout = plan->layout,
        .list = list,
        .order = order,
        .forwards = list->purpose != ECH_TRAIN,
        .rank = ech_layout_pattern(plan->layout, plan->rank),
        .item = index_items(order, plan->layout->chunks, list->micro_batches),
        .version = version,
        .received = ech_calloc(n, sizeof *l.received),
        .first_wait = ech_calloc(n, sizeof *l.first_wait),
        .of_block = {.plan = plan, .list = list, .last = -1, .outstanding = -1, .awaited = -1}};
    for (size_t i = 0; i < n; i++) l.received[i] = l.first_wait[i] = -1;
    post(&l, 0);
    for (int i = 0; i < (int)order->n;) {
        bool joined = ech_order_is_joined(plan->schedule, order, (size_t)i);
        post(&l, i + 1 + joined);
        i += lower_item(&l, i);
    }
    release(&l);
}
