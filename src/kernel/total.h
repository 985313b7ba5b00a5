/* SPDX-License-Identifier: Apache-2.0
 *
 * The summation order of the row `total`, the same in all tables and on GPUs with many threads:
 * number i is added to sum i mod ECH_TOTAL_SUMS, in order; then these sums are added, in order.
 */
#ifndef ECH_KERNEL_TOTAL_H
#define ECH_KERNEL_TOTAL_H

enum { ECH_TOTAL_SUMS = 256 };

#endif
