/* SPDX-License-Identifier: Apache-2.0
 *
 * AdamW with 8-bit states, a block of states in fp32 at a time.
 */
#include <math.h>

#include "kernel/cpu/rows.h"
#include "kernel/cpu/vector.h"
#include "kernel/dynamic_map.h"
#include "kernel/shape.h"

size_t ECH_CPU(scratch_adamw8)(ech_dtype dtype, int threads, const int64_t *dims)
{
    return 2 * (size_t)threads * (size_t)dims[1] * sizeof(float);
}

typedef struct rates {
    float grad_scale, beta1, rest1, beta2, rest2, m_scale, v_scale, rate, decay, eps;
} rates;

static rates rates_of(const ech_update *u)
{
    double count = (double)u->count;
    return (rates){.grad_scale = (float)u->grad_scale,
                   .beta1 = (float)u->beta1,
                   .rest1 = (float)(1 - u->beta1),
                   .beta2 = (float)u->beta2,
                   .rest2 = (float)(1 - u->beta2),
                   .m_scale = (float)(1 / (1 - pow(u->beta1, count))),
                   .v_scale = (float)(1 / (1 - pow(u->beta2, count))),
                   .rate = (float)u->learning_rate,
                   .decay = (float)u->weight_decay,
                   .eps = (float)u->eps};
}

static void read_states(int64_t n, const uint8_t *code, const float *value, float most, float *x)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) x[i] = value[code[i]] * most;
}

static void update_block(const rates *k, int64_t n, float *p, const float *g, float *m, float *v)
{
    const rates r = *k;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float scaled = g[i] * r.grad_scale;
        m[i] = r.beta1 * m[i] + r.rest1 * scaled;
        v[i] = r.beta2 * v[i] + r.rest2 * scaled * scaled;
        float step = m[i] * r.m_scale / (sqrtf(v[i] * r.v_scale) + r.eps);
        p[i] -= r.rate * (step + r.decay * p[i]);
    }
}

/* Returns the largest magnitude. */
static float write_states(const ech_dynamic_map *map, int64_t n, const float *x, uint8_t *code)
{
    float most = 0;
#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < n; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    const float scale = most > 0 ? most : 1;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) code[i] = (uint8_t)ech_map_code(map, x[i] / scale);
    return most;
}

void ECH_CPU(adamw8)(ech_kernel_context *context, const ech_tensor *param, const ech_tensor *grad,
                     const ech_tensor *exp_avg, const ech_tensor *exp_avg_sq,
                     const ech_tensor *exp_avg_max, const ech_tensor *exp_avg_sq_max,
                     const ech_update *update, const ech_tensor *rounded)
{
    ECH_SHAPES(adamw8, ECH_F32, param, grad, exp_avg, exp_avg_sq, exp_avg_max, exp_avg_sq_max,
               rounded);
    int64_t C = grad->shape[1], block = update->block, blocks = (C + block - 1) / block,
            all = grad->shape[0] * blocks;
    ECH_ASSERT(update->count >= 1 && exp_avg_max->shape[1] == blocks && !rounded);
    int threads = grad->shape[0] * C > ECH_CHUNK ? context->threads : 1;
    float *states = ech_scratch(context, 2 * (size_t)context->threads * (size_t)C * sizeof *states);
    const ech_dynamic_map *mean = ech_dynamic_map_of(true), *square = ech_dynamic_map_of(false);
    const rates k = rates_of(update);
    float *m_most = exp_avg_max->data, *v_most = exp_avg_sq_max->data;
#pragma omp parallel for num_threads(threads)
    for (int64_t t = 0; t < threads; t++)
        for (int64_t b = all * t / threads; b < all * (t + 1) / threads; b++) {
            float *m = states + 2 * t * C, *v = m + C;
            int64_t column = b % blocks * block, n = C - column < block ? C - column : block;
            int64_t first = b / blocks * C + column;
            uint8_t *m_code = (uint8_t *)exp_avg->data + first;
            uint8_t *v_code = (uint8_t *)exp_avg_sq->data + first;
            read_states(n, m_code, mean->value, m_most[b], m);
            read_states(n, v_code, square->value, v_most[b], v);
            update_block(&k, n, (float *)param->data + first, (const float *)grad->data + first, m,
                         v);
            m_most[b] = write_states(mean, n, m, m_code);
            v_most[b] = write_states(square, n, v, v_code);
        }
}
