/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotary position embeddings.
 */
#include <math.h>

#include "kernel/ref/real.h"

void ECH_REF(rotary)(ech_kernel_context *context, const ech_tensor *x, const double *frequency,
                     const ech_rows *rows, const ech_tensor *starts, bool inverse,
                     const ech_tensor *y)
{
    ECH_ROWS_NOW(rows);
    int64_t B = x->shape[0], T = x->shape[1], H = x->shape[2], D = x->shape[3];
    ECH_SHAPES(rotary, ECH_REAL, x, y);
    ECH_SAMPLES(rows, starts, B, T);
    ECH_ASSERT(D % 2 == 0);
    for (int64_t row = 0; row < B * T; row++)
        for (int64_t i = 0; i < D / 2; i++) {
            int64_t b = row / T, t = row % T, position = ech_row_in_document(rows, starts, row);
            double angle = (double)position * frequency[i];
            double c = cos(angle), s = inverse ? -sin(angle) : sin(angle);
            for (int64_t h = 0; h < H; h++) {
                int64_t in = ech_head(x, b, t, h) + i, out = ech_head(y, b, t, h) + i;
                double low = ech_value(x, in), high = ech_value(x, in + D / 2);
                ech_store(y, out, low * c - high * s);
                ech_store(y, out + D / 2, high * c + low * s);
            }
        }
}
