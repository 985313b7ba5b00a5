/* SPDX-License-Identifier: Apache-2.0
 *
 * The reference kernels: ech_ref_NAME_f32, _f64, _bf16 and _f16.
 */
#ifndef ECH_KERNEL_REF_ROWS_H
#define ECH_KERNEL_REF_ROWS_H

#include "kernel/kernel.h"

#define X(name, arguments, ...)                                                                    \
    void ech_ref_##name##_f32(ech_kernel_context *context ECH_UNPACK arguments);                   \
    void ech_ref_##name##_f64(ech_kernel_context *context ECH_UNPACK arguments);                   \
    void ech_ref_##name##_bf16(ech_kernel_context *context ECH_UNPACK arguments);                  \
    void ech_ref_##name##_f16(ech_kernel_context *context ECH_UNPACK arguments);
#include "kernel/kernel.def"
#undef X

#endif
