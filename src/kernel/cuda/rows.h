/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of NVIDIA GPUs.
 */
#ifndef ECH_KERNEL_CUDA_ROWS_H
#define ECH_KERNEL_CUDA_ROWS_H

#include "kernel/kernel.h"

/* A sum over the rows of a matrix is made in so many parts at most, in a fixed order: with one part a block of threads,
 * and the columns over the other blocks, it fills the largest GPUs. */
enum { ECH_CUDA_ROW_PARTS = 64 };
/* A product's workspace: what NVIDIA advises for cuBLASLt on Hopper; one size on all architectures, so that its choice of
 * an algorithm, and a plan, does not depend on the card. */
enum { ECH_CUDA_WORKSPACE = 32 << 20 };
/* Scratch of several arrays: each begins at a multiple of so many bytes. */
enum { ECH_CUDA_ALIGNMENT = 256 };

static inline size_t ech_cuda_align(size_t bytes)
{
    return (bytes + ECH_CUDA_ALIGNMENT - 1) / ECH_CUDA_ALIGNMENT * ECH_CUDA_ALIGNMENT;
}

#endif
