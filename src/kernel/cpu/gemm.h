/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products in fp32 by a library's GEMM, which oneDNN and OpenBLAS have. Inside a parallel
 * region they use only the calling thread. Private to src/kernel/cpu.
 */
#ifndef ECH_KERNEL_CPU_GEMM_H
#define ECH_KERNEL_CPU_GEMM_H

#include <stdbool.h>
#include <stdint.h>

/* c (M x N) = op(a) (M x K) op(b) (K x N), or with `add` c += it. Matrices are row-major; strides
 * are between rows as they are stored, in elements. */
typedef struct ech_gemm {
    int64_t M, N, K, a_stride, b_stride, c_stride;
    bool a_transposed, b_transposed, add;
} ech_gemm;

void ech_cpu_gemm(const ech_gemm *of, const float *a, const float *b, float *c);

/* True if OpenBLAS computes it, since oneDNN would be slow. */
bool ech_cpu_gemm_is_blas(const ech_gemm *of);

#endif
