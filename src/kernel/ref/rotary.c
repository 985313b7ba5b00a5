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
                const real *in =
                    (const real *)x->data + b * x->stride[0] + t * x->stride[1] + h * x->stride[2];
                real *out =
                    (real *)y->data + b * y->stride[0] + t * y->stride[1] + h * y->stride[2];
                double low = ech_value(in[i]), high = ech_value(in[i + D / 2]);
                out[i] = ech_stored(low * c - high * s);
                out[i + D / 2] = ech_stored(high * c + low * s);
            }
        }
}
