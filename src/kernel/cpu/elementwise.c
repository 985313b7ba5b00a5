/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums, dropout, copies, fills and table reads: elements are independent.
 */
#include <string.h>

#include "kernel/cpu/dropout.h"
#include "kernel/cpu/rows.h"
#include "kernel/shape.h"

void ECH_CPU(add)(ech_kernel_context *context, const ech_tensor *a, const ech_tensor *b,
                  const ech_tensor *y)
{
    ECH_SHAPES(add, ECH_F32, a, b, y);
    const float *one = a->data, *other = b->data;
    float *sum = y->data;
    int64_t n = ech_tensor_count(a);
#pragma omp parallel for simd num_threads(context->threads) if (parallel : n > ECH_CHUNK)
    for (int64_t i = 0; i < n; i++) sum[i] = one[i] + other[i];
}

void ECH_CPU(subtract)(ech_kernel_context *context, const ech_tensor *a, const ech_tensor *b,
                       const ech_tensor *y)
{
    ECH_SHAPES(subtract, ECH_F32, a, b, y);
    const float *one = a->data, *other = b->data;
    float *difference = y->data;
    int64_t n = ech_tensor_count(a);
#pragma omp parallel for simd num_threads(context->threads) if (parallel : n > ECH_CHUNK)
    for (int64_t i = 0; i < n; i++) difference[i] = one[i] - other[i];
}

/* A row of C elements; `first` is the index of x[0] in the whole tensor. */
static void dropout_row(ech_random_key key, uint32_t threshold, float scale, uint64_t first,
                        int64_t C, const float *x, float *y)
{
    enum { PART = 256 };
    float factor[PART];
    for (int64_t c = 0; c < C; c += PART) {
        int64_t count = C - c < PART ? C - c : PART;
        ech_dropout_mask(key, threshold, scale, first + (uint64_t)c, count, factor);
        /* A dropped element is 0 even where x is no number. */
#pragma omp simd
        for (int64_t j = 0; j < count; j++)
            y[c + j] = factor[j] == 0.0F ? 0.0F : x[c + j] * factor[j];
    }
}

void ECH_CPU(dropout)(ech_kernel_context *context, const ech_tensor *x, const ech_dropout *dropout,
                      const ech_rows *rows, const ech_tensor *y)
{
    int64_t R = x->shape[0], C = x->shape[1];
    ECH_SHAPES(dropout, ECH_F32, x, y);
    ECH_ROWS(rows, NULL, R);
    ECH_ASSERT(dropout->p < 1);
    if (!(dropout->p > 0)) {
        if (x->data != y->data && R * C > 0) memcpy(y->data, x->data, ech_tensor_bytes(x));
        return;
    }
    uint32_t threshold = ech_drop_threshold(dropout->p);
    float scale = (float)(1 / (1 - dropout->p));
#pragma omp parallel for num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t r = 0; r < R; r++)
        dropout_row(dropout->key, threshold, scale, (uint64_t)(ech_row_whole(rows, r) * C), C,
                    (const float *)x->data + r * C, (float *)y->data + r * C);
}

void ECH_CPU(copy)(ech_kernel_context *context, const ech_tensor *x, const ech_tensor *y)
{
    int64_t B = x->shape[0], T = x->shape[1], H = x->shape[2], D = x->shape[3];
    ECH_SHAPES(copy, ECH_F32, x, y);
    /* Heads that are contiguous in both are copied as one block. */
    bool side_by_side = (x->stride[2] == D && y->stride[2] == D) || H == 1;
    int64_t blocks = side_by_side ? 1 : H, width = side_by_side ? H * D : D;
#pragma omp parallel for num_threads(context->threads) if (B * T * H * D > ECH_CHUNK)
    for (int64_t row = 0; row < B * T; row++) {
        int64_t b = row / T, t = row % T;
        const float *from = (const float *)x->data + b * x->stride[0] + t * x->stride[1];
        float *to = (float *)y->data + b * y->stride[0] + t * y->stride[1];
        for (int64_t h = 0; h < blocks; h++)
            memcpy(to + h * y->stride[2], from + h * x->stride[2], (size_t)width * sizeof *to);
    }
}

void ECH_CPU(fill_normal)(ech_kernel_context *context, const ech_tensor *x, ech_random_key key,
                          int64_t first_element, double mean, double std)
{
    ECH_SHAPES(fill_normal, ECH_F32, x);
    ECH_ASSERT(first_element >= 0);
    int64_t n = ech_tensor_count(x), end = first_element + n;
#pragma omp parallel for num_threads(context->threads) if (n > ECH_CHUNK)
    for (int64_t quad = first_element / 4; quad < (end + 3) / 4; quad++) {
        double normals[4]; /* in fp64, as the definition does */
        ech_random_normals(key, (uint64_t)quad, normals);
        for (int64_t i = 4 * quad; i < 4 * quad + 4; i++)
            if (i >= first_element && i < end)
                ((float *)x->data)[i - first_element] = (float)(mean + std * normals[i % 4]);
    }
}

void ECH_CPU(embedding_forward)(ech_kernel_context *context, const ech_tensor *table,
                                const ech_tensor *ids, int64_t first_id, const ech_tensor *y)
{
    int64_t V = table->shape[0], C = table->shape[1], R = ids->shape[0];
    ECH_SHAPES(embedding_forward, ECH_F32, table, ids, y);
#pragma omp parallel for num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t r = 0; r < R; r++) {
        int64_t id = ((const int32_t *)ids->data)[r] - first_id;
        float *to = (float *)y->data + r * C;
        if (id >= 0 && id < V)
            memcpy(to, (const float *)table->data + id * C, (size_t)C * sizeof *to);
        else
            memset(to, 0, (size_t)C * sizeof *to);
    }
}

void ECH_CPU(position_forward)(ech_kernel_context *context, const ech_tensor *x,
                               const ech_tensor *table, const ech_rows *rows,
                               const ech_tensor *starts, const ech_tensor *y)
{
    int64_t R = x->shape[0], C = x->shape[1], P = table->shape[0];
    ECH_SHAPES(position_forward, ECH_F32, x, table, y);
    ECH_ROWS(rows, starts, R);
#pragma omp parallel for num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t r = 0; r < R; r++) {
        int64_t position = ech_row_in_document(rows, starts, r);
        ECH_ASSERT(position < P);
        const float *in = (const float *)x->data + r * C;
        const float *more = (const float *)table->data + position * C;
        float *out = (float *)y->data + r * C;
#pragma omp simd
        for (int64_t c = 0; c < C; c++) out[c] = in[c] + more[c];
    }
}
