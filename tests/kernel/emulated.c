/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA kernels' tables, emulated on the processor, in place of the processor's own: tests are
 * compiled a second time with these names for ech_kernels_of and ech_kernels_fast.
 */
#include "kernel/cuda/rows.h"

const ech_kernels *ech_kernels_emulated_of(ech_isa isa, ech_dtype dtype);
const ech_kernels *ech_kernels_emulated_fast(ech_dtype dtype);

const ech_kernels *ech_kernels_emulated_fast(ech_dtype dtype)
{
    return ech_kernels_emulated(dtype);
}

const ech_kernels *ech_kernels_emulated_of(ech_isa isa, ech_dtype dtype)
{
    (void)isa;
    return ech_kernels_emulated(dtype);
}
