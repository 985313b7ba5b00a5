/* SPDX-License-Identifier: Apache-2.0
 *
 * Adafactor (Shazeer and Stern 2018, arXiv:1804.04235) and SM3-II (Anil et al. 2019,
 * arXiv:1901.11150): their statistics of rows and columns, and the updates.
 */
#include "kernel/cuda/update.cuh"

namespace
{
/* The scaled gradient of an element. If nothing is written between two elements, a compiler reads
 * the device's numbers once. */
struct scaled_grad {
    ech_numbers grad;
    ech_update update;
    int64_t C;

    __device__ wide operator()(int64_t r, int64_t c) const
    {
        ech_update_now step;
        ech_begin(update, &step);
        return grad.get(r * C + c) * (wide)step.now.grad_scale;
    }
    __device__ void load(int64_t r, int64_t c, int n, wide *to) const
    {
        ech_update_now step;
        ech_begin(update, &step);
        grad.load(r * C + c, n, to);
        for (int k = 0; k < ECH_PART; k++) to[k] *= (wide)step.now.grad_scale;
    }
    __device__ bool is_withheld() const
    {
        ech_update_now step;
        ech_begin(update, &step);
        return step.is_withheld;
    }
};
} // namespace

static double *doubles(const ech_tensor *x)
{
    return x ? static_cast<double *>(x->data) : NULL;
}

/* The sum of n doubles, by one block. */
static void put_sum(const ech_kernel_context *context, const scaled_grad &g, const double *x,
                    int64_t n, double *sum)
{
    ech_fold_rows(
        context, 1, n, ech_plus(), [=] __device__(int64_t, int64_t i) { return x[i]; },
        [=] __device__(int64_t, double all) {
            if (!g.is_withheld()) *sum = all;
        });
}

/* ---- Adafactor ---- */

void ECH_CUDA(adafactor_sums)(ech_kernel_context *context, const ech_tensor *param,
                              const ech_tensor *grad, const ech_update *update,
                              const ech_tensor *rows, const ech_tensor *columns,
                              const ech_tensor *square)
{
    ech_cuda_check(ECH_OP_adafactor_sums, ECH_REAL, param, grad, rows, columns, square);
    int64_t R = grad->shape[0], C = grad->shape[1];
    size_t parts = ech_cuda_align((size_t)ech_cuda_column_parts(R, C) * sizeof(double));
    char *scratch = static_cast<char *>(ech_scratch(context, parts + (size_t)R * sizeof(double)));
    double *squares = reinterpret_cast<double *>(scratch + parts);
    double *to_rows = doubles(rows), *to_columns = doubles(columns);
    const scaled_grad g = {grad, *update, C};
    const ech_numbers from = param;
    const double eps = update->eps;
    const auto squared = [=] __device__(int64_t r, int64_t c, int n, wide *value) {
        g.load(r, c, n, value);
        for (int k = 0; k < ECH_PART; k++) value[k] = k < n ? value[k] * value[k] + (wide)eps : 0;
    };
    ech_columns(context, R, C, ech_plus(), squared, [=] __device__(int64_t c, double sum) {
        if (!g.is_withheld()) to_columns[c] = sum;
    });
    if (rows)
        ech_fold_rows_by_parts(context, R, C, ech_plus(), squared,
                               [=] __device__(int64_t r, double sum) {
                                   if (!g.is_withheld()) to_rows[r] = sum;
                               });
    ech_fold_rows_by_parts(
        context, R, C, ech_plus(),
        [=] __device__(int64_t r, int64_t c, int n, wide *value) {
            from.load(r * C + c, n, value);
            for (int k = 0; k < ECH_PART; k++) value[k] *= value[k];
        },
        [=] __device__(int64_t r, double sum) { squares[r] = sum; });
    put_sum(context, g, squares, R, doubles(square));
}

