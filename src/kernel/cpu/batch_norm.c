/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch norm of fp32. Sums over a group's rows are made of parts of PART rows, in fp32, which are
 * added in order in fp64: results do not depend on the number of threads.
 */
#include <math.h>

#include "kernel/cpu/real.h"
#include "kernel/cpu/rows.h"
#include "kernel/shape.h"

enum { PART = 64, COLUMNS = 256 }; /* columns: at a time */

/* Rows of x in G groups of n, of `samples` samples each; each group's rows are `parts` parts. */
typedef struct groups {
    int64_t G, n, C, parts, samples;
} groups;

static groups groups_of(int64_t R, int64_t C, int64_t G)
{
    ECH_ASSERT(G > 0 && R > 0 && R % G == 0);
    return (groups){G, R / G, C, (R / G + PART - 1) / PART, 1};
}

static groups groups_of_samples(const ech_tensor *x, const ech_tensor *mean, int64_t samples)
{
    int64_t S = mean->shape[0];
    ECH_ASSERT(samples > 0 && S % samples == 0 && x->shape[0] % S == 0);
    groups of = groups_of(x->shape[0], x->shape[1], S / samples);
    of.samples = samples;
    return of;
}

/* Two sums for each part and column, and two for each group and column in fp64. */
static size_t scratch_of(const groups *of)
{
    return (size_t)(of->G * of->parts * 2 * of->C) * sizeof(float) +
           (size_t)(of->G * 2 * of->C) * sizeof(double);
}

size_t ECH_CPU(scratch_batch_norm)(ech_dtype dtype, int threads, const int64_t *dims)
{
    const groups of = groups_of(dims[0], dims[1], dims[2]);
    return scratch_of(&of);
}

/* The first row of part i of all groups', and its rows. */
static int64_t part_at(const groups *of, int64_t i, int64_t *rows)
{
    int64_t first = i % of->parts * PART;
    *rows = of->n - first < PART ? of->n - first : PART;
    return i / of->parts * of->n + first;
}

/* total[g][2][C] = sums of part[g][parts][2][C]. */
static void add_parts(const ech_kernel_context *context, const groups *of, const float *part,
                      double *total)
{
    int64_t width = 2 * of->C;
#pragma omp parallel for num_threads(context->threads) if (of->G * of->parts * width > ECH_CHUNK)
    for (int64_t g = 0; g < of->G; g++)
        for (int64_t j = 0; j < width; j++) {
            double sum = 0;
            for (int64_t i = 0; i < of->parts; i++)
                sum += (double)part[(g * of->parts + i) * width + j];
            total[g * width + j] = sum;
        }
}

/* Sums of x - from, and of their squares: `from` is near the mean, so that they do not cancel. */
static void sum_rows(const float *x, const float *from, int64_t rows, int64_t C, float *sums)
{
    for (int64_t j = 0; j < 2 * C; j++) sums[j] = 0;
    for (int64_t r = 0; r < rows; r++, x += C)
#pragma omp simd
        for (int64_t c = 0; c < C; c++) {
            float d = x[c] - from[c];
            sums[c] += d;
            sums[C + c] += d * d;
        }
}

static double *sums_at(const groups *of, float *parts)
{
    return (double *)(void *)(parts + of->G * of->parts * 2 * of->C);
}

/* Sums of all groups' rows; the group's row of `from` is at a distance of `stride`. */
static void sum_groups(const ech_kernel_context *context, const groups *of, const float *x,
                       const float *from, int64_t stride, float *part)
{
#pragma omp parallel for num_threads(context->threads) if (of->G * of->n * of->C > ECH_CHUNK)
    for (int64_t i = 0; i < of->G * of->parts; i++) {
        int64_t rows, first = part_at(of, i, &rows);
        sum_rows(x + first * of->C, from + i / of->parts * stride, rows, of->C,
                 part + i * 2 * of->C);
    }
    add_parts(context, of, part, sums_at(of, part));
}

/* Writes the statistics. Returns true if a column's `from` was too far from its mean: an outlier.
 */
