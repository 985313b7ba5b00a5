/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows that are defined by two others.
 */
#include "kernel/ref/real.h"

#define ECH_COMPOSED        ECH_REF
#define ECH_COMPOSED_MATMUL ECH_REF(matmul)
#define ECH_COMPOSED_NORMS
#define ECH_COMPOSED_BIAS
#include "kernel/composed.h"
