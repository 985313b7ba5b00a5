/* SPDX-License-Identifier: Apache-2.0
 *
 * When steps and calls begin and end: by this thread's clock, or with queues by events on them.
 */
#include "base/clock.h"
#include "exec/state.h"

void ech_exec_begin(ech_exec *exec, int step)
{
    if (!exec->records) return;
    if (exec->device->is_immediate)
        exec->times.begins[step] = ech_clock_now();
    else
        ech_queue_record(exec, step, false);
}

void ech_exec_record(ech_exec *exec, bool on)
{
    exec->records = on;
}

const ech_exec_times *ech_exec_get_times(const ech_exec *exec)
{
    return &exec->times;
}

void ech_exec_mark(ech_exec *exec, int tick)
{
    if (!exec->records) return;
    if (exec->device->is_immediate)
        exec->times.marks[tick] = ech_clock_now();
    else
        ech_queue_mark(exec, tick);
}
