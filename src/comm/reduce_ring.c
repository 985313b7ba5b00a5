/* SPDX-License-Identifier: Apache-2.0
 *
 * The ring reduction: in N - 1 rounds each shard travels around the ring and collects the members'
 * addends, in N - 1 more its sum travels around. Each shard starts at another member, so the order in which
 * an element is summed depends on its shard.
 * Source: Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of
 * workstations".
 */
#include "comm/reduce.h"

/* Several segments are in flight, so that one is added while the next ones arrive. */
static int64_t scratch(size_t item, int64_t n, int N)
{
    return ech_segment_count(ech_collective_shard_count(n, N, 0), 0,
                             ECH_UNDER_WAY * ech_segment_elements(item, N));
}

/* All shards but index + 1 in the first half, all but index + 2 in the second. */
static int64_t sent(int64_t n, int N, int index)
{
    return 2 * n - ech_collective_shard_count(n, N, (index + 1) % N) -
           ech_collective_shard_count(n, N, (index + 2) % N);
}

/* Shard `going` goes to the next member while shard `coming` arrives from the previous one: in place, or in
 * scratch to be added. */
typedef struct ring_round {
    int going, coming;
    bool adds;
} ring_round;

static ech_status begin(const ech_sum *sum, const ring_round *t, int64_t k)
{
    ech_group *group = sum->group;
    ech_comm_batch *batch = &group->batch[k % ECH_UNDER_WAY];
    int N = group->size, next = (group->index + 1) % N, previous = (group->index + N - 1) % N;
    ech_segment out = ech_sum_segment(sum, t->going, k), in = ech_sum_segment(sum, t->coming, k);
    char *to = t->adds ? ech_sum_slot(sum, k, 1) : in.x;
    ECH_TRY(ech_comm_batch_receive(group, batch, previous, to, in.bytes));
    return ech_comm_batch_send(group, batch, next, out.x, out.bytes);
}

static ech_status end(const ech_sum *sum, const ring_round *t, int64_t k)
{
    ech_segment in = ech_sum_segment(sum, t->coming, k);
    ECH_TRY(ech_comm_batch_wait(sum->group, &sum->group->batch[k % ECH_UNDER_WAY]));
    if (t->adds) ech_add(sum, in.x, ech_sum_slot(sum, k, 1), in.n);
    return ECH_OK;
}

static ech_status run_round(const ech_sum *sum, ring_round t)
{
    int64_t segments = ech_sum_segments(sum), ahead = ECH_UNDER_WAY - 1;
    for (int64_t k = 0; k < segments + ahead; k++) {
        if (k < segments) ECH_TRY(begin(sum, &t, k));
        if (k >= ahead) ECH_TRY(end(sum, &t, k - ahead));
    }
    return ECH_OK;
}

static ech_status run(const ech_sum *sum)
{
    int N = sum->group->size, r = sum->group->index;
    for (int k = 0; k < N - 1; k++)
        ECH_TRY(run_round(sum, (ring_round){(r - k + N) % N, (r - k - 1 + N) % N, .adds = true}));
    for (int k = 0; k < N - 1; k++)
        ECH_TRY(run_round(sum, (ring_round){(r + 1 - k + N) % N, (r - k + N) % N, .adds = false}));
    return ECH_OK;
}

const ech_reduction_row ech_reduce_RING = {.scratch = scratch, .sent = sent, .run = run};
