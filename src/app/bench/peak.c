/* SPDX-License-Identifier: Apache-2.0
 *
 * A measured peak.
 */
#include "app/bench/peak.h"

#include "base/clock.h"
#include "device/device.h"

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
