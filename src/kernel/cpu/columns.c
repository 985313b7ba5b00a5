/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums over rows: the bias gradients, and the gradients of embedding and position tables. Each
 * thread owns columns and adds all rows in order, so the result is the same for any number of
 * threads.
 */
#include <string.h>

#include "kernel/cpu/blocks.h"
#include "kernel/cpu/part.h"
#include "kernel/shape.h"

/* The sums of a block stay in registers with AVX-512, else in the L1 cache. */
enum { COLUMNS = 128 };

/* Adds n elements of dy from element `from` on to the sums. */
ECH_INLINE void add_row(double *sum, const ech_tensor *dy, int64_t from, int64_t n)
{
    int64_t j = 0;
    for (; j + ECH_WIDE <= n; j += ECH_WIDE)
        ech_wide_add_to(sum + j, ech_either_load(ech_is_wide(dy), dy->data, from + j));
    for (; j < n; j++) sum[j] += (double)ech_number(dy, from + j);
}

/* n sums from sums' element `to` on, over R rows of dy; the first row begins at element `from`. */
ECH_INLINE void sum_columns_of(int64_t R, int64_t stride, int64_t n, const ech_tensor *dy,
                               int64_t from, bool accumulate, const ech_tensor *sums, int64_t to)
{
    ECH_ALIGNED double sum[COLUMNS];
    for (int64_t j = 0; j < n; j++) sum[j] = accumulate ? ech_number(sums, to + j) : 0.0F;
    for (int64_t r = 0; r < R; r++, from += stride) add_row(sum, dy, from, n);
    for (int64_t j = 0; j < n; j++) ech_set_number(sums, to + j, (float)sum[j]);
}

static void sum_columns(int64_t R, int64_t stride, int64_t n, const ech_tensor *dy, int64_t from,
                        bool accumulate, const ech_tensor *sums, int64_t to)
{
    if (n == COLUMNS)
        sum_columns_of(R, stride, COLUMNS, dy, from, accumulate, sums, to);
    else
        sum_columns_of(R, stride, n, dy, from, accumulate, sums, to);
}

void ECH_CPU(bias_backward)(ech_kernel_context *context, const ech_tensor *dy, bool accumulate,
                            const ech_tensor *dbias)
{
    int64_t R = dy->shape[0], N = dy->shape[1];
    ECH_SHAPES(bias_backward, ECH_REAL, dy, dbias);
#pragma omp parallel for num_threads(context->threads) if (R * N > ECH_CHUNK)
    for (int64_t first = 0; first < N; first += COLUMNS)
        sum_columns(R, dy->stride[0], ech_part(N, first, COLUMNS), dy, first, accumulate, dbias,
                    first);
}

/* n columns of dbias from `column` on, of expert i: sums over its rows in all splits, in order. */
static void sum_expert(const ech_tensor *dy, const ech_tensor *counts, int64_t i, int64_t column,
                       int64_t n, bool accumulate, const ech_tensor *dbias)
{
    int64_t R = dy->shape[0], N = dy->shape[1], P = counts->shape[0], X = counts->shape[1];
    double sum[COLUMNS];
    for (int64_t j = 0; j < n; j++)
        sum[j] = accumulate ? ech_number(dbias, i * N + column + j) : 0.0F;
    for (int64_t p = 0; p < P; p++) {
        int64_t r = p * (R / P) + ech_rows_before(counts->data, X, p, i);
        int64_t end = r + ((const int32_t *)counts->data)[p * X + i];
        for (; r < end; r++) add_row(sum, dy, r * N + column, n);
    }
    for (int64_t j = 0; j < n; j++) ech_set_number(dbias, i * N + column + j, (float)sum[j]);
}

void ECH_CPU(grouped_bias_backward)(ech_kernel_context *context, const ech_tensor *dy,
                                    const ech_tensor *counts, bool accumulate,
                                    const ech_tensor *dbias)
{
    int64_t X = dbias->shape[0], N = dbias->shape[1];
    ECH_SHAPES(grouped_bias_backward, ECH_REAL, dy, counts, dbias);
    ech_grouped_check(counts, dy->shape[0]);
#pragma omp parallel for collapse(2) num_threads(context->threads) if (X * N > COLUMNS)
    for (int64_t i = 0; i < X; i++)
        for (int64_t first = 0; first < N; first += COLUMNS)
            sum_expert(dy, counts, i, first, ech_part(N, first, COLUMNS), accumulate, dbias);
}

/* One document per sample: rows at one position have a distance of T'; the first T' rows have one
 * position each. */
static void sum_positions(const ech_kernel_context *context, const ech_tensor *dy,
                          const ech_rows *rows, bool accumulate, const ech_tensor *dtable)
{
    int64_t R = dy->shape[0], C = dy->shape[1], P = dtable->shape[0], T = rows->tokens;
    int64_t different = R < T ? R : T;
#pragma omp parallel for num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t r = 0; r < different; r++) {
        int64_t position = ech_row_position(rows, r);
        ECH_ASSERT(position < P);
        for (int64_t first = 0; first < C; first += COLUMNS)
            sum_columns((R - r + T - 1) / T, T * C, ech_part(C, first, COLUMNS), dy, r * C + first,
                        accumulate, dtable, position * C + first);
    }
}

/* The rows of dy and the table's row for each: by its id or, if ids is NULL, by its position. */
typedef struct table_rows {
    const ech_tensor *dy, *dtable, *ids;
    int64_t first_id;
    const ech_rows *rows;
    const ech_tensor *starts;
} table_rows;

ECH_INLINE int64_t place_of(const table_rows *at, int64_t r)
{
    if (!at->ids) return ech_row_in_document(at->rows, at->starts, r);
    return ((const int32_t *)at->ids->data)[r] - at->first_id;
}

