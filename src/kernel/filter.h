/* SPDX-License-Identifier: Apache-2.0
 *
 * Windows of pixels (ech_filter) for the rows that move them over images. Private to src/kernel.
 */
#ifndef ECH_KERNEL_FILTER_H
#define ECH_KERNEL_FILTER_H

#include "kernel/kernel.h"

/* Checks the sizes of images x (B,H,W,C) and y (B,P,Q,O), whose windows `at` describes. */
static inline void ech_filter_check(const ech_filter *at, const ech_tensor *x, const ech_tensor *y)
{
    for (int d = 0; d < 2; d++) {
        ECH_ASSERT(at->size[d] > 0 && at->stride[d] > 0 && at->padding[d] >= 0);
        ECH_ASSERT(at->padding[d] < at->size[d]);
        ECH_ASSERT(y->shape[1 + d] == ech_filter_output(at, d, x->shape[1 + d]));
    }
}

/* The number of the image's first element of the pixel in row i and column j of the window of
 * output pixel (p, q) of image b; -1: it is outside of the image. */
static inline int64_t ech_filter_pixel(const ech_filter *at, const ech_tensor *x, int64_t b,
                                       int64_t p, int64_t q, int64_t i, int64_t j)
{
    int64_t H = x->shape[1], W = x->shape[2];
    int64_t h = p * at->stride[0] + i - at->padding[0], w = q * at->stride[1] + j - at->padding[1];
    if (h < 0 || h >= H || w < 0 || w >= W) return -1;
    return ((b * H + h) * W + w) * x->shape[3];
}

#endif
