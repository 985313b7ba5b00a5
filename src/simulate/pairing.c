/* SPDX-License-Identifier: Apache-2.0
 *
 * Sorts sends and receives by sender, receiver, kind and boundary, and pairs the n-th of each.
 */
#include <stdlib.h>

#include "simulate/rehearsal.h"

typedef struct end {
    int from, to, kind, boundary; /* the channel */
    int step;                     /* in the list at this end */
} end;

typedef ECH_LIST(end) ends;

static int by_channel(const end *x, const end *y)
{
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    if (x->to != y->to) return x->to < y->to ? -1 : 1;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    if (x->boundary != y->boundary) return x->boundary < y->boundary ? -1 : 1;
    return 0;
}

static int by_channel_and_step(const void *a, const void *b)
{
    const end *x = a, *y = b;
    int order = by_channel(x, y);
    if (order) return order;
    return x->step < y->step ? -1 : x->step > y->step;
}

static void collect(const ech_plan *const *plans, int n, ech_list_kind kind, int rank, ends *sent,
                    ends *received)
{
    const ech_list *list = &plans[rank]->list[kind];
    const ech_layout *layout = plans[rank]->layout;
    for (int s = 0; s < (int)list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        bool sends = ech_step_sends(step);
        int peer = ech_list_peer(list, step);
        if ((!sends && !ech_step_receives(step)) || peer < 0 || peer >= layout->world) continue;
        peer = ech_layout_plan_of(layout, n, peer);
        end here = {.from = sends ? rank : peer,
                    .to = sends ? peer : rank,
                    .kind = (int)ech_step_kind_message(step->kind),
                    .boundary = ech_step_boundary(step),
                    .step = s};
        if (sends)
            ECH_PUSH(*sent, here);
        else
            ECH_PUSH(*received, here);
    }
}

static void sort(ends *list)
{
    if (list->n) qsort(list->at, list->n, sizeof *list->at, by_channel_and_step);
}

static void pair(ech_pairing *pairing, const ends *sent, const ends *received)
{
    size_t i = 0, j = 0;
    while (i < sent->n && j < received->n) {
        const end *x = &sent->at[i], *y = &received->at[j];
        int order = by_channel(x, y);
        if (order == 0) {
            pairing->partner[x->from][x->step] = y->step;
            pairing->partner[y->to][y->step] = x->step;
        }
        i += order <= 0;
        j += order >= 0;
    }
}

/* The rank at the other end of a sent message. */
static int receiver_of(const ech_plan *const *plans, ech_list_kind kind, const end *x)
{
    const ech_list *list = &plans[x->from]->list[kind];
    return ech_list_peer(list, &list->step.at[x->step]);
}

static void count_links(const ech_plan *const *plans, ech_list_kind kind, const ends *sent,
                        ech_link_uses *links)
{
    for (size_t i = 0; i < sent->n; i++) {
        const end *x = &sent->at[i];
        int from = plans[x->from]->rank, to = receiver_of(plans, kind, x);
        if (!links->n || links->at[links->n - 1].from != from || links->at[links->n - 1].to != to)
            ECH_PUSH(*links, (ech_link_use){.from = from, .to = to});
        ech_link_use *link = &links->at[links->n - 1];
        link->messages++;
        int64_t bytes = plans[x->from]->list[kind].step.at[x->step].bytes;
        link->bytes += bytes;
        link->bytes_of[x->kind] += bytes;
    }
}

ech_pairing ech_pairing_create(const ech_plan *const *plans, int n, ech_list_kind list,
                               ech_pool *pool)
{
    ECH_FREED ends sent = {0}, received = {0};
    size_t ranks = (size_t)n;
    ech_pairing pairing = {.partner = ech_pool_alloc(pool, ranks * sizeof *pairing.partner)};
    for (int rank = 0; rank < n; rank++) {
        size_t steps = plans[rank]->list[list].step.n;
        pairing.partner[rank] = ech_pool_alloc(pool, steps * sizeof **pairing.partner);
        for (size_t s = 0; s < steps; s++) pairing.partner[rank][s] = -1;
        collect(plans, n, list, rank, &sent, &received);
    }
    sort(&sent);
    sort(&received);
    pair(&pairing, &sent, &received);
    count_links(plans, list, &sent, &pairing.link);
    return pairing;
}
