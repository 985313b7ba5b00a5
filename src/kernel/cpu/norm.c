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

/* Vectors of sums of a row, so that an addition need not wait for the one before. */
enum { SUMS = 4 };

/* Elements [i, i + n) of x's memory, at most a vector; the others are 0. */
ECH_INLINE ech_wide load(const ech_tensor *x, int64_t i, int64_t n)
{
    return ech_either_load_some(ech_is_wide(x), x->data, i, n);
}

ECH_INLINE void store(const ech_tensor *x, int64_t i, int64_t n, ech_wide value)
{
    ech_either_store_some(ech_is_wide(x), x->data, i, n, value);
}

ECH_INLINE ech_wide load_floats(const float *x, int64_t n)
{
    return ech_either_load_some(true, x, 0, n);
}

ECH_INLINE float sum_of(const ech_wide sum[SUMS])
{
    return ech_wide_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

/* x - mean of the first n elements; 0 for the others. */
ECH_INLINE ech_wide centered_part(const ech_tensor *x, int64_t i, int64_t n, float mean)
{
    ech_wide part = load(x, i, n) - mean;
    for (int64_t l = n; l < ECH_WIDE; l++) part[l] = 0;
    return part;
}

/* The sum of x - mean over row r, or of its squares. */
ECH_INLINE float row_sum(const ech_tensor *x, int64_t r, float mean, bool squares)
{
    const ech_wide one = ech_wide_all(1);
    ech_wide sum[SUMS] = {{0}};
    int64_t C = x->shape[1], c = 0;
    for (; c + SUMS * ECH_WIDE <= C; c += SUMS * ECH_WIDE)
#pragma GCC unroll 4
        for (int s = 0; s < SUMS; s++) {
            ech_wide part = load(x, r * C + c + s * ECH_WIDE, ECH_WIDE) - mean;
            sum[s] += part * (squares ? part : one);
        }
    for (; c < C; c += ECH_WIDE) {
        ech_wide part = centered_part(x, r * C + c, C - c, mean);
        sum[c / ECH_WIDE % SUMS] += part * (squares ? part : one);
    }
    return sum_of(sum);
}

/* mean and bias are NULL for RMSNorm. With a and b, x is their sum; each of its rows is computed
 * right before it is read. With `squares`, rows are parts of longer ones. */
typedef struct forward_rows {
    const ech_tensor *a, *b, *x, *squares, *gain, *bias, *y, *mean, *rstd;
    double eps;
    float offset; /* added to gain */
} forward_rows;

/* n elements of row r from column c on. */
ECH_INLINE void normalize(const forward_rows *at, bool centered, float mean, float rstd, int64_t r,
                          int64_t c, int64_t n)
{
    int64_t i = r * at->x->shape[1] + c;
    ech_wide gain = load_floats((const float *)at->gain->data + c, n) + at->offset;
    ech_wide y = (load(at->x, i, n) - mean) * rstd * gain;
    if (centered) y += load_floats((const float *)at->bias->data + c, n);
    store(at->y, i, n, y);
}

ECH_INLINE void forward_row(const forward_rows *at, bool centered, int64_t r)
{
    int64_t C = at->x->shape[1], c = 0;
    float m = centered ? row_sum(at->x, r, 0, false) / (float)C : 0;
    if (centered) ((float *)at->mean->data)[r] = m;
    double mean_square = at->squares ? (double)((const float *)at->squares->data)[r]
                                     : (double)row_sum(at->x, r, m, true) / (double)C;
    float s = (float)(1 / sqrt(mean_square + at->eps));
    ((float *)at->rstd->data)[r] = s;
    for (; c + ECH_WIDE <= C; c += ECH_WIDE) normalize(at, centered, m, s, r, c, ECH_WIDE);
    if (c < C) normalize(at, centered, m, s, r, c, C - c);
}

ECH_INLINE void add_row(const forward_rows *at, int64_t r)
{
    int64_t C = at->x->shape[1], i = r * C, end = i + C;
    for (; i + ECH_WIDE <= end; i += ECH_WIDE)
        store(at->x, i, ECH_WIDE, load(at->a, i, ECH_WIDE) + load(at->b, i, ECH_WIDE));
    if (i < end) store(at->x, i, end - i, load(at->a, i, end - i) + load(at->b, i, end - i));
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

/* Adds n elements of row r from column c on of e = dy gain and of e n, n = (x - mean) rstd. */
ECH_INLINE void add_terms(const norm_rows *at, const row_factors *f, int64_t r, int64_t c,
                          int64_t n, ech_wide *e_sum, ech_wide *en_sum)
{
    ech_wide gain = load_floats(at->gain + c, n) + at->offset;
    ech_wide e = load(at->dy, r * at->C + c, n) * gain;
    *e_sum += e;
    *en_sum += e * ((load(at->x, r * at->C + c, n) - f->mean) * f->rstd);
}

/* The means of e and of e n. If rows are parts, the latter becomes dsquares, and is 0 here. */
ECH_INLINE row_factors row_means(const norm_rows *at, int64_t r, bool centered)
{
    row_factors f = {.mean = centered ? at->mean[r] : 0.0F, .rstd = at->rstd[r]};
    ech_wide e_sum[2] = {{0}}, en_sum[2] = {{0}};
    int64_t c = 0;
    for (; c + 2 * ECH_WIDE <= at->C; c += 2 * ECH_WIDE) {
        add_terms(at, &f, r, c, ECH_WIDE, &e_sum[0], &en_sum[0]);
        add_terms(at, &f, r, c + ECH_WIDE, ECH_WIDE, &e_sum[1], &en_sum[1]);
    }
    for (; c < at->C; c += ECH_WIDE) add_terms(at, &f, r, c, at->C - c, &e_sum[0], &en_sum[0]);
    float en = ech_wide_sum(en_sum[0] + en_sum[1]);
    f.e_mean = centered ? ech_wide_sum(e_sum[0] + e_sum[1]) / (float)at->C : 0.0F;
    f.en_mean = at->dsquares ? 0.0F : en / (float)at->C;
    if (at->dsquares) at->dsquares[r] = -0.5F * f.rstd * f.rstd * en;
    return f;
}

/* Adds n elements, at most a vector, to sums. */
ECH_INLINE void add_to(double *sums, int64_t n, ech_wide x)
{
    if (n >= ECH_WIDE)
        ech_wide_add_to(sums, x);
    else
        for (int64_t l = 0; l < n; l++) sums[l] += (double)x[l];
}

/* `width` columns from column c on of norm_group. */
ECH_INLINE void norm_columns(const norm_rows *at, int64_t r, int n, const row_factors *f, int64_t c,
                             int64_t width, bool centered, bool adds, double *gain_sum,
                             double *bias_sum)
{
    ech_wide gain = load_floats(at->gain + c, width) + at->offset;
    ech_wide gain_part = {0}, bias_part = {0};
#pragma GCC unroll 4
    for (int i = 0; i < n; i++) {
        int64_t place = (r + i) * at->C + c;
        ech_wide d = load(at->dy, place, width);
        ech_wide normal = (load(at->x, place, width) - f[i].mean) * f[i].rstd;
        ech_wide out = f[i].rstd * (d * gain - f[i].e_mean - normal * f[i].en_mean);
        gain_part += d * normal;
        bias_part += d;
        if (adds) out += load(at->add, place, width);
        store(at->dx, place, width, out);
    }
    add_to(gain_sum + c, width, gain_part);
    if (centered) add_to(bias_sum + c, width, bias_part);
}

/* `n` rows, at most ROWS, from row r on: dx = rstd (e - mean(e) - n mean(e n)) + add, for RMSNorm
 * without mean(e); their terms of dgain and dbias are added to the sums. */
ECH_INLINE void norm_group(const norm_rows *at, int64_t r, int n, bool centered, bool adds,
                           double *gain_sum, double *bias_sum)
{
    row_factors f[ROWS];
    int64_t c = 0;
    for (int i = 0; i < n; i++) f[i] = row_means(at, r + i, centered);
    for (; c + ECH_WIDE <= at->C; c += ECH_WIDE)
        norm_columns(at, r, n, f, c, ECH_WIDE, centered, adds, gain_sum, bias_sum);
    if (c < at->C) norm_columns(at, r, n, f, c, at->C - c, centered, adds, gain_sum, bias_sum);
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
    int64_t R = x->shape[0], C = x->shape[1];
#pragma omp parallel for num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t r = 0; r < R; r++)
        ((float *)y->data)[r] = (float)(share * (double)row_sum(x, r, 0, true));
}

/* n elements of dx = factor x + add. */
ECH_INLINE void add_scaled(float factor, const ech_tensor *x, const ech_tensor *add,
                           const ech_tensor *dx, int64_t i, int64_t n)
{
    ech_wide out = load(x, i, n) * factor;
    if (add) out += load(add, i, n);
    store(dx, i, n, out);
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
        int64_t i = r * C, end = i + C;
        for (; i + ECH_WIDE <= end; i += ECH_WIDE) add_scaled(factor, x, add, dx, i, ECH_WIDE);
        if (i < end) add_scaled(factor, x, add, dx, i, end - i);
    }
}
