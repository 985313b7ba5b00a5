/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows that are a sequence of two others.
 */
#include "kernel/cuda/real.cuh"

extern "C" {
#define ECH_COMPOSED        ECH_CUDA
#define ECH_COMPOSED_MATMUL ECH_CUDA(matmul)
#define ECH_COMPOSED_NORMS
#include "kernel/composed.h"
}
