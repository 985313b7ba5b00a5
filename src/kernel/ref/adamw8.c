/* SPDX-License-Identifier: Apache-2.0
 *
 * AdamW with 8-bit states. Dettmers et al. 2022, arXiv:2110.02861.
 */
#include <math.h>

#include "kernel/dynamic_map.h"
#include "kernel/ref/real.h"

/* Elements first .. first + n - 1 of a state, and number `block` of their maxima. */
typedef struct state {
    const ech_dynamic_map *map;
    uint8_t *code;
    const ech_tensor *most;
    int64_t first, n, block;
} state;

static double get(const state *s, int64_t i)
{
    return (double)s->map->value[s->code[s->first + i]] * ech_value(s->most, s->block);
}

/* The nearest value, by its definition. */
static uint8_t nearest(const ech_dynamic_map *map, double x)
{
    int code = 0;
    while (code < ECH_MAP_CODES - 1 && x >= (double)map->middle[code + 1]) code++;
    return (uint8_t)code;
}

static void put(const state *s, const double *x)
{
    double most = 0;
    for (int64_t i = 0; i < s->n; i++) most = fmax(most, fabs(x[i]));
    ech_store(s->most, s->block, most);
    most = ech_value(s->most, s->block);
    for (int64_t i = 0; i < s->n; i++)
        s->code[s->first + i] = nearest(s->map, most > 0 ? x[i] / most : 0);
}

void ECH_REF(adamw8)(ech_kernel_context *context, const ech_tensor *param, const ech_tensor *grad,
                     const ech_tensor *exp_avg, const ech_tensor *exp_avg_sq,
                     const ech_tensor *exp_avg_max, const ech_tensor *exp_avg_sq_max,
                     const ech_update *update, const ech_tensor *rounded)
{
    ECH_SHAPES(adamw8, ECH_REAL, param, grad, exp_avg, exp_avg_sq, exp_avg_max, exp_avg_sq_max,
               rounded);
    ECH_UPDATE_UNLESS_WITHHELD(update, ech_store_rounded(param, rounded));
    int64_t C = grad->shape[1], block = update->block, blocks = (C + block - 1) / block;
    ECH_ASSERT(update->count >= 1 && exp_avg_max->shape[1] == blocks);
    double *m = ech_scratch(context, 2 * (size_t)C * sizeof *m), *v = m + C;
    double b1 = update->beta1, b2 = update->beta2;
    double m_correction = 1 - pow(b1, (double)update->count);
    double v_correction = 1 - pow(b2, (double)update->count);
    for (int64_t k = 0; k < grad->shape[0] * blocks; k++) {
        int64_t column = k % blocks * block, n = C - column < block ? C - column : block;
        int64_t first = k / blocks * C + column;
        state mean = {ech_dynamic_map_of(true), exp_avg->data, exp_avg_max, first, n, k};
        state square = {ech_dynamic_map_of(false), exp_avg_sq->data, exp_avg_sq_max, first, n, k};
        for (int64_t i = 0; i < n; i++) {
            double g = ech_value(grad, first + i) * update->grad_scale;
            double p = ech_value(param, first + i);
            m[i] = b1 * get(&mean, i) + (1 - b1) * g;
            v[i] = b2 * get(&square, i) + (1 - b2) * g * g;
            double step = m[i] / m_correction / (sqrt(v[i] / v_correction) + update->eps);
            ech_store_param(param, rounded, first + i,
                            p - update->learning_rate * (step + update->weight_decay * p));
        }
        put(&mean, m);
        put(&square, v);
    }
}
