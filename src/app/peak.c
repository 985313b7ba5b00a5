/* SPDX-License-Identifier: Apache-2.0
 *
 * A measured peak.
 */
#include "app/peak.h"

#include "base/clock.h"
#include "device/device.h"

enum { SIDE = 768, TRIES = 4 };

static double best_rate(const ech_kernels *kernels, ech_kernel_context *context, char *memory,
                        size_t matrix)
{
    double best = 0;
    ech_tensor a = ech_tensor_2d(memory, kernels->dtype, SIDE, SIDE);
    ech_tensor b = ech_tensor_2d(memory + matrix, kernels->dtype, SIDE, SIDE);
    ech_tensor c = ech_tensor_2d(memory + 2 * matrix, kernels->dtype, SIDE, SIDE);
    context->scratch = memory + 3 * matrix;
    for (int i = 0; i < TRIES; i++) {
        double start = ech_clock_now();
        kernels->matmul(context, &a, false, &b, true, NULL, false, &c);
        double rate = 2.0 * SIDE * SIDE * SIDE / (ech_clock_now() - start);
        if (rate > best) best = rate;
    }
    return best;
}

double ech_peak_flops(const ech_kernels *kernels, int threads)
{
    const ech_device *device = ech_device_find("cpu");
    int64_t dims[] = {SIDE, SIDE, SIDE, 0, 1, 0, 0};
    size_t matrix = SIDE * SIDE * ech_dtype_bytes(kernels->dtype);
    size_t scratch = ech_kernel_scratch(kernels, ECH_OP_matmul, threads, dims);
    ech_kernel_context *context;
    void *memory;
    if (ech_kernel_context_create(threads, &context) != ECH_OK) return 0;
    double rate = 0;
    if (device->alloc(3 * matrix + scratch, &memory) == ECH_OK) {
        context->scratch_bytes = scratch;
        rate = best_rate(kernels, context, memory, matrix);
        device->release(memory, 3 * matrix + scratch);
    }
    ech_kernel_context_destroy(context);
    return rate;
}
