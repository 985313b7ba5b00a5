/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizer updates, element by element; and the weighted sums of Muon.
 */
#include "kernel/cuda/update.cuh"

void ECH_CUDA(adamw)(ech_kernel_context *context, const ech_tensor *param, const ech_tensor *grad,
                     const ech_tensor *exp_avg, const ech_tensor *exp_avg_sq,
                     const ech_update *update, const ech_tensor *rounded)
{
    ech_cuda_check(ECH_OP_adamw, ECH_REAL, param, grad, exp_avg, exp_avg_sq, rounded);
    const ech_numbers to = param, from = grad, mean = exp_avg, square = exp_avg_sq, copy = rounded;
    const ech_update told = *update;
    ech_each_prepared<ech_update_now>(
        context, ech_tensor_count(param),
        [=] __device__(ech_update_now * step) { ech_begin_adamw(told, step); },
        [=] __device__(const ech_update_now &step, int64_t i, int n) {
            wide p[ECH_PART], g[ECH_PART], m[ECH_PART], v[ECH_PART];
            if (step.is_withheld) return ech_store_rounded(to, copy, i, n);
            to.load(i, n, p);
            from.load(i, n, g);
            mean.load(i, n, m);
            square.load(i, n, v);
            for (int k = 0; k < ECH_PART; k++)
                p[k] = ech_adamw(step, g[k] * (wide)step.now.grad_scale, p[k], &m[k], &v[k]);
            mean.store(i, n, m);
            square.store(i, n, v);
            ech_store_param(to, copy, i, n, p);
        });
}

void ECH_CUDA(sgd)(ech_kernel_context *context, const ech_tensor *param, const ech_tensor *grad,
                   const ech_tensor *momentum, const ech_update *update, const ech_tensor *rounded)
{
    ech_cuda_check(ECH_OP_sgd, ECH_REAL, param, grad, momentum, rounded);
    ECH_ASSERT(momentum || update->momentum == 0);
    const ech_numbers to = param, from = grad, moving = momentum, copy = rounded;
    const ech_update told = *update;
    ech_each_prepared<ech_update_now>(
        context, ech_tensor_count(param),
        [=] __device__(ech_update_now * step) { ech_begin(told, step); },
        [=] __device__(const ech_update_now &step, int64_t i, int n) {
            const ech_update &u = step.now;
            wide p[ECH_PART], g[ECH_PART], moved[ECH_PART] = {};
            if (step.is_withheld) return ech_store_rounded(to, copy, i, n);
            to.load(i, n, p);
            from.load(i, n, g);
            if (moving.is_here()) moving.load(i, n, moved);
            for (int k = 0; k < ECH_PART; k++) {
                g[k] = g[k] * (wide)u.grad_scale + (wide)u.weight_decay * p[k];
                moved[k] = (wide)u.momentum * moved[k] + g[k];
                g[k] = u.nesterov ? g[k] + (wide)u.momentum * moved[k] : moved[k];
                p[k] -= (wide)u.learning_rate * g[k];
            }
            if (moving.is_here()) moving.store(i, n, moved);
            ech_store_param(to, copy, i, n, p);
        });
}

void ECH_CUDA(sgd_shared)(ech_kernel_context *context, const ech_tensor *shared,
                          const ech_tensor *grad, const ech_update *update)
{
    ech_cuda_check(ECH_OP_sgd_shared, ECH_REAL, shared, grad);
    const ech_numbers from = grad;
    wide *const to = static_cast<wide *>(shared->data);
    const ech_update told = *update;
    ech_each_prepared<ech_update_now>(
        context, ech_tensor_count(shared),
        [=] __device__(ech_update_now * step) { ech_begin(told, step); },
        [=] __device__(const ech_update_now &step, int64_t i, int n) {
            wide g[ECH_PART];
            if (step.is_withheld) return;
            from.load(i, n, g);
            for (int k = 0; k < n; k++) {
                g[k] *= (wide)step.now.grad_scale;
                if (g[k] != 0) atomicAdd(to + i + k, -(wide)step.now.learning_rate * g[k]);
            }
        });
}

void ECH_CUDA(relay_shared)(ech_kernel_context *context, const ech_tensor *own,
                            const ech_tensor *next, const ech_tensor *relayed, double beta,
                            double lambda, double rate, double tolerance, int64_t alone)
{
    (void)alone; /* additions without a returned result are never waited for */
    ech_cuda_check(ECH_OP_relay_shared, ECH_REAL, own, next, relayed);
    wide *const here = static_cast<wide *>(own->data), *const there =
                                                           static_cast<wide *>(next->data);
    wide *const last = static_cast<wide *>(relayed->data);
    const wide passed = (wide)beta, nears = (wide)lambda, part = (wide)rate;
    const wide kept = (wide)(beta + lambda - 1), least = (wide)tolerance;
    ech_each(context, ech_tensor_count(own), [=] __device__(int64_t first, int n) {
        for (int64_t i = first; i < first + n; i++) {
            const wide w = *const_cast<const volatile wide *>(here + i), d = part * (w - last[i]);
            const wide next = *const_cast<const volatile wide *>(there + i);
            const bool passes = (d < 0 ? -d : d) > least;
            const wide moved = nears * (next - w) + (passes ? kept : nears) * d;
            last[i] = w + moved - (passes ? 0 : d);
            if (moved != 0) atomicAdd(here + i, moved);
            if (passes) atomicAdd(there + i, passed * d);
        }
    });
}

