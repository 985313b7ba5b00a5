/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums, dropout, copies, fills and table reads: elements are independent.
 */
#include "kernel/cpu/dropout.h"
#include "kernel/cpu/part.h"
#include "kernel/shape.h"

/* y = a + sign b, sign 1 or -1: the product rounds nothing. */
ECH_INLINE void add_signed(const ech_kernel_context *context, const ech_tensor *a,
                           const ech_tensor *b, float sign, const ech_tensor *y)
{
    int64_t n = ech_tensor_count(a);
#pragma omp parallel for num_threads(context->threads) if (n > ECH_CHUNK)
    for (int64_t first = 0; first < n; first += ECH_PART) {
        ECH_ALIGNED float part[3][ECH_PART];
        int64_t count = ech_part(n, first, ECH_PART);
        const float *one = ech_part_of(a, first, count, part[0]);
        const float *other = ech_part_of(b, first, count, part[1]);
        float *sum = ech_part_to(y, first, part[2]);
#pragma omp simd
        for (int64_t i = 0; i < count; i++) sum[i] = one[i] + sign * other[i];
        ech_part_done(y, first, count, sum);
    }
}

void ECH_CPU(add)(ech_kernel_context *context, const ech_tensor *a, const ech_tensor *b,
                  const ech_tensor *y)
{
    ECH_SHAPES(add, ECH_REAL, a, b, y);
    add_signed(context, a, b, 1, y);
}

void ECH_CPU(subtract)(ech_kernel_context *context, const ech_tensor *a, const ech_tensor *b,
                       const ech_tensor *y)
{
    ECH_SHAPES(subtract, ECH_REAL, a, b, y);
    add_signed(context, a, b, -1, y);
}

/* bounded: by the cap. */
ECH_INLINE void scale_part(const ech_tensor *x, float factor, float cap, bool bounded,
                           const ech_tensor *y, int64_t first, int64_t count)
{
    ECH_ALIGNED float part[2][ECH_PART];
    const float *from = ech_part_of(x, first, count, part[0]);
    float *to = ech_part_to(y, first, part[1]);
    const float in = factor / cap;
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        to[i] = bounded ? cap * ech_tanh(in * from[i]) : factor * from[i];
    ech_part_done(y, first, count, to);
}

void ECH_CPU(scale)(ech_kernel_context *context, const ech_tensor *x, double factor, double cap,
                    const ech_tensor *y)
{
    ECH_SHAPES(scale, ECH_REAL, x, y);
    int64_t n = ech_tensor_count(x);
#pragma omp parallel for num_threads(context->threads) if (n > ECH_CHUNK)
    for (int64_t first = 0; first < n; first += ECH_PART) {
        int64_t count = ech_part(n, first, ECH_PART);
        if (cap > 0)
            scale_part(x, (float)factor, (float)cap, true, y, first, count);
        else
            scale_part(x, (float)factor, 1, false, y, first, count);
    }
}

void ECH_CPU(scaled_sum)(ech_kernel_context *context, const ech_tensor *x, double alpha,
                         double beta, double diagonal, const ech_tensor *squares,
                         const ech_update *update, const ech_tensor *y)
{
    ECH_SHAPES(scaled_sum, ECH_REAL, x, squares, y);
    ech_update now;
    if (update && !ech_update_begins(&update, &now)) return;
    alpha = ech_scaled_alpha(alpha, squares, update);
    const float of_x = (float)alpha, of_y = (float)beta;
    int64_t n = ech_tensor_count(x), C = x->shape[1], R = x->shape[0];
#pragma omp parallel for num_threads(context->threads) if (n > ECH_CHUNK)
    for (int64_t first = 0; first < n; first += ECH_PART) {
        float part[ECH_PART];
        int64_t count = ech_part(n, first, ECH_PART);
        const float *from = ech_part_of(x, first, count, part);
        float *to = (float *)y->data + first;
        if (beta != 0) {
#pragma omp simd
            for (int64_t i = 0; i < count; i++) to[i] = of_x * from[i] + of_y * to[i];
        } else {
#pragma omp simd
            for (int64_t i = 0; i < count; i++) to[i] = of_x * from[i];
        }
    }
    for (int64_t i = 0; i < R && i < C && diagonal != 0; i++)
        ((float *)y->data)[i * C + i] += (float)diagonal;
}

