/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives that only move bytes from member to member: all-to-all and shift.
 */
#include <string.h>

#include "comm/group.h"

ech_status ech_group_all_to_all(ech_group *group, const void *to, void *from, size_t bytes)
{
    ech_batch *batch = &group->batch[0];
    const char *out = to;
    char *in = from;
    size_t N = (size_t)group->size, index = (size_t)group->index;
    ech_group_begin(group, ECH_CALL_ALL_TO_ALL);
    if (bytes == 0) return ECH_OK;
    for (size_t k = 1; k < N; k++) {
        size_t source = (index + N - k) % N;
        ECH_TRY(ech_batch_receive(group, batch, (int)source, in + source * bytes, bytes));
    }
    for (size_t k = 1; k < N; k++) { /* not all to member 0 first */
        size_t destination = (index + k) % N;
        ECH_TRY(ech_batch_send(group, batch, (int)destination, out + destination * bytes, bytes));
    }
    memcpy(in + index * bytes, out + index * bytes, bytes);
    return ech_batch_wait(group, batch);
}

ech_status ech_group_shift(ech_group *group, int distance, const void *to_send, void *to_receive,
                           size_t bytes)
{
    ech_batch *batch = &group->batch[0];
    int N = group->size, index = group->index;
    int far = (distance % N + N) % N;
    ech_group_begin(group, ECH_CALL_SHIFT);
    if (bytes == 0) return ECH_OK;
    if (far == 0) {
        memcpy(to_receive, to_send, bytes);
        return ECH_OK;
    }
    ECH_TRY(ech_batch_receive(group, batch, (index + N - far) % N, to_receive, bytes));
    ECH_TRY(ech_batch_send(group, batch, (index + far) % N, to_send, bytes));
    return ech_batch_wait(group, batch);
}
