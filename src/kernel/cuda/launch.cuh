/* SPDX-License-Identifier: Apache-2.0
 *
 * The common beginning of all CUDA files. The same source is compiled by nvcc for GPUs, and with
 * ECH_EMULATED by a C++ compiler for the processor (emulated.cuh), where tests compare it with
 * ref/.
 */
#ifndef ECH_KERNEL_CUDA_LAUNCH_H
#define ECH_KERNEL_CUDA_LAUNCH_H

#ifdef ECH_EMULATED
#include "kernel/cuda/emulated.cuh"
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math.h>
/* `count` elements of the block's shared memory. */
#define ECH_SHARED(type, name, count) __shared__ type name[count]
/* Shared memory whose bytes are given at launch; aligned to 16. */
#define ECH_DYNAMIC_SHARED(name)                                                                   \
    extern __shared__ int4 ech_dynamic_shared[];                                                   \
    char *name = reinterpret_cast<char *>(ech_dynamic_shared)
#endif

extern "C" {
#include "device/cuda.h"
#include "kernel/shape.h"
#include "kernel/update.h"
}

enum {
    ECH_WARP = 32,
    ECH_BLOCK = 256,        /* threads of a block by default */
    ECH_MOST_BLOCKS = 4096, /* of kernels whose threads take more than one turn */
    /* Shared memory that a block has by default. The most that a launch adds to its kernel's
     * declared memory: all architectures from sm_80 on have 99 KiB. */
    ECH_PLAIN_SHARED = 48 << 10,
    ECH_LAUNCH_SHARED = 96 << 10,
    ECH_DECLARED_SHARED = 3 << 10
};

/* Checks a call's tensors against the row of kernel.def: all that it names, in its order. */
template <typename... Tensors>
static void ech_cuda_check(ech_op op, ech_dtype real, const Tensors *...x)
{
    const ech_tensor *const all[] = {x...};
    ech_shapes_check(__FILE__, __LINE__, op, real, (int)sizeof...(x), all);
}

static inline int64_t ech_ceil(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

/* Enough blocks for n threads, but no more than keep a GPU busy. */
static inline dim3 ech_blocks(int64_t n, int threads)
{
    int64_t blocks = ech_ceil(n, threads), most = ECH_MOST_BLOCKS;
    return dim3((unsigned)(blocks < most ? blocks : most));
}

/* Puts a kernel on the context's queue. An empty grid does nothing. The queue's events report
 * faults. */
template <typename... Parameters, typename... Arguments>
static void ech_launch(const ech_kernel_context *context, void (*kernel)(Parameters...),
                       dim3 blocks, int threads, size_t shared, const Arguments &...arguments)
{
    if (blocks.x == 0 || blocks.y == 0 || blocks.z == 0) return;
#ifdef ECH_EMULATED
    (void)context;
    emulated::run(blocks, threads, shared, [&] { kernel(arguments...); });
#else
    /* First: the attribute applies to its GPU, which becomes the thread's. That is always the same,
     * since another rank's thread may launch the kernel at this moment. */
    cudaStream_t stream = static_cast<cudaStream_t>(ech_device_cuda_stream(context->queue));
    if (shared + ECH_DECLARED_SHARED > ECH_PLAIN_SHARED &&
        !ech_device_cuda_check((int)cudaFuncSetAttribute(
                                   reinterpret_cast<const void *>(kernel),
                                   cudaFuncAttributeMaxDynamicSharedMemorySize, ECH_LAUNCH_SHARED),
                               "a kernel's shared memory"))
        return;
    kernel<<<blocks, (unsigned)threads, shared, stream>>>(arguments...);
    ech_device_cuda_check((int)cudaGetLastError(), "a kernel's launch");
#endif
}

#endif
