/* SPDX-License-Identifier: Apache-2.0
 *
 * FETCH and OFFLOAD, and the copies for updates on the host: pairs of values of two spaces, one
 * after the other, read and written by the step. Between device and host the queue copies; files
 * are read and written by the thread that runs the queue, one value at a time, without the page
 * cache. Also the watchdog for file I/O.
 */
#include <time.h>

#include "base/clock.h"
#include "exec/state.h"
#include "schedule/operands.h"
#include "schedule/states.h"

/* How long a throttled copy sleeps before it checks whether the run has failed. */
static const double nap_seconds = 10e-3;

static const ech_value *value_at(const ech_exec *exec, const ech_step *step, int access)
{
    int value = exec->list->access.at[step->first_access + access].value;
    return ech_plan_value(exec->plan, exec->list, value);
}

/* Bytes of one pair: the smaller one's. */
static int64_t pair_bytes(const ech_exec *exec, const ech_step *step, int pair)
{
    int64_t from = value_at(exec, step, pair)->bytes, to = value_at(exec, step, pair + 1)->bytes;
    return from < to ? from : to;
}

/* Where the moved bytes begin in a value that may hold more of a bucket. */
static int64_t offset_at(const ech_exec *exec, const ech_step *step, int access)
{
    int64_t first, bytes = pair_bytes(exec, step, access / 2 * 2);
    int64_t all = value_at(exec, step, access)->bytes;
    if (all == bytes) return 0;
    int64_t item = bytes / ech_step_part(exec->plan, step, &first);
    return item * ech_step_part_in(exec->plan, step, all / item);
}

static char *address_at(ech_exec *exec, const ech_step *step, int access)
{
    const ech_plan *plan = exec->plan;
    int value = exec->list->access.at[step->first_access + access].value;
    char *at = ech_exec_address(exec, step, value);
    if (ech_step_has_bucket(step) && value == ech_plan_weights(plan, step->index, step->version)) {
        const ech_bucket *bucket = &plan->bucket.at[step->index];
        at = ech_exec_look(exec,
                           bucket->weights + ech_exec_weight_slot(exec, bucket, step->version));
    }
    return at + offset_at(exec, step, access);
}

static int64_t bytes_of(const ech_exec *exec, const ech_step *step)
{
    int64_t bytes = 0;
    for (int i = 0; i < step->accesses; i += 2) bytes += pair_bytes(exec, step, i);
    return bytes;
}

static ech_space space_at(const ech_exec *exec, const ech_step *step, int access)
{
    return ech_memory_space(value_at(exec, step, access)->kind);
}

static ech_status move_file(ech_exec *exec, const ech_step *step)
{
    bool writes = space_at(exec, step, 1) == ECH_SPACE_DISK;
    for (int i = 0; i < step->accesses && !ech_exec_has_failed(exec); i += 2) {
        const ech_value *disk = value_at(exec, step, i + writes);
        char *host = address_at(exec, step, i + !writes);
        int64_t offset = disk->offset + offset_at(exec, step, i + writes);
        size_t bytes = (size_t)ech_plan_align(exec->plan, disk->kind, pair_bytes(exec, step, i));
        _Atomic unsigned *moves = &exec->watch[step->lane].moves;
        atomic_fetch_add(moves, 1);
        ech_status status = writes ? ech_disk_write(exec->disk, offset, host, bytes)
                                   : ech_disk_read(exec->disk, offset, host, bytes);
        atomic_fetch_add(moves, 1);
        ECH_TRY(status);
    }
    return ECH_OK;
}

ech_status ech_exec_watch_files(ech_exec *exec)
{
    double now = ech_clock_now(), gap = ech_clock_take_gap(&exec->watched_at, now);
    double deadline = exec->config->parallel.deadline;
    for (int lane = 0; lane < ECH_LANES && exec->disk; lane++) {
        ech_file_watch *watch = &exec->watch[lane];
        if (watch->is_stuck) continue;
        unsigned moves = atomic_load(&watch->moves);
        watch->progress_at =
            moves != watch->seen || moves % 2 == 0 ? now : watch->progress_at + gap;
        watch->seen = moves;
        if (now - watch->progress_at <= deadline) continue;
        watch->is_stuck = true;
        exec->stuck += exec->device->is_immediate;
        ECH_FAIL(ECH_EIO,
                 "%s: rank %d has %s it for %g s and has not ended: does its disk stand still? If "
                 "it may take that long, raise parallel.deadline",
                 ech_disk_path(exec->disk), exec->plan->rank,
                 lane == ECH_LANE_COPY_OUT ? "written" : "read", deadline);
    }
    return ECH_OK;
}

