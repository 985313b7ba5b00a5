/* SPDX-License-Identifier: Apache-2.0
 *
 * Reduce-scatter: every member sends to each other one its addends of that one's shard, and adds those that
 * it receives in member order; segment by segment, several in flight. All-gather of the same shards.
 */
#include "comm/reduce.h"

int64_t ech_sum_segments(const ech_sum *sum)
{
    return (ech_collective_shard_count(sum->n, sum->group->size, 0) + sum->segment - 1) /
           sum->segment;
}

ech_segment ech_sum_segment(const ech_sum *sum, int member, int64_t k)
{
    int N = sum->group->size;
    int64_t at = k * sum->segment;
    int64_t count = ech_collective_shard_count(sum->n, N, member);
    int64_t first = ech_collective_shard_first(sum->n, N, member);
    int64_t n = ech_segment_count(count, at, sum->segment);
    return (ech_segment){.x = sum->x + (size_t)(first + at) * sum->item,
                         .n = n,
                         .bytes = (size_t)n * sum->wire_item};
}

char *ech_sum_slot(const ech_sum *sum, int64_t k, int parts)
{
    return sum->scratch + (size_t)(k % ECH_UNDER_WAY * parts * sum->segment) * sum->wire_item;
}

int64_t ech_scatter_scratch(size_t item, int64_t n, const ech_lineup *of)
{
    int N = of->size;
    int64_t shard = ech_collective_shard_count(n, N, 0);
    return (N - 1) * ech_segment_count(shard, 0, ECH_UNDER_WAY * ech_segment_elements(item, N));
}

void ech_sum_send(const ech_sum *sum, ech_comm_batch *batch, int member, const void *data,
                  int64_t n)
{
    sum->group->count->elements += n;
    ech_comm_batch_send(sum->group, batch, member, data, (size_t)n * sum->wire_item);
}

ech_comm_batch *ech_sum_batch(const ech_sum *sum, int set, int64_t k)
{
    return &sum->group->batch[set * ECH_UNDER_WAY + k % ECH_UNDER_WAY];
}

/* Receives the others' addends of this rank's shard into scratch, in member order, and sends every owner
 * this rank's addends. */
ech_status ech_scatter_begin(const ech_sum *sum, int64_t k)
{
    ech_group *group = sum->group;
    ech_comm_batch *batch = ech_sum_batch(sum, sum->scatters, k);
    int N = group->size, index = group->index;
    ech_segment own = ech_sum_segment(sum, index, k);
    char *to = ech_sum_slot(sum, k, N - 1);
    ech_narrow(sum, own.x, own.n);
    for (int i = 0; i < N; i++) {
        if (i == index) continue;
        ech_comm_batch_receive(group, batch, i, to, own.bytes);
        to += own.bytes;
    }
    for (int d = 1; d < N; d++) { /* not all to member 0 first */
        int owner = (index + d) % N;
        ech_segment p = ech_sum_segment(sum, owner, k);
        ech_narrow(sum, p.x, p.n);
        ech_sum_send(sum, batch, owner, p.x, p.n);
    }
    return ech_comm_batch_put(group, batch);
}

ech_status ech_scatter_end(const ech_sum *sum, char *mine, int64_t k)
{
    ech_segment own = ech_sum_segment(sum, sum->group->index, k);
    ECH_TRY(ech_comm_batch_wait(sum->group, ech_sum_batch(sum, sum->scatters, k)));
    ech_add_in_order(sum, mine, own.x, ech_sum_slot(sum, k, sum->group->size - 1), own.n);
    return ECH_OK;
}

static ech_status run(const ech_sum *sum, char *mine)
{
    int64_t segments = ech_sum_segments(sum), ahead = ECH_UNDER_WAY - 1;
    size_t step = (size_t)sum->segment * sum->item;
    for (int64_t k = 0; k < segments + ahead; k++) {
        int64_t ends = k - ahead;
        if (k < segments) ECH_TRY(ech_scatter_begin(sum, k));
        if (ends >= 0) ECH_TRY(ech_scatter_end(sum, mine + (size_t)ends * step, ends));
    }
    return ECH_OK;
}

ech_status ech_group_reduce_scatter(ech_group *group, const ech_tensor *x, void *mine,
                                    void *scratch)
{
    ech_sum sum;
    ECH_TRY(ech_sum_make(group, ECH_CALL_REDUCE_SCATTER, x, x->dtype, scratch, &sum));
    if (sum.n == 0) return ECH_OK;
    if (group->size == 1) {
        if (mine != sum.x) ech_group_copy(group, mine, sum.x, (size_t)sum.n * sum.item);
        return ECH_OK;
    }
    return run(&sum, mine);
}

/* ---- all-gather: every member sends its shard to each other one, which receives it in place ----
 */

ech_status ech_gather_begin(const ech_sum *sum, const char *mine, int64_t k)
{
    ech_group *group = sum->group;
    ech_comm_batch *batch = ech_sum_batch(sum, sum->gathers, k);
    int N = group->size, index = group->index;
    for (int i = 0; i < N; i++) {
        if (i == index) continue;
        ech_segment p = ech_sum_segment(sum, i, k);
        ech_comm_batch_receive(group, batch, i, p.x, p.bytes);
    }
    int64_t n = ech_sum_segment(sum, index, k).n;
    for (int d = 1; d < N; d++) ech_sum_send(sum, batch, (index + d) % N, mine, n);
    return ech_comm_batch_put(group, batch);
}

ech_status ech_gather_end(const ech_sum *sum, int64_t k)
{
    ech_group *group = sum->group;
    ECH_TRY(ech_comm_batch_wait(group, ech_sum_batch(sum, sum->gathers, k)));
    for (int i = 0; i < group->size; i++) {
        ech_segment p = ech_sum_segment(sum, i, k);
        ech_widen(sum, p.x, p.n);
    }
    return ECH_OK;
}

/* Nothing is added and scratch is not needed, so a shard is one segment. */
ech_status ech_group_all_gather(ech_group *group, void *whole, const void *mine, size_t item,
                                int64_t n)
{
    const ech_sum all = {
        .group = group, .x = whole, .n = n, .item = item, .wire_item = item, .segment = n};
    ech_group_begin(group, ECH_CALL_ALL_GATHER);
    if (n == 0) return ECH_OK;
    ECH_TRY(ech_gather_begin(&all, mine, 0));
    ech_segment own = ech_sum_segment(&all, group->index, 0);
    if (own.bytes > 0 && mine != own.x) ech_group_copy(group, own.x, mine, own.bytes);
    return ech_gather_end(&all, 0);
}
