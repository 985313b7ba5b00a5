/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of a device that has memory of its own, called with the host's: in place of the
 * processor's own in the tests of rows, which are compiled with these names for ech_kernels_of and
 * ech_kernels_fast. One call at a time.
 */
#ifndef ECH_TESTS_KERNEL_MIRRORED_H
#define ECH_TESTS_KERNEL_MIRRORED_H

#include "kernel/kernel.h"

/* Before all others: the device's name, and its kernels. */
void mirrored_begin(const char *name, const ech_kernels *(*of)(ech_dtype dtype));

const ech_kernels *ech_kernels_mirrored_of(ech_isa isa, ech_dtype dtype);
const ech_kernels *ech_kernels_mirrored_fast(ech_dtype dtype);

#endif
