/* SPDX-License-Identifier: Apache-2.0
 *
 * Pools: the largest or the mean of a window of pixels, for each channel; and the exchange of
 * pixels and channels.
 */
#include <math.h>

#include "kernel/filter.h"
#include "kernel/ref/real.h"

enum { MOST_CHOICES = 256 }; /* of a byte */

/* The window's largest of a channel; *number: its pixel's. */
static double largest(const ech_tensor *x, const ech_filter *at, const int64_t place[3], int64_t c,
                      int64_t *number)
{
    double most = -(double)INFINITY;
    *number = -1;
    for (int64_t i = 0; i < at->size[0]; i++)
        for (int64_t j = 0; j < at->size[1]; j++) {
            int64_t pixel = ech_filter_pixel(at, x, place[0], place[1], place[2], i, j);
            if (pixel < 0) continue;
            double value = ech_value(x, pixel + c);
            if (*number >= 0 && !(value > most) && !isnan(value)) continue;
            if (isnan(most)) continue;
            most = value;
            *number = i * at->size[1] + j;
        }
    return most;
}

/* Sets place[3] to image, row and column of pixel n of y. */
static void find_place(const ech_tensor *y, int64_t n, int64_t place[3])
{
    place[0] = n / (y->shape[1] * y->shape[2]);
    place[1] = n / y->shape[2] % y->shape[1];
    place[2] = n % y->shape[2];
}

void ECH_REF(max_pool_forward)(ech_kernel_context *context, const ech_tensor *x,
                               const ech_filter *at, const ech_tensor *y, const ech_tensor *chosen)
{
    int64_t C = y->shape[3], pixels = y->shape[0] * y->shape[1] * y->shape[2], place[3], number;
    ECH_SHAPES(max_pool_forward, ECH_REAL, x, y, chosen);
    ech_filter_check(at, x, y);
    ECH_ASSERT(at->size[0] * at->size[1] <= MOST_CHOICES);
    for (int64_t n = 0; n < pixels; n++) {
        find_place(y, n, place);
        for (int64_t c = 0; c < C; c++) {
            ech_store(y, n * C + c, largest(x, at, place, c, &number));
            ((uint8_t *)chosen->data)[n * C + c] = (uint8_t)number;
        }
    }
}

/* dx = 0 and then, for each output's pixel and channel, dx += what `share` says for the pixel of
 * that number in its window. */
static void scatter(const ech_tensor *dy, const ech_tensor *chosen, const ech_filter *at,
                    const ech_tensor *dx)
{
    int64_t C = dy->shape[3], pixels = dy->shape[0] * dy->shape[1] * dy->shape[2], place[3];
    double share = 1 / (double)(at->size[0] * at->size[1]);
    for (int64_t n = 0; n < ech_tensor_count(dx); n++) ech_store(dx, n, 0);
    for (int64_t n = 0; n < pixels; n++) {
        find_place(dy, n, place);
        for (int64_t k = 0; k < at->size[0] * at->size[1]; k++) {
            int64_t pixel = ech_filter_pixel(at, dx, place[0], place[1], place[2], k / at->size[1],
                                             k % at->size[1]);
            for (int64_t c = 0; pixel >= 0 && c < C; c++) {
                if (chosen && ((const uint8_t *)chosen->data)[n * C + c] != k) continue;
                double d = ech_value(dy, n * C + c) * (chosen ? 1 : share);
                ech_store(dx, pixel + c, ech_value(dx, pixel + c) + d);
            }
        }
    }
}

void ECH_REF(max_pool_backward)(ech_kernel_context *context, const ech_tensor *dy,
                                const ech_tensor *chosen, const ech_filter *at,
                                const ech_tensor *dx)
{
    ECH_SHAPES(max_pool_backward, ECH_REAL, dy, chosen, dx);
    ech_filter_check(at, dx, dy);
    scatter(dy, chosen, at, dx);
}

void ECH_REF(mean_pool_forward)(ech_kernel_context *context, const ech_tensor *x,
                                const ech_filter *at, const ech_tensor *y)
{
    int64_t C = y->shape[3], pixels = y->shape[0] * y->shape[1] * y->shape[2], place[3];
    ECH_SHAPES(mean_pool_forward, ECH_REAL, x, y);
    ech_filter_check(at, x, y);
    for (int64_t n = 0; n < pixels; n++) {
        find_place(y, n, place);
        for (int64_t c = 0; c < C; c++) {
            double sum = 0;
            for (int64_t k = 0; k < at->size[0] * at->size[1]; k++) {
                int64_t pixel = ech_filter_pixel(at, x, place[0], place[1], place[2],
                                                 k / at->size[1], k % at->size[1]);
                if (pixel >= 0) sum += ech_value(x, pixel + c);
            }
            ech_store(y, n * C + c, sum / (double)(at->size[0] * at->size[1]));
        }
    }
}

void ECH_REF(mean_pool_backward)(ech_kernel_context *context, const ech_tensor *dy,
                                 const ech_filter *at, const ech_tensor *dx)
{
    ECH_SHAPES(mean_pool_backward, ECH_REAL, dy, dx);
    ech_filter_check(at, dx, dy);
    scatter(dy, NULL, at, dx);
}

void ECH_REF(transpose)(ech_kernel_context *context, const ech_tensor *x, const ech_tensor *y)
{
    int64_t N = x->shape[1], C = x->shape[2];
    ECH_SHAPES(transpose, ECH_REAL, x, y);
    for (int64_t i = 0; i < ech_tensor_count(x); i++) {
        int64_t b = i / (N * C), n = i / C % N, c = i % C;
        ech_store(y, (b * C + c) * N + n, ech_value(x, i));
    }
}