static bool put_statistics(const groups *of, const double *total, const float *from, int64_t stride,
                           float *mean, float *variance)
{
    const double far = 64; /* times the variance */
    double n = (double)of->n;
    bool is_far = false;
    for (int64_t i = 0; i < of->G * of->C; i++) {
        int64_t group = i / of->C, column = i % of->C;
        const double *sums = total + group * 2 * of->C + column;
        double off = sums[0] / n, spread = sums[of->C] / n - off * off;
        double m = (double)from[group * stride + column] + off;
        is_far |= off * off > far * spread;
        for (int64_t s = 0, to = group * of->samples * of->C + column; s < of->samples;
             s++, to += of->C) {
            mean[to] = (float)m;
            variance[to] = (float)(spread < 0 ? 0 : spread);
        }
    }
    return is_far;
}

/* From the groups' first rows, and if one is far from the mean once more from the means. */
void ECH_CPU(batch_norm_statistics)(ech_kernel_context *context, const ech_tensor *x,
                                    int64_t samples, const ech_tensor *mean,
                                    const ech_tensor *variance)
{
    ECH_SHAPES(batch_norm_statistics, ECH_REAL, x, mean, variance);
    const groups of = groups_of_samples(x, mean, samples);
    float *part = ech_scratch(context, scratch_of(&of)), *means = mean->data;
    const float *from = x->data;
    int64_t stride = of.n * of.C;
    sum_groups(context, &of, x->data, from, stride, part);
    if (!put_statistics(&of, sums_at(&of, part), from, stride, means, variance->data)) return;
    from = means;
    stride = samples * of.C;
    sum_groups(context, &of, x->data, from, stride, part);
    (void)put_statistics(&of, sums_at(&of, part), from, stride, means, variance->data);
}

/* Columns [first, first + n) of a group: scale = gain / sqrt(variance + eps). */
static void find_scales(const float *variance, const float *gain, double eps, int64_t n,
                        float *scale)
{
#pragma omp simd
    for (int64_t c = 0; c < n; c++) scale[c] = gain[c] / sqrtf(variance[c] + (float)eps);
}

/* y = (x - mean) scale + bias, n columns of rows at a distance of C. */
static void normalize(const float *x, const float *mean, const float *scale, const float *bias,
                      int64_t rows, int64_t C, int64_t n, float *y)
{
    for (int64_t r = 0; r < rows; r++, x += C, y += C)
#pragma omp simd
        for (int64_t c = 0; c < n; c++) y[c] = (x[c] - mean[c]) * scale[c] + bias[c];
}

void ECH_CPU(batch_norm_forward)(ech_kernel_context *context, const ech_tensor *x,
                                 const ech_tensor *mean, const ech_tensor *variance,
                                 const ech_tensor *gain, const ech_tensor *bias, double eps,
                                 const ech_tensor *y)
{
    int64_t R = x->shape[0], C = x->shape[1];
    ECH_SHAPES(batch_norm_forward, ECH_REAL, x, mean, variance, gain, bias, y);
    const groups of = groups_of_samples(x, mean, 1);
    const float *m = mean->data, *v = variance->data, *a = gain->data, *b = bias->data;
#pragma omp parallel for num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t i = 0; i < of.G * of.parts; i++) {
        int64_t rows, first = part_at(&of, i, &rows), g = i / of.parts * C;
        float scale[COLUMNS];
        for (int64_t c = 0; c < C; c += COLUMNS) {
            int64_t n = C - c < COLUMNS ? C - c : COLUMNS;
            find_scales(v + g + c, a + c, eps, n, scale);
            normalize((const float *)x->data + first * C + c, m + g + c, scale, b + c, rows, C, n,
                      (float *)y->data + first * C + c);
        }
    }
}

/* Sums of dy, and of dy (x - mean). */
static void sum_gradients(const float *dy, const float *x, const float *mean, int64_t rows,
                          int64_t C, float *sums)
{
    for (int64_t j = 0; j < 2 * C; j++) sums[j] = 0;
    for (int64_t r = 0; r < rows; r++, dy += C, x += C)
#pragma omp simd
        for (int64_t c = 0; c < C; c++) {
            sums[c] += dy[c];
            sums[C + c] += dy[c] * (x[c] - mean[c]);
        }
}

