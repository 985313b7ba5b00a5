/* SPDX-License-Identifier: Apache-2.0
 *
 * Pools of fp32, by rows of output pixels for the forward and by images for the backward, whose
 * windows may overlap; and the exchange of pixels and channels.
 */
#include <math.h>
#include <string.h>

#include "kernel/cpu/real.h"
#include "kernel/filter.h"
#include "kernel/shape.h"

enum {
    MOST_CHOICES = 256, /* of a byte */
    TILE = 16,          /* side of a tile that is transposed */
    LANES = 64          /* channels whose largest values stay in registers or the first cache */
};

/* One row of output pixels. */
typedef struct row {
    const ech_filter *at;
    const ech_tensor *x, *y;
    int64_t b, p;
} row;

static row row_of(const ech_filter *at, const ech_tensor *x, const ech_tensor *y, int64_t i)
{
    return (row){at, x, y, i / y->shape[1], i % y->shape[1]};
}

/* The number of the first element of output pixel q. */
static int64_t output_at(const row *r, int64_t q)
{
    return ((r->b * r->y->shape[1] + r->p) * r->y->shape[2] + q) * r->y->shape[3];
}

static int64_t cells_of(const ech_filter *at)
{
    return at->size[0] * at->size[1];
}

/* The number of the first element of cell k of pixel q's window; -1: outside of the image. */
static int64_t input_at(const row *r, int64_t q, int64_t k)
{
    return ech_filter_pixel(r->at, r->x, r->b, r->p, q, k / r->at->size[1], k % r->at->size[1]);
}

/* The largest of each channel over the window of output pixel q, and its cell. A NaN is larger than
 * any number and stays. `cell` has floats, so that a loop has one type; numbers of cells are exact,
 * since a window has at most 256 cells. */
static void find_largest(const row *r, int64_t q, float *most, uint8_t *which)
{
    int64_t C = r->y->shape[3], cells = cells_of(r->at);
    for (int64_t start = 0; start < C; start += LANES) {
        int64_t n = C - start < LANES ? C - start : LANES;
        float best[LANES], cell[LANES];
        bool first = true;
        for (int64_t k = 0; k < cells; k++) {
            int64_t pixel = input_at(r, q, k);
            if (pixel < 0) continue;
            const float *x = (const float *)r->x->data + pixel + start;
            const float now = (float)k;
            if (first)
                for (int64_t c = 0; c < n; c++) best[c] = x[c], cell[c] = now;
            first = false;
#pragma omp simd
            for (int64_t c = 0; c < n; c++) {
                bool takes = !(x[c] <= best[c]) & (best[c] == best[c]);
                best[c] = takes ? x[c] : best[c];
                cell[c] = takes ? now : cell[c];
            }
        }
        for (int64_t c = 0; c < n; c++) most[start + c] = best[c];
        for (int64_t c = 0; c < n; c++) which[start + c] = (uint8_t)cell[c];
    }
}

void ECH_CPU(max_pool_forward)(ech_kernel_context *context, const ech_tensor *x,
                               const ech_filter *at, const ech_tensor *y, const ech_tensor *chosen)
{
    ECH_SHAPES(max_pool_forward, ECH_REAL, x, y, chosen);
    ech_filter_check(at, x, y);
    ECH_ASSERT(cells_of(at) <= MOST_CHOICES);
#pragma omp parallel for num_threads(context->threads) if (ech_tensor_count(x) > ECH_CHUNK)
    for (int64_t i = 0; i < y->shape[0] * y->shape[1]; i++) {
        const row r = row_of(at, x, y, i);
        for (int64_t q = 0; q < y->shape[2]; q++)
            find_largest(&r, q, (float *)y->data + output_at(&r, q),
                         (uint8_t *)chosen->data + output_at(&r, q));
    }
}

static void find_mean(const row *r, int64_t q, float *mean)
{
    int64_t C = r->y->shape[3];
    memset(mean, 0, (size_t)C * sizeof *mean);
    for (int64_t k = 0; k < cells_of(r->at); k++) {
        int64_t pixel = input_at(r, q, k);
        if (pixel < 0) continue;
        const float *x = (const float *)r->x->data + pixel;
#pragma omp simd
        for (int64_t c = 0; c < C; c++) mean[c] += x[c];
    }
#pragma omp simd
    for (int64_t c = 0; c < C; c++) mean[c] /= (float)cells_of(r->at);
}