void ECH_CUDA(adafactor_factors)(ech_kernel_context *context, const ech_tensor *sums,
                                 const ech_update *update, const ech_tensor *state,
                                 const ech_tensor *factors, const ech_tensor *total)
{
    ech_cuda_check(ECH_OP_adafactor_factors, ECH_REAL, sums, state, factors, total);
    const double *from = doubles(sums);
    double *all = doubles(total);
    const ech_numbers moving = state, to = factors;
    const scaled_grad g = {NULL, *update, 0};
    const ech_update told = *update;
    const int64_t n = sums->shape[0];
    ech_each_prepared<ech_update_now>(
        context, n,
        [=] __device__(ech_update_now * step) {
            ech_begin(told, step);
            step->number[0] = ech_adafactor_beta2(&step->now);
        },
        [=] __device__(const ech_update_now &step, int64_t i, int count) {
            double beta = step.number[0];
            if (step.is_withheld) return;
            for (int64_t k = i; k < i + count; k++) {
                wide moved = (wide)(beta * moving.get(k) + (1 - beta) * from[k]);
                moving.put(k, moved);
                to.put(k, 1 / sqrt(moved));
            }
        });
    if (all)
        ech_fold_rows(
            context, 1, n, ech_plus(), [=] __device__(int64_t, int64_t i) { return moving.get(i); },
            [=] __device__(int64_t, double sum) {
                if (!g.is_withheld()) *all = sum;
            });
}

/* u of an element without its scale. */
static __device__ wide factored(wide g, const ech_numbers &rows, const ech_numbers &columns,
                                int64_t r, int64_t c)
{
    return g * (rows.is_here() ? rows.get(r) : 1) * columns.get(c);
}

void ECH_CUDA(adafactor_squares)(ech_kernel_context *context, const ech_tensor *grad,
                                 const ech_tensor *rows, const ech_tensor *columns,
                                 const ech_update *update, const ech_tensor *square)
{
    ech_cuda_check(ECH_OP_adafactor_squares, ECH_REAL, grad, rows, columns, square);
    int64_t R = grad->shape[0], C = grad->shape[1];
    double *squares = static_cast<double *>(ech_scratch(context, (size_t)R * sizeof(double)));
    const scaled_grad g = {grad, *update, C};
    const ech_numbers by_row = rows, by_column = columns;
    ech_fold_rows(
        context, R, C, ech_plus(),
        [=] __device__(int64_t r, int64_t c) {
            double u = factored(g(r, c), by_row, by_column, r, c);
            return u * u;
        },
        [=] __device__(int64_t r, double sum) { squares[r] = sum; });
    put_sum(context, g, squares, R, doubles(square));
}

void ECH_CUDA(adafactor)(ech_kernel_context *context, const ech_tensor *param,
                         const ech_tensor *grad, const ech_tensor *rows, const ech_tensor *columns,
                         const ech_tensor *momentum, const ech_tensor *total,
                         const ech_tensor *squares, const ech_tensor *weights, int64_t elements,
                         const ech_update *update, const ech_tensor *rounded)
{
    ech_cuda_check(ECH_OP_adafactor, ECH_REAL, param, grad, rows, columns, momentum, total, squares,
                   weights, rounded);
    const ech_numbers to = param, from = grad, by_row = rows, by_column = columns,
                      moving = momentum, copy = rounded;
    const ech_maybe all = total, unscaled = squares, size = weights;
    const ech_update told = *update;
    const int64_t C = grad->shape[1];
    ech_each_prepared<ech_update_now>(
        context, ech_tensor_count(param),
        [=] __device__(ech_update_now * step) {
            ech_begin(told, step);
            step->number[0] =
                ech_adafactor_scale(&step->now, all.get(), unscaled.get(), size.get(), elements);
            step->number[1] = ech_adafactor_rate(&step->now, size.get(), elements);
        },
        [=] __device__(const ech_update_now &step, int64_t i, int n) {
            const ech_update &u = step.now;
            wide p[ECH_PART], g[ECH_PART], moved[ECH_PART] = {}, beta = (wide)u.momentum;
            ech_place at(i, C);
            if (step.is_withheld) return ech_store_rounded(to, copy, i, n);
            to.load(i, n, p);
            from.load(i, n, g);
            if (moving.is_here()) moving.load(i, n, moved);
            for (int k = 0; k < ECH_PART; k++, at.next()) {
                if (k >= n) continue;
                g[k] = (wide)step.number[0] *
                       factored(g[k] * (wide)u.grad_scale, by_row, by_column, at.r, at.c);
                moved[k] = beta * moved[k] + (1 - beta) * g[k];
                if (moving.is_here()) g[k] = moved[k];
                p[k] -= (wide)(step.number[1] * u.weight_decay) * p[k] + g[k];
            }
            if (moving.is_here()) moving.store(i, n, moved);
            ech_store_param(to, copy, i, n, p);
        });
}

/* ---- SM3 ---- */

