/* SPDX-License-Identifier: Apache-2.0
 *
 * Which x86-64 instruction sets of isa.def this machine can run. The build uses it, too
 * (cmake/native_isa.c).
 */
#ifndef ECH_KERNEL_ISA_X86_H
#define ECH_KERNEL_ISA_X86_H

#include <cpuid.h>
#include <stdbool.h>

/* F16C, MOVBE and LZCNT, which x86-64-v3 has and not every compiler's builtin knows. */
static inline bool ech_x86_has_small_ones(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_F16C) || !(c & bit_MOVBE)) return false;
    return __get_cpuid(0x80000001, &a, &b, &c, &d) && c & bit_LZCNT;
}

/* The builtin also checks that the operating system saves the registers. */
static inline bool ech_x86_has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
           ech_x86_has_small_ones();
}

static inline bool ech_x86_has_avx512(void)
{
    return ech_x86_has_avx2() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static inline bool ech_x86_has_avx512bf16(void)
{
    unsigned a = 0, b = 0, c = 0, d = 0; /* by CPUID, as clang 14 has no name for it */
    return ech_x86_has_avx512() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1 << 5);
}

#endif
