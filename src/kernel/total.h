/* SPDX-License-Identifier: Apache-2.0
 *
 * How the row `total` adds, alike in all tables and on GPUs by many threads: number i to sum i mod
 * ECH_TOTAL_SUMS, in order; then these, in order.
 */
#ifndef ECH_KERNEL_TOTAL_H
#define ECH_KERNEL_TOTAL_H

enum { ECH_TOTAL_SUMS = 256 };

#endif
