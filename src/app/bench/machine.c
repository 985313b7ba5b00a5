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

enum { SMALL = 128, LARGE = 768, TRIES = 4, PASSES = 6 };

static const double patience = 0.25; /* seconds for one large product */

static double best_rate(const ech_kernels *kernels, ech_kernel_context *context, char *memory,
                        int64_t side)
{
    double best = 0, work = 2.0 * (double)(side * side * side);
    size_t matrix = (size_t)(side * side) * ech_dtype_bytes(kernels->dtype);
    ech_tensor t[3];
    for (int i = 0; i < 3; i++)
        t[i] = ech_tensor_2d(memory + (size_t)i * matrix, kernels->dtype, side, side);
    context->scratch = memory + 3 * matrix;
    for (int i = 0; i < TRIES; i++) {
        double start = ech_clock_now();
        kernels->matmul(context, &t[0], false, &t[1], true, NULL, NULL, &t[2]);
        best = fmax(best, work / (ech_clock_now() - start));
    }
    return best;
}

static size_t scratch_of(const ech_kernels *kernels, int threads, int64_t side)
{
    int64_t dims[] = {side, side, side, false, true, false, false};
    return ech_kernel_scratch(kernels, ECH_OP_matmul, threads, dims);
}

/* A small product first; if it is slow already (reference kernels, sanitizers), its rate will do. */
double ech_peak_flops(const ech_kernels *kernels, int threads)
{
    const ech_device *device = ech_device_find("cpu");
    size_t small = scratch_of(kernels, threads, SMALL), large = scratch_of(kernels, threads, LARGE);
    size_t scratch = small > large ? small : large;
    size_t bytes = 3 * (size_t)LARGE * LARGE * ech_dtype_bytes(kernels->dtype) + scratch;
    ech_kernel_context *context;
    void *memory;
    double rate = 0;
    if (ech_kernel_context_create(threads, &context) != ECH_OK) return 0;
    if (device->alloc(bytes, &memory) == ECH_OK) {
        context->scratch_bytes = scratch;
        rate = best_rate(kernels, context, memory, SMALL);
        if (2.0 * LARGE * LARGE * LARGE / rate < patience)
            rate = best_rate(kernels, context, memory, LARGE);
        device->release(memory, bytes);
    }
    ech_kernel_context_destroy(context);
    return rate;
}

/* A thread's part of each array: the threads that share a cache have far more than it holds, whatever
 * the system believes its size to be. But no more than a small part of the machine's memory. */
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
        for (int pass = 0; pass < 2 * PASSES; pass++) {
            double start = ech_clock_now();
            ech_kernels_fast(ECH_F32)->triad(context, a, pass < PASSES ? b : a, c, n);
            double rate = 3 * (double)bytes / (ech_clock_now() - start);
            if (pass > 0) best = fmax(best, rate); /* the first one hands out the pages of a */
        }
        device->release(memory, 3 * bytes);
    }
    ech_kernel_context_destroy(context);
    return best;
}

/* The best of a few: what else runs only ever takes away. */
static ech_status measure_flops(ech_dtype dtype, int threads, double seconds, double *flops)
{
    ech_kernel_context *context;
    ECH_TRY(ech_kernel_context_create(threads, &context));
    const ech_kernels *kernels = ech_kernels_fast(dtype);
    int64_t rounds = 1000;
    double end = ech_clock_now() + seconds;
    *flops = 0;
    do {
        double start = ech_clock_now(), done = kernels->multiply_adds(context, rounds);
        double took = ech_clock_now() - start;
        *flops = fmax(*flops, done / took);
        if (took < seconds / 20) rounds *= 2;
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

ech_status ech_bench_measure_machine(ech_bench *bench)
{
    ech_bench_machine *machine = &bench->machine;
    double seconds = 2 * bench->each;
    name_processor(machine->processor, sizeof machine->processor);
    name_caches(machine->caches, sizeof machine->caches);
    machine->cores = ech_device_find("cpu")->cores();
    int threads = bench->options->threads;
    ECH_TRY(measure_flops(ECH_F32, 1, seconds, &machine->flops_alone));
    ECH_TRY(measure_flops(ECH_F32, threads, seconds, &machine->flops));
    ECH_TRY(measure_flops(ECH_BF16, threads, seconds, &machine->flops_bf16));
    ech_bench_measure_memory(bench);
    return ECH_OK;
}

void ech_bench_measure_memory(ech_bench *bench)
{
    bench->machine.stream = fmax(bench->machine.stream, ech_stream_bytes(bench->options->threads));
}
