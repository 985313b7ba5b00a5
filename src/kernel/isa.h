/* SPDX-License-Identifier: Apache-2.0
 *
 * Which instructions the fast kernels may use. They are compiled once per set (kernel/CMakeLists.txt);
 * which set's functions run is decided once a process: the best that the machine has, or the one that
 * the environment variable ECHELON_ISA names.
 */
#ifndef ECH_KERNEL_ISA_H
#define ECH_KERNEL_ISA_H

#include <stdbool.h>

#include "base/status.h"

/* Portable is what any machine of this architecture has; avx2 is x86-64-v3 (with FMA), avx512 is
 * x86-64-v4 of the x86-64 psABI. Others than x86-64 have the first alone. */
typedef enum ech_isa {
#define X(constant, name) constant,
#include "kernel/isa.def"
#undef X
    ECH_ISAS
} ech_isa;

/* "portable", "avx2" or "avx512", as ECHELON_ISA has them. */
const char *ech_isa_name(ech_isa isa);
/* Whether this build has kernels for the set and this machine runs them. */
bool ech_isa_works(ech_isa isa);
/* The process's set. Holds the library for products down to it as well: oneDNN takes nothing above AVX2
 * beside avx2, and nothing above SSE4.1, its lowest, beside portable. (fp64 products are OpenBLAS's,
 * which looks at OPENBLAS_CORETYPE.) ECH_EUSAGE: ECHELON_ISA names no set, or one that does not work
 * here. The first call decides for all. */
ech_status ech_isa_decide(ech_isa *out);

#endif
