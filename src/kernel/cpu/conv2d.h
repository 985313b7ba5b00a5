/* SPDX-License-Identifier: Apache-2.0
 *
 * A convolution in fp32, and two of the three ways to compute it. Private to src/kernel/cpu.
 */
#ifndef ECH_KERNEL_CPU_CONV2D_H
#define ECH_KERNEL_CPU_CONV2D_H

#include "kernel/kernel.h"

typedef enum ech_conv2d_phase {
    ECH_CONV2D_FORWARD,
    ECH_CONV2D_BACKWARD_INPUT,
    ECH_CONV2D_BACKWARD_WEIGHT
} ech_conv2d_phase;

/* x (B,H,W,C), weight (O,C, at.size), y (B,P,Q,O). `adds`: to the gradient of the weights. It is
 * compared as bytes: all fields have one type, so that there is no padding. */
typedef struct ech_conv2d {
    int64_t phase, B, H, W, C, O, P, Q, has_bias, adds;
    ech_filter at;
} ech_conv2d;

enum { ECH_CONV2D_X, ECH_CONV2D_WEIGHT, ECH_CONV2D_BIAS, ECH_CONV2D_Y, ECH_CONV2D_OPERANDS };

/* By products of pixels (conv2d_pixels.c). `is`: this way is the faster one; it depends on the
 * sizes alone, so that the same convolution has the same bits everywhere. */
bool ech_cpu_conv2d_pixels_is(const ech_conv2d *of);
void ech_cpu_conv2d_pixels(ech_kernel_context *context, const ech_conv2d *of,
                           void *const operands[ECH_CONV2D_OPERANDS]);
size_t ech_cpu_conv2d_pixels_scratch(const ech_conv2d *of, int threads);

/* The gradient of the weights by strips (conv2d_strips.c). */
bool ech_cpu_conv2d_strips_is(const ech_conv2d *of);
void ech_cpu_conv2d_strips(ech_kernel_context *context, const ech_conv2d *of,
                           void *const operands[ECH_CONV2D_OPERANDS]);
size_t ech_cpu_conv2d_strips_scratch(const ech_conv2d *of, int threads);

#endif
