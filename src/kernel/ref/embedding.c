/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of a table by token id, and rows added by position.
 */
#include <string.h>

#include "kernel/ref/real.h"

void ECH_REF(embedding_forward)(ech_kernel_context *context, const ech_tensor *table,
                                const ech_tensor *ids, const ech_tensor *y)
{
    (void)context;
    int64_t V = table->shape[0], C = table->shape[1], R = ids->shape[0];
    ECH_SHAPE(table, ECH_REAL, V, C);
    ECH_SHAPE(ids, ECH_I32, R);
    ECH_SHAPE(y, ECH_REAL, R, C);
    for (int64_t r = 0; r < R; r++) {
        int64_t id = ((const int32_t *)ids->data)[r];
        ECH_ASSERT(id >= 0 && id < V);
        memcpy((real *)y->data + r * C, (const real *)table->data + id * C,
               (size_t)C * sizeof(real));
    }
}

void ECH_REF(embedding_backward)(ech_kernel_context *context, const ech_tensor *dy,
                                 const ech_tensor *ids, bool accumulate, const ech_tensor *dtable)
{
    (void)context;
    int64_t V = dtable->shape[0], C = dtable->shape[1], R = ids->shape[0];
    ECH_SHAPE(dy, ECH_REAL, R, C);
    ECH_SHAPE(ids, ECH_I32, R);
    ECH_SHAPE(dtable, ECH_REAL, V, C);
    if (!accumulate) memset(dtable->data, 0, ech_tensor_bytes(dtable));
    for (int64_t r = 0; r < R; r++) {
        int64_t id = ((const int32_t *)ids->data)[r];
        ECH_ASSERT(id >= 0 && id < V);
        real *sum = (real *)dtable->data + id * C;
        for (int64_t c = 0; c < C; c++) sum[c] += ((const real *)dy->data)[r * C + c];
    }
}

void ECH_REF(position_forward)(ech_kernel_context *context, const ech_tensor *x,
                               const ech_tensor *table, int64_t first_position, const ech_tensor *y)
{
    (void)context;
    int64_t B = x->shape[0], T = x->shape[1], C = x->shape[2], P = table->shape[0];
    ECH_SHAPE(x, ECH_REAL, B, T, C);
    ECH_SHAPE(table, ECH_REAL, P, C);
    ECH_SHAPE(y, ECH_REAL, B, T, C);
    ECH_ASSERT(first_position >= 0 && first_position + T <= P);
    const real *in = x->data, *rows = (const real *)table->data + first_position * C;
    real *out = y->data;
    for (int64_t b = 0; b < B; b++)
        for (int64_t i = 0; i < T * C; i++) out[b * T * C + i] = in[b * T * C + i] + rows[i];
}

void ECH_REF(position_backward)(ech_kernel_context *context, const ech_tensor *dy,
                                int64_t first_position, bool accumulate, const ech_tensor *dtable)
{
    (void)context;
    int64_t B = dy->shape[0], T = dy->shape[1], C = dy->shape[2], P = dtable->shape[0];
    ECH_SHAPE(dy, ECH_REAL, B, T, C);
    ECH_SHAPE(dtable, ECH_REAL, P, C);
    ECH_ASSERT(first_position >= 0 && first_position + T <= P);
    const real *d = dy->data;
    real *rows = (real *)dtable->data + first_position * C;
    if (!accumulate) memset(dtable->data, 0, ech_tensor_bytes(dtable));
    for (int64_t i = 0; i < T * C; i++) {
        double sum = rows[i];
        for (int64_t b = 0; b < B; b++) sum += d[b * T * C + i];
        rows[i] = (real)sum;
    }
}