/* ---- memory.offload_bandwidth ---- */

void ech_exec_hurry_on(ech_exec *exec, const atomic_bool *is_urgent)
{
    exec->is_urgent = is_urgent;
}

/* The kinds of steps that copy_step handles. */
#define COPIES(X)                                                                                  \
    X(FETCH)                                                                                       \
    X(OFFLOAD)                                                                                     \
    X(FETCH_STATES)                                                                                \
    X(OFFLOAD_GRADS)                                                                               \
    X(FETCH_STATISTICS)                                                                            \
    X(OFFLOAD_STATISTICS)                                                                          \
    X(FETCH_WEIGHTS)                                                                               \
    X(OFFLOAD_WEIGHTS)                                                                             \
    X(OFFLOAD_STATES)

static bool is_copy(const ech_step *step)
{
#define X(kind_) || step->kind == ECH_STEP_##kind_
    return false COPIES(X);
#undef X
}

ech_status ech_exec_check_pace(ech_exec *exec)
{
    const ech_config *config = exec->config;
    double rate = (double)config->memory.offload_bandwidth;
    int64_t most = 0;
    for (int l = 0; l < ECH_LIST_KINDS && rate > 0; l++) {
        exec->list = &exec->plan->list[l];
        for (size_t s = 0; s < exec->list->step.n; s++) {
            const ech_step *step = &exec->list->step.at[s];
            int64_t bytes = is_copy(step) ? bytes_of(exec, step) : 0;
            if (bytes > most) most = bytes;
        }
    }
    if (rate <= 0 || (double)most <= rate * config->parallel.deadline) return ECH_OK;
    return ech_config_complain(config, "memory.offload_bandwidth",
                               "a copy of %lld bytes takes %.0f s, and parallel.deadline is %g s; "
                               "raise one of them",
                               (long long)most, (double)most / rate, config->parallel.deadline);
}

static bool is_urgent(const ech_exec *exec)
{
    return exec->is_urgent && atomic_load(exec->is_urgent);
}

static ech_status begin_pace(ech_exec *exec, const ech_step *step)
{
    exec->copy_began[step->lane] = ech_clock_now();
    return ECH_OK;
}

static ech_status end_pace(ech_exec *exec, const ech_step *step)
{
    double seconds = (double)bytes_of(exec, step) / (double)exec->config->memory.offload_bandwidth;
    double end = exec->copy_began[step->lane] + seconds;
    for (double left; (left = end - ech_clock_now()) > 0 && !is_urgent(exec);) {
        if (ech_exec_has_failed(exec)) break;
        ECH_TRY(ech_comm_check(exec->comm));
        double nap = left < nap_seconds ? left : nap_seconds;
        nanosleep(&(struct timespec){.tv_nsec = (long)(nap * 1e9)}, NULL);
    }
    return ECH_OK;
}

static ech_status copy_step(ech_exec *exec, const ech_step *step)
{
    bool throttled = exec->config->memory.offload_bandwidth > 0;
    if (step->accesses == 0) return ECH_OK; /* an optimizer without states */
    ech_space from = space_at(exec, step, 0), to = space_at(exec, step, 1);
    if (throttled) ech_exec_put(exec, step, begin_pace);
    if (from == ECH_SPACE_DISK || to == ECH_SPACE_DISK)
        ech_exec_put(exec, step, move_file);
    else
        for (int i = 0; i < step->accesses; i += 2)
            exec->device->copy(ech_exec_queue(exec, step), address_at(exec, step, i + 1),
                               address_at(exec, step, i), (size_t)pair_bytes(exec, step, i));
    if (throttled) ech_exec_put(exec, step, end_pace);
    exec->counts.copied[from][to] += bytes_of(exec, step);
    return ECH_OK;
}

#define X(kind) ECH_HANDLE_BY(kind, copy_step)
COPIES(X)
#undef X
