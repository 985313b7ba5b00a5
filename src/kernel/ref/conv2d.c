/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions.
 */
#include "kernel/filter.h"
#include "kernel/ref/real.h"

/* The number of weight (o,c,i,j). */
static int64_t weight_at(const ech_tensor *weight, int64_t o, int64_t c, int64_t i, int64_t j)
{
    const int64_t *size = weight->shape;
    return ((o * size[1] + c) * size[2] + i) * size[3] + j;
}

/* A row's operands, with an image x and its convolution y, or the gradients of both. */
typedef struct convolution {
    const ech_filter *at;
    const ech_tensor *x, *weight, *y;
} convolution;

static void check(const convolution *of)
{
    ech_filter_check(of->at, of->x, of->y);
    ECH_ASSERT(of->weight->shape[2] == of->at->size[0] && of->weight->shape[3] == of->at->size[1]);
}

/* The first element of y's pixel. */
static int64_t output_at(const ech_tensor *y, int64_t b, int64_t p, int64_t q)
{
    return ((b * y->shape[1] + p) * y->shape[2] + q) * y->shape[3];
}

static double convolve(const convolution *of, int64_t b, int64_t p, int64_t q, int64_t o)
{
    double sum = 0;
    for (int64_t i = 0; i < of->at->size[0]; i++)
        for (int64_t j = 0; j < of->at->size[1]; j++) {
            int64_t pixel = ech_filter_pixel(of->at, of->x, b, p, q, i, j);
            for (int64_t c = 0; pixel >= 0 && c < of->x->shape[3]; c++)
                sum += ech_value(of->x, pixel + c) *
                       ech_value(of->weight, weight_at(of->weight, o, c, i, j));
        }
    return sum;
}

void ECH_REF(conv2d_forward)(ech_kernel_context *context, const ech_tensor *x,
                             const ech_tensor *weight, const ech_tensor *bias, const ech_filter *at,
                             const ech_tensor *y)
{
    ECH_SHAPES(conv2d_forward, ECH_REAL, x, weight, bias, y);
    const convolution of = {at, x, weight, y};
    check(&of);
    for (int64_t b = 0; b < y->shape[0]; b++)
        for (int64_t p = 0; p < y->shape[1]; p++)
            for (int64_t q = 0; q < y->shape[2]; q++)
                for (int64_t o = 0; o < y->shape[3]; o++)
                    ech_store(y, output_at(y, b, p, q) + o,
                              convolve(&of, b, p, q, o) + (bias ? ech_value(bias, o) : 0));
}

/* The output's row or column, d, whose window has the input's one `h` as its i-th; -1: none. */
static int64_t output_of(const convolution *of, int d, int64_t h, int64_t i)
{
    int64_t from = h + of->at->padding[d] - i, p = from / of->at->stride[d];
    return from < 0 || from % of->at->stride[d] || p >= of->y->shape[1 + d] ? -1 : p;
}

static double convolve_back(const convolution *of, int64_t b, int64_t h, int64_t w, int64_t c)
{
    double sum = 0;
    for (int64_t i = 0; i < of->at->size[0]; i++)
        for (int64_t j = 0; j < of->at->size[1]; j++) {
            int64_t p = output_of(of, 0, h, i), q = output_of(of, 1, w, j);
            for (int64_t o = 0; p >= 0 && q >= 0 && o < of->y->shape[3]; o++)
                sum += ech_value(of->y, output_at(of->y, b, p, q) + o) *
                       ech_value(of->weight, weight_at(of->weight, o, c, i, j));
        }
    return sum;
}

void ECH_REF(conv2d_backward_input)(ech_kernel_context *context, const ech_tensor *dy,
                                    const ech_tensor *weight, const ech_filter *at,
                                    const ech_tensor *dx)
{
    ECH_SHAPES(conv2d_backward_input, ECH_REAL, dy, weight, dx);
    const convolution of = {at, dx, weight, dy};
    int64_t i = 0;
    check(&of);
    for (int64_t b = 0; b < dx->shape[0]; b++)
        for (int64_t h = 0; h < dx->shape[1]; h++)
            for (int64_t w = 0; w < dx->shape[2]; w++)
                for (int64_t c = 0; c < dx->shape[3]; c++)
                    ech_store(dx, i++, convolve_back(&of, b, h, w, c));
}

static double correlate(const convolution *of, int64_t o, int64_t c, int64_t i, int64_t j)
{
    const ech_tensor *y = of->y;
    double sum = 0;
    for (int64_t b = 0; b < y->shape[0]; b++)
        for (int64_t p = 0; p < y->shape[1]; p++)
            for (int64_t q = 0; q < y->shape[2]; q++) {
                int64_t pixel = ech_filter_pixel(of->at, of->x, b, p, q, i, j);
                if (pixel >= 0)
                    sum += ech_value(of->x, pixel + c) * ech_value(y, output_at(y, b, p, q) + o);
            }
    return sum;
}

void ECH_REF(conv2d_backward_weight)(ech_kernel_context *context, const ech_tensor *dy,
                                     const ech_tensor *x, const ech_filter *at, bool accumulate,
                                     const ech_tensor *dweight)
{
    ECH_SHAPES(conv2d_backward_weight, ECH_REAL, dy, x, dweight);
    const convolution of = {at, x, dweight, dy};
    int64_t n = 0;
    check(&of);
    for (int64_t o = 0; o < dweight->shape[0]; o++)
        for (int64_t c = 0; c < dweight->shape[1]; c++)
            for (int64_t i = 0; i < dweight->shape[2]; i++)
                for (int64_t j = 0; j < dweight->shape[3]; j++, n++)
                    ech_store(dweight, n,
                              correlate(&of, o, c, i, j) +
                                  (accumulate ? ech_value(dweight, n) : 0));
}
