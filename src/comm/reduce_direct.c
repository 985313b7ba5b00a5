/* SPDX-License-Identifier: Apache-2.0
 *
 * The direct reduction: member i owns shard i. Every member sends its addends of a shard to the
 * owner (reduce-scatter); the owner adds them in member order and sends the sum to all
 * (all-gather). It sends as many bytes as the ring, and each element is summed in member order
 * whichever shard it is in.
 *
 * Segments are pipelined: while the sum of one is sent, the next ones are received, so that a link
 * is busy in both directions. The last sums are sent while the next reduction begins. Its halves
 * are just these two: the last segments of a scatter arrive while the next one begins. The halves
 * also work if some members are stores: the others send them all their addends, and get all shards
 * from them.
 */
#include "comm/reduce.h"

enum { AHEAD = ECH_UNDER_WAY - 1 }; /* segments begun before the sum of one is sent */

static int64_t sent(int64_t n, const ech_lineup *of, int index)
{
    return ech_sum_scattered(n, of, index) + ech_sum_gathered(n, of, index);
}

static ech_status begin(const ech_sum *sum)
{
    int64_t segments = ech_sum_segments(sum);
    for (int64_t k = 0; k < AHEAD && k < segments; k++) ECH_TRY(ech_scatter_begin(sum, k));
    return ECH_OK;
}

/* Completes the sum of segment k and starts sending it to all. */
static ech_status send_sum(const ech_sum *sum, int64_t k)
{
    char *mine = ech_sum_segment(sum, sum->group->index, k).x;
    ECH_TRY(ech_scatter_end(sum, mine, k));
    if (k >= ECH_UNDER_WAY) /* the segment that used its batch before */
        ECH_TRY(ech_gather_end(sum, k - ECH_UNDER_WAY));
    return ech_gather_begin(sum, mine, k);
}

static ech_status run(const ech_sum *sum)
{
    int64_t segments = ech_sum_segments(sum);
    for (int64_t k = 0; k < segments; k++) {
        if (k + AHEAD < segments) ECH_TRY(ech_scatter_begin(sum, k + AHEAD));
        ECH_TRY(send_sum(sum, k));
    }
    return ECH_OK;
}

static ech_status end(const ech_sum *sum)
{
    int64_t segments = ech_sum_segments(sum);
    int64_t k = segments > ECH_UNDER_WAY ? segments - ECH_UNDER_WAY : 0;
    for (; k < segments; k++) ECH_TRY(ech_gather_end(sum, k));
    return ECH_OK;
}

/* ---- halves ---- */

/* Completes the sums of segments first .. after - 1 of this member's shard. */
static ech_status take_sums(const ech_sum *sum, int64_t first, int64_t after)
{
    int64_t segments = ech_sum_segments(sum);
    for (int64_t k = first; k < after; k++) {
        if (k + AHEAD < segments) ECH_TRY(ech_scatter_begin(sum, k + AHEAD));
        char *to = ech_sum_address(sum, k);
        ECH_TRY(ech_scatter_end(sum, to, k));
        ech_sum_deliver(sum, to, k);
    }
    return ECH_OK;
}

/* All segments before this one have begun. */
static int64_t last_begun(const ech_sum *sum)
{
    int64_t segments = ech_sum_segments(sum);
    return segments > AHEAD ? segments - AHEAD : 0;
}

static ech_status run_scatter(const ech_sum *sum)
{
    return take_sums(sum, 0, last_begun(sum));
}

static ech_status end_scatter(const ech_sum *sum)
{
    return take_sums(sum, last_begun(sum), ech_sum_segments(sum));
}

static ech_status begin_gather(const ech_sum *sum)
{
    return ech_gather_begin(sum, sum->shard, 0);
}

static ech_status run_gather(const ech_sum *sum)
{
    (void)sum; /* all has been sent */
    return ECH_OK;
}

static ech_status end_gather(const ech_sum *sum)
{
    return ech_gather_end(sum, 0);
}

const ech_reduction_row ech_reduce_DIRECT = {
    .narrows = true,
    .part = {
        [ECH_REDUCTION_WHOLE] = {ech_scatter_scratch, sent, begin, run, end},
        [ECH_REDUCTION_SCATTER] = {ech_scatter_scratch, ech_sum_scattered, begin, run_scatter,
                                   end_scatter},
        [ECH_REDUCTION_GATHER] = {NULL, ech_sum_gathered, begin_gather, run_gather, end_gather}}};
