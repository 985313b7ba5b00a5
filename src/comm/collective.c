/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes what the collectives send without sending it: each case repeats the arithmetic of a
 * function of this room.
 */
#include "comm/collective.h"

#include "comm/reduce.h"

static const char *const names[] = {
#define X(name, text, help) text,
#include "comm/collective.def"
#undef X
};

const char *ech_collective_name(ech_collective collective)
{
    return names[collective];
}

int64_t ech_collective_shard_count(int64_t n, int N, int member)
{
    return n / N + (member < n % N);
}

int64_t ech_collective_shard_first(int64_t n, int N, int member)
{
    int64_t longer = n % N;
    return n / N * member + (member < longer ? member : longer);
}

int ech_torus_columns(int N)
{
    int columns = 1;
    while ((int64_t)columns * columns < N || N % columns) columns++;
    return columns;
}

int ech_lineup_owners(const ech_lineup *of)
{
    return of->stores ? of->stores : of->size;
}

int ech_lineup_first_owner(const ech_lineup *of)
{
    return of->size - ech_lineup_owners(of);
}

int64_t ech_lineup_shard_first(const ech_lineup *of, int64_t n, int member)
{
    int owner = member - ech_lineup_first_owner(of);
    return owner < 0 ? 0 : ech_collective_shard_first(n, ech_lineup_owners(of), owner);
}

int64_t ech_lineup_shard_count(const ech_lineup *of, int64_t n, int member)
{
    int owner = member - ech_lineup_first_owner(of);
    return owner < 0 ? 0 : ech_collective_shard_count(n, ech_lineup_owners(of), owner);
}

bool ech_lineup_adds(const ech_lineup *of, int member)
{
    return member < of->size - of->stores;
}

int ech_lineup_divide(const int *ranks, int n, int each, int *first)
{
    int machines = 0;
    for (int i = 0; i < n; i++)
        if (i == 0 || ranks[i] / each != ranks[i - 1] / each) first[machines++] = i;
    first[machines] = n;
    return machines;
}

int64_t ech_collective_most(ech_collective collective, ech_dtype dtype, int64_t n, ech_lineup of,
                            int index, bool back)
{
    if (collective != ECH_COLLECTIVE_EXCHANGE_ROWS || of.size < 2)
        return ech_collective_traffic(collective, dtype, n, of, index).bytes;
    return n * (int64_t)ech_dtype_bytes(dtype) * (back ? of.size - 1 : 1);
}

bool ech_collective_slides(int distance, int size, int index)
{
    return index + distance >= 0 && index + distance < size;
}

size_t ech_collective_scratch(ech_collective collective, ech_dtype dtype, int64_t n, ech_lineup of)
{
    if (collective != ECH_COLLECTIVE_ALL_REDUCE && collective != ECH_COLLECTIVE_REDUCE_SCATTER)
        return 0;
    return ech_reduction_scratch(ECH_REDUCTION_DIRECT, dtype, n, of);
}

/* Segments of a member's shard of a sum. */
static int64_t count_segments(ech_dtype dtype, int64_t n, const ech_lineup *of, int member)
{
    int64_t segment = ech_segment_elements(ech_dtype_bytes(dtype), of);
    return (ech_collective_shard_count(n, of->size, member) + segment - 1) / segment;
}

/* Messages of the reduce-scatter: every segment of the other members' shards. */
static int64_t count_scattered(ech_dtype dtype, int64_t n, const ech_lineup *of, int index)
{
    int64_t longer = n % of->size;
    return longer * count_segments(dtype, n, of, 0) +
           (of->size - longer) * count_segments(dtype, n, of, of->size - 1) -
           count_segments(dtype, n, of, index);
}

int64_t ech_reduction_part_messages(ech_reduction_part part, ech_dtype wire, int64_t n,
                                    ech_lineup of, int index)
{
    ech_collective kind = part == ECH_REDUCTION_GATHER    ? ECH_COLLECTIVE_ALL_GATHER
                          : part == ECH_REDUCTION_SCATTER ? ECH_COLLECTIVE_REDUCE_SCATTER
                                                          : ECH_COLLECTIVE_ALL_REDUCE;
    if (!of.stores) return ech_collective_traffic(kind, wire, n, of, index).messages;
    int64_t segment = ech_segment_elements(ech_dtype_bytes(wire), &of), messages = 0;
    bool adds = ech_lineup_adds(&of, index), gathers = part == ECH_REDUCTION_GATHER;
    if (adds == gathers) return 0;
    if (gathers) return ech_lineup_shard_count(&of, n, index) > 0 ? of.size - of.stores : 0;
    for (int m = ech_lineup_first_owner(&of); m < of.size; m++)
        messages += (ech_lineup_shard_count(&of, n, m) + segment - 1) / segment;
    return messages;
}

ech_collective_sends ech_collective_traffic(ech_collective collective, ech_dtype dtype, int64_t n,
                                            ech_lineup of, int index)
{
    int size = of.size;
    int64_t item = (int64_t)ech_dtype_bytes(dtype), others = size - 1;
    if (size < 2 || n == 0) return (ech_collective_sends){0};
    int64_t own = ech_collective_shard_count(n, size, index);
    ech_collective_sends scattered = {count_scattered(dtype, n, &of, index), (n - own) * item};
    switch (collective) {
    case ECH_COLLECTIVE_ALL_REDUCE:
        scattered.messages += others * count_segments(dtype, n, &of, index);
        scattered.bytes += others * own * item;
        return scattered;
    case ECH_COLLECTIVE_ALL_GATHER:
        return (ech_collective_sends){own > 0 ? others : 0, others * own * item};
    case ECH_COLLECTIVE_REDUCE_SCATTER:
        return scattered;
    case ECH_COLLECTIVE_ALL_TO_ALL:
        return (ech_collective_sends){others, (n - own) * item};
    case ECH_COLLECTIVE_SHIFT:
    case ECH_COLLECTIVE_SLIDE:
        return (ech_collective_sends){1, n * item};
    case ECH_COLLECTIVE_EXCHANGE_ROWS:
        return (ech_collective_sends){others, (n - n / size) * item};
    case ECH_COLLECTIVE_NONE:
    case ECH_COLLECTIVES:
        break;
    }
    return (ech_collective_sends){0};
}