void ECH_CPU(dropout)(ech_kernel_context *context, const ech_tensor *x, const ech_dropout *dropout,
                      const ech_rows *rows, const ech_tensor *y)
{
    ECH_ROWS_NOW(rows);
    int64_t R = x->shape[0], C = x->shape[1];
    ECH_SHAPES(dropout, ECH_REAL, x, y);
    ECH_ROWS(rows, NULL, R);
    ECH_ASSERT(dropout->p < 1);
    if (!(dropout->p > 0)) {
        if (x->data != y->data) ech_part_copy(x, 0, R * C, y, 0);
        return;
    }
    const ech_dropper drop = ech_dropper_of(dropout);
#pragma omp parallel for num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t r = 0; r < R; r++)
        ech_drop_row(&drop, (uint64_t)ech_dropout_first(dropout, ech_row_whole(rows, r), C), r, x,
                     y);
}

void ECH_CPU(copy)(ech_kernel_context *context, const ech_tensor *x, const ech_tensor *y)
{
    int64_t B = x->shape[0], T = x->shape[1], H = x->shape[2], D = x->shape[3];
    ECH_SHAPES(copy, ECH_REAL, x, y);
    /* Heads that are contiguous in both are copied as one block. */
    bool side_by_side = (x->stride[2] == D && y->stride[2] == D) || H == 1;
    int64_t blocks = side_by_side ? 1 : H, width = side_by_side ? H * D : D;
#pragma omp parallel for num_threads(context->threads) if (B * T * H * D > ECH_CHUNK)
    for (int64_t row = 0; row < B * T; row++) {
        int64_t b = row / T, t = row % T;
        int64_t from = b * x->stride[0] + t * x->stride[1];
        int64_t to = b * y->stride[0] + t * y->stride[1];
        for (int64_t h = 0; h < blocks; h++)
            ech_part_copy(x, from + h * x->stride[2], width, y, to + h * y->stride[2]);
    }
}

void ECH_CPU(sum_heads)(ech_kernel_context *context, const ech_tensor *x, const ech_tensor *y)
{
    int64_t B = x->shape[0], T = x->shape[1], H = x->shape[2], D = x->shape[3];
    ECH_SHAPES(sum_heads, ECH_REAL, x, y);
#pragma omp parallel for num_threads(context->threads) if (B * T * H * D > ECH_CHUNK)
    for (int64_t row = 0; row < B * T; row++)
        for (int64_t first = 0; first < D; first += ECH_PART) {
            ECH_ALIGNED float part[2][ECH_PART];
            int64_t n = ech_part(D, first, ECH_PART);
            int64_t at = row / T * x->stride[0] + row % T * x->stride[1] + first;
            float *sum = part[1];
            for (int64_t d = 0; d < n; d++) sum[d] = 0;
            for (int64_t h = 0; h < H; h++) {
                const float *head = ech_part_of(x, at + h * x->stride[2], n, part[0]);
#pragma omp simd
                for (int64_t d = 0; d < n; d++) sum[d] += head[d];
            }
            for (int64_t d = 0; d < n; d++)
                ech_either_stored(ech_is_wide(y), y->data, row * D + first + d, sum[d]);
        }
}

void ECH_CPU(append)(ech_kernel_context *context, const ech_tensor *x, const ech_rows *rows,
                     const ech_tensor *cache)
{
    ECH_ROWS_NOW(rows);
    ECH_SHAPES(append, ECH_REAL, x, cache);
    ECH_SAMPLES(rows, NULL, x->shape[0], x->shape[1]);
    ECH_ASSERT(rows->whole == cache->shape[1]);
    const int64_t tokens = rows->tokens, early = rows->split < tokens ? rows->split : tokens;
    const int64_t runs[2][2] = {{0, early}, {early, tokens - early}};
    for (int i = 0; i < 2; i++) {
        int64_t first = runs[i][0], n = runs[i][1];
        const ech_tensor from = ech_tensor_narrow(x, 1, first, n);
        const ech_tensor to = ech_tensor_narrow(cache, 1, ech_rows_token_position(rows, first), n);
        if (n > 0) ECH_CPU(copy)(context, &from, &to);
    }
}

/* The numbers of elements 4 quad .. 4 quad + 3, in fp64. */
typedef void (*draw)(ech_random_key key, uint64_t quad, double numbers[4]);

static void draw_units(ech_random_key key, uint64_t quad, double units[4])
{
    uint32_t words[4];
    ech_random_words(key, quad, words);
    for (int k = 0; k < 4; k++) units[k] = ech_random_unit(words[k]);
}

