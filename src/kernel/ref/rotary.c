/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotary position embeddings.
 */
#include <math.h>

#include "kernel/ref/real.h"

void ECH_REF(rotary)(ech_kernel_context *context, const ech_tensor *x, const double *frequency,
                     int64_t width, bool neighbours, double factor, const ech_rows *rows,
                     const ech_tensor *starts, bool inverse, const ech_tensor *y)
{
    ECH_ROWS_NOW(rows);
    int64_t B = x->shape[0], T = x->shape[1], H = x->shape[2], D = x->shape[3];
    ECH_SHAPES(rotary, ECH_REAL, x, y);
    ECH_SAMPLES(rows, starts, B, T);
    ECH_ASSERT(width % 2 == 0 && width >= 0 && width <= D);
    for (int64_t row = 0; row < B * T; row++) {
        int64_t b = row / T, t = row % T, position = ech_row_in_document(rows, starts, row);
        for (int64_t i = 0; i < width / 2; i++) {
            int64_t first = neighbours ? 2 * i : i, second = neighbours ? first + 1 : i + width / 2;
            double angle = (double)position * frequency[i];
            double c = factor * cos(angle), s = factor * (inverse ? -sin(angle) : sin(angle));
            for (int64_t h = 0; h < H; h++) {
                int64_t in = ech_head(x, b, t, h), out = ech_head(y, b, t, h);
                double low = ech_value(x, in + first), high = ech_value(x, in + second);
                ech_store(y, out + first, low * c - high * s);
                ech_store(y, out + second, high * c + low * s);
            }
        }
        for (int64_t h = 0; h < H; h++)
            for (int64_t i = width; i < D; i++)
                ech_store(y, ech_head(y, b, t, h) + i, ech_value(x, ech_head(x, b, t, h) + i));
    }
}
