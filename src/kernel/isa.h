/* SPDX-License-Identifier: Apache-2.0
 *
 * Instruction sets of the fast kernels. Kernels are compiled once per set (kernel/CMakeLists.txt).
 * Each process uses one set: the best that the machine has, or the one that the environment
 * variable ECHELON_ISA names.
 */
#ifndef ECH_KERNEL_ISA_H
#define ECH_KERNEL_ISA_H

#include <stdbool.h>

#include "base/status.h"

/* portable: the baseline of the architecture; avx2: x86-64-v3 (with FMA); avx512: x86-64-v4 of the
 * x86-64 psABI; avx512bf16: avx512 with products of pairs of bf16 numbers (VDPBF16PS), otherwise
 * the same. Architectures other than x86-64 have only portable. */
typedef enum ech_isa {
#define X(constant, name) constant,
#include "kernel/isa.def"
#undef X
    ECH_ISAS
} ech_isa;

/* "portable", "avx2", "avx512" or "avx512bf16": the values of ECHELON_ISA. */
const char *ech_isa_name(ech_isa isa);
/* True if this build has kernels for the set and this machine can run them. */
bool ech_isa_works(ech_isa isa);
/* The process's instruction set; the first call decides it. It also limits oneDNN: to AVX-512
 * without bf16 for avx512, to AVX2 for avx2, to SSE4.1, its lowest, for portable. (OpenBLAS
 * computes the fp64 products, and with avx2 some of fp32, see cpu/gemm.c; OPENBLAS_CORETYPE limits
 * it.) Errors: ECH_EUSAGE if ECHELON_ISA names no set, or one that does not work here. */
ech_status ech_isa_decide(ech_isa *out);

#endif
