/* SPDX-License-Identifier: Apache-2.0
 *
 * The instruction sets and types for which a build has fast kernels (the option ECH_ISAS).
 */
#ifndef ECH_KERNEL_CPU_SETS_H
#define ECH_KERNEL_CPU_SETS_H

#include "kernel/isa.h"
#include "kernel/kernel.h"

enum { ECH_CPU_TYPES = ECH_F16 + 1 };

/* The fast rows by set and type. NULL: not built, or a type without fast rows. */
extern const ech_kernels *const ech_cpu_rows[ECH_ISAS][ECH_CPU_TYPES];

#endif
