/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums over rows: the bias gradient, and the gradients of embedding and position tables. Each thread owns columns
 * and adds all rows in order, so the result is the same for any number of threads.
 */
#include <string.h>

#include "kernel/cpu/rows.h"
#include "kernel/cpu/vector.h"
#include "kernel/shape.h"

enum { COLUMNS = 128 };

static void sum_columns(int64_t R, int64_t stride, int64_t n, const float *dy, bool accumulate,
                        float *sums)
{
    double sum[COLUMNS];
    for (int64_t j = 0; j < n; j++) sum[j] = accumulate ? sums[j] : 0.0;
    for (int64_t r = 0; r < R; r++)
        for (int64_t j = 0; j < n; j++) sum[j] += (double)dy[r * stride + j];
    for (int64_t j = 0; j < n; j++) sums[j] = (float)sum[j];
}

void ECH_CPU(bias_backward)(ech_kernel_context *context, const ech_tensor *dy, bool accumulate,
                            const ech_tensor *dbias)
{
    int64_t R = dy->shape[0], N = dy->shape[1];
    ECH_SHAPES(bias_backward, ECH_F32, dy, dbias);
#pragma omp parallel for num_threads(context->threads) if (R * N > ECH_CHUNK)
    for (int64_t first = 0; first < N; first += COLUMNS)
        sum_columns(R, dy->stride[0], N - first < COLUMNS ? N - first : COLUMNS,
                    (const float *)dy->data + first, accumulate, (float *)dbias->data + first);
}

/* One document a sample: rows at one position lie T' apart; the first T' rows have one position each. */
static void sum_positions(const ech_kernel_context *context, const ech_tensor *dy,
                          const ech_rows *rows, bool accumulate, const ech_tensor *dtable)
{
    int64_t R = dy->shape[0], C = dy->shape[1], P = dtable->shape[0], T = rows->tokens;
    int64_t different = R < T ? R : T;
#pragma omp parallel for num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t r = 0; r < different; r++) {
        int64_t position = ech_row_position(rows, r);
        ECH_ASSERT(position < P);
        const float *from = (const float *)dy->data + r * C;
        float *to = (float *)dtable->data + position * C;
        for (int64_t first = 0; first < C; first += COLUMNS)
            sum_columns((R - r + T - 1) / T, T * C, C - first < COLUMNS ? C - first : COLUMNS,
                        from + first, accumulate, to + first);
    }
}

/* Columns [first, first + n) of rows at positions of several documents. */
static void add_positions(const ech_tensor *dy, const ech_rows *rows, const ech_tensor *starts,
                          int64_t first, int64_t n, const ech_tensor *dtable)
{
    int64_t R = dy->shape[0], C = dy->shape[1], P = dtable->shape[0];
    for (int64_t r = 0; r < R; r++) {
        int64_t position = ech_row_in_document(rows, starts, r);
        ECH_ASSERT(position < P);
        const float *from = (const float *)dy->data + r * C + first;
        float *to = (float *)dtable->data + position * C + first;
#pragma omp simd
        for (int64_t j = 0; j < n; j++) to[j] += from[j];
    }
}

void ECH_CPU(position_backward)(ech_kernel_context *context, const ech_tensor *dy,
                                const ech_rows *rows, const ech_tensor *starts, bool accumulate,
                                const ech_tensor *dtable)
{
    int64_t R = dy->shape[0], C = dy->shape[1];
    ECH_SHAPES(position_backward, ECH_F32, dy, dtable);
    ECH_ROWS(rows, starts, R);
    if (!accumulate) memset(dtable->data, 0, ech_tensor_bytes(dtable));
    if (!starts) {
        sum_positions(context, dy, rows, accumulate, dtable);
        return;
    }
#pragma omp parallel for num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t first = 0; first < C; first += COLUMNS)
        add_positions(dy, rows, starts, first, C - first < COLUMNS ? C - first : COLUMNS, dtable);
}

static void add_rows(int64_t R, int64_t C, int64_t first, int64_t n, const float *dy,
                     const int32_t *ids, int64_t first_id, int64_t V, float *dtable)
{
    for (int64_t r = 0; r < R; r++) {
        int64_t id = ids[r] - first_id;
        if (id < 0 || id >= V) continue;
        const float *from = dy + r * C + first;
        float *to = dtable + id * C + first;
#pragma omp simd
        for (int64_t j = 0; j < n; j++) to[j] += from[j];
    }
}

void ECH_CPU(embedding_backward)(ech_kernel_context *context, const ech_tensor *dy,
                                 const ech_tensor *ids, int64_t first_id, bool accumulate,
                                 const ech_tensor *dtable)
{
    int64_t V = dtable->shape[0], C = dtable->shape[1], R = ids->shape[0];
    ECH_SHAPES(embedding_backward, ECH_F32, dy, ids, dtable);
    float *table = dtable->data;
#pragma omp parallel num_threads(context->threads) if (V * C > ECH_CHUNK)
    {
        if (!accumulate) {
#pragma omp for
            for (int64_t v = 0; v < V; v++) memset(table + v * C, 0, (size_t)C * sizeof *table);
        }
#pragma omp for
        for (int64_t first = 0; first < C; first += COLUMNS)
            add_rows(R, C, first, C - first < COLUMNS ? C - first : COLUMNS, dy->data, ids->data,
                     first_id, V, table);
    }
}