/* Rows of a few numbers, which are hardly worth a part. A large table's are in no cache. */
static void add_narrow_rows(const table_rows *at)
{
    enum { AHEAD = 32 };
    int64_t R = at->dy->shape[0], C = at->dy->shape[1];
    for (int64_t r = 0; r < R; r++) {
        int64_t place = place_of(at, r);
        if (r + AHEAD < R)
            __builtin_prefetch((float *)at->dtable->data + place_of(at, r + AHEAD) * C, 1);
        if (place < 0 || place >= at->dtable->shape[0]) continue;
        float *to = (float *)at->dtable->data + place * C;
        for (int64_t c = 0; c < C; c++) to[c] += ech_number(at->dy, r * C + c);
    }
}

/* Columns [first, first + n) of all rows, each added to its row of an fp32 table. */
static void add_rows(const table_rows *at, int64_t first, int64_t n)
{
    int64_t C = at->dy->shape[1];
    if (C < ECH_WIDE) {
        add_narrow_rows(at);
        return;
    }
    ECH_ALIGNED float part[COLUMNS];
    for (int64_t r = 0; r < at->dy->shape[0]; r++) {
        int64_t place = place_of(at, r);
        if (place < 0 || place >= at->dtable->shape[0]) continue;
        const float *from = ech_part_of(at->dy, r * C + first, n, part);
        float *to = (float *)at->dtable->data + place * C + first;
#pragma omp simd
        for (int64_t j = 0; j < n; j++) to[j] += from[j];
    }
}

enum { SEARCHED = 256 }; /* rows that are searched for a place at a time */

static bool any_at(const table_rows *at, int64_t first, int64_t n, int64_t place)
{
    int found = 0;
    if (!at->ids) {
        for (int64_t r = first; r < first + n; r++) found |= place_of(at, r) == place;
        return found;
    }
    const int32_t *id = (const int32_t *)at->ids->data + first;
    if (place + at->first_id > INT32_MAX) return false;
    const int32_t wanted = (int32_t)(place + at->first_id);
#pragma omp simd reduction(| : found)
    for (int64_t i = 0; i < n; i++) found |= id[i] == wanted;
    return found;
}

/* One row of a 16-bit table. Its sums are fp32 and rounded once, so all its rows are searched
 * first. */
static void sum_place(const table_rows *at, int64_t place, bool accumulate)
{
    int64_t R = at->dy->shape[0], C = at->dy->shape[1];
    for (int64_t c = 0; c < C; c += ECH_PART) {
        ECH_ALIGNED float part[ECH_PART], sum[ECH_PART];
        int64_t n = ech_part(C, c, ECH_PART);
        memset(sum, 0, sizeof sum);
        if (accumulate) ech_widen((const ech_real *)at->dtable->data + place * C + c, n, sum);
        for (int64_t first = 0; first < R; first += SEARCHED) {
            int64_t end = first + ech_part(R, first, SEARCHED);
            if (!any_at(at, first, end - first, place)) continue;
            for (int64_t r = first; r < end; r++) {
                if (place_of(at, r) != place) continue;
                const float *from = ech_part_of(at->dy, r * C + c, n, part);
#pragma omp simd
                for (int64_t j = 0; j < n; j++) sum[j] += from[j];
            }
        }
        ech_part_done(at->dtable, place * C + c, n, sum);
    }
}

static void sum_table(const ech_kernel_context *context, const table_rows *at, bool accumulate)
{
    int64_t places = at->dtable->shape[0], C = at->dy->shape[1];
    if (!ech_is_wide(at->dtable)) {
#pragma omp parallel for num_threads(context->threads) if (places * C > ECH_CHUNK)
        for (int64_t place = 0; place < places; place++) sum_place(at, place, accumulate);
        return;
    }
#pragma omp parallel num_threads(context->threads) if (places * C > ECH_CHUNK)
    {
        float *table = at->dtable->data;
        if (!accumulate) {
#pragma omp for
            for (int64_t i = 0; i < places * C; i += ECH_CHUNK) /* rows may have a single number */
                memset(table + i, 0, (size_t)ech_part(places * C, i, ECH_CHUNK) * sizeof *table);
        }
#pragma omp for
        for (int64_t first = 0; first < C; first += COLUMNS)
            add_rows(at, first, ech_part(C, first, COLUMNS));
    }
}

void ECH_CPU(position_backward)(ech_kernel_context *context, const ech_tensor *dy,
                                const ech_rows *rows, const ech_tensor *starts, bool accumulate,
                                const ech_tensor *dtable)
{
    ECH_ROWS_NOW(rows);
    ECH_SHAPES(position_backward, ECH_REAL, dy, dtable);
    ECH_ROWS(rows, starts, dy->shape[0]);
    if (starts) {
        const table_rows at = {.dy = dy, .dtable = dtable, .rows = rows, .starts = starts};
        for (int64_t r = 0; r < dy->shape[0]; r++) ECH_ASSERT(place_of(&at, r) < dtable->shape[0]);
        sum_table(context, &at, accumulate);
        return;
    }
    if (!accumulate) memset(dtable->data, 0, ech_tensor_bytes(dtable));
    sum_positions(context, dy, rows, accumulate, dtable);
}

void ECH_CPU(embedding_backward)(ech_kernel_context *context, const ech_tensor *dy,
                                 const ech_tensor *ids, int64_t first_id, bool accumulate,
                                 const ech_tensor *dtable)
{
    ECH_SHAPES(embedding_backward, ECH_REAL, dy, ids, dtable);
    const table_rows at = {.dy = dy, .dtable = dtable, .ids = ids, .first_id = first_id};
    sum_table(context, &at, accumulate);
}
