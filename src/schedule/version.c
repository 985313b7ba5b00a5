/* SPDX-License-Identifier: Apache-2.0
 *
 * Versions of weights: decides which one each forward and backward of an order reads, and how many
 * must be stored. The k-th update since the list began makes version k.
 *
 * - STASHED: a forward reads the newest version, and its backward the same (Narayanan et al.
 *   2019, §3.3). With vertical sync, all stages read the version that the first stage's forward
 *   read. Without stashing (the ablation), the backward reads the newest at its own time.
 * - DELAYED: like BUFFERED, in a synchronous order (Ren et al. 2021, arXiv:2101.06840, §5.2).
 * - BUFFERED: forward and backward of training step t read version t - 1, the version before the
 *   newest that is certain to exist (Narayanan et al. 2021, arXiv:2006.09503, §3.1).
 */
#include "schedule/plan.h"

/* Orders are of whole micro-batches. */
static ech_numbering numbering_of(const ech_layout *layout, int rank)
{
    return (ech_numbering){ech_layout_micro_batches(layout, rank), 1};
}

/* turn_ends[i]: the number of the update that comes after item i, or -1. */
static void find_updates(const ech_order *order, ech_numbering numbering, int *turn_ends)
{
    int turns = 0;
    for (size_t i = 0; i < order->n; i++) {
        int turn = ech_micro_at(numbering, order->at[i].micro).turn;
        turn_ends[i] = -1;
        if (turn >= turns) turns = turn + 1;
    }
    ECH_FREED int *last = ech_calloc((size_t)turns + 1, sizeof *last);
    for (size_t i = 0; i < order->n; i++)
        if (order->at[i].action != ECH_F)
            last[ech_micro_at(numbering, order->at[i].micro).turn] = (int)i;
    for (int t = 0; t < turns; t++) turn_ends[last[t]] = t;
}

/* The versions of forwards that each read the newest: by_micro[chunk 0's micro-batch]. */
static void newest_at_forward(const ech_order *order, ech_numbering numbering, int *by_micro)
{
    ECH_FREED int *turn_ends = ech_calloc(order->n + 1, sizeof *turn_ends);
    int newest = 0;
    find_updates(order, numbering, turn_ends);
    for (size_t i = 0; i < order->n; i++) {
        if (order->at[i].action == ECH_F) by_micro[order->at[i].micro] = newest;
        newest += turn_ends[i] >= 0;
    }
}

/* The versions of this rank's forwards under vertical sync: the input stage's newest. Its replicas
 * share the micro-batches. */
static void newest_at_input(const ech_schedule *schedule, const ech_layout *layout, int rank,
                            int micro_batches, int *by_micro)
{
    ech_numbering own = numbering_of(layout, rank);
    int turns = ech_micro_at(own, micro_batches - 1).turn + 1;
    int first = layout->virtual_stage[0].stage;
    const ech_coordinates *here = &layout->coordinates[rank];
    for (int data = 0; data < layout->replicas[first]; data++) {
        int input = ech_layout_rank_at(layout, first, data, here->context, here->tensor);
        ech_numbering theirs = numbering_of(layout, input);
        ECH_FREED int *at_input =
            ech_calloc((size_t)(theirs.micro_batches * turns), sizeof *at_input);
        ECH_FREED ech_order order = {0};
        ech_schedule_order(schedule, layout, input, turns, false, &order);
        newest_at_forward(&order, theirs, at_input);
        for (int i = 0; i < micro_batches; i++) {
            ech_micro at = ech_micro_at(own, i);
            int64_t q = ech_layout_global_micro(layout, rank, at.micro_batch);
            if (ech_layout_rank_of(layout, 0, q, rank) != input) continue;
            at.micro_batch = (int)ech_layout_own_micro(layout, input, q);
            by_micro[i] = at_input[ech_micro_number(theirs, at)];
        }
    }
}

/* When version t + 1 is made, its slot must not hold a version that is read later. */
static int count_kept(const ech_order *order, const int *version, const int *turn_ends)
{
    int kept = 1, oldest = -2; /* oldest: of those read after item i; -2: none */
    for (size_t i = order->n; i-- > 0;) {
        if (turn_ends[i] >= 0 && oldest != -2) {
            int need = turn_ends[i] + 1 - oldest + 1;
            if (need > kept) kept = need;
        }
        if (oldest == -2 || version[i] < oldest) oldest = version[i];
    }
    return kept;
}

int ech_schedule_versions(const ech_schedule *schedule, const ech_layout *layout, int rank,
                          const ech_order *order, int *version)
{
    for (size_t i = 0; i < order->n; i++) version[i] = 0;
    if (schedule->weights == ECH_WEIGHTS_FLUSHED) return 1;
    ech_numbering own = numbering_of(layout, rank);
    int micro_batches = 0, newest = 0;
    for (size_t i = 0; i < order->n; i++)
        if (order->at[i].micro >= micro_batches) micro_batches = order->at[i].micro + 1;
    ECH_FREED int *turn_ends = ech_calloc(order->n + 1, sizeof *turn_ends);
    ECH_FREED int *forward = ech_calloc((size_t)micro_batches + 1, sizeof *forward);
    find_updates(order, own, turn_ends);
    if (schedule->vertical_sync)
        newest_at_input(schedule, layout, rank, micro_batches, forward);
    else
        newest_at_forward(order, own, forward);
    for (size_t i = 0; i < order->n; i++) {
        const ech_order_item *item = &order->at[i];
        if (ech_weights_keep_previous(schedule->weights))
            version[i] = ech_micro_at(own, item->micro).turn - 1;
        else
            version[i] =
                item->action == ECH_F || schedule->stashing ? forward[item->micro] : newest;
        newest += turn_ends[i] >= 0;
    }
    return ech_weights_keep_previous(schedule->weights) ? 2 : count_kept(order, version, turn_ends);
}
