/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizer updates.
 */
#include <math.h>

#include "kernel/cpu/part.h"
#include "kernel/listed.h"
#include "kernel/shape.h"
#include "kernel/shared.h"

/* A step of sgd and of sgd_shared, however each is compiled: it rounds once if the instruction set
 * can. */
#if defined __FMA__ || defined __FP_FAST_FMAF
#define STEP(old, rate, g) fmaf(-(rate), g, old)
#else
#define STEP(old, rate, g) ((old) - (rate) * (g))
#endif
ECH_SHARED_NUMBERS(float, float, STEP, load_shared, step_shared)

void ECH_CPU(adamw)(ech_kernel_context *context, const ech_tensor *param, const ech_tensor *grad,
                    const ech_tensor *exp_avg, const ech_tensor *exp_avg_sq,
                    const ech_update *update, const ech_tensor *rounded)
{
    ECH_SHAPES(adamw, ECH_REAL, param, grad, exp_avg, exp_avg_sq, rounded);
    ECH_UPDATE_UNLESS_WITHHELD(update, ech_round_param(param, rounded));
    ECH_ASSERT(update->count >= 1);
    /* Numbers common to all elements, rounded once. */
    double number = (double)update->count;
    const float grad_scale = (float)update->grad_scale, eps = (float)update->eps;
    const float beta1 = (float)update->beta1, rest1 = (float)(1 - update->beta1);
    const float beta2 = (float)update->beta2, rest2 = (float)(1 - update->beta2);
    const float m_scale = (float)(1 / (1 - pow(update->beta1, number)));
    const float v_scale = (float)(1 / (1 - pow(update->beta2, number)));
    const float rate = (float)update->learning_rate, decay = (float)update->weight_decay;
    int64_t n = ech_tensor_count(param);
#pragma omp parallel for num_threads(context->threads) if (n > ECH_CHUNK)
    for (int64_t first = 0; first < n; first += ECH_PART) {
        ECH_ALIGNED float part[ECH_PART];
        int64_t count = ech_part(n, first, ECH_PART);
        const float *from = ech_part_of(grad, first, count, part);
        float *p = (float *)param->data + first;
        float *m = (float *)exp_avg->data + first, *v = (float *)exp_avg_sq->data + first;
#pragma omp simd
        for (int64_t i = 0; i < count; i++) {
            float g = from[i] * grad_scale;
            m[i] = beta1 * m[i] + rest1 * g;
            v[i] = beta2 * v[i] + rest2 * g * g;
            float step = m[i] * m_scale / (sqrtf(v[i] * v_scale) + eps);
            p[i] -= rate * (step + decay * p[i]);
        }
        if (rounded) ech_part_copy(param, first, count, rounded, first);
    }
}

void ECH_CPU(sgd)(ech_kernel_context *context, const ech_tensor *param, const ech_tensor *grad,
                  const ech_tensor *momentum, const ech_update *update, const ech_tensor *rounded)
{
    ECH_SHAPES(sgd, ECH_REAL, param, grad, momentum, rounded);
    ECH_UPDATE_UNLESS_WITHHELD(update, ech_round_param(param, rounded));
    ECH_ASSERT(momentum || update->momentum == 0);
    const float grad_scale = (float)update->grad_scale, decay = (float)update->weight_decay;
    const float rate = (float)update->learning_rate, beta = (float)update->momentum;
    /* The step: g + u buf with nesterov, buf without. */
    const float of_g = update->nesterov ? 1.0F : 0.0F, of_buffer = update->nesterov ? beta : 1.0F;
    int64_t n = ech_tensor_count(param);
#pragma omp parallel for num_threads(context->threads) if (n > ECH_CHUNK)
    for (int64_t first = 0; first < n; first += ECH_PART) {
        ECH_ALIGNED float part[ECH_PART];
        int64_t count = ech_part(n, first, ECH_PART);
        const float *from = ech_part_of(grad, first, count, part);
        float *p = (float *)param->data + first;
        float *buffer = momentum ? (float *)momentum->data + first : NULL;
        if (buffer) {
#pragma omp simd
            for (int64_t i = 0; i < count; i++) {
                float g = from[i] * grad_scale + decay * p[i];
                buffer[i] = beta * buffer[i] + g;
                p[i] -= rate * (of_g * g + of_buffer * buffer[i]);
            }
        } else {
#pragma omp simd
            for (int64_t i = 0; i < count; i++)
                p[i] = STEP(p[i], rate, from[i] * grad_scale + decay * p[i]);
        }
        if (rounded) ech_part_copy(param, first, count, rounded, first);
    }
}

/* If no other thread adds, the bits equal sgd's. */
void ECH_CPU(sgd_shared)(ech_kernel_context *context, const ech_tensor *shared,
                         const ech_tensor *grad, const ech_update *update)
{
    ECH_SHAPES(sgd_shared, ECH_REAL, shared, grad);
    ECH_UPDATE_UNLESS_WITHHELD(update, (void)0);
    const float grad_scale = (float)update->grad_scale, rate = (float)update->learning_rate;
    int64_t n = ech_tensor_count(shared);
#pragma omp parallel for num_threads(context->threads) if (n > ECH_CHUNK)
    for (int64_t first = 0; first < n; first += ECH_PART) {
        ECH_ALIGNED float part[ECH_PART];
        int64_t count = ech_part(n, first, ECH_PART);
        const float *from = ech_part_of(grad, first, count, part);
        float *x = (float *)shared->data + first;
        for (int64_t i = 0; i < count; i++) {
            const float g = from[i] * grad_scale;
            if (g != 0) step_shared(&x[i], rate, g);
        }
    }
}

