/* SPDX-License-Identifier: Apache-2.0
 *
 * The ring reduction: in N - 1 rounds each shard travels around the ring and collects the members'
 * addends, in N - 1 more its sum travels around: two halves, between which each member has the sum of its own shard.
 * Each shard starts at another member, the one behind its owner, so the order in which an element is summed depends on
 * its shard.
 * Source: Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of
 * workstations".
 */
#include "comm/reduce.h"

/* Several segments are in flight, so that one is added while the next ones arrive. */
static int64_t scratch(size_t item, int64_t n, const ech_lineup *of)
{
    return ech_segment_count(ech_collective_shard_count(n, of->size, 0), 0,
                             ECH_UNDER_WAY * ech_segment_elements(item, of->size));
}

/* All shards but its own; all but the next member's. */
static int64_t scattered(int64_t n, const ech_lineup *of, int index)
{
    return n - ech_collective_shard_count(n, of->size, index);
}

static int64_t gathered(int64_t n, const ech_lineup *of, int index)
{
    return n - ech_collective_shard_count(n, of->size, (index + 1) % of->size);
}

static int64_t sent(int64_t n, const ech_lineup *of, int index)
{
    return scattered(n, of, index) + gathered(n, of, index);
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
    ech_comm_batch *batch = ech_sum_batch(sum, sum->scatters, k);
    int N = group->size, next = (group->index + 1) % N, previous = (group->index + N - 1) % N;
    ech_segment out = ech_sum_segment(sum, t->going, k), in = ech_sum_segment(sum, t->coming, k);
    char *to = t->adds ? ech_sum_slot(sum, k, 1) : in.x;
    ech_comm_batch_receive(group, batch, previous, to, in.bytes);
    ech_sum_send(sum, batch, next, out.x, out.n);
    return ech_comm_batch_put(group, batch);
}

static ech_status end(const ech_sum *sum, const ring_round *t, int64_t k)
{
    ech_segment in = ech_sum_segment(sum, t->coming, k);
    ECH_TRY(ech_comm_batch_wait(sum->group, ech_sum_batch(sum, sum->scatters, k)));
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

/* The last shard to come is this member's own, complete. */
static ech_status add_all(const ech_sum *sum)
{
    int N = sum->group->size, from = sum->group->index + N;
    for (int k = 1; k < N; k++)
        ECH_TRY(run_round(sum, (ring_round){(from - k) % N, (from - k - 1) % N, .adds = true}));
    return ECH_OK;
}

/* The first shard to go is this member's own. */
static ech_status gather(const ech_sum *sum)
{
    int N = sum->group->size, from = sum->group->index + N;
    for (int k = 0; k < N - 1; k++)
        ECH_TRY(run_round(sum, (ring_round){(from - k) % N, (from - k - 1) % N, .adds = false}));
    return ECH_OK;
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
    .part = {[ECH_REDUCTION_WHOLE] = {.scratch = scratch, .sent = sent, .run = run},
             [ECH_REDUCTION_SCATTER] = {.scratch = scratch, .sent = scattered, .run = scatter},
             [ECH_REDUCTION_GATHER] = {.sent = gathered, .run = gather}}};
