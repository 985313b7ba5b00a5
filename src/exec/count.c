/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts of what a rank has sent so far, without the messages of the threads that write checkpoints.
 */
#include "exec/state.h"

static ech_comm_count add_counts(const ech_exec *exec, ech_comm_counted kind)
{
    ech_comm_count sum = {0};
    for (int i = 0; i < ECH_CHANNELS; i++) {
        const ech_group *channel = exec->channel[i / ECH_LANES][i % ECH_LANES];
        if (!channel || i % ECH_LANES == ECH_LANE_DISK) continue;
        ech_comm_count one = ech_group_count(channel, kind);
        sum.calls += one.calls;
        sum.messages += one.messages;
        sum.bytes += one.bytes;
    }
    return sum;
}

ech_comm_count ech_exec_reduce_count(const ech_exec *exec)
{
    return add_counts(exec, ECH_COMM_REDUCES);
}

ech_comm_count ech_exec_message_count(const ech_exec *exec)
{
    return exec->messages;
}

ech_comm_count ech_exec_collective_count(const ech_exec *exec, ech_layout_group group,
                                         ech_lane lane)
{
    const ech_group *channel = exec->channel[group][lane];
    return channel ? ech_group_count(channel, ECH_COMM_COLLECTIVES) : (ech_comm_count){0};
}

int64_t ech_exec_sent_bytes(const ech_exec *exec)
{
    return add_counts(exec, ECH_COMM_REDUCES).bytes + add_counts(exec, ECH_COMM_OTHERS).bytes +
           add_counts(exec, ECH_COMM_COLLECTIVES).bytes + exec->messages.bytes;
}
