/* SPDX-License-Identifier: Apache-2.0
 *
 * The reduce-scatter: every member sends each other one its share of that one's piece, and adds what
 * it gets in member order, segment by segment.
 */
#include <string.h>

#include "comm/reduce.h"

ech_pieces ech_pieces_of_sum(const ech_sum *sum)
{
    return (ech_pieces){.group = sum->group,
                        .x = sum->x,
                        .n = sum->n,
                        .item = sum->item,
                        .segment = ech_segment(sum->item, sum->group->size)};
}

ech_part ech_pieces_part(const ech_pieces *p, int member, int64_t at)
{
    int N = p->group->size;
    int64_t count = ech_piece_count(p->n, N, member);
    int64_t first = ech_piece_first(p->n, N, member);
    return (ech_part){.x = p->x + (size_t)(first + at) * p->item,
                      .bytes = (size_t)ech_segment_count(count, at, p->segment) * p->item};
}

/* Receives the others' addends for this rank's piece into scratch, in member order, and sends every
 * owner this rank's addends. */
static ech_status start(const ech_sum *sum, ech_batch *batch, const ech_pieces *pieces, int64_t at)
{
    ech_group *group = sum->group;
    int N = group->size, index = group->index;
    ech_part own = ech_pieces_part(pieces, index, at);
    char *to = sum->scratch;
    for (int i = 0; i < N; i++) {
        if (i == index) continue;
        ECH_TRY(ech_batch_receive(group, batch, i, to, own.bytes));
        to += own.bytes;
    }
    for (int k = 1; k < N; k++) { /* not all to member 0 first */
        int owner = (index + k) % N;
        ech_part p = ech_pieces_part(pieces, owner, at);
        ECH_TRY(ech_batch_send(group, batch, owner, p.x, p.bytes));
    }
    return ECH_OK;
}

ech_status ech_scatter_segment(const ech_sum *sum, ech_batch *batch, const ech_pieces *pieces,
                               char *mine, int64_t at)
{
    ech_part own = ech_pieces_part(pieces, sum->group->index, at);
    ECH_TRY(start(sum, batch, pieces, at));
    ECH_TRY(ech_batch_wait(sum->group, batch));
    ech_add_in_order(sum, mine, own.x, sum->scratch, (int64_t)(own.bytes / sum->item));
    return ECH_OK;
}

ech_status ech_group_reduce_scatter(ech_group *group, const ech_tensor *x, void *mine,
                                    void *scratch)
{
    ech_sum sum;
    ECH_TRY(ech_sum_begin(group, ECH_CALL_REDUCE_SCATTER, x, scratch, &sum));
    if (sum.n == 0) return ECH_OK;
    if (group->size == 1) {
        if (mine != sum.x) memcpy(mine, sum.x, (size_t)sum.n * sum.item);
        return ECH_OK;
    }
    ech_pieces pieces = ech_pieces_of_sum(&sum);
    int64_t longest = ech_piece_count(sum.n, group->size, 0);
    char *to = mine;
    for (int64_t at = 0; at < longest; at += pieces.segment)
        ECH_TRY(
            ech_scatter_segment(&sum, &group->batch[0], &pieces, to + (size_t)at * sum.item, at));
    return ECH_OK;
}
