/* SPDX-License-Identifier: Apache-2.0
 *
 * The tables of kernels: the reference per dtype, and per instruction set the reference overridden by fast
 * versions.
 */

#include "kernel/kernel.h"
#include "kernel/ref/rows.h"

static const ech_kernels ref_f32 = {
    .name = "ref",
    .dtype = ECH_F32,
#define X(op, arguments, scratch_dims) .op = ech_ref_##op##_f32,
#include "kernel/kernel.def"
#undef X
    .scratch = {ECH_REF_SCRATCHES},
};

static const ech_kernels ref_f64 = {
    .name = "ref",
    .dtype = ECH_F64,
#define X(op, arguments, scratch_dims) .op = ech_ref_##op##_f64,
#include "kernel/kernel.def"
#undef X
    .scratch = {ECH_REF_SCRATCHES},
};

static const ech_kernels ref_bf16 = {
    .name = "ref",
    .dtype = ECH_BF16,
#define X(op) .op = ech_ref_##op##_bf16,
#include "kernel/ref/bf16.def"
#undef X
    .scratch = {ECH_REF_SCRATCHES},
};

#ifdef ECH_KERNEL_CPU
/* Each instruction set's table, which is compiled with its functions (cpu/table.c). */
extern const ech_kernels ech_cpu_kernels_portable;
#ifdef ECH_KERNEL_X86
extern const ech_kernels ech_cpu_kernels_avx2, ech_cpu_kernels_avx512;
#endif
static const ech_kernels *const fast_f32[ECH_ISAS] = {
    [ECH_ISA_PORTABLE] = &ech_cpu_kernels_portable,
#ifdef ECH_KERNEL_X86
    [ECH_ISA_AVX2] = &ech_cpu_kernels_avx2,
    [ECH_ISA_AVX512] = &ech_cpu_kernels_avx512,
#endif
};
#endif

const ech_kernels *ech_kernels_ref(ech_dtype dtype)
{
    static const ech_kernels *const ref[ECH_DTYPES] = {
        [ECH_F32] = &ref_f32, [ECH_F64] = &ref_f64, [ECH_BF16] = &ref_bf16};
    return ref[dtype];
}

const ech_kernels *ech_kernels_of(ech_isa isa, ech_dtype dtype)
{
    if (!ech_isa_works(isa)) return NULL;
#ifdef ECH_KERNEL_CPU
    if (dtype == ECH_F32) return fast_f32[isa];
#endif
    return ech_kernels_ref(dtype);
}

const ech_kernels *ech_kernels_fast(ech_dtype dtype)
{
    ech_isa isa;
    return ech_isa_decide(&isa) == ECH_OK ? ech_kernels_of(isa, dtype) : NULL;
}

const char *ech_op_name(ech_op op)
{
    static const char *const names[] = {
#define X(name, arguments, scratch_dims) #name,
#include "kernel/kernel.def"
#undef X
    };
    ECH_ASSERT(op < ECH_OPS);
    return names[op];
}

bool ech_kernels_have(const ech_kernels *kernels, ech_op op)
{
    switch (op) {
#define X(name, arguments, scratch_dims)                                                           \
    case ECH_OP_##name:                                                                            \
        return kernels->name != NULL;
#include "kernel/kernel.def"
#undef X
    case ECH_OPS:
        break;
    }
    return false;
}

size_t ech_kernel_scratch(const ech_kernels *kernels, ech_op op, int threads, const int64_t *dims)
{
    ECH_ASSERT(ech_kernels_have(kernels, op) && threads >= 1);
    ech_kernel_scratch_fn scratch = kernels->scratch[op];
    return scratch ? scratch(kernels->dtype, threads, dims) : 0;
}