/* nu of an element whose scaled gradient is g: its accumulator, with its square. A NaN is smaller
 * than everything. */
static __device__ wide accumulated(wide g, wide row, wide column)
{
    return (row < column || row != row ? row : column) + g * g;
}

void ECH_CUDA(sm3_maxima)(ech_kernel_context *context, const ech_tensor *grad,
                          const ech_tensor *row_state, const ech_tensor *column_state,
                          const ech_update *update, const ech_tensor *rows,
                          const ech_tensor *columns)
{
    ech_cuda_check(ECH_OP_sm3_maxima, ECH_REAL, grad, row_state, column_state, rows, columns);
    int64_t R = grad->shape[0], C = grad->shape[1];
    const scaled_grad g = {grad, *update, C};
    const ech_numbers row = row_state, column = column_state;
    double *to_rows = doubles(rows), *to_columns = doubles(columns);
    const auto moved = [=] __device__(int64_t r, int64_t c, int n, wide *value) {
        wide own[ECH_PART], most = row.is_here() ? row.get(r) : 0;
        g.load(r, c, n, value);
        column.load(c, n, own);
        for (int k = 0; k < ECH_PART; k++)
            value[k] = accumulated(value[k], row.is_here() ? most : own[k], own[k]);
    };
    ech_columns(context, R, C, ech_larger(), moved, [=] __device__(int64_t c, double most) {
        if (!g.is_withheld()) to_columns[c] = most;
    });
    if (rows)
        ech_fold_rows_by_parts(context, R, C, ech_larger(), moved,
                               [=] __device__(int64_t r, double most) {
                                   if (!g.is_withheld()) to_rows[r] = most;
                               });
}

/* state = maxima. */
static void put_state(const ech_kernel_context *context, const scaled_grad &g,
                      const ech_tensor *maxima, const ech_tensor *state)
{
    const double *from = doubles(maxima);
    const ech_numbers to = state;
    ech_each(context, ech_tensor_count(state), [=] __device__(int64_t i, int n) {
        if (g.is_withheld()) return;
        for (int k = 0; k < n; k++) to.put(i + k, (wide)from[i + k]);
    });
}

void ECH_CUDA(sm3)(ech_kernel_context *context, const ech_tensor *param, const ech_tensor *grad,
                   const ech_tensor *row_state, const ech_tensor *column_state,
                   const ech_tensor *rows, const ech_tensor *columns, const ech_tensor *momentum,
                   const ech_update *update, const ech_tensor *rounded)
{
    ech_cuda_check(ECH_OP_sm3, ECH_REAL, param, grad, row_state, column_state, rows, columns,
                   momentum, rounded);
    const ech_numbers to = param, from = grad, row = row_state, column = column_state,
                      moving = momentum, copy = rounded;
    const ech_update told = *update;
    const int64_t C = grad->shape[1];
    const scaled_grad g_of = {grad, *update, C};
    ech_each_prepared<ech_update_now>(
        context, ech_tensor_count(param),
        [=] __device__(ech_update_now * step) { ech_begin(told, step); },
        [=] __device__(const ech_update_now &step, int64_t i, int n) {
            const ech_update &u = step.now;
            wide p[ECH_PART], g[ECH_PART], moved[ECH_PART] = {}, beta = (wide)u.momentum;
            ech_place at(i, C);
            if (step.is_withheld) return ech_store_rounded(to, copy, i, n);
            to.load(i, n, p);
            from.load(i, n, g);
            if (moving.is_here()) moving.load(i, n, moved);
            for (int k = 0; k < ECH_PART; k++, at.next()) {
                if (k >= n) continue;
                g[k] *= (wide)u.grad_scale;
                wide of_column = column.get(at.c),
                     of_row = row.is_here() ? row.get(at.r) : of_column;
                wide nu = accumulated(g[k], of_row, of_column);
                g[k] = nu == 0 ? 0 : g[k] / sqrt(nu);
                moved[k] = beta * moved[k] + (1 - beta) * g[k];
                if (moving.is_here()) g[k] = moved[k];
                p[k] -= (wide)u.learning_rate * ((wide)u.weight_decay * p[k] + g[k]);
            }
            if (moving.is_here()) moving.store(i, n, moved);
            ech_store_param(to, copy, i, n, p);
        });
    if (rows) put_state(context, g_of, rows, row_state);
    put_state(context, g_of, columns, column_state);
}
