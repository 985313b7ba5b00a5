/* SPDX-License-Identifier: Apache-2.0
 *
 * AdamW (Loshchilov and Hutter 2019, arXiv:1711.05101), written as a plugin. Its results have the
 * bits of the program's own adamw in fp64, and in fp32 with ECHELON_ISA=portable.
 */
#include <echelon_plugin.h>
#include <math.h>

static void declare(const echelon_param *param, const echelon_numbers *numbers,
                    echelon_needs *needs)
{
    (void)param, (void)numbers;
    needs->states = 2;
    needs->state[0].name = "exp_avg";
    needs->state[1].name = "exp_avg_sq";
}

static void update_fp64(const echelon_optimizer_work *work)
{
    double *p = work->weights.data, *m = work->state[0].data, *v = work->state[1].data;
    const double *gradient = work->gradient.data;
    double beta1 = work->numbers->beta1, beta2 = work->numbers->beta2;
    double m_correction = 1 - pow(beta1, (double)work->update);
    double v_correction = 1 - pow(beta2, (double)work->update);
    for (int64_t i = 0; i < work->weights.count; i++) {
        double g = gradient[i] * work->gradient_scale;
        m[i] = beta1 * m[i] + (1 - beta1) * g;
        v[i] = beta2 * v[i] + (1 - beta2) * g * g;
        double step = m[i] / m_correction / (sqrt(v[i] / v_correction) + work->numbers->eps);
        p[i] -= work->learning_rate * (step + work->weight_decay * p[i]);
    }
}

/* Numbers that all elements share are rounded once. */
static void update_fp32(const echelon_optimizer_work *work)
{
    const echelon_numbers *numbers = work->numbers;
    float *p = work->weights.data, *m = work->state[0].data, *v = work->state[1].data;
    float scale = (float)work->gradient_scale, eps = (float)numbers->eps;
    float beta1 = (float)numbers->beta1, rest1 = (float)(1 - numbers->beta1);
    float beta2 = (float)numbers->beta2, rest2 = (float)(1 - numbers->beta2);
    float m_scale = (float)(1 / (1 - pow(numbers->beta1, (double)work->update)));
    float v_scale = (float)(1 / (1 - pow(numbers->beta2, (double)work->update)));
    float rate = (float)work->learning_rate, decay = (float)work->weight_decay;
    for (int64_t i = 0; i < work->weights.count; i++) {
        float g = (float)echelon_get(&work->gradient, i) * scale;
        m[i] = beta1 * m[i] + rest1 * g;
        v[i] = beta2 * v[i] + rest2 * g * g;
        float step = m[i] * m_scale / (sqrtf(v[i] * v_scale) + eps);
        p[i] -= rate * (step + decay * p[i]);
    }
}

static void update(const echelon_optimizer_work *work)
{
    if (work->weights.type == ECHELON_FP64)
        update_fp64(work);
    else
        update_fp32(work);
}

static const echelon_optimizer adamw = {.size = sizeof adamw,
                                        .name = "adamw_copy",
                                        .reads = "optimizer.beta1 optimizer.beta2 optimizer.eps",
                                        .declare = declare,
                                        .update = update};
static const echelon_optimizer *const optimizers[] = {&adamw, NULL};

const echelon_plugin echelon_plugin_table = {.size = sizeof(echelon_plugin),
                                             .version = ECHELON_PLUGIN_VERSION,
                                             .name = "adamw_copy",
                                             .optimizers = optimizers};
