/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of squares in blocks, and the search for the first NaN or infinity.
 */
#include <math.h>

#include "kernel/listed.h"
#include "kernel/ref/real.h"

/* Element i goes to lane i mod LANES; the lanes are added in ascending order at the end. */
enum { LANES = 16 };

void ECH_REF(square_sums)(ech_kernel_context *context, const ech_tensor *x, const ech_tensor *sums)
{
    int64_t n = ech_tensor_count(x), blocks = (n + ECH_NORM_BLOCK - 1) / ECH_NORM_BLOCK;
    ECH_SHAPES(square_sums, ECH_REAL, x, sums);
    ECH_ASSERT(sums->shape[0] == blocks);
    for (int64_t j = 0; j < blocks; j++) {
        int64_t first = j * ECH_NORM_BLOCK, last = first + ECH_NORM_BLOCK;
        double lane[LANES] = {0}, sum = 0;
        for (int64_t i = first; i < last && i < n; i++) {
            double square = ech_value(x, i) * ech_value(x, i);
            lane[(i - first) % LANES] += square;
        }
        for (int l = 0; l < LANES; l++) sum += lane[l];
        ((double *)sums->data)[j] = sum;
    }
}

void ECH_REF(square_sums_rows)(ech_kernel_context *context, const ech_tensor *x,
                               const ech_tensor *rows, const ech_tensor *sums)
{
    ECH_SHAPES(square_sums_rows, ECH_REAL, x, rows, sums);
    const int32_t *row = rows->data;
    int64_t C = x->shape[1], k = 0, listed = ech_listed(row, rows->shape[0]);
    for (int64_t j = 0; j < sums->shape[0]; j++) {
        int64_t first = j * ECH_NORM_BLOCK, last = first + ECH_NORM_BLOCK;
        double lane[LANES] = {0}, sum = 0;
        for (; k < listed && row[k] * C < last; k++) {
            for (int64_t c = 0; c < C; c++) {
                int64_t i = row[k] * C + c; /* in the table */
                if (i < first || i >= last) continue;
                double square = ech_value(x, k * C + c) * ech_value(x, k * C + c);
                lane[(i - first) % LANES] += square;
            }
            if ((row[k] + 1) * C > last) break; /* the next block has the rest */
        }
        for (int l = 0; l < LANES; l++) sum += lane[l];
        ((double *)sums->data)[j] = sum;
    }
}

void ECH_REF(find_nonfinite)(ech_kernel_context *context, const ech_tensor *x,
                             const ech_tensor *first)
{
    ECH_SHAPES(find_nonfinite, ECH_REAL, x, first);
    int64_t n = ech_tensor_count(x), i = 0;
    while (i < n && isfinite(ech_value(x, i))) i++;
    *(double *)first->data = i < n ? (double)i : -1;
}
