/* SPDX-License-Identifier: Apache-2.0
 *
 * LayerNorm, and RMSNorm, which is LayerNorm without centering: without mean and bias. The backward
 * passes over the rows once, four at a time: it reads them for their means, then, from the L1
 * cache, for dx and the gradients of gain and bias. The latter are summed in fp64 by blocks of
 * rows, and the blocks in order, so the result is the same for any number of threads.
 */
#include <math.h>

#include "kernel/cpu/part.h"
#include "kernel/shape.h"

/* Means are summed in fp32: for fp32 over rows, for 16 bits in parts. The size of parts of a row of
 * C elements. */
ECH_INLINE int64_t part_size(bool wide, int64_t C, int64_t part)
{
    return wide || C < part ? C : part;
}

/* mean and bias are NULL for RMSNorm. With a and b, x is their sum; each of its rows is computed
 * right before it is read. With `squares`, rows are parts of longer ones. */
typedef struct forward_rows {
    const ech_tensor *a, *b, *x, *squares, *gain, *bias, *y, *mean, *rstd;
    double eps;
    float offset; /* added to gain */
} forward_rows;

/* The part of row r from element `first` on; if there is only one, it is widened once. */
ECH_INLINE const float *row_part(const ech_tensor *x, int64_t r, int64_t first, int64_t n,
                                 float *buffer, const float *before)
{
    int64_t C = x->shape[1];
    return before && n == C ? before : ech_part_of(x, r * C + first, n, buffer);
}

ECH_INLINE void forward_row(const forward_rows *at, bool centered, int64_t r)
{
    ECH_ALIGNED float buffer[2][ECH_PART];
    float sum = 0, squares = 0, m = 0, offset = at->offset;
    const float *gain = at->gain->data, *bias = centered ? at->bias->data : NULL, *x = NULL;
    int64_t C = at->x->shape[1], part = part_size(ech_is_wide(at->x), C, ECH_PART);
    for (int64_t first = 0; centered && first < C; first += part) {
        int64_t n = ech_part(C, first, part);
        float own = 0;
        x = row_part(at->x, r, first, n, buffer[0], x);
#pragma omp simd reduction(+ : own)
        for (int64_t c = 0; c < n; c++) own += x[c];
        sum += own;
    }
    if (centered) ((float *)at->mean->data)[r] = m = sum / (float)C;
    for (int64_t first = 0; !at->squares && first < C; first += part) {
        int64_t n = ech_part(C, first, part);
        float own = 0;
        x = row_part(at->x, r, first, n, buffer[0], x);
#pragma omp simd reduction(+ : own)
        for (int64_t c = 0; c < n; c++) own += (x[c] - m) * (x[c] - m);
        squares += own;
    }
    double mean_square =
        at->squares ? (double)((const float *)at->squares->data)[r] : squares / (double)C;
    float s = (float)(1 / sqrt(mean_square + at->eps));
    ((float *)at->rstd->data)[r] = s;
    for (int64_t first = 0; first < C; first += ECH_PART) {
        int64_t n = ech_part(C, first, ECH_PART);
        const float *in = row_part(at->x, r, first, n, buffer[0], x);
        float *y = ech_part_to(at->y, r * C + first, buffer[1]);
        for (int64_t c = 0; c < n; c++) {
            float g = gain[first + c] + offset;
            y[c] = centered ? (in[c] - m) * s * g + bias[first + c] : in[c] * s * g;
        }
        ech_part_done(at->y, r * C + first, n, y);
    }
}

ECH_INLINE void add_row(const forward_rows *at, int64_t r)
{
    int64_t C = at->x->shape[1];
    for (int64_t c = 0; c < C; c += ECH_PART) {
        ECH_ALIGNED float part[3][ECH_PART];
        int64_t n = ech_part(C, c, ECH_PART);
        const float *a = ech_part_of(at->a, r * C + c, n, part[0]);
        const float *b = ech_part_of(at->b, r * C + c, n, part[1]);
        float *x = ech_part_to(at->x, r * C + c, part[2]);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) x[i] = a[i] + b[i];
        ech_part_done(at->x, r * C + c, n, x);
    }
}

/* All rows. */
ECH_INLINE void forward(const ech_kernel_context *context, const forward_rows *at, bool adds,
                        bool centered)
{
    int64_t R = at->x->shape[0], C = at->x->shape[1];
#pragma omp parallel for num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t r = 0; r < R; r++) {
        if (adds) add_row(at, r);
        forward_row(at, centered, r);
    }
}

void ECH_CPU(layernorm_forward)(ech_kernel_context *context, const ech_tensor *x,
                                const ech_tensor *gain, const ech_tensor *bias, double eps,
                                const ech_tensor *y, const ech_tensor *mean, const ech_tensor *rstd)
{
    ECH_SHAPES(layernorm_forward, ECH_REAL, x, gain, bias, y, mean, rstd);
    const forward_rows at = {NULL, NULL, x, NULL, gain, bias, y, mean, rstd, eps, 0};
    forward(context, &at, false, true);
}

