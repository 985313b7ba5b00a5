/* SPDX-License-Identifier: Apache-2.0
 *
 * This instruction set's table: first all reference kernels; then rows.def overrides its rows (in C a later
 * initializer wins).
 */
#include "kernel/cpu/rows.h"
#include "kernel/ref/rows.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
const ech_kernels ECH_CPU(kernels) = {
    .name = "cpu",
    .dtype = ECH_F32,
#define X(op, ...) .op = ech_ref_##op##_f32,
#include "kernel/kernel.def"
#undef X
    .multiply_adds = ECH_CPU(multiply_adds),
    .triad = ECH_CPU(triad),
    .library_product = ech_cpu_library_product,
#define X(op, function, scratch_function) .op = function, .scratch[ECH_OP_##op] = scratch_function,
#include "kernel/cpu/rows.def"
#undef X
};
#pragma GCC diagnostic pop
