/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine: name, caches, peak FLOP/s and memory bandwidth.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/machine.h"
#include "base/clock.h"
#include "device/device.h"
#include "kernel/kernel.h"
#include "program/bench/bench.h"

/* ---- the processor ---- */

enum { FEWEST_ROUNDS = 1000 };

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
    char level[32], kind[32], bytes[32];
    size_t n = 0;
    snprintf(out, size, "unknown");
    for (int i = 0; i < 8 && n < size; i++) {
        if (!read_cache(i, "level", level) || !read_cache(i, "type", kind) ||
            !read_cache(i, "size", bytes) || strcmp(kind, "Instruction") == 0)
            continue;
        int64_t kib = strtoll(bytes, NULL, 10); /* "1024K" */
        n += (size_t)snprintf(out + n, size - n, "%sL%s %s", n ? ", " : "", level,
                              ECH_BYTES(kib * 1024));
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
    int64_t usual = ech_device_is_processor(bench->device) ? ECH_PROCESSOR_SIDE : ECH_GPU_SIDE;
    if (bench->device->is_immediate) return ech_peak_flops(dtype, bench->options->threads);
    return ech_peak_flops_of(bench->device, dtype, false, at_most(usual, bench->options->most));
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
                      : ech_stream_bytes_of(device, at_most(ECH_GPU_MIB, bench->options->most));
    bench->machine.stream = fmax(bench->machine.stream, rate);
}
