/* SPDX-License-Identifier: Apache-2.0
 *
 * Peak FLOP/s and memory bandwidth.
 */
#include "app/machine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "device/device.h"
#include "kernel/kernel.h"

/* ---- rates ---- */

enum { SMALL = 128, TRIES = 4 };

/* What else runs only ever takes away, so a rate is the best of some tries. On a busy machine
 * threads seldom have all their cores during one: then there are more, until the two best are
 * alike, as on an idle machine the first ones are. */
typedef struct tries {
    double least; /* seconds for all of them */
    double best, second, begin;
    int n;
} tries;

static const double alike = 0.9, longest = 0.5; /* seconds */

static bool try_again(tries *t)
{
    double now = ech_clock_now();
    if (t->n == 0) t->begin = now;
    bool few = t->n < TRIES || now - t->begin < t->least;
    return few || (t->second < alike * t->best && now - t->begin < longest);
}

static void add_try(tries *t, double rate)
{
    t->n++;
    t->second = rate > t->best ? t->best : fmax(t->second, rate);
    t->best = fmax(t->best, rate);
}

static void try_products(const ech_kernels *kernels, ech_kernel_context *context, char *memory,
                         int64_t side, tries *all)
{
    size_t matrix = (size_t)(side * side) * ech_dtype_bytes(kernels->dtype);
    ech_tensor t[3];
    for (int i = 0; i < 3; i++)
        t[i] = ech_tensor_2d(memory + (size_t)i * matrix, kernels->dtype, side, side);
    context->scratch = memory + 3 * matrix;
    while (try_again(all)) {
        double start = ech_clock_now();
        kernels->matmul(context, &t[0], false, &t[1], true, NULL, NULL, &t[2]);
        add_try(all, 2.0 * (double)(side * side * side) / (ech_clock_now() - start));
    }
}

/* FLOP/s of square products; 0: memory or threads were not to be had. */
static double rate_of_products(const ech_kernels *kernels, int threads, int64_t side, double least)
{
    const ech_device *device = ech_device_find("cpu");
    int64_t dims[] = {side, side, side, false, true, false, false};
    ech_kernel_context *context;
    void *memory;
    tries all = {.least = least};
    if (ech_kernel_context_create(threads, &context) != ECH_OK) return 0;
    context->scratch_bytes = ech_kernel_scratch(kernels, ECH_OP_matmul, threads, dims);
    size_t bytes = 3 * (size_t)(side * side) * ech_dtype_bytes(kernels->dtype);
    bytes += context->scratch_bytes;
    if (device->alloc(bytes, &memory) == ECH_OK) {
        try_products(kernels, context, memory, side, &all);
        device->release(memory, bytes);
    }
    ech_kernel_context_destroy(context);
    return all.best;
}

static const double patience = 0.25; /* seconds for one large product */

/* A small product first; if it is slow already (reference kernels, sanitizers), its rate will do.
 * On one thread, as two of a busy machine may wait for each other for longer than that. */
double ech_peak_flops(ech_dtype dtype, int threads)
{
    const ech_kernels *kernels = ech_kernels_fast(dtype);
    double small = rate_of_products(kernels, 1, SMALL, 0);
    if (2.0 * ECH_PROCESSOR_SIDE * ECH_PROCESSOR_SIDE * ECH_PROCESSOR_SIDE / small > patience)
        return small;
    return rate_of_products(kernels, threads, ECH_PROCESSOR_SIDE, 0.02);
}

/* A thread's part of each array: the threads that share a cache have far more than it holds,
 * whatever the system believes its size to be. But no more than a small part of the machine's
 * memory. */
static const size_t part_bytes = (size_t)64 << 20, memory_share = 32;

double ech_stream_bytes(int threads)
{
    const ech_device *device = ech_device_find("cpu");
    size_t parts = threads > 0 ? (size_t)threads * part_bytes : 0;
    size_t most = device->memory_bytes() / memory_share, bytes = parts < most ? parts : most;
    int64_t n = (int64_t)(bytes / sizeof(double));
    ech_kernel_context *context;
    void *memory;
    double best = 0;
    if (n == 0 || ech_kernel_context_create(threads, &context) != ECH_OK) return 0;
    if (device->alloc(3 * bytes, &memory) == ECH_OK) {
        double *a = memory, *b = a + n, *c = b + n;
        ech_kernel_context_touch(context, b, bytes);
        ech_kernel_context_touch(context, c, bytes);
        tries all = {.least = 0.2};
        bool first = true; /* hands out the pages of a */
        for (; first || try_again(&all); first = false) {
            double rate[2];
            for (int in_place = 0; in_place < 2; in_place++) {
                double start = ech_clock_now();
                ech_kernels_fast(ECH_F32)->triad(context, a, in_place ? a : b, c, n);
                rate[in_place] = 3 * (double)bytes / (ech_clock_now() - start);
            }
            if (!first) add_try(&all, fmax(rate[0], rate[1]));
        }
        best = all.best;
        device->release(memory, 3 * bytes);
    }
    ech_kernel_context_destroy(context);
    return best;
}

