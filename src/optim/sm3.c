/* SPDX-License-Identifier: Apache-2.0
 *
 * SM3-II. Anil, Gupta, Koren and Singer 2019, arXiv:1901.11150: a matrix has one accumulator per
 * row and per column; a vector has one per element, which is Adagrad. Momentum averages the weight
 * updates, as in the authors' code.
 */
#include "optim/optim.h"

static bool is_vector(const ech_param *param)
{
    return param->shape.dims < 2;
}

static void declare(const ech_config *config, const ech_param *param, ech_optimizer_needs *needs)
{
    ECH_ASSERT(param->shape.dims <= 2);
    if (is_vector(param)) {
        ech_optimizer_add_state(needs, "accumulator", param, 0);
        ech_optimizer_add_statistic(needs, 0, param, 0, 0, ECH_SHARDS_MAXIMUM);
    } else {
        ech_optimizer_add_state(needs, "column_accumulator", param, 1);
        ech_optimizer_add_state(needs, "row_accumulator", param, 2);
        ech_optimizer_add_statistic(needs, 0, param, 1, 1, ECH_SHARDS_MAXIMUM);
        ech_optimizer_add_statistic(needs, 0, param, 2, 2, ECH_SHARDS_MAXIMUM);
    }
    if (config->optimizer.momentum > 0) ech_optimizer_add_state(needs, "momentum_buffer", param, 0);
}

static ech_rounds_read rounds_read(const ech_param *param)
{
    return is_vector(param) ? ECH_ROUNDS_READ_ALL : ECH_ROUNDS_READ_GRADIENT;
}

static void configure(const ech_config *config, ech_update *update)
{
    update->momentum = config->optimizer.momentum;
}

static size_t scratch(const ech_kernels *kernels, int threads, const ech_param *param,
                      const int64_t *size)
{
    int64_t dims[] = {is_vector(param) ? 1 : size[0], is_vector(param) ? size[0] : size[1]};
    size_t maxima = ech_kernel_scratch(kernels, ECH_OP_sm3_maxima, threads, dims);
    size_t columns = (size_t)dims[1] * ech_dtype_bytes(kernels->wide->dtype);
    return maxima > columns ? maxima : columns;
}

static void compute(const ech_optimizer_work *w, int round)
{
    ech_tensor grad = ech_tensor_matrix(w->gradient);
    bool vector = is_vector(w->of);
    ECH_ASSERT(round == 0);
    w->kernels->sm3_maxima(w->context, &grad, vector ? NULL : &w->state[1], &w->state[0], w->update,
                           vector ? NULL : &w->statistic[1], &w->statistic[0]);
}

static void apply(const ech_optimizer_work *w)
{
    bool vector = is_vector(w->of);
    ech_tensor param = ech_tensor_matrix(w->param), grad = ech_tensor_matrix(w->gradient);
    ech_tensor momentum = {0}, rounded = {0}, column = w->state[0];
    if (!vector && w->continues) { /* the pieces after this one need it as it is */
        column.data = w->context->scratch;
        w->kernels->wide->scale(w->context, &w->state[0], 1, 0, &column);
    }
    if (w->update->momentum > 0) momentum = ech_tensor_matrix(&w->state[vector ? 1 : 2]);
    if (w->rounded) rounded = ech_tensor_matrix(w->rounded);
    w->kernels->sm3(w->context, &param, &grad, vector ? NULL : &w->state[1], &column,
                    vector ? NULL : &w->statistic[1], &w->statistic[0],
                    momentum.data ? &momentum : NULL, w->update, w->rounded ? &rounded : NULL);
}

const ech_optimizer ech_optimizer_row_sm3 = {.name = "sm3",
                                             .rounds_read = rounds_read,
                                             .reads = "optimizer.momentum",
                                             .declare = declare,
                                             .configure = configure,
                                             .scratch = scratch,
                                             .round = compute,
                                             .update = apply};
