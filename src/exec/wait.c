/* SPDX-License-Identifier: Apache-2.0
 *
 * How lanes wait for each other's steps, and wake each other.
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

void ech_exec_wake(ech_exec *exec)
{
    if (atomic_load(&exec->waiting) == 0) return;
    pthread_mutex_lock(&exec->lock);
    pthread_cond_broadcast(&exec->changed);
    pthread_mutex_unlock(&exec->lock);
}

void ech_exec_complete(ech_exec *exec, int step)
{
    const ech_step *ended = &exec->list->step.at[step];
    if (!exec->device->is_immediate)
        ech_queue_record(exec, step, true);
    else if (exec->records)
        exec->times.ends[step] = ech_clock_now();
    if (ended->lane != ECH_LANE_COMPUTE) ech_ledger_check(exec, ended, false);
    atomic_store(&exec->done[step], exec->run);
    ech_exec_wake(exec);
}

bool ech_exec_has_failed(const ech_exec *exec)
{
    return atomic_load(&exec->failed);
}

static bool is_done(ech_exec *exec, int step)
{
    return atomic_load(&exec->done[step]) == exec->run || ech_exec_has_failed(exec);
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
        pthread_cond_wait(&exec->changed, &exec->lock);
        return;
    }
    struct timespec end = in_ns(WATCH_NS);
    pthread_cond_timedwait(&exec->changed, &exec->lock, &end);
    pthread_mutex_unlock(&exec->lock);
    ech_exec_fail(exec, ech_exec_watch_files(exec));
    pthread_mutex_lock(&exec->lock);
}

bool ech_exec_wait_for(ech_exec *exec, int step, bool compute)
{
    for (int spin = 0; spin < 64; spin++)
        if (is_done(exec, step)) return !ech_exec_has_failed(exec);
    double began = compute ? ech_clock_now() : 0;
    if (compute) {
        atomic_store(&exec->awaited, step);
        ech_exec_wake(exec);
    }
    pthread_mutex_lock(&exec->lock);
    atomic_fetch_add(&exec->waiting, 1);
    while (!is_done(exec, step)) {
        if (compute)
            ech_exec_rest(exec);
        else
            pthread_cond_wait(&exec->changed, &exec->lock);
    }
    atomic_fetch_sub(&exec->waiting, 1);
    pthread_mutex_unlock(&exec->lock);
    if (compute) {
        atomic_store(&exec->awaited, -1);
        exec->waited += ech_clock_now() - began;
    }
    return !ech_exec_has_failed(exec);
}

void ech_exec_nap(ech_exec *exec, long ns)
{
    struct timespec end = in_ns(ns);
    pthread_mutex_lock(&exec->lock);
    atomic_fetch_add(&exec->waiting, 1);
    if (atomic_load(&exec->awaited) < 0 && !ech_exec_has_failed(exec))
        pthread_cond_timedwait(&exec->changed, &exec->lock, &end);
    atomic_fetch_sub(&exec->waiting, 1);
    pthread_mutex_unlock(&exec->lock);
}

static bool is_any_free(ech_exec *exec, const int *steps, int n)
{
    for (int i = 0; i < n; i++)
        if (steps[i] >= 0 && ech_exec_may_begin(exec, &exec->list->step.at[steps[i]])) return true;
    return false;
}

void ech_exec_wait_for_any(ech_exec *exec, const int *steps, int n)
{
    pthread_mutex_lock(&exec->lock);
    atomic_fetch_add(&exec->waiting, 1);
    while (!is_any_free(exec, steps, n) && !ech_exec_has_failed(exec))
        pthread_cond_wait(&exec->changed, &exec->lock);
    atomic_fetch_sub(&exec->waiting, 1);
    pthread_mutex_unlock(&exec->lock);
}
