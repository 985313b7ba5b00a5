/* SPDX-License-Identifier: Apache-2.0
 *
 * The router's product, in fp32 for all types. The sum of a logit is computed in vectors and then
 * over their lanes, independently of other rows; and each thread owns columns of the weight's
 * gradient and adds all rows in order. So results are the same for any number of threads and any
 * part of the rows.
 */
#include <omp.h>

#include "kernel/cpu/dropout.h"
#include "kernel/cpu/part.h"
#include "kernel/experts.h"
#include "kernel/shape.h"

enum { ROWS = 4, EXPERTS = 4, COLUMNS = 64, ROWS_AT_ONCE = 128 };

/* to[i] *= the jitter of element first + i. */
static void jitter_part(const ech_dropout *jitter, ech_random_key key, uint64_t first, int64_t n,
                        float *to)
{
    uint32_t words[4 * ECH_DRAWS];
    for (int64_t done = 0; done < n;) {
        uint64_t element = first + (uint64_t)done;
        int64_t skip = (int64_t)(element % 4), count = 4 * ECH_DRAWS - skip;
        if (count > n - done) count = n - done;
        ech_lane_words(key, element / 4, words);
        for (int64_t i = 0; i < count; i++)
            to[done + i] *= (float)ech_jitter_factor(jitter->p, words[skip + i]);
        done += count;
    }
}

/* Columns [c, c + n) of row s of x, widened and jittered. */
static void jittered_row(const ech_tensor *x, const ech_dropout *jitter, ech_random_key key,
                         const ech_rows *rows, int64_t s, int64_t c, int64_t n, float *to)
{
    int64_t C = x->shape[1];
    ech_widen((const ech_real *)x->data + s * C + c, n, to);
    if (jitter->p > 0) jitter_part(jitter, key, (uint64_t)(ech_row_whole(rows, s) * C + c), n, to);
}

/* The products of `rows` rows of x and `experts` rows of weight, C numbers each. */
ECH_INLINE void multiply_rows(int rows, int experts, int64_t C, const float *x, const float *weight,
                              float *logits, int64_t E)
{
    ech_wide sum[ROWS][EXPERTS];
    int64_t c = 0;
    for (int r = 0; r < rows; r++)
        for (int e = 0; e < experts; e++) sum[r][e] = (ech_wide){0};
    for (; c + ECH_WIDE <= C; c += ECH_WIDE) {
        ech_wide w[EXPERTS];
#pragma GCC unroll 4
        for (int e = 0; e < experts; e++) w[e] = ech_wide_load(weight + e * C + c);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            ech_wide v = ech_wide_load(x + r * C + c);
#pragma GCC unroll 4
            for (int e = 0; e < experts; e++) sum[r][e] += v * w[e];
        }
    }
    for (int r = 0; r < rows; r++)
        for (int e = 0; e < experts; e++) {
            float all = 0;
            for (int i = 0; i < ECH_WIDE; i++) all += sum[r][e][i];
            for (int64_t i = c; i < C; i++) all += x[r * C + i] * weight[e * C + i];
            logits[r * E + e] = all;
        }
}

static void multiply_block(int64_t rows, int64_t C, const float *x, const float *weight,
                           float *logits, int64_t E)
{
    for (int64_t e = 0; e < E;) {
        const float *w = weight + e * C;
        bool whole = E - e >= EXPERTS;
        if (rows == ROWS && whole)
            multiply_rows(ROWS, EXPERTS, C, x, w, logits + e, E);
        else
            for (int64_t r = 0; r < rows; r++) {
                if (whole)
                    multiply_rows(1, EXPERTS, C, x + r * C, w, logits + r * E + e, E);
                else
                    multiply_rows(1, 1, C, x + r * C, w, logits + r * E + e, E);
            }
        e += whole ? EXPERTS : 1;
    }
}

/* ROWS rows per thread. */
size_t ECH_CPU(scratch_router_forward)(ech_dtype dtype, int threads, const int64_t *dims)
{
    return (size_t)(threads * ROWS * dims[2]) * sizeof(float);
}

void ECH_CPU(router_forward)(ech_kernel_context *context, const ech_tensor *x,
                             const ech_tensor *weight, const ech_dropout *jitter,
                             const ech_rows *rows, const ech_tensor *logits)
{
    ECH_ROWS_NOW(rows);
    const ech_random_key key = ech_dropout_key(jitter);
    int64_t S = x->shape[0], C = x->shape[1], E = weight->shape[0];
    ECH_SHAPES(router_forward, ECH_REAL, x, weight, logits);
    ECH_ROWS(rows, NULL, S);
    float *room = ech_scratch(context, (size_t)(context->threads * ROWS * C) * sizeof *room);
#pragma omp parallel for num_threads(context->threads) if (S * C > ECH_CHUNK)
    for (int64_t s = 0; s < S; s += ROWS) {
        float *own = room + omp_get_thread_num() * ROWS * C;
        int64_t n = ech_part(S, s, ROWS);
        for (int64_t r = 0; r < n; r++)
            jittered_row(x, jitter, key, rows, s + r, 0, C, own + r * C);
        multiply_block(n, C, own, weight->data, (float *)logits->data + s * E, E);
    }
}

