/* SPDX-License-Identifier: Apache-2.0
 *
 * Adafactor. Memory is read three times: by sums, squares and the update. Rows are in GROUPS of one
 * size, independent of the number of threads, so that sums have one order.
 */
#include <string.h>

#include "kernel/cpu/part.h"
#include "kernel/shape.h"

enum {
    GROUPS = 16,
    /* Sums of this many rows or columns are in fp32, then in fp64; these columns stay in the L1
     * cache. */
    ROWS = 32,
    COLUMNS = 2048
};

typedef struct range {
    int64_t first, end;
} range;

static range group_of(int64_t n, int64_t group)
{
    return (range){n * group / GROUPS, n * (group + 1) / GROUPS};
}

/* Layout of a group, in whole cache lines: sums of columns, sums of ROWS rows, and the squares of
 * each of these in each part of COLUMNS. */
typedef struct rooms {
    size_t columns, column, squares;
} rooms;

static rooms rooms_of(int64_t C)
{
    size_t lines = ((size_t)C + 15) / 16 * 16, parts = ((size_t)C + COLUMNS - 1) / COLUMNS;
    return (rooms){lines * sizeof(double), lines * sizeof(float), parts * ROWS * sizeof(double)};
}

static size_t bytes_of_group(int64_t C)
{
    rooms r = rooms_of(C);
    return r.columns + r.column + r.squares;
}

size_t ECH_CPU(scratch_adafactor_sums)(ech_dtype dtype, int threads, const int64_t *dims)
{
    return GROUPS * bytes_of_group(dims[1]);
}

typedef struct sums {
    const ech_tensor *param, *grad;
    int64_t C;
    float scale, eps;
} sums;

/* For n columns from c on: returns the sum of one row, and adds it to column[n]. */
static double add_row(const sums *s, int64_t r, int64_t c, int64_t n, float *column, double *square)
{
    ECH_ALIGNED float part[COLUMNS];
    const float *g = ech_part_of(s->grad, r * s->C + c, n, part);
    const float *p = (const float *)s->param->data + r * s->C + c;
    float row = 0, weights = 0, scale = s->scale, eps = s->eps;
#pragma omp simd reduction(+ : row, weights)
    for (int64_t i = 0; i < n; i++) {
        float scaled = g[i] * scale, q = scaled * scaled + eps;
        column[i] += q;
        row += q;
        weights += p[i] * p[i];
    }
    *square = (double)weights;
    return (double)row;
}

/* rows: NULL, or of all rows; columns[C]: of this group, at the beginning of its memory. Memory is
 * read row by row; squares are added by parts of columns. */
static double sum_group(const sums *s, range group, double *rows, double *columns)
{
    double square = 0;
    const rooms room = rooms_of(s->C);
    float *column = (float *)(void *)((char *)columns + room.columns);
    double *squares = (double *)(void *)((char *)column + room.column);
    memset(columns, 0, room.columns);
    for (int64_t r = group.first; r < group.end; r += ROWS) {
        int64_t end = r + ech_part(group.end, r, ROWS);
        memset(column, 0, room.column);
        for (int64_t k = r; k < end; k++) {
            double row = 0;
            for (int64_t c = 0; c < s->C; c += COLUMNS)
                row += add_row(s, k, c, ech_part(s->C, c, COLUMNS), column + c,
                               &squares[c / COLUMNS * ROWS + k - r]);
            if (rows) rows[k] = row;
        }
        for (int64_t c = 0; c < s->C; c += COLUMNS)
            for (int64_t k = r; k < end; k++) square += squares[c / COLUMNS * ROWS + k - r];
        for (int64_t c = 0; c < s->C; c++) columns[c] += (double)column[c];
    }
    return square;
}

void ECH_CPU(adafactor_sums)(ech_kernel_context *context, const ech_tensor *param,
                             const ech_tensor *grad, const ech_update *update,
                             const ech_tensor *rows, const ech_tensor *columns,
                             const ech_tensor *square)
{
    ECH_SHAPES(adafactor_sums, ECH_REAL, param, grad, rows, columns, square);
    ECH_UPDATE_UNLESS_WITHHELD(update, (void)0);
    int64_t R = grad->shape[0], C = grad->shape[1];
    sums s = {param, grad, C, (float)update->grad_scale, (float)update->eps};
    const size_t bytes = bytes_of_group(C);
    char *parts = ech_scratch(context, GROUPS * bytes);
    double squares[GROUPS], *all = square->data, *column = columns->data;
#pragma omp parallel for num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t g = 0; g < GROUPS; g++)
        squares[g] = sum_group(&s, group_of(R, g), rows ? rows->data : NULL,
                               (double *)(void *)(parts + (size_t)g * bytes));
    *all = 0;
    for (int g = 0; g < GROUPS; g++) *all += squares[g];
    for (int64_t c = 0; c < C; c++) {
        column[c] = 0;
        for (size_t g = 0; g < GROUPS; g++)
            column[c] += ((const double *)(const void *)(parts + g * bytes))[c];
    }
}