void ECH_CUDA(copy_shared)(ech_kernel_context *context, const ech_tensor *shared,
                           const ech_tensor *y)
{
    ech_cuda_check(ECH_OP_copy_shared, ECH_REAL, shared, y);
    const volatile wide *const from = static_cast<const wide *>(shared->data);
    const ech_numbers to = y;
    ech_each(context, ech_tensor_count(shared), [=] __device__(int64_t i, int n) {
        wide all[ECH_PART];
        for (int k = 0; k < n; k++) all[k] = from[i + k];
        to.store(i, n, all);
    });
}

/* Element i of a list's rows, one after the other: its place in the table; -1: the list has no such
 * row. */
static __device__ inline int64_t place_listed(const int32_t *rows, int64_t i, int64_t C)
{
    int64_t row = rows[i / C];
    return row < 0 ? -1 : row * C + i % C;
}

void ECH_CUDA(sgd_shared_rows)(ech_kernel_context *context, const ech_tensor *shared,
                               const ech_tensor *grad, const ech_tensor *rows,
                               const ech_update *update)
{
    ech_cuda_check(ECH_OP_sgd_shared_rows, ECH_REAL, shared, grad, rows);
    const ech_numbers from = grad;
    const int32_t *const listed = static_cast<const int32_t *>(rows->data);
    wide *const to = static_cast<wide *>(shared->data);
    const ech_update told = *update;
    const int64_t C = shared->shape[1];
    ech_each_prepared<ech_update_now>(
        context, rows->shape[0] * C,
        [=] __device__(ech_update_now * step) { ech_begin(told, step); },
        [=] __device__(const ech_update_now &step, int64_t i, int n) {
            for (int k = 0; k < n; k++) {
                int64_t at = place_listed(listed, i + k, C);
                if (at < 0) return;
                wide g = from.get(i + k) * (wide)step.now.grad_scale;
                bool adds = !step.is_withheld && g != 0;
                if (adds) atomicAdd(to + at, -(wide)step.now.learning_rate * g);
                from.put(i + k, 0);
            }
        });
}

void ECH_CUDA(copy_shared_rows)(ech_kernel_context *context, const ech_tensor *shared,
                                const ech_tensor *rows, const ech_tensor *y)
{
    ech_cuda_check(ECH_OP_copy_shared_rows, ECH_REAL, shared, rows, y);
    const volatile wide *const from = static_cast<const wide *>(shared->data);
    const int32_t *const listed = static_cast<const int32_t *>(rows->data);
    const ech_numbers to = y;
    const int64_t C = shared->shape[1];
    ech_each(context, rows->shape[0] * C, [=] __device__(int64_t i, int n) {
        for (int k = 0; k < n; k++) {
            int64_t at = place_listed(listed, i + k, C);
            if (at < 0) return;
            to.put(i + k, from[at]);
        }
    });
}

void ECH_CUDA(scaled_sum)(ech_kernel_context *context, const ech_tensor *x, double alpha,
                          double beta, double diagonal, const ech_tensor *squares,
                          const ech_update *update, const ech_tensor *y)
{
    ech_cuda_check(ECH_OP_scaled_sum, ECH_REAL, x, squares, y);
    const ech_numbers from = x, to = y;
    const ech_update told = update ? *update : ech_update{};
    const bool has_update = update != NULL;
    const ech_maybe norm = squares;
    const int64_t C = x->shape[1];
    ech_each_prepared<ech_update_now>(
        context, ech_tensor_count(x),
        [=] __device__(ech_update_now * step) {
            ech_begin(told, step);
            step->number[0] = ech_scaled_alpha(alpha, norm.get(), has_update ? &step->now : NULL);
        },
        [=] __device__(const ech_update_now &step, int64_t i, int n) {
            wide v[ECH_PART], before[ECH_PART] = {};
            ech_place at(i, C);
            if (step.is_withheld) return;
            from.load(i, n, v);
            if (beta != 0) to.load(i, n, before);
            for (int k = 0; k < ECH_PART; k++, at.next())
                v[k] = (wide)step.number[0] * v[k] + (wide)beta * before[k] +
                       (at.r == at.c ? (wide)diagonal : 0);
            to.store(i, n, v);
        });
}