void ECH_CPU(router_backward_input)(ech_kernel_context *context, const ech_tensor *dlogits,
                                    const ech_tensor *weight, const ech_dropout *jitter,
                                    const ech_rows *rows, const ech_tensor *add,
                                    const ech_tensor *dx)
{
    ECH_ROWS_NOW(rows);
    const ech_random_key key = ech_dropout_key(jitter);
    int64_t S = dx->shape[0], C = dx->shape[1], E = weight->shape[0];
    ECH_SHAPES(router_backward_input, ECH_REAL, dlogits, weight, add, dx);
    ECH_ROWS(rows, NULL, S);
#pragma omp parallel for num_threads(context->threads) if (S * C > ECH_CHUNK)
    for (int64_t s = 0; s < S; s++)
        for (int64_t c = 0; c < C; c += ECH_PART) {
            ECH_ALIGNED float sum[ECH_PART], part[ECH_PART];
            int64_t n = ech_part(C, c, ECH_PART);
            memset(sum, 0, (size_t)n * sizeof *sum);
            for (int64_t e = 0; e < E; e++) {
                float d = ((const float *)dlogits->data)[s * E + e];
                const float *w = (const float *)weight->data + e * C + c;
#pragma omp simd
                for (int64_t i = 0; i < n; i++) sum[i] += d * w[i];
            }
            if (jitter->p > 0)
                jitter_part(jitter, key, (uint64_t)(ech_row_whole(rows, s) * C + c), n, sum);
            const float *more = ech_part_of(add, s * C + c, n, part);
            for (int64_t i = 0; more && i < n; i++) sum[i] += more[i];
            if (ech_is_wide(dx))
                memcpy((float *)dx->data + s * C + c, sum, (size_t)n * sizeof *sum);
            ech_part_done(dx, s * C + c, n, sum);
        }
}

/* Per thread: sums of COLUMNS columns of all experts, in fp32 for ROWS_AT_ONCE rows and in fp64 for
 * all. */
static size_t weight_bytes(int threads, int64_t E)
{
    return (size_t)(threads * E * COLUMNS) * (sizeof(double) + sizeof(float));
}

size_t ECH_CPU(scratch_router_backward_weight)(ech_dtype dtype, int threads, const int64_t *dims)
{
    return weight_bytes(threads, dims[1]);
}

typedef struct weight_rows {
    const ech_tensor *dlogits, *x;
    const ech_dropout *jitter;
    ech_random_key key;
    const ech_rows *rows;
} weight_rows;

/* Adds rows [s, end) to columns [c, c + n) of all experts' sums. */
static void add_rows(const weight_rows *of, int64_t s, int64_t end, int64_t c, int64_t n,
                     float *part, double *sum)
{
    int64_t E = of->dlogits->shape[1];
    memset(part, 0, (size_t)(E * COLUMNS) * sizeof *part);
    for (; s < end; s++) {
        ECH_ALIGNED float row[COLUMNS];
        jittered_row(of->x, of->jitter, of->key, of->rows, s, c, n, row);
        for (int64_t e = 0; e < E; e++) {
            float d = ((const float *)of->dlogits->data)[s * E + e], *to = part + e * COLUMNS;
#pragma omp simd
            for (int64_t i = 0; i < n; i++) to[i] += d * row[i];
        }
    }
    for (int64_t i = 0; i < E * COLUMNS; i++) sum[i] += (double)part[i];
}

void ECH_CPU(router_backward_weight)(ech_kernel_context *context, const ech_tensor *dlogits,
                                     const ech_tensor *x, const ech_dropout *jitter,
                                     const ech_rows *rows, bool accumulate,
                                     const ech_tensor *dweight)
{
    ECH_ROWS_NOW(rows);
    int64_t S = x->shape[0], C = x->shape[1], E = dweight->shape[0];
    ECH_SHAPES(router_backward_weight, ECH_REAL, dlogits, x, dweight);
    ECH_ROWS(rows, NULL, S);
    const weight_rows of = {dlogits, x, jitter, ech_dropout_key(jitter), rows};
    double *sums = ech_scratch(context, weight_bytes(context->threads, E));
    float *parts = (float *)(sums + context->threads * E * COLUMNS);
#pragma omp parallel for num_threads(context->threads) if (S * C > ECH_CHUNK)
    for (int64_t c = 0; c < C; c += COLUMNS) {
        double *sum = sums + omp_get_thread_num() * E * COLUMNS;
        float *part = parts + omp_get_thread_num() * E * COLUMNS;
        int64_t n = ech_part(C, c, COLUMNS);
        for (int64_t i = 0; i < E * COLUMNS; i++) sum[i] = 0;
        for (int64_t s = 0; s < S; s += ROWS_AT_ONCE)
            add_rows(&of, s, s + ech_part(S, s, ROWS_AT_ONCE), c, n, part, sum);
        for (int64_t e = 0; e < E; e++)
            for (int64_t i = 0; i < n; i++) {
                double before = accumulate ? (double)ech_number(dweight, e * C + c + i) : 0;
                ech_set_number(dweight, e * C + c + i, (float)(before + sum[e * COLUMNS + i]));
            }
    }
}
