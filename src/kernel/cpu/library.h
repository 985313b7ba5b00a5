/* SPDX-License-Identifier: Apache-2.0
 *
 * oneDNN's objects of one rank: engine, stream and the matrix products made so far. They live in
 * ech_kernel_context.library and are made at first use.
 */
#ifndef ECH_KERNEL_CPU_LIBRARY_H
#define ECH_KERNEL_CPU_LIBRARY_H

void ech_cpu_library_destroy(void *library); /* accepts NULL */

#endif
