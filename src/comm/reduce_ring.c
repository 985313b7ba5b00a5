/* SPDX-License-Identifier: Apache-2.0
 *
 * The ring reduction: in N - 1 turns each piece travels around the ring and collects the members'
 * addends, in N - 1 more its sum travels around. Each piece is added from another start, so the sum
 * of an element depends on where the cuts lie.
 * Source: Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of
 * workstations".
 */
#include "comm/reduce.h"

/* Two segments are under way, so that one is added while the next arrives. */
static int64_t scratch(size_t item, int64_t n, int N)
{
    return ech_segment_count(ech_piece_count(n, N, 0), 0, 2 * ech_segment(item, N));
}

/* All pieces but index + 1 in the first half, all but index + 2 in the second. */
static int64_t sent(int64_t n, int N, int index)
{
    return 2 * n - ech_piece_count(n, N, (index + 1) % N) - ech_piece_count(n, N, (index + 2) % N);
}

/* A piece that arrives: straight in place, or by way of scratch to be added. */
typedef struct arrival {
    char *x;
    int64_t count, segment;
    bool adds;
} arrival;

static char *find_slot(const ech_sum *sum, const arrival *in, int64_t at)
{
    if (!in->adds) return in->x + (size_t)at * sum->item;
    return sum->scratch + (size_t)(at / in->segment % 2 * in->segment) * sum->item;
}

static ech_status finish(const ech_sum *sum, const arrival *in, int64_t at)
{
    ECH_TRY(ech_batch_wait(sum->group, &sum->group->batch[at / in->segment % 2]));
    int64_t n = ech_segment_count(in->count, at, in->segment);
    if (in->adds && n > 0)
        ech_add(sum->dtype, in->x + (size_t)at * sum->item, find_slot(sum, in, at), n);
    return ECH_OK;
}

/* Sends one piece to the next member while another comes from the previous one. */
static ech_status turn(const ech_sum *sum, int going, int coming, bool adds)
{
    ech_group *group = sum->group;
    int N = group->size;
    int next = (group->index + 1) % N, previous = (group->index + N - 1) % N;
    int64_t out_count = ech_piece_count(sum->n, N, going);
    char *out = sum->x + (size_t)ech_piece_first(sum->n, N, going) * sum->item;
    arrival in = {.x = sum->x + (size_t)ech_piece_first(sum->n, N, coming) * sum->item,
                  .count = ech_piece_count(sum->n, N, coming),
                  .segment = ech_segment(sum->item, N),
                  .adds = adds};
    int64_t longest = out_count > in.count ? out_count : in.count;
    int64_t at = 0;
    for (; at < longest; at += in.segment) {
        ech_batch *batch = &group->batch[at / in.segment % 2];
        size_t in_bytes = (size_t)ech_segment_count(in.count, at, in.segment) * sum->item;
        size_t out_bytes = (size_t)ech_segment_count(out_count, at, in.segment) * sum->item;
        ECH_TRY(ech_batch_receive(group, batch, previous, find_slot(sum, &in, at), in_bytes));
        ECH_TRY(ech_batch_send(group, batch, next, out + (size_t)at * sum->item, out_bytes));
        if (at > 0) ECH_TRY(finish(sum, &in, at - in.segment));
    }
    return at > 0 ? finish(sum, &in, at - in.segment) : ECH_OK;
}

static ech_status run(const ech_sum *sum)
{
    int N = sum->group->size, r = sum->group->index;
    for (int k = 0; k < N - 1; k++) ECH_TRY(turn(sum, (r - k + N) % N, (r - k - 1 + N) % N, true));
    for (int k = 0; k < N - 1; k++) ECH_TRY(turn(sum, (r + 1 - k + N) % N, (r - k + N) % N, false));
    return ECH_OK;
}

const ech_reduction_row ech_reduce_RING = {.scratch = scratch, .sent = sent, .run = run};
