/* SPDX-License-Identifier: Apache-2.0
 *
 * The activations between the products of a feed-forward layer: with one operand y = f(x), with two
 * y = f(gate, up). Each has a layer, an expert's layer, and rows of kernel.def: NAME_forward and so
 * on, also for rows by expert. Those with one operand have rows for fused calls, too.
 *
 *   relu            max(0, x), whose gradient at 0 is 0
 *   relu2           max(0, x)^2; So et al. 2021, arXiv:2109.08668
 *   gelu            x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))); Hendrycks and Gimpel 2016,
 *                   arXiv:1606.08415
 *   gelu_exact      x Phi(x), Phi(x) = (1 + erf(x / sqrt(2))) / 2
 *   swiglu          gate sigmoid(gate) up; Shazeer 2020, arXiv:2002.05202, as the next two
 *   geglu           gelu(gate) up
 *   geglu_exact     gelu_exact(gate) up
 *   swiglu_clamped  g sigmoid(1.702 g) (u + 1), g = min(gate, 7), u = up between -7 and 7, as in
 *                   gpt-oss; the gradient beyond these bounds is 0
 */
#ifndef ECH_KERNEL_ACTIVATIONS_H
#define ECH_KERNEL_ACTIVATIONS_H

/* X(NAME, name, operands, operations of the forward, of the backward ("": one), meaning) */
#define ECH_ACTIVATIONS(X)                                                                         \
    X(RELU, relu, 1, "", "", "the positive part")                                                  \
    X(RELU2, relu2, 1, "2", "3", "the square of the positive part")                                \
    X(GELU, gelu, 1, "8", "15", "the tanh form of GELU")                                           \
    X(GELU_EXACT, gelu_exact, 1, "8", "15", "GELU by the error function")                          \
    X(SWIGLU, swiglu, 2, "5", "11", "gate times its sigmoid times up")                             \
    X(GEGLU, geglu, 2, "9", "17", "GELU of gate, by tanh, times up")                               \
    X(GEGLU_EXACT, geglu_exact, 2, "9", "17", "GELU of gate, by the error function, times up")     \
    X(SWIGLU_CLAMPED, swiglu_clamped, 2, "8", "13", "SwiGLU of clamped operands, up plus 1")

typedef enum ech_activation {
#define ECH_ACTIVATION_OF(NAME, ...) ECH_ACTIVATION_##NAME,
    ECH_ACTIVATIONS(ECH_ACTIVATION_OF)
#undef ECH_ACTIVATION_OF
        ECH_ACTIVATION_COUNT
} ech_activation;

#endif
