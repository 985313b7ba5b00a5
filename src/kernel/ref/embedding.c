/* SPDX-License-Identifier: Apache-2.0
 *
 * Token embedding, and learned position embedding.
 */
#include <string.h>

#include "kernel/ref/real.h"

void ECH_REF(embedding_forward)(ech_kernel_context *context, const ech_tensor *table,
                                const ech_tensor *ids, int64_t first_id, const ech_tensor *y)
{
    int64_t V = table->shape[0], C = table->shape[1], R = ids->shape[0];
    ECH_SHAPES(embedding_forward, ECH_REAL, table, ids, y);
    for (int64_t r = 0; r < R; r++) {
        int64_t id = ((const int32_t *)ids->data)[r] - first_id;
        real *to = (real *)y->data + r * C;
        for (int64_t c = 0; c < C; c++)
            to[c] = id >= 0 && id < V ? ((const real *)table->data)[id * C + c] : 0;
    }
}

void ECH_REF(embedding_backward)(ech_kernel_context *context, const ech_tensor *dy,
                                 const ech_tensor *ids, int64_t first_id, bool accumulate,
                                 const ech_tensor *dtable)
{
    int64_t V = dtable->shape[0], C = dtable->shape[1], R = ids->shape[0];
    ECH_SHAPES(embedding_backward, ECH_REAL, dy, ids, dtable);
    if (!accumulate) memset(dtable->data, 0, ech_tensor_bytes(dtable));
    for (int64_t r = 0; r < R; r++) {
        int64_t id = ((const int32_t *)ids->data)[r] - first_id;
        if (id < 0 || id >= V) continue;
        real *sum = (real *)dtable->data + id * C;
        const real *row = (const real *)dy->data + r * C;
        for (int64_t c = 0; c < C; c++) sum[c] = ech_stored(ech_value(sum[c]) + ech_value(row[c]));
    }
}

void ECH_REF(position_forward)(ech_kernel_context *context, const ech_tensor *x,
                               const ech_tensor *table, const ech_rows *rows,
                               const ech_tensor *starts, const ech_tensor *y)
{
    int64_t R = x->shape[0], C = x->shape[1], P = table->shape[0];
    ECH_SHAPES(position_forward, ECH_REAL, x, table, y);
    ECH_ROWS(rows, starts, R);
    for (int64_t r = 0; r < R; r++) {
        int64_t position = ech_row_in_document(rows, starts, r);
        ECH_ASSERT(position < P);
        const real *in = (const real *)x->data + r * C;
        const real *more = (const real *)table->data + position * C;
        for (int64_t c = 0; c < C; c++)
            ((real *)y->data)[r * C + c] = ech_stored(ech_value(in[c]) + ech_value(more[c]));
    }
}

void ECH_REF(position_backward)(ech_kernel_context *context, const ech_tensor *dy,
                                const ech_rows *rows, const ech_tensor *starts, bool accumulate,
                                const ech_tensor *dtable)
{
    int64_t R = dy->shape[0], C = dy->shape[1], P = dtable->shape[0];
    ECH_SHAPES(position_backward, ECH_REAL, dy, dtable);
    ECH_ROWS(rows, starts, R);
    if (!accumulate) memset(dtable->data, 0, ech_tensor_bytes(dtable));
    for (int64_t r = 0; r < R; r++) {
        int64_t position = ech_row_in_document(rows, starts, r);
        ECH_ASSERT(position < P);
        real *sum = (real *)dtable->data + position * C;
        const real *row = (const real *)dy->data + r * C;
        for (int64_t c = 0; c < C; c++) sum[c] = ech_stored(ech_value(sum[c]) + ech_value(row[c]));
    }
}
