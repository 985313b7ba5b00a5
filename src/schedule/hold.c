/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.offload_activations = peer (schedule/balance.h): the messages of the evictor and the
 * acceptor. A sequence chunk has one message per block, so that the last block's returns first.
 * They follow the messages that other stages wait for.
 */
#include <stdlib.h>
#include <string.h>

#include "schedule/passes.h"
#include "schedule/segments.h"

/* Steps of an item. */
typedef struct visit {
    int first,
        last; /* the first of the compute lane; `last` may be a collective after that lane's last */
} visit;

/* For a block and a sequence chunk. */
typedef struct backward {
    /* R's or B's first compute step; its first collective if that comes before; -1: none */
    int first, collective;
    int gone; /* the insertion that frees the memory it needs */
} backward;

typedef struct holding {
    const ech_plan *plan;
    const ech_list *list;
    const ech_balance *balance;
    const ech_timed_items *items; /* this rank's */
    int *item_of;                 /* [F, B and W, by chunk and `micro`] */
    visit *visit;                 /* [items] */
    backward *backward;           /* [blocks * micro_batches] */
    ech_insertion_list in;
} holding;

static int *slot_of(const holding *h, ech_action action, int chunk, int micro)
{
    int at = ((int)action * h->plan->layout->chunks + chunk) * h->list->micro_batches + micro;
    return &h->item_of[at];
}

static void index_items(holding *h)
{
    for (size_t i = 0; i < h->items->n; i++) {
        const ech_timed_item *item = &h->items->at[i];
        *slot_of(h, item->action, item->chunk, item->micro) = (int)i;
        if (item->joined) *slot_of(h, ECH_W, item->chunk, item->micro) = (int)i;
        h->visit[i] = (visit){-1, -1};
    }
}

static ech_action action_of(ech_phase phase)
{
    if (phase == ECH_FORWARD) return ECH_F;
    return phase == ECH_BACKWARD_WEIGHT ? ECH_W : ECH_B;
}

static void note_step(holding *h, int s)
{
    const ech_step *step = &h->list->step.at[s];
    bool computes = ech_step_kind_phase(step->kind) >= 0;
    if (!computes && (step->kind != ECH_STEP_COLLECTIVE || step->calls == 0)) return;
    visit *v = &h->visit[*slot_of(h, action_of(step->phase), step->chunk, step->micro)];
    if (computes && v->first < 0) v->first = s;
    v->last = s;
    backward *b = &h->backward[step->block * h->list->micro_batches + step->micro];
    if (step->phase == ECH_FORWARD || b->first >= 0) return;
    if (computes)
        b->first = s;
    else if (b->collective < 0)
        b->collective = s;
}

/* of: the evictor's item. */
static void add(holding *h, ech_step_kind kind, int block, const ech_timed_item *of,
                ech_insertion in)
{
    bool evicts = h->plan->rank == h->balance->evictor;
    in.step = ech_step_make(kind);
    in.step.block = block;
    in.step.chunk = of->chunk;
    in.step.micro = of->micro;
    in.step.turn = ech_micro_at(h->list->numbering, of->micro).turn;
    in.step.peer = evicts ? h->balance->acceptor : h->balance->evictor;
    in.step.bytes = ech_plan_kept_bytes(h->plan, block);
    in.yields = true;
    if (in.step.bytes > 0) ECH_PUSH(h->in, in);
}

static int first_of(const holding *h, int item)
{
    return item < 0 ? -1 : h->visit[item].first;
}

static int last_of(const holding *h, int item)
{
    return item < 0 ? -1 : h->visit[item].last;
}

static backward *backward_of(const holding *h, int block, const ech_timed_item *of)
{
    return &h->backward[block * h->list->micro_batches + of->micro];
}

static void add_kept(holding *h, const ech_hold *hold, const ech_timed_item *of, int block)
{
    bool evicts = h->plan->rank == h->balance->evictor;
    ech_insertion in = {.after = evicts ? last_of(h, hold->made) : first_of(h, hold->taken),
                        .before = {evicts ? first_of(h, hold->gone) : -1, -1},
                        .follows = {-1, -1}};
    backward_of(h, block, of)->gone = (int)h->in.n;
    add(h, evicts ? ECH_STEP_SEND_KEPT : ECH_STEP_RECV_KEPT, block, of, in);
}

static void add_back(holding *h, const ech_hold *hold, const ech_timed_item *of, int block)
{
    bool evicts = h->plan->rank == h->balance->evictor;
    const backward *b = backward_of(h, block, of);
    int room = hold->room + 1 < hold->needed ? first_of(h, hold->room + 1) : last_of(h, hold->room);
    ech_insertion in = {
        .after = evicts ? room : last_of(h, hold->given),
        .before = {evicts ? b->first : first_of(h, hold->freed), evicts ? b->collective : -1},
        .follows = {b->gone, -1}};
    add(h, evicts ? ECH_STEP_RECV_BACK : ECH_STEP_SEND_BACK, block, of, in);
}

static void add_messages(holding *h, const ech_hold *hold, bool back)
{
    const ech_timed_item *of = &h->balance->of_evictor.at[hold->made];
    int first, end;
    ech_layout_blocks(h->plan->layout, h->balance->evictor, of->chunk, &first, &end);
    for (int b = end - 1; b >= first; b--) (back ? add_back : add_kept)(h, hold, of, b);
}

static int by_needed(const void *a, const void *b)
{
    return ((const ech_hold *)a)->needed - ((const ech_hold *)b)->needed;
}

/* Both ranks send these messages in one order, and return them in one order. */
static void add_all(holding *h)
{
    size_t n = h->balance->hold.n;
    ECH_FREED ech_hold *needed = ech_calloc(n, sizeof *needed);
    memcpy(needed, h->balance->hold.at, n * sizeof *needed);
    qsort(needed, n, sizeof *needed, by_needed);
    for (size_t i = 0; i < n; i++) add_messages(h, &h->balance->hold.at[i], false);
    for (size_t i = 0; i < n; i++) add_messages(h, &needed[i], true);
}

void ech_pass_hold(const ech_plan *plan, ech_list *list, const ech_balance *balance)
{
    if (!balance->hold.n) return;
    size_t chunks = (size_t)plan->layout->chunks, micro_batches = (size_t)list->micro_batches;
    size_t backwards = plan->model->block.n * micro_batches;
    const ech_timed_items *items =
        plan->rank == balance->evictor ? &balance->of_evictor : &balance->of_acceptor;
    ECH_FREED int *item_of = ech_calloc((ECH_W + 1) * chunks * micro_batches, sizeof *item_of);
    ECH_FREED visit *visits = ech_calloc(items->n, sizeof *visits);
    ECH_FREED backward *begins = ech_calloc(backwards, sizeof *begins);
    holding h = {plan, list, balance, items, item_of, visits, begins, {0}};
    for (size_t i = 0; i < backwards; i++) begins[i] = (backward){-1, -1, -1};
    index_items(&h);
    for (int s = 0; s < (int)list->step.n; s++) note_step(&h, s);
    add_all(&h);
    ech_list_insert(list, &h.in);
    free(h.in.at);
}
