/* SPDX-License-Identifier: Apache-2.0
 *
 * Lanes wait for each other's steps and wake each other here.
 *
 * Each lane's thread sleeps on a condition of its own (ech_lane_thread.woken), and the end of a
 * step wakes only the threads that wait for it. The word done[step] records them: it holds the last
 * run that completed the step and, in its lowest ECH_LANES bits, one bit for each lane whose thread
 * waits. A step without waiters ends without a lock.
 *
 * No wake-up is lost. A thread checks the run and sets its bit in one atomic operation (must_wait).
 * ech_exec_complete stores the run and reads the bits in one atomic operation, too. If that
 * operation comes first, the thread finds the step complete and does not sleep. Otherwise the bit
 * is found, and a signal follows. The thread holds `lock` from before it sets the bit until it
 * sleeps, and the signal is sent under `lock`. So the signal finds the thread asleep.
 */
#include <time.h>

#include "base/clock.h"
#include "exec/state.h"

static struct timespec in_ns(long ns)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += ns;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    return end;
}

enum { ALL_LANES = (1 << ECH_LANES) - 1 };

void ech_waits_create(ech_exec *exec)
{
    pthread_condattr_t monotonic;
    pthread_mutex_init(&exec->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    for (int lane = 0; lane < ECH_LANES; lane++)
        pthread_cond_init(&exec->engine[lane].woken, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

void ech_waits_destroy(ech_exec *exec)
{
    for (int lane = 0; lane < ECH_LANES; lane++) pthread_cond_destroy(&exec->engine[lane].woken);
    pthread_mutex_destroy(&exec->lock);
}

/* `lanes`: a bit for each lane whose thread must be woken. */
static void wake(ech_exec *exec, unsigned lanes)
{
    if (lanes == 0) return;
    pthread_mutex_lock(&exec->lock);
    for (int lane = 0; lane < ECH_LANES; lane++) {
        if (!(lanes & 1u << lane)) continue;
        pthread_cond_signal(&exec->engine[lane].woken);
        exec->signals++;
    }
    pthread_mutex_unlock(&exec->lock);
    if (lanes & 1u << ECH_LANE_SEND) ech_comm_ring(exec->comm); /* it may nap */
}

void ech_exec_wake(ech_exec *exec)
{
    wake(exec, ALL_LANES);
}

void ech_exec_set_awaited(ech_exec *exec, int step)
{
    atomic_store(&exec->awaited, step);
    ech_comm_ring(exec->comm);
}

void ech_exec_complete(ech_exec *exec, int step)
{
    const ech_step *ended = &exec->list->step.at[step];
    if (!exec->device->is_immediate)
        ech_queue_record(exec, step, true);
    else if (exec->records)
        exec->times.ends[step] = ech_clock_now();
    if (ended->lane != ECH_LANE_COMPUTE) ech_ledger_check(exec, ended, false);
    uint64_t before = atomic_exchange(&exec->done[step], exec->run << ECH_LANES);
    wake(exec, (unsigned)(before & ALL_LANES));
}

bool ech_exec_has_failed(const ech_exec *exec)
{
    return atomic_load(&exec->failed);
}

static bool is_done(ech_exec *exec, int step)
{
    return ech_exec_is_complete(exec, step) || ech_exec_has_failed(exec);
}

/* Sets the lane's bit at a step and returns true, or returns false if the step is complete. The
 * caller is the lane's thread and holds `lock`. */
static bool must_wait(ech_exec *exec, int step, ech_lane lane)
{
    uint64_t word = atomic_load(&exec->done[step]);
    while (word >> ECH_LANES != exec->run)
        if (atomic_compare_exchange_weak(&exec->done[step], &word, word | 1u << lane)) return true;
    return false;
}

static void sleep_on(ech_exec *exec, ech_lane lane)
{
    pthread_cond_wait(&exec->engine[lane].woken, &exec->lock);
}

bool ech_exec_may_begin(ech_exec *exec, const ech_step *step)
{
    for (int i = 0; i < step->afters; i++)
        if (!is_done(exec, exec->list->after.at[step->first_after + i])) return false;
    return true;
}

void ech_exec_rest(ech_exec *exec)
{
    enum { WATCH_NS = 100000000 };
    if (!exec->disk) {
        sleep_on(exec, ECH_LANE_COMPUTE);
        return;
    }
    struct timespec end = in_ns(WATCH_NS);
    pthread_cond_timedwait(&exec->engine[ECH_LANE_COMPUTE].woken, &exec->lock, &end);
    pthread_mutex_unlock(&exec->lock);
    ech_exec_fail(exec, ech_exec_watch_files(exec));
    pthread_mutex_lock(&exec->lock);
}

bool ech_exec_wait_for(ech_exec *exec, int step, ech_lane lane)
{
    bool compute = lane == ECH_LANE_COMPUTE;
    for (int spin = 0; spin < 64; spin++)
        if (is_done(exec, step)) return !ech_exec_has_failed(exec);
    double began = compute ? ech_clock_now() : 0;
    if (compute) ech_exec_set_awaited(exec, step);
    pthread_mutex_lock(&exec->lock);
    while (!ech_exec_has_failed(exec) && must_wait(exec, step, lane)) {
        if (compute)
            ech_exec_rest(exec);
        else
            sleep_on(exec, lane);
    }
    pthread_mutex_unlock(&exec->lock);
    if (compute) {
        atomic_store(&exec->awaited, -1);
        exec->waited += ech_clock_now() - began;
    }
    return !ech_exec_has_failed(exec);
}

/* Sets, for each of the n steps, the bit at its first incomplete dependency. False: one of the n
 * may begin. */
static bool must_wait_for_any(ech_exec *exec, const int *steps, int n)
{
    for (int i = 0; i < n; i++) {
        if (steps[i] < 0) continue;
        const ech_step *step = &exec->list->step.at[steps[i]];
        const int *after = exec->list->after.at + step->first_after;
        int a = 0;
        while (a < step->afters && !must_wait(exec, after[a], ECH_LANE_SEND)) a++;
        if (a == step->afters) return false;
    }
    return true;
}

void ech_exec_wait_for_any(ech_exec *exec, const int *steps, int n)
{
    pthread_mutex_lock(&exec->lock);
    while (!ech_exec_has_failed(exec) && must_wait_for_any(exec, steps, n))
        sleep_on(exec, ECH_LANE_SEND);
    pthread_mutex_unlock(&exec->lock);
}

void ech_exec_nap(ech_exec *exec, const int *steps, int n, unsigned heard, long ns)
{
    pthread_mutex_lock(&exec->lock);
    bool waits = !ech_exec_has_failed(exec) && must_wait_for_any(exec, steps, n);
    pthread_mutex_unlock(&exec->lock);
    if (waits) ech_comm_listen(exec->comm, heard, ns);
}
