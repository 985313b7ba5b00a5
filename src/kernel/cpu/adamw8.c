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

/* The dynamic maps as arithmetic, which vectorizes where a table does not. Numbers above 0 are counted from 1: number
 * 2^e + k, k < 2^e, is part k of the 2^e of decade e. The signed map begins with e = 0 at 1e-6, the other with e = 1,
 * and with 0 as its number 1. */
enum { DECADES = 7 };

typedef struct map {
    float base;           /* 10^e x base is the end of decade e */
    int32_t zero;         /* code of 0: number n has the code zero + n */
    int32_t last;         /* the number of 1 */
    int first;            /* e of the first decade */
    float least[DECADES]; /* what belongs to a decade is at least this */
    float one;            /* what is nearest to 1 is at least this */
} map;

static map map_of(bool is_signed)
{
    const ech_dynamic_map *table = ech_dynamic_map_of(is_signed);
    map m = {.base = is_signed ? 1e-6F : 1e-7F,
             .zero = is_signed ? 127 : -1,
             .last = is_signed ? 128 : 256,
             .first = is_signed ? 0 : 1,
             .one = table->middle[ECH_MAP_CODES - 1]};
    for (int i = 0; i < DECADES; i++) m.least[i] = table->middle[m.zero + (1 << (m.first + i))];
    return m;
}

/* 10^e for e from 0 to 7, and 10^-e. */
ECH_INLINE float ten_to(int32_t e)
{
    return (e & 1 ? 10.0F : 1.0F) * (e & 2 ? 100.0F : 1.0F) * (e & 4 ? 1e4F : 1.0F);
}

ECH_INLINE float ten_to_minus(int32_t e)
{
    return (e & 1 ? 0.1F : 1.0F) * (e & 2 ? 0.01F : 1.0F) * (e & 4 ? 1e-4F : 1.0F);
}

/* a where the condition holds, else b; both are computed, as in a vector. */
ECH_INLINE float choose(bool condition, float a, float b)
{
    uint32_t mask = 0U - (uint32_t)condition;
    return ech_float_of_bits((ech_bits_of_float(a) & mask) | (ech_bits_of_float(b) & ~mask));
}

/* Number n of the map, 1 <= n < of->last. */
ECH_INLINE float value_of(const map *of, int32_t n)
{
    int32_t e = (int32_t)(ech_bits_of_float((float)n) >> 23) - 127;
    float parts = ech_float_of_bits((uint32_t)(127 - e) << 23); /* 2^-e */
    float within = 0.1F + 0.9F * ((float)n * parts - 1.0F) + 0.45F * parts;
    return of->base * ten_to(e) * within;
}

static void read_states(const map *of, int64_t n, const uint8_t *code, float most, float *x)
{
    const map m = *of;
    const int32_t nothing = m.first; /* number 0 or 1 stands for 0 */
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        int32_t number = (int32_t)code[i] - m.zero, size = number < 0 ? -number : number;
        float value = choose(size <= nothing, 0, value_of(&m, size < 1 ? 1 : size));
        value = choose(size >= m.last, 1, value);
        x[i] = choose(number < 0, -value, value) * most;
    }
}

/* The code of the nearest value. */
ECH_INLINE int32_t code_of(const map *m, float x)
{
    float size = fabsf(x);
    int32_t e = m->first - 1;
    for (int i = 0; i < DECADES; i++) e += size >= m->least[i];
    int32_t decade = e < m->first ? m->first : e, parts = 1 << decade;
    float within = size * (1.0F / m->base) * ten_to_minus(decade);
    int32_t k = (int32_t)((within - 0.1F) * (1.0F / 0.9F) * (float)parts);
    k = k < 0 ? 0 : k > parts - 1 ? parts - 1 : k;
    int32_t n = size >= m->one ? m->last : e < m->first ? m->first : parts + k;
    n = x < 0 && n > 127 ? 127 : n;
    return m->zero + (x < 0 ? -n : n);
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
static float write_states(const map *of, int64_t n, const float *x, uint8_t *code)
{
    const map m = *of;
    float most = 0;
#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < n; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    const float scale = most > 0 ? most : 1;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) code[i] = (uint8_t)code_of(&m, x[i] / scale);
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
    const map mean = map_of(true), square = map_of(false);
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
            read_states(&mean, n, m_code, m_most[b], m);
            read_states(&square, n, v_code, v_most[b], v);
            update_block(&k, n, (float *)param->data + first, (const float *)grad->data + first, m,
                         v);
            m_most[b] = write_states(&mean, n, m, m_code);
            v_most[b] = write_states(&square, n, v, v_code);
        }
}