/* ---- rates of a device that has queues ---- */

enum { CALLS = 10, OPERANDS = 3 };

/* A row's call on three tensors of memory. */
typedef void (*timed_call)(const ech_kernels *kernels, ech_kernel_context *context,
                           const ech_tensor *t);

static void call_matmul(const ech_kernels *kernels, ech_kernel_context *context,
                        const ech_tensor *t)
{
    kernels->matmul(context, &t[0], false, &t[1], true, NULL, NULL, &t[2]);
}

static void call_add(const ech_kernels *kernels, ech_kernel_context *context, const ech_tensor *t)
{
    kernels->add(context, &t[0], &t[1], &t[2]);
}

/* Seconds of a call, the least of some tries of CALLS each. */
static ech_status time_on_queue(const ech_kernels *kernels, ech_kernel_context *context,
                                const ech_tensor *t, timed_call call, ech_event *const between[2],
                                double *seconds)
{
    const ech_device *device = context->device;
    const ech_random_key key = {.seed = 1};
    for (int i = 0; i < OPERANDS; i++) kernels->fill_normal(context, &t[i], key, 0, 0, 1);
    call(kernels, context, t); /* opens libraries, chooses an algorithm */
    *seconds = INFINITY;
    for (int n = 0; n < TRIES; n++) {
        device->record(between[0], context->queue);
        for (int c = 0; c < CALLS; c++) call(kernels, context, t);
        device->record(between[1], context->queue);
        ECH_TRY(device->synchronize(between[1]));
        *seconds = fmin(*seconds, device->elapsed(between[0], between[1]) / CALLS);
    }
    return ECH_OK;
}

static ech_status time_in_memory(const ech_kernels *kernels, ech_kernel_context *context,
                                 int64_t rows, int64_t columns, timed_call call, double *seconds)
{
    const ech_device *device = context->device;
    size_t each = (size_t)(rows * columns) * ech_dtype_bytes(kernels->dtype);
    size_t bytes = OPERANDS * each + context->scratch_bytes;
    ech_event *between[2] = {0};
    ech_tensor t[OPERANDS];
    void *memory = NULL;
    ech_status status = device->alloc(bytes, &memory);
    for (int e = 0; e < 2 && status == ECH_OK; e++) status = device->event_create(&between[e]);
    for (int i = 0; i < OPERANDS; i++)
        t[i] = ech_tensor_2d((char *)memory + (size_t)i * each, kernels->dtype, rows, columns);
    context->scratch = (char *)memory + OPERANDS * each;
    if (status == ECH_OK) status = time_on_queue(kernels, context, t, call, between, seconds);
    if (status == ECH_OK) status = ech_device_settle(device, context->queue);
    for (int e = 0; e < 2; e++) device->event_destroy(between[e]);
    if (memory) device->release(memory, bytes);
    return status;
}

/* Seconds of a call; 0: see ech_peak_flops_of. */
static double time_on_device(const ech_device *device, ech_dtype dtype, bool tf32, ech_op op,
                             int64_t rows, int64_t columns, timed_call call)
{
    const ech_kernels *kernels = ech_kernels_on(device->name, dtype);
    const int64_t dims[] = {rows, rows, columns, false, true, false, false};
    ech_kernel_context *context;
    ech_queue *queue = NULL;
    double seconds = 0;
    if (ech_kernel_context_create(1, &context) != ECH_OK) return 0;
    ech_status status = device->queue_create(&queue);
    if (status == ECH_OK) {
        ech_kernel_context_defer(context, device, queue);
        context->tf32 = tf32;
        context->scratch_bytes = ech_kernel_scratch(kernels, op, 1, dims);
        status = time_in_memory(kernels, context, rows, columns, call, &seconds);
        device->queue_destroy(queue);
    }
    ech_kernel_context_destroy(context);
    return status == ECH_OK ? seconds : 0;
}

double ech_peak_flops_of(const ech_device *device, ech_dtype dtype, bool tf32, int64_t side)
{
    double seconds = time_on_device(device, dtype, tf32, ECH_OP_matmul, side, side, call_matmul);
    return seconds > 0 ? 2.0 * (double)(side * side * side) / seconds : 0;
}

double ech_stream_bytes_of(const ech_device *device, int64_t mib)
{
    int64_t columns = ((int64_t)1 << 20) / (int64_t)sizeof(float);
    double seconds = time_on_device(device, ECH_F32, false, ECH_OP_add, mib, columns, call_add);
    return seconds > 0 ? OPERANDS * (double)(mib << 20) / seconds : 0;
}
