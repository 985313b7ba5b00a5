/* SPDX-License-Identifier: Apache-2.0
 *
 * LayerNorm and RMSNorm, which is LayerNorm that is not centered: without mean and bias. The backward goes over the
 * rows once, four at a time: they are read for their means, then, from the L1 cache, for dx and the gradients of gain
 * and bias. The latter are summed in fp64 by blocks of rows, and the blocks in order, so the result is the same for
 * any number of threads.
 */
#include <math.h>

#include "kernel/cpu/rows.h"
#include "kernel/cpu/vector.h"
#include "kernel/shape.h"

ECH_INLINE void forward_row(bool centered, int64_t C, const float *x, const float *gain,
                            const float *bias, double eps, float *y, float *mean, float *rstd)
{
    float sum = 0, squares = 0, m = 0;
    if (centered) {
#pragma omp simd reduction(+ : sum)
        for (int64_t c = 0; c < C; c++) sum += x[c];
        *mean = m = sum / (float)C;
    }
#pragma omp simd reduction(+ : squares)
    for (int64_t c = 0; c < C; c++) squares += (x[c] - m) * (x[c] - m);
    float s = (float)(1 / sqrt(squares / (double)C + eps));
    for (int64_t c = 0; c < C; c++)
        y[c] = centered ? (x[c] - m) * s * gain[c] + bias[c] : x[c] * s * gain[c];
    *rstd = s;
}

void ECH_CPU(layernorm_forward)(ech_kernel_context *context, const ech_tensor *x,
                                const ech_tensor *gain, const ech_tensor *bias, double eps,
                                const ech_tensor *y, const ech_tensor *mean, const ech_tensor *rstd)
{
    int64_t R = x->shape[0], C = x->shape[1];
    ECH_SHAPES(layernorm_forward, ECH_F32, x, gain, bias, y, mean, rstd);
#pragma omp parallel for num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t r = 0; r < R; r++)
        forward_row(true, C, (const float *)x->data + r * C, gain->data, bias->data, eps,
                    (float *)y->data + r * C, (float *)mean->data + r, (float *)rstd->data + r);
}

void ECH_CPU(rmsnorm_forward)(ech_kernel_context *context, const ech_tensor *x,
                              const ech_tensor *gain, double eps, const ech_tensor *y,
                              const ech_tensor *rstd)
{
    int64_t R = x->shape[0], C = x->shape[1];
    ECH_SHAPES(rmsnorm_forward, ECH_F32, x, gain, y, rstd);
#pragma omp parallel for num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t r = 0; r < R; r++)
        forward_row(false, C, (const float *)x->data + r * C, gain->data, NULL, eps,
                    (float *)y->data + r * C, NULL, (float *)rstd->data + r);
}

enum { ROWS = 4, BLOCK_ROWS = 64, MOST_BLOCKS = 64 };

/* Rows of a block: a multiple of ROWS that R alone decides. */
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

/* Some rows of (R,C); mean is NULL of RMSNorm. */
typedef struct norm_rows {
    int64_t C;
    const float *dy, *x, *gain, *mean, *rstd, *add;
    float *dx;
} norm_rows;

typedef struct row_factors {
    float mean, rstd, e_mean, en_mean;
} row_factors;

/* The means over a row of e = dy gain and of e n, n = (x - mean) rstd. */
ECH_INLINE row_factors row_means(const norm_rows *at, int64_t r, bool centered)
{
    row_factors f = {.mean = centered ? at->mean[r] : 0.0F, .rstd = at->rstd[r]};
    const float *dy = at->dy + r * at->C, *x = at->x + r * at->C, *gain = at->gain;
    float e_sum = 0, en_sum = 0;
#pragma omp simd reduction(+ : e_sum, en_sum)
    for (int64_t c = 0; c < at->C; c++) {
        float e = dy[c] * gain[c];
        e_sum += e;
        en_sum += e * ((x[c] - f.mean) * f.rstd);
    }
    f.e_mean = centered ? e_sum / (float)at->C : 0.0F;
    f.en_mean = en_sum / (float)at->C;
    return f;
}

/* `n` rows, at most ROWS, from row r on: dx = rstd (e - mean(e) - n mean(e n)) + add, of RMSNorm without
 * mean(e); their terms of dgain and dbias are added to the sums. */
