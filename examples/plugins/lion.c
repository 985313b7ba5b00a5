/* SPDX-License-Identifier: Apache-2.0
 *
 * The optimizer Lion (Chen et al. 2023, arXiv:2302.06675): the weights move by the sign of an
 * average of gradients. Betas are usually 0.9 and 0.99, learning rates a third to a tenth of
 * AdamW's.
 *
 *     cc -shared -fPIC -O2 -I include examples/plugins/lion.c -o lion.so
 *     echelon train run.yaml training.plugins=./lion.so optimizer.name=lion optimizer.beta2=0.99
 */
#include <echelon_plugin.h>

static void declare(const echelon_param *param, const echelon_numbers *numbers,
                    echelon_needs *needs)
{
    (void)param, (void)numbers;
    needs->states = 1;
    needs->state[0].name = "exp_avg"; /* one number per weight */
}

static double sign(double x)
{
    return (x > 0) - (x < 0);
}

static void update(const echelon_optimizer_work *work)
{
    const echelon_array *weights = &work->weights, *average = &work->state[0];
    double beta1 = work->numbers->beta1, beta2 = work->numbers->beta2;
    for (int64_t i = 0; i < weights->count; i++) {
        double g = echelon_get(&work->gradient, i) * work->gradient_scale;
        double p = echelon_get(weights, i), m = echelon_get(average, i);
        double step = sign(beta1 * m + (1 - beta1) * g) + work->weight_decay * p;
        echelon_set(weights, i, p - work->learning_rate * step);
        echelon_set(average, i, beta2 * m + (1 - beta2) * g);
    }
}

static const echelon_optimizer lion = {.size = sizeof lion,
                                       .name = "lion",
                                       .reads = "optimizer.beta1 optimizer.beta2",
                                       .declare = declare,
                                       .update = update};
static const echelon_optimizer *const optimizers[] = {&lion, NULL};

const echelon_plugin echelon_plugin_table = {.size = sizeof(echelon_plugin),
                                             .version = ECHELON_PLUGIN_VERSION,
                                             .name = "lion",
                                             .optimizers = optimizers};
