/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads that poll an endpoint sleep between two looks, and others end their sleep.
 *
 * No ring is lost. A thread reads the count before it looks, and sleeps only while the count has
 * not changed. It adds itself to `sleepers` before it compares; a ring changes the count before it
 * reads `sleepers`. So either the thread sees the new count, or the ring finds a sleeper. It then
 * signals under the lock, which the thread holds until it sleeps.
 */
#include <errno.h>
#include <time.h>

#include "comm/backend.h"

void ech_bell_create(ech_bell *bell)
{
    pthread_condattr_t monotonic;
    pthread_mutex_init(&bell->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&bell->rung, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

void ech_bell_destroy(ech_bell *bell)
{
    pthread_cond_destroy(&bell->rung);
    pthread_mutex_destroy(&bell->lock);
}

void ech_bell_ring(ech_bell *bell)
{
    atomic_fetch_add(&bell->count, 1);
    if (atomic_load(&bell->sleepers) == 0) return;
    pthread_mutex_lock(&bell->lock);
    pthread_cond_broadcast(&bell->rung);
    pthread_mutex_unlock(&bell->lock);
}

static struct timespec in_ns(long ns)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += ns;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    return end;
}

void ech_bell_listen(ech_bell *bell, unsigned heard, long ns)
{
    struct timespec end = in_ns(ns);
    int status = 0;
    pthread_mutex_lock(&bell->lock);
    atomic_fetch_add(&bell->sleepers, 1);
    while (atomic_load(&bell->count) == heard && status != ETIMEDOUT)
        status = pthread_cond_timedwait(&bell->rung, &bell->lock, &end);
    atomic_fetch_sub(&bell->sleepers, 1);
    pthread_mutex_unlock(&bell->lock);
}

unsigned ech_comm_heard(const ech_comm *comm)
{
    return atomic_load(&comm->bell->count);
}

void ech_comm_listen(ech_comm *comm, unsigned heard, long ns)
{
    ech_bell_listen(comm->bell, heard, ns);
}

bool ech_comm_rings(const ech_comm *comm)
{
    return comm->backend->rings;
}

void ech_comm_ring(ech_comm *comm)
{
    ech_bell_ring(comm->bell);
}
