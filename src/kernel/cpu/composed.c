/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows that are two others: the library's product, and an activation.
 */
#include "kernel/cpu/rows.h"

#define ECH_COMPOSED        ECH_CPU
#define ECH_COMPOSED_MATMUL ECH_CPU(matmul)
#define ECH_COMPOSED_BIAS
#include "kernel/composed.h"
