/* SPDX-License-Identifier: Apache-2.0
 *
 * The ring reduction: in N - 1 rounds each shard travels around the ring and accumulates the
 * members' addends, in N - 1 more its sum travels around: two halves, between which each member has
 * the sum of its own shard. Each shard starts at another member, the one after its owner, so the
 * order in which an element is summed depends on its shard.
 *
 * Source: Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of
 * workstations".
 */
#include "comm/reduce.h"

static int64_t scratch(size_t item, int64_t n, const ech_lineup *of)
{
    return ech_ring_scratch(item, ech_collective_shard_count(n, of->size, 0), 1, of);
}

/* All shards but the next member's. */
static int64_t gathered(int64_t n, const ech_lineup *of, int index)
{
    return n - ech_collective_shard_count(n, of->size, (index + 1) % of->size);
}

static int64_t sent(int64_t n, const ech_lineup *of, int index)
{
    return ech_sum_scattered(n, of, index) + gathered(n, of, index);
}

static int member_of(const ech_sum *sum, int i)
{
    (void)sum;
    return i;
}

static ech_range shard_of(const ech_sum *sum, int i, int run)
{
    (void)run; /* the only one */
    int N = sum->group->size;
    return (ech_range){ech_collective_shard_first(sum->n, N, i),
                       ech_collective_shard_count(sum->n, N, i)};
}

static ech_ring ring_of(const ech_sum *sum)
{
    const ech_group *group = sum->group;
    return (ech_ring){group->size, group->index, 1, shard_of(sum, 0, 0).n, member_of, shard_of};
}

static ech_status gather(const ech_sum *sum)
{
    ech_ring ring = ring_of(sum);
    return ech_ring_gather(sum, &ring);
}

static ech_status add_all(const ech_sum *sum)
{
    ech_ring ring = ring_of(sum);
    return ech_ring_add(sum, &ring);
}

static ech_status run(const ech_sum *sum)
{
    ECH_TRY(add_all(sum));
    return gather(sum);
}

static ech_status scatter(const ech_sum *sum)
{
    ECH_TRY(add_all(sum));
    ech_sum_deliver_all(sum);
    return ECH_OK;
}

const ech_reduction_row ech_reduce_RING = {
    .part = {
        [ECH_REDUCTION_WHOLE] = {.scratch = scratch, .sent = sent, .run = run},
        [ECH_REDUCTION_SCATTER] = {.scratch = scratch, .sent = ech_sum_scattered, .run = scatter},
        [ECH_REDUCTION_GATHER] = {.sent = gathered, .run = gather}}};
