/* SPDX-License-Identifier: Apache-2.0
 *
 * Adagrad with one accumulator per row of a matrix: the sum over updates of the row's mean squared
 * gradient. It shows a state with some of the parameter's axes, and the statistic from which every
 * rank updates its copy. The largest gradient of a parameter is a statistic of a maximum: gradients
 * are divided by it.
 */
#include <echelon_plugin.h>
#include <math.h>

static void declare(const echelon_param *param, const echelon_numbers *numbers,
                    echelon_needs *needs)
{
    (void)numbers;
    needs->states = 1;
    needs->state[0].name = "accumulator";
    needs->statistics = 1;
    needs->statistic[0].axes = ""; /* a single number */
    needs->statistic[0].fold = ECHELON_FOLD_MAXIMUM;
    if (param->dims < 2) return; /* a vector has an accumulator per number */
    needs->state[0].axes = param->axis[0];
    needs->statistics = 2;
    needs->statistic[1].axes = param->axis[0];
    needs->statistic[1].fold = ECHELON_FOLD_SUM;
    needs->statistic[1].round = 1;
}

/* The shard's gradient, and the number of the row of number i. */
static double gradient_of(const echelon_optimizer_work *work, int64_t i)
{
    return echelon_get(&work->gradient, i) * work->gradient_scale;
}

static double scaled(const echelon_optimizer_work *work, int64_t i)
{
    double largest = echelon_get(&work->statistic[0], 0);
    return largest > 0 ? gradient_of(work, i) / largest : 0;
}

static void statistics(const echelon_optimizer_work *work, int round)
{
    int64_t n = work->gradient.count, rows = work->gradient.shape[0];
    if (round == 0) {
        double largest = 0;
        for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(gradient_of(work, i)));
        echelon_set(&work->statistic[0], 0, largest);
        return;
    }
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0;
        for (int64_t i = r * (n / rows); i < (r + 1) * (n / rows); i++)
            sum += scaled(work, i) * scaled(work, i);
        echelon_set(&work->statistic[1], r, sum);
    }
}

static void update(const echelon_optimizer_work *work)
{
    const echelon_array *weights = &work->weights, *accumulator = &work->state[0];
    int matrix = work->param->dims == 2;
    int64_t n = weights->count, rows = matrix ? weights->shape[0] : n;
    for (int64_t r = 0; r < rows; r++) {
        double mean = matrix ? echelon_get(&work->statistic[1], r) / (double)work->param->shape[1]
                             : scaled(work, r) * scaled(work, r);
        double sum = echelon_get(accumulator, r) + mean;
        echelon_set(accumulator, r, sum);
        for (int64_t i = r * (n / rows); i < (r + 1) * (n / rows); i++) {
            double step = scaled(work, i) / (sqrt(sum) + work->numbers->eps);
            double p = echelon_get(weights, i);
            echelon_set(weights, i, p - work->learning_rate * (step + work->weight_decay * p));
        }
    }
}

static const echelon_optimizer row_adagrad = {.size = sizeof row_adagrad,
                                              .name = "row_adagrad",
                                              .reads = "optimizer.eps",
                                              .declare = declare,
                                              .statistics = statistics,
                                              .update = update};
static const echelon_optimizer *const optimizers[] = {&row_adagrad, NULL};

const echelon_plugin echelon_plugin_table = {.size = sizeof(echelon_plugin),
                                             .version = ECHELON_PLUGIN_VERSION,
                                             .name = "row_adagrad",
                                             .optimizers = optimizers};
