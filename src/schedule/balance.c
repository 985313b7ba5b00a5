/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes when items of all stages run, and from that what an evictor's acceptor holds, and when.
 */
#include <stdlib.h>
#include <string.h>

#include "schedule/passes.h"
#include "schedule/segments.h"

/* The rank's pipeline, stage by stage. */
typedef struct timing {
    const ech_layout *layout;
    int micro_batches; /* of a list */
    ech_timed_items *of;
    int **item_of; /* [stages] of F and B, by chunk and `micro` */
    int *next;     /* [stages] first item without a time */
} timing;

/* ---- times of items ---- */

static int *slot_of(const timing *t, int stage, ech_action action, int chunk, int micro)
{
    int at = ((int)action * t->layout->chunks + chunk) * t->micro_batches + micro;
    return &t->item_of[stage][at];
}

/* Converts a rank's order to items. */
static void list_items(const ech_schedule *schedule, const ech_layout *layout, int rank,
                       ech_numbering numbering, const bool *keeps, ech_timed_items *out)
{
    ECH_FREED ech_order order = {0};
    ech_schedule_order(schedule, layout, rank, schedule->turns, false, &order);
    ech_order_expand_sequence_chunks(schedule, &order, numbering, NULL);
    for (size_t i = 0; i < order.n; i++) {
        const ech_order_item *o = &order.at[i];
        bool joined = ech_order_is_joined(schedule, &order, i);
        int first, end;
        ech_layout_blocks(layout, rank, o->chunk, &first, &end);
        ech_timed_item item = {.action = o->action,
                               .joined = joined,
                               .chunk = o->chunk,
                               .micro = o->micro,
                               .length = (end - first) * (1 + joined),
                               .begin = -1,
                               .end = -1};
        for (int b = first; b < end; b++) item.keeps |= keeps[b];
        ECH_PUSH(*out, item);
        i += joined;
    }
}

/* The time at which an item's inputs from other stages are there; -1: unknown yet. */
static int find_ready(const timing *t, int stage, const ech_timed_item *item)
{
    const ech_layout *layout = t->layout;
    int at = layout->virtual_of[stage * layout->chunks + item->chunk];
    int from = item->action == ECH_F ? at - 1 : at + 1;
    if (item->action == ECH_W || from < 0 || from >= ech_layout_virtual_stages(layout)) return 0;
    const ech_virtual_stage *other = &layout->virtual_stage[from];
    int before = *slot_of(t, other->stage, item->action, other->chunk, item->micro);
    return before < 0 ? -1 : t->of[other->stage].at[before].end;
}

/* Times the items of a stage that may run now. Returns true if there were any. */
static bool advance(timing *t, int stage)
{
    ech_timed_items *of = &t->of[stage];
    int *next = &t->next[stage], begun = *next;
    for (; *next < (int)of->n; ++*next) {
        ech_timed_item *item = &of->at[*next];
        int ready = find_ready(t, stage, item), end = *next ? item[-1].end : 0;
        if (ready < 0) break;
        item->begin = ready > end ? ready : end;
        item->end = item->begin + item->length;
    }
    return *next > begun;
}

/* Items of an order that never ends keep -1. */
static void time_items(timing *t)
{
    for (bool moves = true; moves;) {
        moves = false;
        for (int stage = 0; stage < t->layout->stages; stage++) moves |= advance(t, stage);
    }
}

static timing begin_timing(const ech_schedule *schedule, const ech_model *model,
                           const ech_layout *layout, int rank, int sequence_chunks)
{
    const ech_coordinates *at = &layout->coordinates[rank];
    size_t stages = (size_t)layout->stages;
    ech_numbering numbering = {ech_layout_micro_batches(layout, rank), sequence_chunks};
    timing t = {.layout = layout,
                .micro_batches = schedule->turns * numbering.micro_batches * sequence_chunks,
                .of = ech_calloc(stages, sizeof *t.of),
                .item_of = ech_calloc(stages, sizeof *t.item_of),
                .next = ech_calloc(stages, sizeof *t.next)};
    ECH_FREED bool *keeps = ech_calloc(model->block.n, sizeof *keeps);
    for (size_t b = 0; b < model->block.n; b++) keeps[b] = ech_segments_keep(model->block.at[b]);
    size_t slots = 2 * (size_t)layout->chunks * (size_t)t.micro_batches;
    for (int s = 0; s < layout->stages; s++) {
        int peer = ech_layout_rank_at(layout, s, at->data, at->context, at->tensor);
        list_items(schedule, layout, peer, numbering, keeps, &t.of[s]);
        t.item_of[s] = ech_calloc(slots + 1, sizeof **t.item_of);
        for (size_t i = 0; i < slots; i++) t.item_of[s][i] = -1;
        for (size_t i = 0; i < t.of[s].n; i++) {
            const ech_timed_item *item = &t.of[s].at[i];
            if (item->action != ECH_W)
                *slot_of(&t, s, item->action, item->chunk, item->micro) = (int)i;
        }
    }
    return t;
}

