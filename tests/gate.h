/* SPDX-License-Identifier: Apache-2.0
 *
 * A gate, at which a queue's work or a thread waits until another opens it; not for longer than
 * GATE_MS, where what would open it follows from what is held up.
 */
#ifndef ECH_TESTS_GATE_H
#define ECH_TESTS_GATE_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <time.h>

enum { GATE_MS = 400 };

typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open;
} gate;

static inline void gate_create(gate *g)
{
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
}

static inline void gate_destroy(gate *g)
{
    pthread_mutex_destroy(&g->lock);
    pthread_cond_destroy(&g->changed);
}

/* Both may be put on a queue; the argument is a gate's address's. */
static inline void gate_open(void *argument)
{
    gate *g = *(gate **)argument;
    pthread_mutex_lock(&g->lock);
    g->open = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

static inline void gate_pass(void *argument)
{
    gate *g = *(gate **)argument;
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_nsec += GATE_MS * 1000000L;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    pthread_mutex_lock(&g->lock);
    while (!g->open && pthread_cond_timedwait(&g->changed, &g->lock, &end) != ETIMEDOUT) {
    }
    pthread_mutex_unlock(&g->lock);
}

#endif