/* x = offset + factor drawn */
static void fill_drawn(ech_kernel_context *context, const ech_tensor *x, ech_random_key key,
                       int64_t first_element, draw drawn, double offset, double factor)
{
    ECH_ASSERT(first_element >= 0);
    int64_t n = ech_tensor_count(x), end = first_element + n;
#pragma omp parallel for num_threads(context->threads) if (n > ECH_CHUNK)
    for (int64_t quad = first_element / 4; quad < (end + 3) / 4; quad++) {
        double numbers[4];
        drawn(key, (uint64_t)quad, numbers);
        for (int64_t i = 4 * quad; i < 4 * quad + 4; i++) {
            if (i < first_element || i >= end) continue;
            double value = offset + factor * numbers[i % 4];
            if (ech_is_wide(x))
                ((float *)x->data)[i - first_element] = (float)value;
            else
                ech_convert(&value, ECH_F64, ech_either_at(x, i - first_element), ECH_REAL, 1);
        }
    }
}

void ECH_CPU(fill_normal)(ech_kernel_context *context, const ech_tensor *x, ech_random_key key,
                          int64_t first_element, double mean, double std)
{
    ECH_SHAPES(fill_normal, ECH_REAL, x);
    fill_drawn(context, x, key, first_element, ech_random_normals, mean, std);
}

void ECH_CPU(fill_uniform)(ech_kernel_context *context, const ech_tensor *x, ech_random_key key,
                           int64_t first_element, double low, double high)
{
    ECH_SHAPES(fill_uniform, ECH_REAL, x);
    fill_drawn(context, x, key, first_element, draw_units, low, high - low);
}

/* Copies C numbers; a few are hardly worth a part. */
ECH_INLINE void copy_row(const ech_tensor *x, int64_t from, int64_t C, const ech_tensor *y,
                         int64_t to)
{
    if (C >= ECH_WIDE || !ech_is_wide(x) || !ech_is_wide(y)) {
        ech_part_copy(x, from, C, y, to);
        return;
    }
    for (int64_t c = 0; c < C; c++) ((float *)y->data)[to + c] = ((const float *)x->data)[from + c];
}

void ECH_CPU(embedding_forward)(ech_kernel_context *context, const ech_tensor *table,
                                const ech_tensor *ids, int64_t first_id, const ech_tensor *y)
{
    enum { AHEAD = 32 }; /* a large table's rows are in no cache */
    int64_t V = table->shape[0], C = table->shape[1], R = ids->shape[0];
    const int32_t *row = ids->data;
    ECH_SHAPES(embedding_forward, ECH_REAL, table, ids, y);
#pragma omp parallel for num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t r = 0; r < R; r++) {
        int64_t id = row[r] - first_id;
        if (r + AHEAD < R)
            __builtin_prefetch(ech_either_at(table, (row[r + AHEAD] - first_id) * C));
        if (id >= 0 && id < V)
            copy_row(table, id * C, C, y, r * C);
        else
            memset(ech_either_at(y, r * C), 0, (size_t)C * ech_dtype_bytes(y->dtype));
    }
}

void ECH_CPU(position_forward)(ech_kernel_context *context, const ech_tensor *x,
                               const ech_tensor *table, const ech_rows *rows,
                               const ech_tensor *starts, const ech_tensor *y)
{
    ECH_ROWS_NOW(rows);
    int64_t R = x->shape[0], C = x->shape[1], P = table->shape[0];
    ECH_SHAPES(position_forward, ECH_REAL, x, table, y);
    ECH_ROWS(rows, starts, R);
#pragma omp parallel for num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t r = 0; r < R; r++) {
        int64_t position = ech_row_in_document(rows, starts, r);
        ECH_ASSERT(position < P);
        for (int64_t c = 0; c < C; c += ECH_PART) {
            ECH_ALIGNED float part[3][ECH_PART];
            int64_t count = ech_part(C, c, ECH_PART);
            const float *in = ech_part_of(x, r * C + c, count, part[0]);
            const float *more = ech_part_of(table, position * C + c, count, part[1]);
            float *out = ech_part_to(y, r * C + c, part[2]);
#pragma omp simd
            for (int64_t i = 0; i < count; i++) out[i] = in[i] + more[i];
            ech_part_done(y, r * C + c, count, out);
        }
    }
}
