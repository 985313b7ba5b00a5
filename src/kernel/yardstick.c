/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference speeds with the instruction set in use. Builds without fast kernels do scalar multiply-adds, and have
 * no library to compare with.
 */
#include "kernel/yardstick.h"

#ifdef ECH_KERNEL_CPU
typedef double (*multiply_adds_fn)(const ech_kernel_context *context, int64_t rounds);

double ech_cpu_multiply_adds_portable(const ech_kernel_context *context, int64_t rounds);
#ifdef ECH_KERNEL_X86
double ech_cpu_multiply_adds_avx2(const ech_kernel_context *context, int64_t rounds);
double ech_cpu_multiply_adds_avx512(const ech_kernel_context *context, int64_t rounds);
#endif
static const multiply_adds_fn multiply_adds[ECH_ISAS] = {
    [ECH_ISA_PORTABLE] = ech_cpu_multiply_adds_portable,
#ifdef ECH_KERNEL_X86
    [ECH_ISA_AVX2] = ech_cpu_multiply_adds_avx2,
    [ECH_ISA_AVX512] = ech_cpu_multiply_adds_avx512,
#endif
};

double ech_yardstick_multiply_adds(const ech_kernel_context *context, int64_t rounds)
{
    ech_isa isa;
    return ech_isa_decide(&isa) == ECH_OK ? multiply_adds[isa](context, rounds) : 0;
}
#else
double ech_yardstick_multiply_adds(const ech_kernel_context *context, int64_t rounds)
{
    volatile float a = 0.5F, b = 0.5F, sink = 0;
    float x = 1, factor = a, term = b;
    (void)context;
    for (int64_t r = 0; r < rounds; r++) x = x * factor + term;
    sink = x;
    (void)sink;
    return 2.0 * (double)rounds;
}

bool ech_yardstick_library_product(const ech_tensor *a, bool a_transposed, const ech_tensor *b,
                                   bool b_transposed, const ech_tensor *c)
{
    (void)a, (void)a_transposed, (void)b, (void)b_transposed, (void)c;
    return false;
}
#endif