static void end_timing(timing *t)
{
    for (int s = 0; s < t->layout->stages; s++) {
        free(t->of[s].at);
        free(t->item_of[s]);
    }
    free(t->of);
    free(t->item_of);
    free(t->next);
}

/* ---- numbers of kept activations ---- */

/* After its F, or its B and W, which no longer needs what was kept. */
static int change_at(const ech_timed_item *item)
{
    if (!item->keeps) return 0;
    return item->action == ECH_F ? 1 : -(item->action == ECH_W || item->joined);
}

static int count_kept(const ech_timed_items *items)
{
    int now = 0, most = 0;
    for (size_t i = 0; i < items->n; i++) {
        now += change_at(&items->at[i]);
        if (now > most) most = now;
    }
    return most;
}

/* ---- which are sent, and when ---- */

/* The range of the evictor's items in which a forward's activations are away; sending and returning
 * takes prefetch items each. */
typedef struct absence {
    int made, first, last, needed;
} absence;

/* Chooses, among those that can be away at item `at`, the one that is needed last; NULL: none. */
static absence *choose(absence *all, size_t n, int at)
{
    absence *best = NULL;
    for (size_t i = 0; i < n && all[i].made < at; i++)
        if (all[i].needed >= 0 && all[i].first <= at && at <= all[i].last &&
            (!best || all[i].needed > best->needed))
            best = &all[i];
    return best;
}