void ECH_CPU(rmsnorm_forward)(ech_kernel_context *context, const ech_tensor *x,
                              const ech_tensor *squares, const ech_tensor *gain, double offset,
                              double eps, const ech_tensor *y, const ech_tensor *rstd)
{
    ECH_SHAPES(rmsnorm_forward, ECH_REAL, x, squares, gain, y, rstd);
    const forward_rows at = {NULL, NULL, x, squares, gain, NULL, y, NULL, rstd, eps, (float)offset};
    forward(context, &at, false, false);
}

void ECH_CPU(add_layernorm)(ech_kernel_context *context, const ech_tensor *a, const ech_tensor *b,
                            const ech_tensor *x, const ech_tensor *gain, const ech_tensor *bias,
                            double eps, const ech_tensor *y, const ech_tensor *mean,
                            const ech_tensor *rstd)
{
    ECH_SHAPES(add_layernorm, ECH_REAL, a, b, x, gain, bias, y, mean, rstd);
    const forward_rows at = {a, b, x, NULL, gain, bias, y, mean, rstd, eps, 0};
    forward(context, &at, true, true);
}

void ECH_CPU(add_rmsnorm)(ech_kernel_context *context, const ech_tensor *a, const ech_tensor *b,
                          const ech_tensor *x, const ech_tensor *gain, double offset, double eps,
                          const ech_tensor *y, const ech_tensor *rstd)
{
    ECH_SHAPES(add_rmsnorm, ECH_REAL, a, b, x, gain, y, rstd);
    const forward_rows at = {a, b, x, NULL, gain, NULL, y, NULL, rstd, eps, (float)offset};
    forward(context, &at, true, false);
}

enum { ROWS = 4, BLOCK_ROWS = 64, MOST_BLOCKS = 64 };

/* Rows of a block: a multiple of ROWS that depends only on R. */
static int64_t block_rows(int64_t R)
{
    int64_t rows = (R + MOST_BLOCKS - 1) / MOST_BLOCKS;
    rows = (rows + ROWS - 1) / ROWS * ROWS;
    return rows < BLOCK_ROWS ? BLOCK_ROWS : rows;
}

static int64_t block_count(int64_t R)
{
    return (R + block_rows(R) - 1) / block_rows(R);
}

/* dims: R, C. A sum for gain of each block and column. */
size_t ECH_CPU(scratch_rmsnorm_backward)(ech_dtype dtype, int threads, const int64_t *dims)
{
    return (size_t)(block_count(dims[0]) * dims[1]) * sizeof(double);
}

/* Sums for gain and bias. */
size_t ECH_CPU(scratch_layernorm_backward)(ech_dtype dtype, int threads, const int64_t *dims)
{
    return 2 * ECH_CPU(scratch_rmsnorm_backward)(dtype, threads, dims);
}

/* Some rows of (R,C); mean is NULL for RMSNorm, and dsquares unless rows are parts of longer
 * ones. */
typedef struct norm_rows {
    int64_t C;
    const ech_tensor *dy, *x, *add, *dx;
    const float *gain, *mean, *rstd;
    float *dsquares;
    float offset; /* added to gain */
} norm_rows;

typedef struct row_factors {
    float mean, rstd, e_mean, en_mean;
} row_factors;

/* The means over a row of e = dy gain and of e n, n = (x - mean) rstd. If rows are
 * parts, the latter becomes dsquares, and is 0 here. */
ECH_INLINE row_factors row_means(const norm_rows *at, int64_t r, bool centered)
{
    row_factors f = {.mean = centered ? at->mean[r] : 0.0F, .rstd = at->rstd[r]};
    ECH_ALIGNED float buffer[2][ECH_PART];
    float e_sum = 0, en_sum = 0;
    int64_t part = part_size(ech_is_wide(at->dy), at->C, ECH_PART);
    for (int64_t first = 0; first < at->C; first += part) {
        int64_t n = ech_part(at->C, first, part);
        const float *dy = ech_part_of(at->dy, r * at->C + first, n, buffer[0]);
        const float *x = ech_part_of(at->x, r * at->C + first, n, buffer[1]);
        const float *gain = at->gain + first, offset = at->offset;
        float e_part = 0, en_part = 0;
#pragma omp simd reduction(+ : e_part, en_part)
        for (int64_t c = 0; c < n; c++) {
            float e = dy[c] * (gain[c] + offset);
            e_part += e;
            en_part += e * ((x[c] - f.mean) * f.rstd);
        }
        e_sum += e_part;
        en_sum += en_part;
    }
    f.e_mean = centered ? e_sum / (float)at->C : 0.0F;
    f.en_mean = at->dsquares ? 0.0F : en_sum / (float)at->C;
    if (at->dsquares) at->dsquares[r] = -0.5F * f.rstd * f.rstd * en_sum;
    return f;
}