void ECH_CPU(mean_pool_forward)(ech_kernel_context *context, const ech_tensor *x,
                                const ech_filter *at, const ech_tensor *y)
{
    ECH_SHAPES(mean_pool_forward, ECH_REAL, x, y);
    ech_filter_check(at, x, y);
#pragma omp parallel for num_threads(context->threads) if (ech_tensor_count(x) > ECH_CHUNK)
    for (int64_t i = 0; i < y->shape[0] * y->shape[1]; i++) {
        const row r = row_of(at, x, y, i);
        for (int64_t q = 0; q < y->shape[2]; q++)
            find_mean(&r, q, (float *)y->data + output_at(&r, q));
    }
}

/* Adds the gradient of output pixel q to its window's pixels: the chosen ones', or all. */
static void add_pixel(const row *r, int64_t q, const ech_tensor *chosen)
{
    int64_t C = r->y->shape[3], cells = cells_of(r->at);
    const float *dy = (const float *)r->y->data + output_at(r, q);
    const uint8_t *which = chosen ? (const uint8_t *)chosen->data + output_at(r, q) : NULL;
    for (int64_t k = 0; k < cells; k++) {
        int64_t pixel = input_at(r, q, k);
        if (pixel < 0) continue;
        float *dx = (float *)r->x->data + pixel;
        if (which)
            for (int64_t c = 0; c < C; c++) dx[c] += which[c] == k ? dy[c] : 0;
        else
            for (int64_t c = 0; c < C; c++) dx[c] += dy[c] / (float)cells;
    }
}

static void scatter(const ech_kernel_context *context, const ech_tensor *dy,
                    const ech_tensor *chosen, const ech_filter *at, const ech_tensor *dx)
{
    int64_t image = dx->shape[1] * dx->shape[2] * dx->shape[3];
    ech_filter_check(at, dx, dy);
#pragma omp parallel for num_threads(context->threads) if (ech_tensor_count(dx) > ECH_CHUNK)
    for (int64_t b = 0; b < dx->shape[0]; b++) {
        memset((float *)dx->data + b * image, 0, (size_t)image * sizeof(float));
        for (int64_t p = 0; p < dy->shape[1]; p++)
            for (int64_t q = 0; q < dy->shape[2]; q++)
                add_pixel(&(row){at, dx, dy, b, p}, q, chosen);
    }
}

void ECH_CPU(max_pool_backward)(ech_kernel_context *context, const ech_tensor *dy,
                                const ech_tensor *chosen, const ech_filter *at,
                                const ech_tensor *dx)
{
    ECH_SHAPES(max_pool_backward, ECH_REAL, dy, chosen, dx);
    scatter(context, dy, chosen, at, dx);
}

void ECH_CPU(mean_pool_backward)(ech_kernel_context *context, const ech_tensor *dy,
                                 const ech_filter *at, const ech_tensor *dx)
{
    ECH_SHAPES(mean_pool_backward, ECH_REAL, dy, dx);
    scatter(context, dy, NULL, at, dx);
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Rows n to n + TILE of x (N,C) as columns of y (C,N). */
static void transpose_rows(const float *x, int64_t N, int64_t C, int64_t n, float *y)
{
    int64_t end = least(n + TILE, N);
    for (int64_t c = 0; c < C; c += TILE)
        for (int64_t j = c; j < least(c + TILE, C); j++)
            for (int64_t i = n; i < end; i++) y[j * N + i] = x[i * C + j];
}

void ECH_CPU(transpose)(ech_kernel_context *context, const ech_tensor *x, const ech_tensor *y)
{
    int64_t N = x->shape[1], C = x->shape[2], tiles = (N + TILE - 1) / TILE;
    ECH_SHAPES(transpose, ECH_REAL, x, y);
#pragma omp parallel for num_threads(context->threads) if (ech_tensor_count(x) > ECH_CHUNK)
    for (int64_t i = 0; i < x->shape[0] * tiles; i++) {
        int64_t first = i / tiles * N * C;
        transpose_rows((const float *)x->data + first, N, C, i % tiles * TILE,
                       (float *)y->data + first);
    }
}
