/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine: name, caches, peak FLOP/s and memory bandwidth.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/bench/bench.h"
#include "app/bench/peak.h"
#include "app/bench/stream.h"
#include "base/clock.h"
#include "device/device.h"
#include "kernel/kernel.h"

/* ---- a measured peak ---- */

/* A small product first; if it is slow already (reference kernels, sanitizers), its rate will do. */
enum { SMALL = 128, LARGE = 768, TRIES = 4 };

static const double patience = 0.25; /* seconds for one large product */

static double best_rate(const ech_kernels *kernels, ech_kernel_context *context, char *memory,
                        int64_t side)
{
    double best = 0, work = 2.0 * (double)(side * side * side);
    size_t matrix = (size_t)(side * side) * ech_dtype_bytes(kernels->dtype);
    ech_tensor a = ech_tensor_2d(memory, kernels->dtype, side, side);
    ech_tensor b = ech_tensor_2d(memory + matrix, kernels->dtype, side, side);
    ech_tensor c = ech_tensor_2d(memory + 2 * matrix, kernels->dtype, side, side);
    context->scratch = memory + 3 * matrix;
    for (int i = 0; i < TRIES; i++) {
        double start = ech_clock_now();
        kernels->matmul(context, &a, false, &b, true, NULL, NULL, &c);
        double rate = work / (ech_clock_now() - start);
        if (rate > best) best = rate;
    }
    return best;
}

double ech_peak_flops(const ech_kernels *kernels, int threads)
{
    const ech_device *device = ech_device_find("cpu");
    int64_t small[] = {SMALL, SMALL, SMALL, 0, 1, 0, 0},
            large[] = {LARGE, LARGE, LARGE, 0, 1, 0, 0};
    size_t scratch = ech_kernel_scratch(kernels, ECH_OP_matmul, threads, large);
    size_t other = ech_kernel_scratch(kernels, ECH_OP_matmul, threads, small);
    size_t bytes = 3 * (size_t)LARGE * LARGE * ech_dtype_bytes(kernels->dtype);
    if (other > scratch) scratch = other;
    ech_kernel_context *context;
    void *memory;
    if (ech_kernel_context_create(threads, &context) != ECH_OK) return 0;
    double rate = 0;
    if (device->alloc(bytes + scratch, &memory) == ECH_OK) {
        context->scratch_bytes = scratch;
        rate = best_rate(kernels, context, memory, SMALL);
        if (2.0 * LARGE * LARGE * LARGE / rate < patience)
            rate = best_rate(kernels, context, memory, LARGE);
        device->release(memory, bytes + scratch);
    }
    ech_kernel_context_destroy(context);
    return rate;
}

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

/* The best of a few: what else runs only ever takes away. */
static ech_status measure_flops(int threads, double seconds, double *flops)
{
    ech_kernel_context *context;
    ECH_TRY(ech_kernel_context_create(threads, &context));
    const ech_kernels *kernels = ech_kernels_fast(ECH_F32);
    int64_t rounds = 1000;
    double end = ech_clock_now() + seconds;
    *flops = 0;
    do {
        double start = ech_clock_now(), done = kernels->multiply_adds(context, rounds);
        double took = ech_clock_now() - start;
        if (done / took > *flops) *flops = done / took;
        if (took < seconds / 20) rounds *= 2;
    } while (ech_clock_now() < end);
    ech_kernel_context_destroy(context);
    return ECH_OK;
}

ech_status ech_bench_measure_machine(ech_bench *bench)
{
    ech_bench_machine *machine = &bench->machine;
    double seconds = 2 * bench->each;
    name_processor(machine->processor, sizeof machine->processor);
    name_caches(machine->caches, sizeof machine->caches);
    machine->cores = ech_device_find("cpu")->cores();
    ECH_TRY(measure_flops(1, seconds, &machine->flops_alone));
    ECH_TRY(measure_flops(bench->options->threads, seconds, &machine->flops));
    ech_bench_measure_memory(bench);
    return ECH_OK;
}

void ech_bench_measure_memory(ech_bench *bench)
{
    double rate = ech_stream_bytes(bench->options->threads);
    if (rate > bench->machine.stream) bench->machine.stream = rate;
}