enum { COLUMNS = 256 };

/* Some columns of a few rows, in place or in a buffer. */
typedef struct block_part {
    float *at;
    int64_t stride; /* of rows */
} block_part;

ECH_INLINE block_part place_part(const ech_tensor *x, int64_t first, float *buffer)
{
    return ech_is_wide(x) ? (block_part){(float *)x->data + first, x->shape[1]}
                          : (block_part){buffer, COLUMNS};
}

/* `count` columns of n rows from element `first` on. */
ECH_INLINE block_part read_part(const ech_tensor *x, int64_t first, int n, int64_t count,
                                float *buffer)
{
    for (int i = 0; i < n; i++)
        ech_part_of(x, first + i * x->shape[1], count, buffer + i * COLUMNS);
    return place_part(x, first, buffer);
}

/* `count` columns from column `first` on of norm_group. */
ECH_INLINE void norm_columns(const norm_rows *at, int64_t r, int n, const row_factors *f,
                             int64_t first, int64_t count, bool centered, bool adds,
                             double *gain_sum, double *bias_sum)
{
    ECH_ALIGNED float buffer[4][ROWS * COLUMNS];
    int64_t begin = r * at->C + first;
    const block_part dy = read_part(at->dy, begin, n, count, buffer[0]);
    const block_part x = read_part(at->x, begin, n, count, buffer[1]);
    const block_part add =
        adds ? read_part(at->add, begin, n, count, buffer[2]) : (block_part){NULL, 0};
    const block_part dx = place_part(at->dx, begin, buffer[3]);
    const float *gain = at->gain + first, offset = at->offset;
#pragma omp simd
    for (int64_t c = 0; c < count; c++) {
        float gain_part = 0, bias_part = 0;
        for (int i = 0; i < n; i++) {
            float d = dy.at[i * dy.stride + c];
            float normal = (x.at[i * x.stride + c] - f[i].mean) * f[i].rstd;
            float out = f[i].rstd * (d * (gain[c] + offset) - f[i].e_mean - normal * f[i].en_mean);
            gain_part += d * normal;
            bias_part += d;
            dx.at[i * dx.stride + c] = adds ? out + add.at[i * add.stride + c] : out;
        }
        gain_sum[first + c] += (double)gain_part;
        if (centered) bias_sum[first + c] += (double)bias_part;
    }
    for (int i = 0; i < n; i++)
        ech_part_done(at->dx, begin + i * at->C, count, dx.at + i * dx.stride);
}

/* `n` rows, at most ROWS, from row r on: dx = rstd (e - mean(e) - n mean(e n)) + add, for RMSNorm
 * without mean(e); their terms of dgain and dbias are added to the sums. */
ECH_INLINE void norm_group(const norm_rows *at, int64_t r, int n, bool centered, bool adds,
                           double *gain_sum, double *bias_sum)
{
    row_factors f[ROWS];
    int64_t part = part_size(ech_is_wide(at->dy), at->C, COLUMNS);
    for (int i = 0; i < n; i++) f[i] = row_means(at, r + i, centered);
    for (int64_t first = 0; first < at->C; first += part)
        norm_columns(at, r, n, f, first, ech_part(at->C, first, part), centered, adds, gain_sum,
                     bias_sum);
}

ECH_INLINE void norm_block(const norm_rows *at, int64_t first, int64_t end, bool centered,
                           bool adds, double *gain_sum, double *bias_sum)
{
    int64_t r = first;
    for (int64_t c = 0; c < at->C; c++) {
        gain_sum[c] = 0;
        if (centered) bias_sum[c] = 0;
    }
    for (; r + ROWS <= end; r += ROWS) norm_group(at, r, ROWS, centered, adds, gain_sum, bias_sum);
    for (; r < end; r++) norm_group(at, r, 1, centered, adds, gain_sum, bias_sum);
}

/* Columns [first, first + C) of the sums (blocks, columns) into out (C). */
static void fold(const double *sums, int64_t blocks, int64_t columns, int64_t first,
                 bool accumulate, const ech_tensor *out)
{
    for (int64_t c = 0; c < out->shape[0]; c++) {
        double sum = accumulate ? ech_number(out, c) : 0.0F;
        for (int64_t b = 0; b < blocks; b++) sum += sums[b * columns + first + c];
        ech_set_number(out, c, (float)sum);
    }
}

/* mean and dbias are NULL for RMSNorm. Sums (blocks, C or 2 C): for gain, followed by those for
 * bias. */
