/* SPDX-License-Identifier: Apache-2.0
 *
 * The broadcast: a binomial tree from the root. Places are counted from the root on; in the round
 * with reach `far`, places below `far` have the bytes and send them to the place `far` further on.
 */
#include "comm/group.h"

ech_status ech_group_spread(ech_group *group, int root, void *data, size_t bytes)
{
    ech_batch *batch = &group->batch[0];
    int N = group->size;
    int place = (group->index - root + N) % N;
    int far = 1;
    if (place > 0) {
        while (far * 2 <= place) far *= 2;
        ECH_TRY(ech_batch_receive(group, batch, (place - far + root) % N, data, bytes));
        ECH_TRY(ech_batch_wait(group, batch));
        far *= 2;
    }
    for (; place + far < N; far *= 2)
        ECH_TRY(ech_batch_send(group, batch, (place + far + root) % N, data, bytes));
    return ech_batch_wait(group, batch);
}

ech_status ech_group_broadcast(ech_group *group, int root, void *data, size_t bytes)
{
    ECH_ASSERT(root >= 0 && root < group->size);
    ech_group_begin(group, ECH_CALL_BROADCAST);
    return ech_group_spread(group, root, data, bytes);
}
