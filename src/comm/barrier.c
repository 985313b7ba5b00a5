/* SPDX-License-Identifier: Apache-2.0
 *
 * The barrier: in round k every member signals the one 2^k further on, and after ceil(log2 N)
 * rounds each has heard of all.
 * Source: Hensgen, Finkel, Manber 1988, "Two algorithms for barrier synchronization".
 */
#include "comm/group.h"

ech_status ech_group_barrier(ech_group *group)
{
    ech_group_begin(group, ECH_CALL_BARRIER);
    ech_batch *batch = &group->batch[0];
    int N = group->size;
    for (int far = 1; far < N; far *= 2) {
        ECH_TRY(ech_batch_receive_signal(group, batch, (group->index - far + N) % N));
        ECH_TRY(ech_batch_send_signal(group, batch, (group->index + far) % N));
        ECH_TRY(ech_batch_wait(group, batch));
    }
    return ECH_OK;
}