static void backward(ech_kernel_context *context, const ech_tensor *dy, const ech_tensor *x,
                     const ech_tensor *gain, double offset, const ech_tensor *mean,
                     const ech_tensor *rstd, const ech_tensor *add, const ech_tensor *dx,
                     const ech_tensor *dsquares, bool accumulate, const ech_tensor *dgain,
                     const ech_tensor *dbias)
{
    int64_t R = x->shape[0], C = x->shape[1], columns = mean ? 2 * C : C;
    int64_t each = block_rows(R), blocks = block_count(R);
    double *sums = ech_scratch(context, (size_t)(blocks * columns) * sizeof *sums);
    const norm_rows at = {C,
                          dy,
                          x,
                          add,
                          dx,
                          gain->data,
                          mean ? mean->data : NULL,
                          rstd->data,
                          dsquares ? dsquares->data : NULL,
                          (float)offset};
#pragma omp parallel for num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t first = 0; first < R; first += each) {
        int64_t end = first + each < R ? first + each : R;
        double *own = sums + first / each * columns;
        /* Separate loops for the four cases, so that none has conditions inside. */
        if (mean && add)
            norm_block(&at, first, end, true, true, own, own + C);
        else if (mean)
            norm_block(&at, first, end, true, false, own, own + C);
        else if (add)
            norm_block(&at, first, end, false, true, own, NULL);
        else
            norm_block(&at, first, end, false, false, own, NULL);
    }
    if (dgain) fold(sums, blocks, columns, 0, accumulate, dgain);
    if (dbias) fold(sums, blocks, columns, C, accumulate, dbias);
}

void ECH_CPU(layernorm_backward)(ech_kernel_context *context, const ech_tensor *dy,
                                 const ech_tensor *x, const ech_tensor *gain,
                                 const ech_tensor *mean, const ech_tensor *rstd,
                                 const ech_tensor *add, const ech_tensor *dx, bool accumulate,
                                 const ech_tensor *dgain, const ech_tensor *dbias)
{
    ECH_SHAPES(layernorm_backward, ECH_REAL, dy, x, gain, mean, rstd, add, dx, dgain, dbias);
    backward(context, dy, x, gain, 0, mean, rstd, add, dx, NULL, accumulate, dgain, dbias);
}

void ECH_CPU(rmsnorm_backward)(ech_kernel_context *context, const ech_tensor *dy,
                               const ech_tensor *x, const ech_tensor *gain, double offset,
                               const ech_tensor *rstd, const ech_tensor *add, const ech_tensor *dx,
                               const ech_tensor *dsquares, bool accumulate, const ech_tensor *dgain)
{
    ECH_SHAPES(rmsnorm_backward, ECH_REAL, dy, x, gain, rstd, add, dx, dsquares, dgain);
    backward(context, dy, x, gain, offset, NULL, rstd, add, dx, dsquares, accumulate, dgain, NULL);
}

/* ---- sums of a row's squares ---- */

void ECH_CPU(squares_forward)(ech_kernel_context *context, const ech_tensor *x, double share,
                              const ech_tensor *y)
{
    ECH_SHAPES(squares_forward, ECH_REAL, x, y);
    int64_t R = x->shape[0], C = x->shape[1], part = part_size(ech_is_wide(x), C, ECH_PART);
#pragma omp parallel for num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t r = 0; r < R; r++) {
        double sum = 0;
        for (int64_t first = 0; first < C; first += part) {
            ECH_ALIGNED float buffer[ECH_PART];
            int64_t n = ech_part(C, first, part);
            const float *v = ech_part_of(x, r * C + first, n, buffer);
            float own = 0;
#pragma omp simd reduction(+ : own)
            for (int64_t c = 0; c < n; c++) own += v[c] * v[c];
            sum += (double)own;
        }
        ((float *)y->data)[r] = (float)(share * sum);
    }
}

void ECH_CPU(squares_backward)(ech_kernel_context *context, const ech_tensor *dy,
                               const ech_tensor *x, double share, const ech_tensor *add,
                               const ech_tensor *dx)
{
    ECH_SHAPES(squares_backward, ECH_REAL, dy, x, add, dx);
    int64_t R = x->shape[0], C = x->shape[1];
#pragma omp parallel for num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t r = 0; r < R; r++) {
        float factor = (float)(2 * share) * ((const float *)dy->data)[r];
        for (int64_t first = 0; first < C; first += ECH_PART) {
            ECH_ALIGNED float buffer[3][ECH_PART];
            int64_t n = ech_part(C, first, ECH_PART), at = r * C + first;
            const float *v = ech_part_of(x, at, n, buffer[0]);
            const float *more = ech_part_of(add, at, n, buffer[1]);
            float *to = ech_part_to(dx, at, buffer[2]);
            for (int64_t c = 0; c < n; c++) to[c] = more ? factor * v[c] + more[c] : factor * v[c];
            ech_part_done(dx, at, n, to);
        }
    }
}
