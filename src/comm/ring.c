/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums and gathers around a ring of a subset of a group's members, segment by segment, with several
 * in flight, so that one is added while the next ones arrive.
 */
#include "comm/reduce.h"

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t count_segments(int64_t elements, int64_t segment)
{
    return (elements + segment - 1) / segment;
}

int64_t ech_ring_scratch(size_t item, int64_t longest, int runs, const ech_lineup *of)
{
    int64_t segment = ech_segment_elements(item, of);
    if (runs == 1) return least(longest, ECH_UNDER_WAY * segment);
    return least(runs * count_segments(longest, segment), ECH_UNDER_WAY) * least(longest, segment);
}

/* Segment k of a chunk, counted over its runs. */
static ech_segment segment_of(const ech_sum *sum, const ech_ring *ring, int chunk, int64_t k)
{
    int64_t each = count_segments(ring->longest, sum->segment), at = k % each * sum->segment;
    ech_range span = ring->elements(sum, chunk, (int)(k / each));
    int64_t n = ech_segment_count(span.n, at, sum->segment);
    return (ech_segment){.x = sum->x + (size_t)(span.first + at) * sum->item,
                         .n = n,
                         .bytes = (size_t)n * sum->wire_item};
}

/* Where an addend of segment k arrives. */
static char *slot_of(const ech_sum *sum, const ech_ring *ring, int64_t k)
{
    int64_t each = least(ring->longest, sum->segment);
    return sum->scratch + (size_t)(k % ECH_UNDER_WAY * each) * sum->wire_item;
}

/* Chunk `going` goes to the next member while chunk `coming` arrives from the previous one: in
 * place, or in scratch to be added. */
typedef struct ring_round {
    int going, coming;
    bool adds;
} ring_round;

static ech_status begin(const ech_sum *sum, const ech_ring *ring, const ring_round *t, int64_t k)
{
    ech_group *group = sum->group;
    ech_comm_batch *batch = ech_sum_batch(sum, sum->scatters, k);
    int N = ring->size, next = (ring->index + 1) % N, previous = (ring->index + N - 1) % N;
    ech_segment out = segment_of(sum, ring, t->going, k), in = segment_of(sum, ring, t->coming, k);
    char *to = t->adds ? slot_of(sum, ring, k) : in.x;
    ech_comm_batch_receive(group, batch, ring->member(sum, previous), to, in.bytes);
    ech_sum_send(sum, batch, ring->member(sum, next), out.x, out.n);
    return ech_comm_batch_put(group, batch);
}

static ech_status end(const ech_sum *sum, const ech_ring *ring, const ring_round *t, int64_t k)
{
    ech_segment in = segment_of(sum, ring, t->coming, k);
    ECH_TRY(ech_comm_batch_wait(sum->group, ech_sum_batch(sum, sum->scatters, k)));
    if (t->adds) ech_add(sum, in.x, slot_of(sum, ring, k), in.n);
    return ECH_OK;
}

static ech_status run_round(const ech_sum *sum, const ech_ring *ring, ring_round t)
{
    int64_t ahead = ECH_UNDER_WAY - 1;
    int64_t segments = ring->runs * count_segments(ring->longest, sum->segment);
    for (int64_t k = 0; k < segments + ahead; k++) {
        if (k < segments) ECH_TRY(begin(sum, ring, &t, k));
        if (k >= ahead) ECH_TRY(end(sum, ring, &t, k - ahead));
    }
    return ECH_OK;
}

/* The last chunk to arrive is this member's own, complete. */
ech_status ech_ring_add(const ech_sum *sum, const ech_ring *ring)
{
    int N = ring->size, from = ring->index + N;
    for (int k = 1; k < N; k++)
        ECH_TRY(
            run_round(sum, ring, (ring_round){(from - k) % N, (from - k - 1) % N, .adds = true}));
    return ECH_OK;
}

/* The first chunk to leave is this member's own. */
ech_status ech_ring_gather(const ech_sum *sum, const ech_ring *ring)
{
    int N = ring->size, from = ring->index + N;
    for (int k = 0; k < N - 1; k++)
        ECH_TRY(
            run_round(sum, ring, (ring_round){(from - k) % N, (from - k - 1) % N, .adds = false}));
    return ECH_OK;
}
