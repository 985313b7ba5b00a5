/* SPDX-License-Identifier: Apache-2.0
 *
 * SM3-II.
 */
#include <math.h>
#include <string.h>

#include "kernel/cpu/part.h"
#include "kernel/shape.h"

size_t ECH_CPU(scratch_sm3_maxima)(ech_dtype dtype, int threads, const int64_t *dims)
{
    return (size_t)threads * (size_t)dims[1] * sizeof(int32_t);
}

/* A NaN is smaller than everything. */
static float smaller(float a, float b)
{
    return ((a < b) | (a != a)) ? a : b;
}

/* The maximum of nu over a part of row r, and the maximum of each column so far: as bits, which for
 * nonnegative numbers have the same order. A NaN has the largest. */
static int32_t add_part(const ech_tensor *grad, int64_t r, int64_t c, int64_t n, float scale,
                        float row, const float *column, int32_t *most)
{
    ECH_ALIGNED float part[ECH_PART];
    const float *g = ech_part_of(grad, r * grad->shape[1] + c, n, part);
    int32_t all = 0;
#pragma omp simd reduction(max : all)
    for (int64_t i = 0; i < n; i++) {
        float scaled = g[i] * scale, nu = smaller(row, column[c + i]) + scaled * scaled;
        int32_t bits = nu != nu ? INT32_MAX : (int32_t)ech_bits_of_float(nu);
        most[c + i] = most[c + i] > bits ? most[c + i] : bits;
        all = all > bits ? all : bits;
    }
    return all;
}

/* For rows [first, end). */
static void find_maxima(const ech_tensor *grad, int64_t first, int64_t end, float scale,
                        const float *state, const float *column, double *rows, int32_t *most)
{
    int64_t C = grad->shape[1];
    memset(most, 0, (size_t)C * sizeof *most);
    for (int64_t r = first; r < end; r++) {
        int32_t all = 0;
        for (int64_t c = 0; c < C; c += ECH_PART) {
            int32_t of_part = add_part(grad, r, c, ech_part(C, c, ECH_PART), scale,
                                       state ? state[r] : INFINITY, column, most);
            all = all > of_part ? all : of_part;
        }
        if (rows) rows[r] = (double)ech_float_of_bits((uint32_t)all);
    }
}

void ECH_CPU(sm3_maxima)(ech_kernel_context *context, const ech_tensor *grad,
                         const ech_tensor *row_state, const ech_tensor *column_state,
                         const ech_update *update, const ech_tensor *rows,
                         const ech_tensor *columns)
{
    ECH_SHAPES(sm3_maxima, ECH_REAL, grad, row_state, column_state, rows, columns);
    ECH_UPDATE_UNLESS_WITHHELD(update, (void)0);
    int64_t R = grad->shape[0], C = grad->shape[1];
    int threads = R * C > ECH_CHUNK ? context->threads : 1;
    int32_t *most = ech_scratch(context, (size_t)context->threads * (size_t)C * sizeof *most);
#pragma omp parallel for num_threads(threads)
    for (int64_t t = 0; t < threads; t++)
        find_maxima(grad, R * t / threads, R * (t + 1) / threads, (float)update->grad_scale,
                    row_state ? row_state->data : NULL, column_state->data,
                    rows ? rows->data : NULL, most + t * C);
    for (int64_t c = 0; c < C; c++) {
        int32_t all = 0;
        for (int64_t t = 0; t < threads; t++) all = all > most[t * C + c] ? all : most[t * C + c];
        ((double *)columns->data)[c] = (double)ech_float_of_bits((uint32_t)all);
    }
}

static float step_of(float g, float state)
{
    float nu = state + g * g;
    return nu == 0 ? 0 : g / sqrtf(nu);
}

static void update_part(int64_t n, float *p, const float *g, float row, const float *column,
                        float *m, const ech_update *update)
{
    const float scale = (float)update->grad_scale, rate = (float)update->learning_rate;
    const float decay = (float)update->weight_decay, beta = (float)update->momentum;
    const float rest = 1 - beta;
    if (!m) {
#pragma omp simd
        for (int64_t c = 0; c < n; c++)
            p[c] -= rate * (decay * p[c] + step_of(g[c] * scale, smaller(row, column[c])));
        return;
    }
#pragma omp simd
    for (int64_t c = 0; c < n; c++) {
        m[c] = beta * m[c] + rest * step_of(g[c] * scale, smaller(row, column[c]));
        p[c] -= rate * (decay * p[c] + m[c]);
    }
}

void ECH_CPU(sm3)(ech_kernel_context *context, const ech_tensor *param, const ech_tensor *grad,
                  const ech_tensor *row_state, const ech_tensor *column_state,
                  const ech_tensor *rows, const ech_tensor *columns, const ech_tensor *momentum,
                  const ech_update *update, const ech_tensor *rounded)
{
    ECH_SHAPES(sm3, ECH_REAL, param, grad, row_state, column_state, rows, columns, momentum,
               rounded);
    ECH_UPDATE_UNLESS_WITHHELD(update, ech_round_param(param, rounded));
    int64_t R = grad->shape[0], C = grad->shape[1];
    float *state = row_state ? row_state->data : NULL, *column = column_state->data;
#pragma omp parallel for num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t r = 0; r < R; r++)
        for (int64_t c = 0; c < C; c += ECH_PART) {
            ECH_ALIGNED float part[ECH_PART];
            int64_t n = ech_part(C, c, ECH_PART), at = r * C + c;
            update_part(n, (float *)param->data + at, ech_part_of(grad, at, n, part),
                        state ? state[r] : INFINITY, column + c,
                        momentum ? (float *)momentum->data + at : NULL, update);
            if (rounded) ech_part_copy(param, at, n, rounded, at);
        }
    for (int64_t r = 0; rows && r < R; r++) state[r] = (float)((const double *)rows->data)[r];
    for (int64_t c = 0; c < C; c++) column[c] = (float)((const double *)columns->data)[c];
}
