/* SPDX-License-Identifier: Apache-2.0
 *
 * One table of kernels per type: the definition, and the definition overridden by what is fast.
 */

#include "kernel/kernel.h"
#include "kernel/ref/rows.h"
#ifdef ECH_KERNEL_CPU
#include "kernel/cpu/rows.h"
#endif

#define REF_SCRATCH(op) [ECH_OP_##op] = ech_ref_scratch_##op
#define REF_SCRATCHES                                                                              \
    REF_SCRATCH(bias_backward), REF_SCRATCH(layernorm_backward), REF_SCRATCH(rmsnorm_backward),    \
        REF_SCRATCH(attention_forward), REF_SCRATCH(attention_backward)

static const ech_kernels ref_f32 = {
    .name = "ref",
    .dtype = ECH_F32,
#define X(op, arguments, scratch_dims) .op = ech_ref_##op##_f32,
#include "kernel/kernel.def"
#undef X
    .scratch = {REF_SCRATCHES},
};

static const ech_kernels ref_f64 = {
    .name = "ref",
    .dtype = ECH_F64,
#define X(op, arguments, scratch_dims) .op = ech_ref_##op##_f64,
#include "kernel/kernel.def"
#undef X
    .scratch = {REF_SCRATCHES},
};

#ifdef ECH_KERNEL_CPU
/* All of ref first; rows of cpu/rows.def then replace theirs, as initializers may in C. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
static const ech_kernels cpu_f32 = {
    .name = "cpu",
    .dtype = ECH_F32,
#define X(op, arguments, scratch_dims) .op = ech_ref_##op##_f32,
#include "kernel/kernel.def"
#undef X
    .scratch = {REF_SCRATCHES},
#define X(op, scratch_function) .op = ech_cpu_##op, .scratch[ECH_OP_##op] = scratch_function,
#include "kernel/cpu/rows.def"
#undef X
};
#pragma GCC diagnostic pop
#endif

const ech_kernels *ech_kernels_ref(ech_dtype dtype)
{
    return dtype == ECH_F32 ? &ref_f32 : dtype == ECH_F64 ? &ref_f64 : NULL;
}

const ech_kernels *ech_kernels_fast(ech_dtype dtype)
{
#ifdef ECH_KERNEL_CPU
    if (dtype == ECH_F32) return &cpu_f32;
#endif
    return ech_kernels_ref(dtype);
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

size_t ech_kernel_scratch(const ech_kernels *kernels, ech_op op, int threads, const int64_t *dims)
{
    ECH_ASSERT(op < ECH_OPS && threads >= 1);
    ech_scratch_fn scratch = kernels->scratch[op];
    return scratch ? scratch(kernels->dtype, threads, dims) : 0;
}
