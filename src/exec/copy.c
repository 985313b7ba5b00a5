/* SPDX-License-Identifier: Apache-2.0
 *
 * FETCH and OFFLOAD: pairs of values of two spaces, one after the other, read and written by the step. Between device and
 * host the queue copies; files are read and written by whoever runs the queue, a value at a time, past the page cache.
 */
#include <time.h>

#include "base/clock.h"
#include "exec/state.h"

/* How long a throttled copy sleeps before it looks whether the run has failed. */
static const double nap_seconds = 10e-3;

static const ech_value *value_at(const ech_exec *exec, const ech_step *step, int access)
{
    int value = exec->list->access.at[step->first_access + access].value;
    return ech_plan_value(exec->plan, exec->list, value);
}

static char *address_at(const ech_exec *exec, const ech_step *step, int access)
{
    return ech_exec_address(exec, step, exec->list->access.at[step->first_access + access].value);
}

static int64_t bytes_of(const ech_exec *exec, const ech_step *step)
{
    int64_t bytes = 0;
    for (int i = 0; i < step->accesses; i += 2) bytes += value_at(exec, step, i)->bytes;
    return bytes;
}

static ech_status move_file(ech_exec *exec, const ech_step *step)
{
    bool writes = step->to == ECH_SPACE_DISK;
    for (int i = 0; i < step->accesses && !ech_exec_has_failed(exec); i += 2) {
        const ech_value *disk = value_at(exec, step, i + writes);
        char *host = address_at(exec, step, i + !writes);
        size_t bytes = (size_t)ech_plan_align(exec->plan, disk->kind, disk->bytes);
        ECH_TRY(writes ? ech_disk_write(exec->disk, disk->offset, host, bytes)
                       : ech_disk_read(exec->disk, disk->offset, host, bytes));
    }
    return ECH_OK;
}

/* ---- memory.offload_bandwidth ---- */

static ech_status begin_pace(ech_exec *exec, const ech_step *step)
{
    exec->copy_began[step->lane] = ech_clock_now();
    return ECH_OK;
}

static ech_status end_pace(ech_exec *exec, const ech_step *step)
{
    double seconds = (double)bytes_of(exec, step) / (double)exec->config->memory.offload_bandwidth;
    double end = exec->copy_began[step->lane] + seconds;
    for (double left; (left = end - ech_clock_now()) > 0 && !ech_exec_has_failed(exec);) {
        ECH_TRY(ech_comm_check(exec->comm));
        double nap = left < nap_seconds ? left : nap_seconds;
        nanosleep(&(struct timespec){.tv_nsec = (long)(nap * 1e9)}, NULL);
    }
    return ECH_OK;
}

static ech_status copy_step(ech_exec *exec, const ech_step *step)
{
    bool throttled = exec->config->memory.offload_bandwidth > 0;
    if (throttled) ech_exec_put(exec, step, begin_pace);
    if (step->from == ECH_SPACE_DISK || step->to == ECH_SPACE_DISK)
        ech_exec_put(exec, step, move_file);
    else
        for (int i = 0; i < step->accesses; i += 2)
            exec->device->copy(ech_exec_queue(exec, step), address_at(exec, step, i + 1),
                               address_at(exec, step, i), (size_t)value_at(exec, step, i)->bytes);
    if (throttled) ech_exec_put(exec, step, end_pace);
    exec->copied[step->from][step->to] += bytes_of(exec, step);
    return ECH_OK;
}

ECH_HANDLE_BY(FETCH, copy_step)
ECH_HANDLE_BY(OFFLOAD, copy_step)

int64_t ech_exec_copied(const ech_exec *exec, ech_space from, ech_space to)
{
    return exec->copied[from][to];
}
