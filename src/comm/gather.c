/* SPDX-License-Identifier: Apache-2.0
 *
 * The all-gather: every member sends its piece to each other one, which receives it in place.
 */
#include <string.h>

#include "comm/reduce.h"

/* The first batches are the reduce-scatter's. */
static ech_batch *batch_of(ech_group *group, int64_t k)
{
    return &group->batch[ECH_UNDER_WAY + k % ECH_UNDER_WAY];
}

ech_status ech_gather_begin(const ech_pieces *pieces, const char *mine, int64_t k)
{
    ech_group *group = pieces->group;
    ech_batch *batch = batch_of(group, k);
    int N = group->size, index = group->index;
    for (int i = 0; i < N; i++) {
        if (i == index) continue;
        ech_part p = ech_pieces_part(pieces, i, k);
        ECH_TRY(ech_batch_receive(group, batch, i, p.x, p.bytes));
    }
    size_t bytes = ech_pieces_part(pieces, index, k).bytes;
    for (int d = 1; d < N; d++) ECH_TRY(ech_batch_send(group, batch, (index + d) % N, mine, bytes));
    return ECH_OK;
}

ech_status ech_gather_end(ech_group *group, int64_t k)
{
    return ech_batch_wait(group, batch_of(group, k));
}

/* Nothing is added, so no scratch bounds a segment: a piece is one. */
ech_status ech_group_all_gather(ech_group *group, void *whole, const void *mine, size_t item,
                                int64_t n)
{
    ech_pieces pieces = {.group = group, .x = whole, .n = n, .item = item, .segment = n};
    ech_group_begin(group, ECH_CALL_ALL_GATHER);
    if (n == 0) return ECH_OK;
    ECH_TRY(ech_gather_begin(&pieces, mine, 0));
    ech_part own = ech_pieces_part(&pieces, group->index, 0);
    if (own.bytes > 0 && mine != own.x) memcpy(own.x, mine, own.bytes);
    return ech_gather_end(group, 0);
}
