/* SPDX-License-Identifier: Apache-2.0
 *
 * The ring reduction: in N - 1 turns each piece travels around the ring and collects the members'
 * addends, in N - 1 more its sum travels around. Each piece is added from another start, so the sum
 * of an element depends on where the cuts lie.
 * Source: Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of
 * workstations".
 */
#include "comm/reduce.h"

/* Several segments are under way, so that one is added while the next ones arrive. */
static int64_t scratch(size_t item, int64_t n, int N)
{
    return ech_segment_count(ech_piece_count(n, N, 0), 0, ECH_UNDER_WAY * ech_segment(item, N));
}

/* All pieces but index + 1 in the first half, all but index + 2 in the second. */
static int64_t sent(int64_t n, int N, int index)
{
    return 2 * n - ech_piece_count(n, N, (index + 1) % N) - ech_piece_count(n, N, (index + 2) % N);
}

/* One piece goes to the next member while another comes from the previous one: straight in place, or by
 * way of scratch to be added. */
typedef struct turn {
    int going, coming;
    bool adds;
} turn;

static char *find_slot(const ech_sum *sum, const ech_pieces *pieces, int64_t k)
{
    return sum->scratch + (size_t)(k % ECH_UNDER_WAY * pieces->segment) * sum->item;
}

static ech_status begin(const ech_sum *sum, const ech_pieces *pieces, const turn *t, int64_t k)
{
    ech_group *group = sum->group;
    ech_comm_batch *batch = &group->batch[k % ECH_UNDER_WAY];
    int N = group->size, next = (group->index + 1) % N, previous = (group->index + N - 1) % N;
    ech_part out = ech_pieces_part(pieces, t->going, k), in = ech_pieces_part(pieces, t->coming, k);
    char *to = t->adds ? find_slot(sum, pieces, k) : in.x;
    ECH_TRY(ech_comm_batch_receive(group, batch, previous, to, in.bytes));
    return ech_comm_batch_send(group, batch, next, out.x, out.bytes);
}

static ech_status end(const ech_sum *sum, const ech_pieces *pieces, const turn *t, int64_t k)
{
    ech_part in = ech_pieces_part(pieces, t->coming, k);
    ECH_TRY(ech_comm_batch_wait(sum->group, &sum->group->batch[k % ECH_UNDER_WAY]));
    if (t->adds)
        ech_add(sum->dtype, in.x, find_slot(sum, pieces, k), (int64_t)(in.bytes / sum->item));
    return ECH_OK;
}

static ech_status run_turn(const ech_sum *sum, turn t)
{
    ech_pieces pieces = ech_pieces_of_sum(sum);
    int64_t segments = ech_pieces_segments(&pieces), ahead = ECH_UNDER_WAY - 1;
    for (int64_t k = 0; k < segments + ahead; k++) {
        if (k < segments) ECH_TRY(begin(sum, &pieces, &t, k));
        if (k >= ahead) ECH_TRY(end(sum, &pieces, &t, k - ahead));
    }
    return ECH_OK;
}

static ech_status run(const ech_sum *sum)
{
    int N = sum->group->size, r = sum->group->index;
    for (int k = 0; k < N - 1; k++)
        ECH_TRY(run_turn(sum, (turn){(r - k + N) % N, (r - k - 1 + N) % N, .adds = true}));
    for (int k = 0; k < N - 1; k++)
        ECH_TRY(run_turn(sum, (turn){(r + 1 - k + N) % N, (r - k + N) % N, .adds = false}));
    return ECH_OK;
}

const ech_reduction_row ech_reduce_RING = {.scratch = scratch, .sent = sent, .run = run};