/* part[g][parts][2][C] = sums of each part's rows. */
static void sum_parts(const ech_kernel_context *context, const groups *of, const ech_tensor *dy,
                      const ech_tensor *x, const ech_tensor *mean, float *part)
{
    int64_t R = x->shape[0], C = of->C;
#pragma omp parallel for num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t i = 0; i < of->G * of->parts; i++) {
        int64_t rows, first = part_at(of, i, &rows);
        sum_gradients((const float *)dy->data + first * C, (const float *)x->data + first * C,
                      (const float *)mean->data + i / of->parts * of->samples * C, rows, C,
                      part + i * 2 * C);
    }
}

/* The parameters' gradients, from the groups' sums. */
static void add_groups(const groups *of, const double *total, const ech_tensor *variance,
                       double eps, bool accumulate, const ech_tensor *dgain,
                       const ech_tensor *dbias)
{
    for (int64_t c = 0; c < of->C; c++) {
        double sum = accumulate && dbias ? (double)((float *)dbias->data)[c] : 0;
        double sum_z = accumulate && dgain ? (double)((float *)dgain->data)[c] : 0;
        for (int64_t g = 0; g < of->G; g++) {
            double v = (double)((const float *)variance->data)[g * of->samples * of->C + c];
            sum += total[g * 2 * of->C + c];
            sum_z += total[g * 2 * of->C + of->C + c] / sqrt(v + eps);
        }
        if (dbias) ((float *)dbias->data)[c] = (float)sum;
        if (dgain) ((float *)dgain->data)[c] = (float)sum_z;
    }
}

/* With u = x - mean: dx = gain rstd (dy - mean(dy) - u rstd^2 mean(dy u)). Writes mean(dy) and
 * rstd^2 mean(dy u) of each group to the group's first part. */
static void find_means(const groups *of, const double *total, const ech_tensor *variance,
                       double eps, float *part)
{
    int64_t C = of->C;
    for (int64_t i = 0; i < of->G * C; i++) {
        int64_t g = i / C, c = i % C;
        double v = (double)((const float *)variance->data)[g * of->samples * C + c];
        double n = (double)of->n;
        float *means = part + g * of->parts * 2 * C;
        means[c] = (float)(total[g * 2 * C + c] / n);
        means[C + c] = (float)(total[g * 2 * C + C + c] / n / (v + eps));
    }
}

/* dx = scale (dy - mean_dy - (x - mean) mean_u), n columns of rows at a distance of C. */
typedef struct gradient {
    const float *dy, *x, *mean, *scale, *mean_dy, *mean_u;
    float *dx;
} gradient;

static void find_gradient(const gradient *at, int64_t rows, int64_t C, int64_t n)
{
    const float *dy = at->dy, *x = at->x, *mean = at->mean, *scale = at->scale;
    const float *mean_dy = at->mean_dy, *mean_u = at->mean_u;
    float *dx = at->dx;
    for (int64_t r = 0; r < rows; r++, dy += C, x += C, dx += C)
#pragma omp simd
        for (int64_t c = 0; c < n; c++)
            dx[c] = scale[c] * (dy[c] - mean_dy[c] - (x[c] - mean[c]) * mean_u[c]);
}

void ECH_CPU(batch_norm_backward)(ech_kernel_context *context, const ech_tensor *dy,
                                  const ech_tensor *x, int64_t samples, const ech_tensor *mean,
                                  const ech_tensor *variance, const ech_tensor *gain, double eps,
                                  const ech_tensor *dx, bool accumulate, const ech_tensor *dgain,
                                  const ech_tensor *dbias)
{
    int64_t R = x->shape[0], C = x->shape[1];
    ECH_SHAPES(batch_norm_backward, ECH_REAL, dy, x, mean, variance, gain, dx, dgain, dbias);
    const groups of = groups_of_samples(x, mean, samples);
    float *part = ech_scratch(context, scratch_of(&of));
    double *total = sums_at(&of, part);
    sum_parts(context, &of, dy, x, mean, part);
    add_parts(context, &of, part, total);
    add_groups(&of, total, variance, eps, accumulate, dgain, dbias);
    find_means(&of, total, variance, eps, part);
    const float *m = mean->data, *v = variance->data, *a = gain->data;
#pragma omp parallel for num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t i = 0; i < of.G * of.parts; i++) {
        int64_t rows, first = part_at(&of, i, &rows) * C, g = i / of.parts;
        const float *means = part + g * of.parts * 2 * C;
        float scale[COLUMNS];
        for (int64_t c = 0; c < C; c += COLUMNS) {
            int64_t n = C - c < COLUMNS ? C - c : COLUMNS, s = g * samples * C + c;
            const gradient at = {(const float *)dy->data + first + c,
                                 (const float *)x->data + first + c,
                                 m + s,
                                 scale,
                                 means + c,
                                 means + C + c,
                                 (float *)dx->data + first + c};
            find_scales(v + s, a + c, eps, n, scale);
            find_gradient(&at, rows, C, n);
        }
    }
}

