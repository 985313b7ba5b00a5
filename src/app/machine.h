/* SPDX-License-Identifier: Apache-2.0
 *
 * Measured rates of this machine. Each measurement takes tenths of a second; 0: memory or threads
 * were unavailable.
 */
#ifndef ECH_APP_MACHINE_H
#define ECH_APP_MACHINE_H

#include "device/device.h"
#include "kernel/kernel.h"

enum { ECH_PROCESSOR_SIDE = 768 }; /* rows of the matrices below */
/* FLOP/s of the fastest of a few matrix products of the processor with `threads` threads: the
 * denominator of mfu. */
double ech_peak_flops(ech_dtype dtype, int threads);

/* Memory bandwidth as McCalpin's STREAM (https://www.cs.virginia.edu/stream) measures it, the bound
 * of kernels with few FLOPs per byte: bytes per second, read and written by `threads` threads
 * together on arrays larger than the caches. The better of a[i] = b[i] + s c[i], counted as STREAM
 * does (without the read of a[i]'s cache line before the write), and a[i] = a[i] + s c[i], the
 * pattern of optimizers. */
double ech_stream_bytes(int threads);

/* The same rates of a device that is not immediate, measured with its own kernels and clock: square
 * products of `side` rows, and sums of two tensors of `mib` MiB each. 0: memory was unavailable, or
 * the device fails. */
enum {
    ECH_GPU_SIDE = 4096,
    /* large enough to keep a GPU busy and exceed its caches, and small enough to fit next to an
     * arena */
    ECH_GPU_MIB = 128
};
double ech_peak_flops_of(const ech_device *device, ech_dtype dtype, bool tf32, int64_t side);
double ech_stream_bytes_of(const ech_device *device, int64_t mib);

#endif
