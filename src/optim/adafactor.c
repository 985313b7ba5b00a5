/* SPDX-License-Identifier: Apache-2.0
 *
 * Adafactor. Shazeer and Stern 2018, arXiv:1804.04235: algorithm 4 for matrices, 5 for vectors,
 * with its numbers (eps1 = 1e-30, eps2 = 1e-3, d = 1, beta2 = 1 - t^-0.8). Momentum averages the
 * clipped and scaled update, as in the authors' code (tensor2tensor). Keys are named after
 * transformers' options. Weight decay uses the rate of the update, as in transformers, so with
 * scale_parameter it is multiplied by the size of the weights, too.
 */
#include "optim/optim.h"

/* Statistics in declaration order; a vector has those from COLUMNS on. */
enum {
    ROWS,        /* sums of squares of the gradient, by row */
    ROW_FACTORS, /* 1 / sqrt of the row state */
    TOTAL,       /* sum of the row state, equal to the column state's */
    COLUMNS,     /* like ROWS; for a vector the squares */
    COLUMN_FACTORS,
    WEIGHT_SQUARE, /* sums of squares over all elements */
    UPDATE_SQUARE
};

static bool is_vector(const ech_param *param)
{
    return param->shape.dims < 2;
}

static void declare(const ech_config *config, const ech_param *param, ech_optimizer_needs *needs)
{
    bool vector = is_vector(param);
    unsigned rows = 2, columns = vector ? 0 : 1, one = 3;
    ECH_ASSERT(param->shape.dims <= 2);
    if (vector) {
        ech_optimizer_add_state(needs, "variance", param, 0);
    } else {
        ech_optimizer_add_state(needs, "row_var", param, rows);
        ech_optimizer_add_state(needs, "col_var", param, columns);
        ech_optimizer_add_statistic(needs, 0, param, rows, 2, ECH_SHARDS_SUM);
        ech_optimizer_add_statistic(needs, 1, param, rows, 0, ECH_SHARDS_NOTHING);
        ech_optimizer_add_statistic(needs, 1, param, one, 1, ECH_SHARDS_SUM);
    }
    ech_optimizer_add_statistic(needs, 0, param, columns, columns, ECH_SHARDS_SUM);
    ech_optimizer_add_statistic(needs, 1, param, columns, 0, ECH_SHARDS_NOTHING);
    ech_optimizer_add_statistic(needs, 0, param, one, 3, ECH_SHARDS_SUM);
    ech_optimizer_add_statistic(needs, 1, param, one, 3, ECH_SHARDS_SUM);
    if (config->optimizer.momentum > 0) ech_optimizer_add_state(needs, "exp_avg", param, 0);
}

static ech_rounds_read rounds_read(const ech_param *param)
{
    return is_vector(param) ? ECH_ROUNDS_READ_ALL : ECH_ROUNDS_READ_PARAM;
}

static void configure(const ech_config *config, ech_update *update)
{
    update->momentum = config->optimizer.momentum;
    update->eps = 1e-30;
    update->scale_parameter = config->optimizer.scale_parameter == 1;
}

static size_t scratch(const ech_kernels *kernels, int threads, const ech_param *param,
                      const int64_t *size)
{
    int64_t dims[] = {is_vector(param) ? 1 : size[0], is_vector(param) ? size[0] : size[1]};
    return ech_kernel_scratch(kernels, ECH_OP_adafactor_sums, threads, dims);
}

/* The kernels' operands: a matrix, and the tensors of statistics and states; row tensors are NULL
 * for a vector. */
typedef struct factored {
    ech_tensor param, grad, rounded;
    const ech_tensor *statistic[UPDATE_SQUARE + 1], *row_state, *column_state;
} factored;

static factored factor(const ech_optimizer_work *w)
{
    int first = is_vector(w->of) ? COLUMNS : ROWS, states = is_vector(w->of) ? 1 : 2;
    factored f = {.param = ech_tensor_matrix(w->param), .grad = ech_tensor_matrix(w->gradient)};
    for (int i = first; i <= UPDATE_SQUARE; i++) f.statistic[i] = &w->statistic[i - first];
    if (first == ROWS) f.row_state = &w->state[0];
    f.column_state = &w->state[states - 1];
    if (w->rounded) f.rounded = ech_tensor_matrix(w->rounded);
    return f;
}

static void compute(const ech_optimizer_work *w, int round)
{
    factored f = factor(w);
    const ech_tensor *const *s = f.statistic;
    if (round == 0) {
        w->kernels->adafactor_sums(w->context, &f.param, &f.grad, w->update, s[ROWS], s[COLUMNS],
                                   s[WEIGHT_SQUARE]);
        return;
    }
    if (f.row_state)
        w->kernels->adafactor_factors(w->context, s[ROWS], w->update, f.row_state, s[ROW_FACTORS],
                                      s[TOTAL]);
    w->kernels->adafactor_factors(w->context, s[COLUMNS], w->update, f.column_state,
                                  s[COLUMN_FACTORS], NULL);
    w->kernels->adafactor_squares(w->context, &f.grad, s[ROW_FACTORS], s[COLUMN_FACTORS], w->update,
                                  s[UPDATE_SQUARE]);
}

/* The kernels omit from u the root of the row state's sum, which is one number. */
static void apply(const ech_optimizer_work *w)
{
    factored f = factor(w);
    ech_tensor exp_avg = {0}; /* which rounds of a bucket that is cut do not have */
    bool averages = w->update->momentum > 0;
    if (averages) exp_avg = ech_tensor_matrix(&w->state[is_vector(w->of) ? 1 : 2]);
    w->kernels->adafactor(w->context, &f.param, &f.grad, f.statistic[ROW_FACTORS],
                          f.statistic[COLUMN_FACTORS], averages ? &exp_avg : NULL,
                          f.row_state ? f.statistic[TOTAL] : NULL, f.statistic[UPDATE_SQUARE],
                          f.statistic[WEIGHT_SQUARE], ech_shape_whole(&w->of->shape), w->update,
                          w->rounded ? &f.rounded : NULL);
}

const ech_optimizer ech_optimizer_row_adafactor = {.name = "adafactor",
                                                   .rounds_read = rounds_read,
                                                   .reads = "optimizer.momentum "
                                                            "optimizer.scale_parameter "
                                                            "optimizer.relative_step "
                                                            "optimizer.warmup_init",
                                                   .declare = declare,
                                                   .configure = configure,
                                                   .scratch = scratch,
                                                   .round = compute,
                                                   .update = apply};
