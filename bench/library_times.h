/* SPDX-License-Identifier: Apache-2.0
 *
 * What bench_products and bench_convolutions time oneDNN with: operands, and medians of calls.
 */
#ifndef BENCH_LIBRARY_TIMES_H
#define BENCH_LIBRARY_TIMES_H

#include <errno.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ALIGN = 64, MOST_CALLS = 1000, LEAST_CALLS = 3 };

static inline void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
    exit(1);
}

static inline void must(dnnl_status_t status)
{
    if (status != dnnl_success) fail("oneDNN failed: it needs more memory, or another shape");
}

static inline double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Values for which no product overflows or becomes denormal. */
static inline float *make_values(size_t bytes)
{
    float *at = aligned_alloc(ALIGN, (bytes + ALIGN) / ALIGN * ALIGN);
    if (!at) fail("out of memory");
    for (size_t i = 0; i < bytes / sizeof *at; i++) at[i] = (float)(i % 17) * 0.01F;
    return at;
}

static inline int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of the calls that fit into `seconds`, after one that is not timed. */
static inline double time_calls(double seconds, void (*call)(void *), void *with)
{
    static double took[MOST_CALLS];
    int n = 0;
    call(with);
    for (double begin = now(); n < LEAST_CALLS || (n < MOST_CALLS && now() - begin < seconds);
         n++) {
        double start = now();
        call(with);
        took[n] = now() - start;
    }
    qsort(took, (size_t)n, sizeof *took, compare);
    return took[n / 2];
}

#endif
