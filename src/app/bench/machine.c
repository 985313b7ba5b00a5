/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine: name, caches, peak FLOP/s and memory bandwidth.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/bench/bench.h"
#include "app/bench/machine.h"
#include "base/clock.h"
#include "device/device.h"
#include "kernel/kernel.h"

/* ---- rates ---- */

enum { SMALL = 128, LARGE = 768, TRIES = 4, FEWEST_ROUNDS = 1000 };

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
    if (2.0 * LARGE * LARGE * LARGE / small > patience) return small;
    return rate_of_products(kernels, threads, LARGE, 0.02);
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

/* Seconds of a call; 0: see ech_device_flops. */
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

double ech_device_flops(const ech_device *device, ech_dtype dtype, bool tf32, int64_t side)
{
    double seconds = time_on_device(device, dtype, tf32, ECH_OP_matmul, side, side, call_matmul);
    return seconds > 0 ? 2.0 * (double)(side * side * side) / seconds : 0;
}

double ech_device_bytes(const ech_device *device, int64_t mib)
{
    int64_t columns = ((int64_t)1 << 20) / (int64_t)sizeof(float);
    double seconds = time_on_device(device, ECH_F32, false, ECH_OP_add, mib, columns, call_add);
    return seconds > 0 ? OPERANDS * (double)(mib << 20) / seconds : 0;
}

/* ---- the processor ---- */

/* Of tries of many lengths: a short one loses no core, a long one's threads have been given a core
 * each. */
static ech_status measure_flops(ech_dtype dtype, int threads, double seconds, double *flops)
{
    ech_kernel_context *context;
    ECH_TRY(ech_kernel_context_create(threads, &context));
    const ech_kernels *kernels = ech_kernels_fast(dtype);
    int64_t rounds = FEWEST_ROUNDS;
    double end = ech_clock_now() + seconds;
    *flops = 0;
    do {
        double start = ech_clock_now(), done = kernels->multiply_adds(context, rounds);
        double took = ech_clock_now() - start;
        *flops = fmax(*flops, done / took);
        rounds = took < seconds / 20 ? 2 * rounds : FEWEST_ROUNDS;
    } while (ech_clock_now() < end);
    ech_kernel_context_destroy(context);
    return ECH_OK;
}

/* ---- names ---- */

/* The first line "model name : ..." of /proc/cpuinfo; other kinds of machine have none. */
static void name_processor(char *out, size_t size)
{
    char line[512];
    snprintf(out, size, "unknown");
    FILE *file = fopen("/proc/cpuinfo", "re");
    if (!file) return;
    while (fgets(line, sizeof line, file)) {
        char *colon = strncmp(line, "model name", 10) == 0 ? strchr(line, ':') : NULL;
        if (!colon) continue;
        colon[strcspn(colon, "\n")] = '\0';
        snprintf(out, size, "%s", colon + 1 + strspn(colon + 1, " "));
        break;
    }
    fclose(file);
}

/* A word of a file of core 0's cache `index`. */
static bool read_cache(int index, const char *name, char word[32])
{
    char path[128];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, name);
    FILE *file = fopen(path, "re");
    bool found = file && fscanf(file, "%31s", word) == 1;
    if (file) fclose(file);
    return found;
}

/* "L1 32 KiB, L2 1 MiB, L3 32 MiB": what holds data, as core 0 sees it. */
static void name_caches(char *out, size_t size)
{
    char level[32], kind[32], bytes[32], text[32];
    size_t n = 0;
    snprintf(out, size, "unknown");
    for (int i = 0; i < 8 && n < size; i++) {
        if (!read_cache(i, "level", level) || !read_cache(i, "type", kind) ||
            !read_cache(i, "size", bytes) || strcmp(kind, "Instruction") == 0)
            continue;
        int64_t kib = strtoll(bytes, NULL, 10); /* "1024K" */
        n += (size_t)snprintf(out + n, size - n, "%sL%s %s", n ? ", " : "", level,
                              ech_text_from_bytes(kib * 1024, text, sizeof text));
    }
}

/* By registers and STREAM. */
static ech_status measure_processor(ech_bench *bench)
{
    ech_bench_machine *machine = &bench->machine;
    double seconds = 2 * bench->each;
    int threads = bench->options->threads;
    ECH_TRY(measure_flops(ECH_F32, 1, seconds, &machine->flops_alone));
    ECH_TRY(measure_flops(ECH_F32, threads, seconds, &machine->flops));
    return measure_flops(ECH_BF16, threads, seconds, &machine->flops_bf16);
}

static int64_t at_most(int64_t size, int64_t most)
{
    return most > 0 && size > most ? most : size;
}

double ech_bench_peak(const ech_bench *bench, ech_dtype dtype)
{
    int64_t usual = ech_device_is_processor(bench->device) ? LARGE : ECH_GPU_SIDE;
    if (bench->device->is_immediate) return ech_peak_flops(dtype, bench->options->threads);
    return ech_device_flops(bench->device, dtype, false, at_most(usual, bench->options->most));
}

/* By its own kernels. */
static ech_status measure_device(ech_bench *bench)
{
    ech_bench_machine *machine = &bench->machine;
    machine->flops = ech_bench_peak(bench, ECH_F32);
    machine->flops_bf16 = ech_bench_peak(bench, ECH_BF16);
    if (!(machine->flops > 0) || !(machine->flops_bf16 > 0))
        ECH_FAIL(ECH_EIO,
                 "the rate of %s's products cannot be measured: a time was 0 or less; run bench "
                 "again on an idle machine",
                 bench->device->name);
    return ECH_OK;
}

void ech_bench_name_machine(ech_bench *bench)
{
    ech_bench_machine *machine = &bench->machine;
    name_processor(machine->processor, sizeof machine->processor);
    name_caches(machine->caches, sizeof machine->caches);
    machine->cores = ech_device_find("cpu")->cores();
}

ech_status ech_bench_measure_machine(ech_bench *bench)
{
    const ech_bench_machine *machine = &bench->machine;
    ech_bench_name_machine(bench);
    ECH_TRY(bench->device->is_immediate ? measure_processor(bench) : measure_device(bench));
    ech_bench_measure_memory(bench);
    if (!(machine->stream > 0))
        ECH_FAIL(ECH_EIO,
                 "the rate of %s's memory cannot be measured: a time was 0 or less; run bench "
                 "again on an idle machine",
                 bench->device->name);
    return ECH_OK;
}

void ech_bench_measure_memory(ech_bench *bench)
{
    const ech_device *device = bench->device;
    double rate = device->is_immediate
                      ? ech_stream_bytes(bench->options->threads)
                      : ech_device_bytes(device, at_most(ECH_GPU_MIB, bench->options->most));
    bench->machine.stream = fmax(bench->machine.stream, rate);
}
