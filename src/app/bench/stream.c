/* SPDX-License-Identifier: Apache-2.0
 *
 * Measuring memory bandwidth.
 */
#include "app/bench/stream.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "device/device.h"

enum { PASSES = 6, PER_LINE = 8 };

/* A thread's part of each array: the threads that share a cache have far more than it holds, whatever
 * the system believes its size to be. But no more than a small part of the machine's memory. */
static const size_t part_bytes = (size_t)64 << 20;
static const size_t memory_share = 32;

typedef struct stream {
    int threads;
    pthread_mutex_t gate;
    int64_t n; /* numbers of each array */
    double *a, *b, *c;
    pthread_barrier_t barrier;
    double best; /* bytes a second */
} stream;

typedef struct worker {
    stream *of;
    int index;
    pthread_t thread;
} worker;

static void add_apart(double *restrict a, const double *restrict b, const double *restrict c,
                      int64_t n)
{
    for (int64_t i = 0; i < n; i++) a[i] = b[i] + 3 * c[i];
}

static void add_in_place(double *restrict a, const double *restrict c, int64_t n)
{
    for (int64_t i = 0; i < n; i++) a[i] = a[i] + 3 * c[i];
}

/* All threads do the same kind of pass between two barriers; the first one looks at the clock. */
static void run_passes(stream *s, int index, bool in_place)
{
    int64_t lines = s->n / PER_LINE;
    int64_t first = lines * index / s->threads * PER_LINE;
    int64_t n = lines * (index + 1) / s->threads * PER_LINE - first;
    for (int pass = 0; pass < PASSES; pass++) {
        pthread_barrier_wait(&s->barrier);
        double start = ech_clock_now();
        if (in_place)
            add_in_place(s->a + first, s->c + first, n);
        else
            add_apart(s->a + first, s->b + first, s->c + first, n);
        pthread_barrier_wait(&s->barrier);
        double rate = 3.0 * sizeof(double) * (double)s->n / (ech_clock_now() - start);
        /* The first pass is the first touch of a, which hands out pages. */
        if (index == 0 && pass > 0 && rate > s->best) s->best = rate;
    }
}

static void *work(void *argument)
{
    worker *w = argument;
    stream *s = w->of;
    pthread_mutex_lock(&s->gate); /* until it is known how many there are */
    pthread_mutex_unlock(&s->gate);
    int64_t lines = s->n / PER_LINE;
    for (int64_t i = lines * w->index / s->threads * PER_LINE;
         i < lines * (w->index + 1) / s->threads * PER_LINE; i++)
        s->b[i] = s->c[i] = 1e-3;
    run_passes(s, w->index, false);
    run_passes(s, w->index, true);
    return NULL;
}

/* With as many threads as the system starts. */
static void measure(stream *s, int threads)
{
    ECH_FREED worker *workers = ech_calloc((size_t)threads, sizeof *workers);
    for (int i = 0; i < threads; i++) workers[i] = (worker){.of = s, .index = i};
    pthread_mutex_init(&s->gate, NULL);
    pthread_mutex_lock(&s->gate);
    s->threads = 1;
    while (s->threads < threads &&
           pthread_create(&workers[s->threads].thread, NULL, work, &workers[s->threads]) == 0)
        s->threads++;
    pthread_barrier_init(&s->barrier, NULL, (unsigned)s->threads);
    pthread_mutex_unlock(&s->gate);
    work(&workers[0]);
    for (int i = 1; i < s->threads; i++) pthread_join(workers[i].thread, NULL);
    pthread_barrier_destroy(&s->barrier);
    pthread_mutex_destroy(&s->gate);
}

static size_t array_bytes(const ech_device *device, int threads)
{
    size_t bytes = (size_t)threads * part_bytes, most = device->memory_bytes() / memory_share;
    return (bytes < most ? bytes : most) / sizeof(double) / PER_LINE * PER_LINE * sizeof(double);
}

double ech_stream_bytes(int threads)
{
    const ech_device *device = ech_device_find("cpu");
    size_t bytes = threads > 0 ? array_bytes(device, threads) : 0;
    stream s = {.n = (int64_t)(bytes / sizeof(double))};
    void *memory;
    if (s.n < PER_LINE || device->alloc(3 * bytes, &memory) != ECH_OK) return 0;
    s.a = memory;
    s.b = s.a + s.n;
    s.c = s.b + s.n;
    measure(&s, threads);
    device->release(memory, 3 * bytes);
    return s.best;
}