/* Not inlined: where gcc splits the loop around it, a copy of this loop is not vectorized. */
ECH_OUTLINE float sum_part(const float *g, const float *by, int64_t n)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        float u = g[i] * by[i];
        sum += u * u;
    }
    return sum;
}

/* The sum of (g column)^2 over row r. */
static double sum_squares(const ech_tensor *grad, int64_t r, const float *column)
{
    double all = 0;
    int64_t C = grad->shape[1];
    for (int64_t c = 0; c < C; c += COLUMNS) {
        ECH_ALIGNED float part[COLUMNS];
        int64_t n = ech_part(C, c, COLUMNS);
        const float *g = ech_part_of(grad, r * C + c, n, part);
        all += (double)sum_part(g, column + c, n);
    }
    return all;
}

/* The row's factor is applied in fp64, so that no square overflows or underflows because of it. */
void ECH_CPU(adafactor_squares)(ech_kernel_context *context, const ech_tensor *grad,
                                const ech_tensor *rows, const ech_tensor *columns,
                                const ech_update *update, const ech_tensor *square)
{
    ECH_SHAPES(adafactor_squares, ECH_REAL, grad, rows, columns, square);
    ECH_UPDATE_UNLESS_WITHHELD(update, (void)0);
    int64_t R = grad->shape[0], C = grad->shape[1];
    double squares[GROUPS], *all = square->data;
#pragma omp parallel for num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t g = 0; g < GROUPS; g++) {
        range group = group_of(R, g);
        squares[g] = 0;
        for (int64_t r = group.first; r < group.end; r++) {
            double row = update->grad_scale * (rows ? (double)((const float *)rows->data)[r] : 1);
            squares[g] += row * row * sum_squares(grad, r, columns->data);
        }
    }
    *all = 0;
    for (int g = 0; g < GROUPS; g++) *all += squares[g];
}

/* u = g factor column. */
static void update_part(int64_t n, float *p, const float *g, const float *column, float *m,
                        float factor, float beta, float decay)
{
    const float rest = 1 - beta;
    if (!m) {
#pragma omp simd
        for (int64_t c = 0; c < n; c++) p[c] -= decay * p[c] + g[c] * factor * column[c];
        return;
    }
#pragma omp simd
    for (int64_t c = 0; c < n; c++) {
        m[c] = beta * m[c] + rest * (g[c] * factor * column[c]);
        p[c] -= decay * p[c] + m[c];
    }
}

void ECH_CPU(adafactor)(ech_kernel_context *context, const ech_tensor *param,
                        const ech_tensor *grad, const ech_tensor *rows, const ech_tensor *columns,
                        const ech_tensor *momentum, const ech_tensor *total,
                        const ech_tensor *squares, const ech_tensor *weights, int64_t elements,
                        const ech_update *update, const ech_tensor *rounded)
{
    ECH_SHAPES(adafactor, ECH_REAL, param, grad, rows, columns, momentum, total, squares, weights,
               rounded);
    ECH_UPDATE_UNLESS_WITHHELD(update, ech_round_param(param, rounded));
    const double scale = ech_adafactor_scale(update, total, squares, weights, elements);
    int64_t R = grad->shape[0], C = grad->shape[1];
    const float decay =
        (float)(ech_adafactor_rate(update, weights, elements) * update->weight_decay);
    const float beta = (float)update->momentum;
#pragma omp parallel for num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t r = 0; r < R; r++)
        for (int64_t c = 0; c < C; c += ECH_PART) {
            double row = rows ? (double)((const float *)rows->data)[r] : 1;
            ECH_ALIGNED float part[ECH_PART];
            int64_t n = ech_part(C, c, ECH_PART), at = r * C + c;
            update_part(n, (float *)param->data + at, ech_part_of(grad, at, n, part),
                        (const float *)columns->data + c,
                        momentum ? (float *)momentum->data + at : NULL,
                        (float)(scale * update->grad_scale * row), beta, decay);
            if (rounded) ech_part_copy(param, at, n, rounded, at);
        }
}
