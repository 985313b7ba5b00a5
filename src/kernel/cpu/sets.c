/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiled once, with the macro ECH_BUILDS_<set> for each instruction set that is built.
 */
#include "kernel/cpu/sets.h"

/* The rows of a set and a type are compiled with their functions (cpu/table.c). */
#define ROWS(isa, type) ech_cpu_kernels_##isa##_##type
#define DECLARE(isa)    extern const ech_kernels ROWS(isa, f32), ROWS(isa, bf16), ROWS(isa, f16);
#define TYPES(isa, isa_bf16)                                                                       \
    {                                                                                              \
        [ECH_F32] = &ROWS(isa, f32), [ECH_BF16] = &ROWS(isa_bf16, bf16),                           \
        [ECH_F16] = &ROWS(isa, f16)                                                                \
    }

DECLARE(portable)
DECLARE(avx2)
DECLARE(avx512)
extern const ech_kernels ROWS(avx512bf16, bf16);

const ech_kernels *const ech_cpu_rows[ECH_ISAS][ECH_CPU_TYPES] = {
    [ECH_ISA_PORTABLE] = TYPES(portable, portable),
#ifdef ECH_BUILDS_avx2
    [ECH_ISA_AVX2] = TYPES(avx2, avx2),
#endif
#ifdef ECH_BUILDS_avx512
    [ECH_ISA_AVX512] = TYPES(avx512, avx512),
#endif
#ifdef ECH_BUILDS_avx512bf16
    [ECH_ISA_AVX512BF16] = TYPES(avx512, avx512bf16),
#endif
};