ECH_INLINE void norm_group(const norm_rows *at, int64_t r, int n, bool centered, bool adds,
                           double *gain_sum, double *bias_sum)
{
    row_factors f[ROWS];
    const int64_t C = at->C;
    const float *dy = at->dy + r * C, *x = at->x + r * C, *gain = at->gain;
    const float *add = adds ? at->add + r * C : NULL;
    float *dx = at->dx + r * C;
    for (int i = 0; i < n; i++) f[i] = row_means(at, r + i, centered);
#pragma omp simd
    for (int64_t c = 0; c < C; c++) {
        float gain_part = 0, bias_part = 0;
        for (int i = 0; i < n; i++) {
            float d = dy[i * C + c], normal = (x[i * C + c] - f[i].mean) * f[i].rstd;
            float out = f[i].rstd * (d * gain[c] - f[i].e_mean - normal * f[i].en_mean);
            gain_part += d * normal;
            bias_part += d;
            dx[i * C + c] = adds ? out + add[i * C + c] : out;
        }
        gain_sum[c] += (double)gain_part;
        if (centered) bias_sum[c] += (double)bias_part;
    }
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
        float *to = (float *)out->data + c;
        double sum = accumulate ? *to : 0.0;
        for (int64_t b = 0; b < blocks; b++) sum += sums[b * columns + first + c];
        *to = (float)sum;
    }
}

/* mean and dbias are NULL of RMSNorm. Sums (blocks, C or 2 C): of gain, followed by those of bias. */
static void backward(ech_kernel_context *context, const ech_tensor *dy, const ech_tensor *x,
                     const ech_tensor *gain, const ech_tensor *mean, const ech_tensor *rstd,
                     const ech_tensor *add, const ech_tensor *dx, bool accumulate,
                     const ech_tensor *dgain, const ech_tensor *dbias)
{
    int64_t R = x->shape[0], C = x->shape[1], columns = mean ? 2 * C : C;
    int64_t each = block_rows(R), blocks = block_count(R);
    double *sums = ech_scratch(context, (size_t)(blocks * columns) * sizeof *sums);
    norm_rows at = {C,
                    dy->data,
                    x->data,
                    gain->data,
                    mean ? mean->data : NULL,
                    rstd->data,
                    add ? add->data : NULL,
                    dx->data};
#pragma omp parallel for num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t first = 0; first < R; first += each) {
        int64_t end = first + each < R ? first + each : R;
        double *own = sums + first / each * columns;
        /* Each of the four loops by itself, so that none asks within. */
        if (mean && add)
            norm_block(&at, first, end, true, true, own, own + C);
        else if (mean)
            norm_block(&at, first, end, true, false, own, own + C);
        else if (add)
            norm_block(&at, first, end, false, true, own, NULL);
        else
            norm_block(&at, first, end, false, false, own, NULL);
    }
    fold(sums, blocks, columns, 0, accumulate, dgain);
    if (dbias) fold(sums, blocks, columns, C, accumulate, dbias);
}

void ECH_CPU(layernorm_backward)(ech_kernel_context *context, const ech_tensor *dy,
                                 const ech_tensor *x, const ech_tensor *gain,
                                 const ech_tensor *mean, const ech_tensor *rstd,
                                 const ech_tensor *add, const ech_tensor *dx, bool accumulate,
                                 const ech_tensor *dgain, const ech_tensor *dbias)
{
    ECH_SHAPES(layernorm_backward, ECH_F32, dy, x, gain, mean, rstd, add, dx, dgain, dbias);
    backward(context, dy, x, gain, mean, rstd, add, dx, accumulate, dgain, dbias);
}

void ECH_CPU(rmsnorm_backward)(ech_kernel_context *context, const ech_tensor *dy,
                               const ech_tensor *x, const ech_tensor *gain, const ech_tensor *rstd,
                               const ech_tensor *add, const ech_tensor *dx, bool accumulate,
                               const ech_tensor *dgain)
{
    ECH_SHAPES(rmsnorm_backward, ECH_F32, dy, x, gain, rstd, add, dx, dgain);
    backward(context, dy, x, gain, NULL, rstd, add, dx, accumulate, dgain, NULL);
}
