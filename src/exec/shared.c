/* SPDX-License-Identifier: Apache-2.0
 *
 * The window that all ranks share: PUBLISH, and its memory. Each rank writes its own shards there, and reads the others' when it has
 * heard that they are there.
 */
#include "exec/state.h"

ech_status ech_exec_take_window(ech_exec *exec)
{
    size_t bytes = (size_t)exec->plan->arena_bytes[ECH_SPACE_WINDOW];
    void *memory;
    if (!bytes) return ECH_OK;
    ECH_TRY(ech_comm_take_window(exec->comm, exec->device, bytes, &memory));
    exec->arena[ECH_SPACE_WINDOW] = memory;
    return ECH_OK;
}

ech_status ech_exec_meet_in_window(ech_exec *exec)
{
    if (!exec->arena[ECH_SPACE_WINDOW]) return ECH_OK;
    return ech_group_barrier(ech_exec_world(exec));
}

ech_status ech_handle_PUBLISH(ech_exec *exec, const ech_step *step)
{
    return ech_group_barrier(exec->channel[step->group][step->lane]);
}
