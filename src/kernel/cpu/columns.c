/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums over rows: the bias gradient, and the gradients of tables that are read by row. Threads own
 * columns and walk all rows in order, so nothing depends on their number.
 */
#include <string.h>

#include "kernel/cpu/rows.h"
#include "kernel/cpu/vector.h"
#include "kernel/shape.h"

enum { COLUMNS = 128 };

ECH_CLONES static void sum_columns(int64_t R, int64_t stride, int64_t n, const float *dy,
                                   bool accumulate, float *sums)
{
    double sum[COLUMNS];
    for (int64_t j = 0; j < n; j++) sum[j] = accumulate ? sums[j] : 0.0;
    for (int64_t r = 0; r < R; r++)
        for (int64_t j = 0; j < n; j++) sum[j] += (double)dy[r * stride + j];
    for (int64_t j = 0; j < n; j++) sums[j] = (float)sum[j];
}

void ech_cpu_bias_backward(ech_kernel_context *context, const ech_tensor *dy, bool accumulate,
                           const ech_tensor *dbias)
{
    int64_t R = dy->shape[0], N = dy->shape[1];
    ECH_SHAPE_STRIDED(dy, ECH_F32, R, N);
    ECH_SHAPE(dbias, ECH_F32, N);
#pragma omp parallel for num_threads(context->threads) if (R * N > ECH_CHUNK)
    for (int64_t first = 0; first < N; first += COLUMNS)
        sum_columns(R, dy->stride[0], N - first < COLUMNS ? N - first : COLUMNS,
                    (const float *)dy->data + first, accumulate, (float *)dbias->data + first);
}

/* dtable [first_position + t] = sum of dy [b, t] over b; elements of the T rows are the columns. */
void ech_cpu_position_backward(ech_kernel_context *context, const ech_tensor *dy,
                               int64_t first_position, bool accumulate, const ech_tensor *dtable)
{
    int64_t B = dy->shape[0], T = dy->shape[1], C = dy->shape[2], P = dtable->shape[0];
    ECH_SHAPE(dy, ECH_F32, B, T, C);
    ECH_SHAPE(dtable, ECH_F32, P, C);
    ECH_ASSERT(first_position >= 0 && first_position + T <= P);
    int64_t n = T * C;
    float *table = dtable->data, *rows = table + first_position * C;
    if (!accumulate) {
        memset(table, 0, (size_t)(first_position * C) * sizeof *table);
        memset(rows + n, 0, (size_t)((P - first_position - T) * C) * sizeof *table);
    }
#pragma omp parallel for num_threads(context->threads) if (B * n > ECH_CHUNK)
    for (int64_t first = 0; first < n; first += COLUMNS)
        sum_columns(B, n, n - first < COLUMNS ? n - first : COLUMNS,
                    (const float *)dy->data + first, accumulate, rows + first);
}

ECH_CLONES static void add_rows(int64_t R, int64_t C, int64_t first, int64_t n, const float *dy,
                                const int32_t *ids, float *dtable)
{
    for (int64_t r = 0; r < R; r++) {
        const float *from = dy + r * C + first;
        float *to = dtable + ids[r] * C + first;
#pragma omp simd
        for (int64_t j = 0; j < n; j++) to[j] += from[j];
    }
}

void ech_cpu_embedding_backward(ech_kernel_context *context, const ech_tensor *dy,
                                const ech_tensor *ids, bool accumulate, const ech_tensor *dtable)
{
    int64_t V = dtable->shape[0], C = dtable->shape[1], R = ids->shape[0];
    ECH_SHAPE(dy, ECH_F32, R, C);
    ECH_SHAPE(ids, ECH_I32, R);
    ECH_SHAPE(dtable, ECH_F32, V, C);
    const int32_t *id = ids->data;
    for (int64_t r = 0; r < R; r++) ECH_ASSERT(id[r] >= 0 && id[r] < V);
    float *table = dtable->data;
#pragma omp parallel num_threads(context->threads) if (V * C > ECH_CHUNK)
    {
        if (!accumulate) {
#pragma omp for
            for (int64_t v = 0; v < V; v++) memset(table + v * C, 0, (size_t)C * sizeof *table);
        }
#pragma omp for
        for (int64_t first = 0; first < C; first += COLUMNS)
            add_rows(R, C, first, C - first < COLUMNS ? C - first : COLUMNS, dy->data, id, table);
    }
}