/* Number of items that have begun before that time, or that have ended by then. */
static int count_until(const ech_timed_items *items, int time, bool ended)
{
    int low = 0, high = (int)items->n;
    while (low < high) {
        int middle = (low + high) / 2;
        const ech_timed_item *item = &items->at[middle];
        if (ended ? item->end <= time : item->begin < time)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The acceptor's memory is reused during the item that runs when the forward has ended, unless the
 * evictor waits right then. */
static ech_hold hold_of(const ech_balance *b, const absence *a)
{
    const ech_timed_item *own = b->of_evictor.at;
    const ech_timed_items *other = &b->of_acceptor;
    int made = own[a->made].end, gone = own[a->first].begin;
    int freed = count_until(other, own[a->needed].begin, false);
    return (ech_hold){.made = a->made,
                      .gone = a->first,
                      .room = a->last,
                      .needed = a->needed,
                      .taken = count_until(other, made < gone ? made + 1 : gone, false) - 1,
                      .given = count_until(other, own[a->last].end, true) - 1,
                      .freed = freed < (int)other->n ? freed : -1};
}

static int by_made(const void *a, const void *b)
{
    return ((const ech_hold *)a)->made - ((const ech_hold *)b)->made;
}

/* Removes the acceptor's items at which held activations have gone by item `taken`. Returns the
 * number of remaining ones. */
static int drop_freed(int *freed, int n, int taken)
{
    int left = 0;
    for (int i = 0; i < n; i++)
        if (freed[i] < 0 || freed[i] > taken) freed[left++] = freed[i];
    return left;
}

static int find_next_freed(const int *freed, int n)
{
    int next = -1;
    for (int i = 0; i < n; i++)
        if (freed[i] >= 0 && (next < 0 || freed[i] < next)) next = freed[i];
    return next;
}

/* The acceptor has room for the limit minus what it keeps. It accepts activations when others have
 * gone, if the evictor need not wait for that, and in the order in which they are sent. */
static void share_room(ech_balance *b)
{
    const ech_timed_item *own = b->of_evictor.at, *other = b->of_acceptor.at;
    int room = b->limit - b->accepted, n = 0, taken = -1;
    ECH_FREED int *freed = ech_calloc(b->hold.n + 1, sizeof *freed);
    for (size_t i = 0; i < b->hold.n; i++) {
        ech_hold *hold = &b->hold.at[i];
        if (hold->taken > taken) taken = hold->taken;
        n = drop_freed(freed, n, taken);
        while (n >= room) {
            int next = find_next_freed(freed, n);
            if (next < 0 || other[next].begin >= own[hold->gone].begin) break;
            taken = next;
            n = drop_freed(freed, n, taken);
        }
        hold->taken = taken;
        freed[n++] = hold->freed;
    }
}

/* Passes over the items once and sends activations away wherever more than the limit would be kept.
 * The oldest absences are dropped as they end, so that a search visits only current ones. */
static void choose_holds(ech_balance *b, absence *all, size_t n, int *away)
{
    const ech_timed_items *items = &b->of_evictor;
    int kept = 0;
    size_t over = 0;
    for (int i = 0; i < (int)items->n; i++) {
        int change = change_at(&items->at[i]);
        kept += change > 0;
        while (over < n && all[over].last < i) over++;
        while (kept - away[i] > b->limit) {
            absence *a = choose(all + over, n - over, i);
            if (!a) break;
            ech_hold hold = hold_of(b, a);
            ECH_PUSH(b->hold, hold);
            for (int k = a->first; k <= a->last; k++) away[k]++;
            a->needed = -1;
        }
        kept -= change < 0;
    }
    if (b->hold.n) qsort(b->hold.at, b->hold.n, sizeof *b->hold.at, by_made);
    share_room(b);
}

/* Absences sorted by `made`. */
static absence *find_absences(const timing *t, int stage, int prefetch, size_t *n)
{
    const ech_timed_items *items = &t->of[stage];
    absence *all = ech_calloc(items->n + 1, sizeof *all);
    *n = 0;
    for (int i = 0; i < (int)items->n; i++) {
        const ech_timed_item *item = &items->at[i];
        if (item->action != ECH_F || !item->keeps) continue;
        int needed = *slot_of(t, stage, ECH_B, item->chunk, item->micro);
        absence a = {i, i + 1 + prefetch, needed - 1 - prefetch, needed};
        if (a.first <= a.last) all[(*n)++] = a;
    }
    return all;
}

void ech_balance_find(const ech_schedule *schedule, const ech_model *model,
                      const ech_layout *layout, int rank, int sequence_chunks, int prefetch,
                      ech_balance *out)
{
    const ech_coordinates *at = &layout->coordinates[rank];
    int mirror = layout->stages - 1 - at->stage;
    *out = (ech_balance){.evictor = -1, .acceptor = -1};
    if (mirror == at->stage) return;
    ECH_ASSERT(layout->uniform);
    ECH_CLEANUP(end_timing) timing t = begin_timing(schedule, model, layout, rank, sequence_chunks);
    int kept = count_kept(&t.of[at->stage]), theirs = count_kept(&t.of[mirror]);
    int stage = kept > theirs ? at->stage : mirror, other = layout->stages - 1 - stage;
    time_items(&t);
    out->kept = kept > theirs ? kept : theirs;
    out->accepted = kept > theirs ? theirs : kept;
    out->limit = (kept + theirs + 2) / 2;
    out->ends = true;
    for (int s = 0; s < layout->stages; s++) out->ends &= t.next[s] == (int)t.of[s].n;
    if (out->ends && out->kept > out->limit) {
        size_t n;
        ECH_FREED absence *all = find_absences(&t, stage, prefetch, &n);
        ECH_FREED int *away = ech_calloc(t.of[stage].n + 1, sizeof *away);
        out->of_evictor = t.of[stage];
        out->of_acceptor = t.of[other];
        t.of[stage] = t.of[other] = (ech_timed_items){0};
        choose_holds(out, all, n, away);
    }
    if (out->hold.n) {
        out->evictor = ech_layout_rank_at(layout, stage, at->data, at->context, at->tensor);
        out->acceptor = ech_layout_rank_at(layout, other, at->data, at->context, at->tensor);
    }
}

ech_status ech_balance_check(const ech_config *config, const ech_model *model,
                             const ech_layout *layout, const ech_schedule *schedule)
{
    int64_t chunks = config->memory.sequence_chunks;
    ech_balance first = {0};
    if (config->memory.offload_activations != ECH_OFFLOAD_PEER) return ECH_OK;
    for (int stage = layout->stages / 2 - 1; stage >= 0; stage--) {
        ech_balance_find(schedule, model, layout, ech_layout_rank_at(layout, stage, 0, 0, 0),
                         chunks > 1 ? (int)chunks : 1, (int)config->memory.prefetch, &first);
        bool some = first.hold.n || !first.ends;
        ech_balance_free(&first); /* its numbers stay */
        if (some) return ECH_OK;
    }
    return ech_config_complain(
        config, "memory.offload_activations",
        "no rank would hold activations for another with %s; use more stages and micro-batches (4 "
        "or more with parallel.schedule = 1f1b), a smaller memory.prefetch, or host or disk",
        ECH_COUNT(layout->stages, "stage"));
}

void ech_balance_free(ech_balance *balance)
{
    free(balance->of_evictor.at);
    free(balance->of_acceptor.at);
    free(balance->hold.at);
    memset(&balance->hold, 0, sizeof balance->hold);
    balance->of_evictor = balance->of_acceptor = (ech_timed_items){0};
}
