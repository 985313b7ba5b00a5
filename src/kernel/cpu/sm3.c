/* SPDX-License-Identifier: Apache-2.0
 *
 * SM3-II.
 */
#include <math.h>
#include <string.h>

#include "kernel/cpu/rows.h"
#include "kernel/cpu/vector.h"
#include "kernel/shape.h"

size_t ECH_CPU(scratch_sm3_maxima)(ech_dtype dtype, int threads, const int64_t *dims)
{
    return (size_t)threads * (size_t)dims[1] * sizeof(float);
}

/* A NaN is larger, and smaller, than everything. */
static float larger(float a, float b)
{
    return a > b || a != a ? a : b;
}

static float smaller(float a, float b)
{
    return a < b || a != a ? a : b;
}

/* Maximum of a row's nu; that of each column so far. */
static float add_row(int64_t n, const float *g, float scale, float row, const float *column,
                     float *most)
{
    float all = 0, sum = 0; /* the sum is NaN if a nu is */
#pragma omp simd reduction(max : all) reduction(+ : sum)
    for (int64_t c = 0; c < n; c++) {
        float scaled = g[c] * scale, nu = smaller(row, column[c]) + scaled * scaled;
        most[c] = larger(most[c], nu);
        all = nu > all ? nu : all;
        sum += nu;
    }
    return sum != sum ? sum : all;
}

void ECH_CPU(sm3_maxima)(ech_kernel_context *context, const ech_tensor *grad,
                         const ech_tensor *row_state, const ech_tensor *column_state,
                         const ech_update *update, const ech_tensor *rows,
                         const ech_tensor *columns)
{
    ECH_SHAPES(sm3_maxima, ECH_F32, grad, row_state, column_state, rows, columns);
    int64_t R = grad->shape[0], C = grad->shape[1];
    int threads = R * C > ECH_CHUNK ? context->threads : 1;
    const float scale = (float)update->grad_scale, *state = row_state ? row_state->data : NULL;
    float *most = ech_scratch(context, (size_t)context->threads * (size_t)C * sizeof *most);
    memset(most, 0, (size_t)threads * (size_t)C * sizeof *most);
#pragma omp parallel for num_threads(threads)
    for (int64_t t = 0; t < threads; t++)
        for (int64_t r = R * t / threads; r < R * (t + 1) / threads; r++) {
            float row = add_row(C, (const float *)grad->data + r * C, scale,
                                state ? state[r] : INFINITY, column_state->data, most + t * C);
            if (rows) ((double *)rows->data)[r] = (double)row;
        }
    for (int64_t c = 0; c < C; c++) {
        float all = 0;
        for (int64_t t = 0; t < threads; t++) all = larger(all, most[t * C + c]);
        ((double *)columns->data)[c] = (double)all;
    }
}

static float step_of(float g, float state)
{
    float nu = state + g * g;
    return nu == 0 ? 0 : g / sqrtf(nu);
}

static void update_row(int64_t n, float *p, const float *g, float row, const float *column,
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
    ECH_SHAPES(sm3, ECH_F32, param, grad, row_state, column_state, rows, columns, momentum,
               rounded);
    int64_t R = grad->shape[0], C = grad->shape[1];
    float *state = row_state ? row_state->data : NULL, *column = column_state->data;
    ECH_ASSERT(!rounded);
#pragma omp parallel for num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t r = 0; r < R; r++)
        update_row(C, (float *)param->data + r * C, (const float *)grad->data + r * C,
                   state ? state[r] : INFINITY, column,
                   momentum ? (float *)momentum->data + r * C : NULL, update);
    for (int64_t r = 0; rows && r < R; r++) state[r] = (float)((const double *)rows->data)[r];
    for (int64_t c = 0; c < C; c++) column[c] = (float)((const double *)columns->data)[c];
}