/* x += moved. If no other thread uses x, in vectors. */
static void move_shared(int64_t n, const float *moved, bool alone, float *x)
{
    if (alone)
        for (int64_t i = 0; i < n; i++) x[i] += moved[i];
    else
        for (int64_t i = 0; i < n; i++)
            if (moved[i] != 0) step_shared(&x[i], -1, moved[i]);
}

void ECH_CPU(relay_shared)(ech_kernel_context *context, const ech_tensor *own,
                           const ech_tensor *next, const ech_tensor *relayed, double beta,
                           double lambda, double rate, double tolerance, int64_t alone)
{
    ECH_SHAPES(relay_shared, ECH_REAL, own, next, relayed);
    const float passed = (float)beta, nears = (float)lambda, part = (float)rate;
    const float kept = (float)(beta + lambda - 1), least = (float)tolerance;
    int64_t n = ech_tensor_count(own);
#pragma omp parallel for num_threads(context->threads) if (n > ECH_CHUNK)
    for (int64_t first = 0; first < n; first += ECH_PART) {
        ECH_ALIGNED float w[ECH_PART], moved[ECH_PART], passes_on[ECH_PART];
        int64_t count = ech_part(n, first, ECH_PART);
        float *here = (float *)own->data + first, *there = (float *)next->data + first;
        float *last = (float *)relayed->data + first;
        for (int64_t i = 0; i < count; i++) w[i] = load_shared(&here[i]);
        for (int64_t i = 0; i < count; i++) moved[i] = load_shared(&there[i]);
#pragma omp simd
        for (int64_t i = 0; i < count; i++) {
            const float d = part * (w[i] - last[i]);
            const bool passes = fabsf(d) > least;
            moved[i] = nears * (moved[i] - w[i]) + (passes ? kept : nears) * d;
            last[i] = w[i] + moved[i] - (passes ? 0 : d);
            passes_on[i] = passes ? passed * d : 0;
        }
        move_shared(count, moved, alone > 0, here);
        move_shared(count, passes_on, alone > 1, there);
    }
}

void ECH_CPU(copy_shared)(ech_kernel_context *context, const ech_tensor *shared,
                          const ech_tensor *y)
{
    ECH_SHAPES(copy_shared, ECH_REAL, shared, y);
    const float *x = shared->data;
    float *to = y->data;
    int64_t n = ech_tensor_count(shared);
#pragma omp parallel for num_threads(context->threads) if (n > ECH_CHUNK)
    for (int64_t i = 0; i < n; i++) to[i] = load_shared(&x[i]);
}

void ECH_CPU(sgd_shared_rows)(ech_kernel_context *context, const ech_tensor *shared,
                              const ech_tensor *grad, const ech_tensor *rows,
                              const ech_update *update)
{
    ECH_SHAPES(sgd_shared_rows, ECH_REAL, shared, grad, rows);
    ech_update now;
    const bool adds = ech_update_begins(&update, &now);
    const float grad_scale = (float)update->grad_scale, rate = (float)update->learning_rate;
    const int32_t *row = rows->data;
    float *x = shared->data;
    int64_t C = shared->shape[1], n = ech_listed(row, rows->shape[0]);
#pragma omp parallel for num_threads(context->threads) if (n * C > ECH_CHUNK)
    for (int64_t r = 0; r < n; r++) {
        if (r + ECH_LISTED_AHEAD < n) __builtin_prefetch(&x[row[r + ECH_LISTED_AHEAD] * C], 1);
        for (int64_t c = 0; c < C; c++) {
            const float g = ech_number(grad, r * C + c) * grad_scale;
            ech_set_number(grad, r * C + c, 0);
            if (adds && g != 0) step_shared(&x[row[r] * C + c], rate, g);
        }
    }
}

void ECH_CPU(copy_shared_rows)(ech_kernel_context *context, const ech_tensor *shared,
                               const ech_tensor *rows, const ech_tensor *y)
{
    ECH_SHAPES(copy_shared_rows, ECH_REAL, shared, rows, y);
    const float *x = shared->data;
    const int32_t *row = rows->data;
    float *to = y->data;
    int64_t C = shared->shape[1], n = ech_listed(row, rows->shape[0]);
#pragma omp parallel for num_threads(context->threads) if (n * C > ECH_CHUNK)
    for (int64_t r = 0; r < n; r++) {
        if (r + ECH_LISTED_AHEAD < n) __builtin_prefetch(&x[row[r + ECH_LISTED_AHEAD] * C]);
        for (int64_t c = 0; c < C; c++) to[r * C + c] = load_shared(&x[row[r] * C + c]);
    }
}
