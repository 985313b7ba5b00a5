/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums, dropout, fills and table reads: elements are independent, chunks go to threads.
 */
#include <string.h>

#include "kernel/cpu/dropped.h"
#include "kernel/cpu/rows.h"
#include "kernel/shape.h"

ECH_CLONES static void add_chunk(int64_t n, const float *a, const float *b, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = a[i] + b[i];
}

void ech_cpu_add(ech_kernel_context *context, const ech_tensor *a, const ech_tensor *b,
                 const ech_tensor *y)
{
    ECH_LIKE(a, b);
    ECH_LIKE(a, y);
    int64_t n = ech_tensor_count(a);
#pragma omp parallel for num_threads(context->threads) if (n > ECH_CHUNK)
    for (int64_t i = 0; i < n; i += ECH_CHUNK)
        add_chunk(n - i < ECH_CHUNK ? n - i : ECH_CHUNK, (const float *)a->data + i,
                  (const float *)b->data + i, (float *)y->data + i);
}

/* `first` is the index of x[0] in the uncut tensor. */
ECH_CLONES static void dropout_chunk(ech_random_key key, uint32_t threshold, float scale,
                                     uint64_t first, int64_t n, const float *x, float *y)
{
    enum { PART = 256 };
    float kept[PART];
    for (int64_t i = 0; i < n; i += PART) {
        int64_t count = n - i < PART ? n - i : PART;
        ech_draw_kept(key, threshold, scale, first + (uint64_t)i, count, kept);
        /* A dropped element is 0 even where x is no number. */
#pragma omp simd
        for (int64_t j = 0; j < count; j++) y[i + j] = kept[j] == 0.0F ? 0.0F : x[i + j] * kept[j];
    }
}

void ech_cpu_dropout(ech_kernel_context *context, const ech_tensor *x, const ech_dropout *dropout,
                     const ech_tensor *y)
{
    ECH_LIKE(x, y);
    ECH_ASSERT(dropout->p < 1);
    int64_t n = ech_tensor_count(x), samples = x->dims ? x->shape[0] : 1;
    if (n == 0) return;
    if (!(dropout->p > 0)) {
        if (x->data != y->data) memcpy(y->data, x->data, (size_t)n * sizeof(float));
        return;
    }
    uint64_t first = (uint64_t)(dropout->first_sample * (n / samples));
    uint32_t threshold = ech_drop_threshold(dropout->p);
    float scale = (float)(1 / (1 - dropout->p));
#pragma omp parallel for num_threads(context->threads) if (n > ECH_CHUNK)
    for (int64_t i = 0; i < n; i += ECH_CHUNK)
        dropout_chunk(dropout->key, threshold, scale, first + (uint64_t)i,
                      n - i < ECH_CHUNK ? n - i : ECH_CHUNK, (const float *)x->data + i,
                      (float *)y->data + i);
}

/* x[i] = mean + std normal(first + i); drawn in fp64 as the definition does. */
static void fill_normal_chunk(ech_random_key key, uint64_t first, int64_t n, double mean,
                              double std, float *x)
{
    double normals[4];
    for (int64_t i = 0; i < n; i++) {
        uint64_t element = first + (uint64_t)i;
        if (i == 0 || element % 4 == 0) ech_random_normals(key, element / 4, normals);
        x[i] = (float)(mean + std * normals[element % 4]);
    }
}

void ech_cpu_fill_normal(ech_kernel_context *context, const ech_tensor *x, ech_random_key key,
                         int64_t first_element, double mean, double std)
{
    ECH_LIKE(x, x);
    ECH_ASSERT(x->dtype == ECH_F32 && first_element >= 0);
    int64_t n = ech_tensor_count(x);
#pragma omp parallel for num_threads(context->threads) if (n > ECH_CHUNK)
    for (int64_t i = 0; i < n; i += ECH_CHUNK)
        fill_normal_chunk(key, (uint64_t)(first_element + i), n - i < ECH_CHUNK ? n - i : ECH_CHUNK,
                          mean, std, (float *)x->data + i);
}

void ech_cpu_embedding_forward(ech_kernel_context *context, const ech_tensor *table,
                               const ech_tensor *ids, const ech_tensor *y)
{
    int64_t V = table->shape[0], C = table->shape[1], R = ids->shape[0];
    ECH_SHAPE(table, ECH_F32, V, C);
    ECH_SHAPE(ids, ECH_I32, R);
    ECH_SHAPE(y, ECH_F32, R, C);
#pragma omp parallel for num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t r = 0; r < R; r++) {
        int64_t id = ((const int32_t *)ids->data)[r];
        ECH_ASSERT(id >= 0 && id < V);
        memcpy((float *)y->data + r * C, (const float *)table->data + id * C,
               (size_t)C * sizeof(float));
    }
}

void ech_cpu_position_forward(ech_kernel_context *context, const ech_tensor *x,
                              const ech_tensor *table, int64_t first_position, const ech_tensor *y)
{
    int64_t B = x->shape[0], T = x->shape[1], C = x->shape[2], P = table->shape[0];
    ECH_SHAPE(x, ECH_F32, B, T, C);
    ECH_SHAPE(table, ECH_F32, P, C);
    ECH_SHAPE(y, ECH_F32, B, T, C);
    ECH_ASSERT(first_position >= 0 && first_position + T <= P);
    const float *rows = (const float *)table->data + first_position * C;
#pragma omp parallel for num_threads(context->threads) if (B * T * C > ECH_CHUNK)
    for (int64_t row = 0; row < B * T; row++)
        add_chunk(C, (const float *)x->data + row * C, rows + row % T * C,
                  (float *)y->data + row * C);
}