/* ---- statistics of several replicas: one group ---- */

void ECH_CPU(batch_norm_sums)(ech_kernel_context *context, const ech_tensor *dy,
                              const ech_tensor *x, const ech_tensor *mean,
                              const ech_tensor *variance, double eps, const ech_tensor *sums,
                              bool accumulate, const ech_tensor *dgain, const ech_tensor *dbias)
{
    int64_t C = x->shape[1];
    ECH_SHAPES(batch_norm_sums, ECH_REAL, dy, x, mean, variance, sums, dgain, dbias);
    ECH_ASSERT(sums->shape[0] == 2);
    const groups of = groups_of_samples(x, mean, mean->shape[0]);
    float *part = ech_scratch(context, scratch_of(&of)), *out = sums->data;
    double *total = sums_at(&of, part);
    sum_parts(context, &of, dy, x, mean, part);
    add_parts(context, &of, part, total);
    add_groups(&of, total, variance, eps, accumulate, dgain, dbias);
    for (int64_t c = 0; c < C; c++) {
        double v = (double)((const float *)variance->data)[c];
        out[c] = (float)total[c];
        out[C + c] = (float)(total[C + c] / sqrt(v + eps));
    }
}

/* From the sums of n columns over `rows` rows: mean_dy, and mean_u of find_gradient. */
static void means_of_sums(const ech_tensor *sums, const float *variance, double eps, int64_t rows,
                          int64_t first, int64_t n, float *mean_dy, float *mean_u)
{
    const float *sum = (const float *)sums->data + first, *sum_z = sum + sums->shape[1];
    for (int64_t c = 0; c < n; c++) {
        mean_dy[c] = (float)((double)sum[c] / (double)rows);
        mean_u[c] =
            (float)((double)sum_z[c] / (double)rows / sqrt((double)variance[first + c] + eps));
    }
}

void ECH_CPU(batch_norm_input)(ech_kernel_context *context, const ech_tensor *dy,
                               const ech_tensor *x, const ech_tensor *mean,
                               const ech_tensor *variance, const ech_tensor *gain,
                               const ech_tensor *sums, int64_t rows, double eps,
                               const ech_tensor *dx)
{
    int64_t R = x->shape[0], C = x->shape[1];
    ECH_SHAPES(batch_norm_input, ECH_REAL, dy, x, mean, variance, gain, sums, dx);
    ECH_ASSERT(sums->shape[0] == 2 && rows >= R);
    const groups of = groups_of_samples(x, mean, mean->shape[0]);
    const float *m = mean->data, *v = variance->data, *a = gain->data;
#pragma omp parallel for num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t i = 0; i < of.parts; i++) {
        int64_t own, first = part_at(&of, i, &own) * C;
        float scale[COLUMNS], mean_dy[COLUMNS], mean_u[COLUMNS];
        for (int64_t c = 0; c < C; c += COLUMNS) {
            int64_t n = C - c < COLUMNS ? C - c : COLUMNS, at = first + c;
            const gradient of_columns = {(const float *)dy->data + at,
                                         (const float *)x->data + at,
                                         m + c,
                                         scale,
                                         mean_dy,
                                         mean_u,
                                         (float *)dx->data + at};
            find_scales(v + c, a + c, eps, n, scale);
            means_of_sums(sums, v, eps, rows, c, n, mean_dy, mean_u);
            find_gradient(&of_columns, own, C, n);
        }
    }
}
