/* SPDX-License-Identifier: Apache-2.0
 *
 * Experts: the router's product, the destinations of rows, and their dispatch and return.
 */
#include "kernel/cuda/random.cuh"
#include "kernel/cuda/reduce.cuh"

extern "C" {
#include "kernel/experts.h"
}

namespace
{
/* Jitter of elements of the whole tensor. */
struct drawn_factor {
    ech_dropout how;
    ech_rows rows;

    __device__ int64_t whole(int64_t row) const
    {
        const ech_rows now = ech_rows_now(&rows);
        return ech_row_place(now, row).whole(now);
    }
    __device__ double jitter(int64_t i, ech_drawn *drawn) const
    {
        if (how.p == 0) return 1;
        return ech_jitter_factor(how.p, ech_draw(ech_dropout_key(&how), (uint64_t)i, drawn));
    }
};
} // namespace

static drawn_factor factor_of(const ech_dropout *how, const ech_rows *rows, int64_t count)
{
    ech_rows_check(__FILE__, __LINE__, rows, NULL, count);
    return {*how, *rows};
}

void ECH_CUDA(router_forward)(ech_kernel_context *context, const ech_tensor *x,
                              const ech_tensor *weight, const ech_dropout *jitter,
                              const ech_rows *rows, const ech_tensor *logits)
{
    int64_t S = x->shape[0], C = x->shape[1], E = weight->shape[0];
    ech_cuda_check(ECH_OP_router_forward, ECH_REAL, x, weight, logits);
    const drawn_factor factor = factor_of(jitter, rows, S);
    const ech_numbers from = x, by = weight, to = logits;
    ech_fold_rows(
        context, S * E, C, ech_plus(),
        [=] __device__(int64_t i, int64_t c) {
            ech_drawn drawn;
            int64_t s = i / E, e = i % E;
            double f = factor.jitter(factor.whole(s) * C + c, &drawn);
            return (double)(from.get(s * C + c) * by.get(e * C + c)) * f;
        },
        [=] __device__(int64_t i, double sum) { to.put(i, (wide)sum); });
}

void ECH_CUDA(router_backward_input)(ech_kernel_context *context, const ech_tensor *dlogits,
                                     const ech_tensor *weight, const ech_dropout *jitter,
                                     const ech_rows *rows, const ech_tensor *add,
                                     const ech_tensor *dx)
{
    int64_t S = dx->shape[0], C = dx->shape[1], E = weight->shape[0];
    ech_cuda_check(ECH_OP_router_backward_input, ECH_REAL, dlogits, weight, add, dx);
    const drawn_factor factor = factor_of(jitter, rows, S);
    const ech_numbers from = dlogits, by = weight, more = add, to = dx;
    ech_each(context, S * C, [=] __device__(int64_t i, int n) {
        ech_drawn drawn;
        for (int k = 0; k < n; k++) {
            int64_t s = (i + k) / C, c = (i + k) % C;
            double sum = 0;
            for (int64_t e = 0; e < E; e++)
                sum += (double)from.get(s * E + e) * (double)by.get(e * C + c);
            sum *= factor.jitter(factor.whole(s) * C + c, &drawn);
            if (more.is_here()) sum += (double)more.get(i + k);
            to.put(i + k, (wide)sum);
        }
    });
}

void ECH_CUDA(router_backward_weight)(ech_kernel_context *context, const ech_tensor *dlogits,
                                      const ech_tensor *x, const ech_dropout *jitter,
                                      const ech_rows *rows, bool accumulate,
                                      const ech_tensor *dweight)
{
    int64_t S = x->shape[0], C = x->shape[1], E = dweight->shape[0];
    ech_cuda_check(ECH_OP_router_backward_weight, ECH_REAL, dlogits, x, dweight);
    const drawn_factor factor = factor_of(jitter, rows, S);
    const ech_numbers from = dlogits, by = x;
    ech_columns(
        context, S, E * C, ech_plus(),
        [=] __device__(int64_t s, int64_t i, int n, wide *value) {
            ech_drawn drawn;
            const int64_t first = factor.whole(s) * C;
            int64_t e = i / C, c = i % C;
            for (int k = 0; k < ECH_PART; k++) {
                double f = k < n ? factor.jitter(first + c, &drawn) : 0;
                value[k] =
                    k < n ? (wide)((double)from.get(s * E + e) * (double)by.get(s * C + c) * f) : 0;
                if (++c < C) continue;
                c = 0;
                e++;
            }
        },
        ech_put_sum{dweight, accumulate});
}

/* One block per expert. */
static __global__ void count_choices(const int32_t *choice, int64_t n, int32_t *counts)
{
    ECH_SHARED(int, room, ECH_BLOCK / ECH_WARP);
    int count = ech_block_count(choice, n, (int32_t)blockIdx.x, room);
    if (threadIdx.x == 0) counts[blockIdx.x] = count;
}

/* One block per expert: when all are counted it knows the places of its rows, one after the
 * other. */
static __global__ void route_choices(const int32_t *choice, int64_t n, int64_t bound, int64_t X,
                                     const int32_t *counts, int32_t *slot)
{
    ECH_SHARED(int, room, ECH_BLOCK / ECH_WARP);
    int32_t e = (int32_t)blockIdx.x;
    int64_t at = e / X * bound + ech_rows_before(counts, X, e / X, e % X);
    for (int64_t first = 0; first < n; first += blockDim.x) {
        int64_t i = first + threadIdx.x;
        int32_t here = i < n ? choice[i] : (int32_t)gridDim.x;
        int all, before = ech_before(here == e, room, &all);
        if (here == e) slot[i] = (int32_t)(at + before);
        if (here < 0 && e == 0) slot[i] = -1;
        at += all;
    }
}

void ECH_CUDA(route)(ech_kernel_context *context, const ech_tensor *choice, int64_t bound,
                     const ech_tensor *slot, const ech_tensor *counts)
{
    int64_t X = counts->shape[1], E = counts->shape[0] * X, n = ech_tensor_count(choice);
    const int32_t *from = static_cast<const int32_t *>(choice->data);
    int32_t *counted = static_cast<int32_t *>(counts->data);
    ech_cuda_check(ECH_OP_route, ECH_REAL, choice, slot, counts);
    ECH_ASSERT(bound >= 0 && counts->shape[0] * bound <= INT32_MAX);
    ech_launch(context, count_choices, dim3((unsigned)E), ECH_BLOCK, 0, from, n, counted);
    ech_launch(context, route_choices, dim3((unsigned)E), ECH_BLOCK, 0, from, n, bound, X,
               (const int32_t *)counted, static_cast<int32_t *>(slot->data));
}

static __global__ void count_slice(const int32_t *counts, int64_t n, int64_t X, int64_t first,
                                   int64_t rows, int32_t *slice)
{
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
        slice[i] = (int32_t)ech_rows_within(ech_rows_before(counts, X, i / X, i % X), counts[i],
                                            first, rows);
}

void ECH_CUDA(slice_counts)(ech_kernel_context *context, const ech_tensor *counts, int64_t first,
                            int64_t rows, const ech_tensor *slice)
{
    ech_cuda_check(ECH_OP_slice_counts, ECH_REAL, counts, slice);
    ech_launch(context, count_slice, dim3(1), ECH_BLOCK, 0,
               static_cast<const int32_t *>(counts->data), ech_tensor_count(counts),
               counts->shape[1], first, rows, static_cast<int32_t *>(slice->data));
}

static const int32_t *slots_of(const ech_tensor *slot)
{
    return static_cast<const int32_t *>(slot->data);
}

void ECH_CUDA(dispatch_forward)(ech_kernel_context *context, const ech_tensor *x,
                                const ech_tensor *slot, const ech_tensor *sent)
{
    int64_t C = x->shape[1], k = slot->shape[1];
    ech_cuda_check(ECH_OP_dispatch_forward, ECH_REAL, x, slot, sent);
    const ech_numbers from = x, to = sent;
    const int32_t *at = slots_of(slot);
    ech_each_of_rows(context, x->shape[0], C, [=] __device__(int64_t s, int64_t c, int n) {
        wide v[ECH_PART];
        from.load(s * C + c, n, v);
        for (int64_t j = 0; j < k; j++)
            if (at[s * k + j] >= 0) to.store(at[s * k + j] * C + c, n, v);
    });
}

void ECH_CUDA(dispatch_backward)(ech_kernel_context *context, const ech_tensor *dsent,
                                 const ech_tensor *slot, const ech_tensor *add,
                                 const ech_tensor *dx)
{
    int64_t C = dx->shape[1], k = slot->shape[1];
    ech_cuda_check(ECH_OP_dispatch_backward, ECH_REAL, dsent, slot, add, dx);
    const ech_numbers from = dsent, more = add, to = dx;
    const int32_t *at = slots_of(slot);
    ech_each_of_rows(context, dx->shape[0], C, [=] __device__(int64_t s, int64_t c, int n) {
        wide sum[ECH_PART] = {}, v[ECH_PART];
        if (more.is_here()) more.load(s * C + c, n, sum);
        for (int64_t j = 0; j < k; j++) {
            if (at[s * k + j] < 0) continue;
            from.load(at[s * k + j] * C + c, n, v);
            for (int i = 0; i < ECH_PART; i++) sum[i] += v[i];
        }
        to.store(s * C + c, n, sum);
    });
}

void ECH_CUDA(dispatch_index)(ech_kernel_context *context, const ech_tensor *slot,
                              const ech_rows *rows, const ech_tensor *index)
{
    int64_t k = slot->shape[1];
    ech_cuda_check(ECH_OP_dispatch_index, ECH_REAL, slot, index);
    ech_rows_check(__FILE__, __LINE__, rows, NULL, slot->shape[0]);
    const ech_rows of = *rows;
    const int32_t *at = slots_of(slot);
    int32_t *to = static_cast<int32_t *>(index->data);
    ech_each_of_rows(context, slot->shape[0], k, [=] __device__(int64_t s, int64_t j, int n) {
        const ech_rows now = ech_rows_now(&of);
        int64_t first = ech_row_place(now, s).whole(now) * k;
        for (int i = 0; i < n; i++)
            if (at[s * k + j + i] >= 0) ech_choice_put(to, at[s * k + j + i], first + j + i);
    });
}

void ECH_CUDA(combine_forward)(ech_kernel_context *context, const ech_tensor *y,
                               const ech_tensor *gates, const ech_tensor *slot,
                               const ech_tensor *out)
{
    int64_t C = out->shape[1], k = slot->shape[1];
    ech_cuda_check(ECH_OP_combine_forward, ECH_REAL, y, gates, slot, out);
    const ech_numbers from = y, by = gates, to = out;
    const int32_t *at = slots_of(slot);
    ech_each_of_rows(context, out->shape[0], C, [=] __device__(int64_t s, int64_t c, int n) {
        wide sum[ECH_PART] = {}, v[ECH_PART];
        for (int64_t j = 0; j < k; j++) {
            if (at[s * k + j] < 0) continue;
            wide gate = by.get(s * k + j);
            from.load(at[s * k + j] * C + c, n, v);
            for (int i = 0; i < n; i++) sum[i] += gate * v[i];
        }
        to.store(s * C + c, n, sum);
    });
}

/* dgates first: dy may be y. */
void ECH_CUDA(combine_backward)(ech_kernel_context *context, const ech_tensor *dout,
                                const ech_tensor *y, const ech_tensor *gates,
                                const ech_tensor *slot, const ech_tensor *dy,
                                const ech_tensor *dgates)
{
    int64_t S = dout->shape[0], C = dout->shape[1], k = slot->shape[1];
    ech_cuda_check(ECH_OP_combine_backward, ECH_REAL, dout, y, gates, slot, dy, dgates);
    const ech_numbers d = dout, from = y, by = gates, to = dy, to_gates = dgates;
    const int32_t *at = slots_of(slot);
    ech_fold_rows(
        context, S * k, C, ech_plus(),
        [=] __device__(int64_t i, int64_t c) {
            if (at[i] < 0) return 0.0;
            return (double)d.get(i / k * C + c) * (double)from.get(at[i] * C + c);
        },
        [=] __device__(int64_t i, double sum) { to_gates.put(i, (wide)sum); });
    ech_each_of_rows(context, S, C, [=] __device__(int64_t s, int64_t c, int n) {
        wide v[ECH_PART], own[ECH_PART];
        d.load(s * C + c, n, v);
        for (int64_t j = 0; j < k; j++) {
            if (at[s * k + j] < 0) continue;
            wide gate = by.get(s * k + j);
            for (int i = 0; i < n; i++) own[i] = gate * v[i];
            to.store(at[s * k + j] * C + c, n, own);
        }
    });
}

static __device__ wide sigmoid_of(wide z)
{
    wide e = exp(-fabs(z));
    return (z < 0 ? e : 1) / (1 + e);
}

void ECH_CUDA(add_bias)(ech_kernel_context *context, const ech_tensor *x, const ech_tensor *bias,
                        const ech_tensor *y)
{
    int64_t N = x->shape[1];
    ech_cuda_check(ECH_OP_add_bias, ECH_REAL, x, bias, y);
    const ech_numbers from = x, more = bias, to = y;
    ech_each_of_rows(context, x->shape[0], N, [=] __device__(int64_t r, int64_t c, int n) {
        wide v[ECH_PART], w[ECH_PART];
        from.load(r * N + c, n, v);
        more.load(c, n, w);
        for (int i = 0; i < ECH_PART; i++) v[i] += w[i];
        to.store(r * N + c, n, v);
    });
}

void ECH_CUDA(row_gate_forward)(ech_kernel_context *context, const ech_tensor *x,
                                const ech_tensor *logits, const ech_tensor *y)
{
    int64_t C = x->shape[1];
    ech_cuda_check(ECH_OP_row_gate_forward, ECH_REAL, x, logits, y);
    ECH_ASSERT(logits->shape[1] == 1);
    const ech_numbers from = x, by = logits, to = y;
    ech_each_of_rows(context, x->shape[0], C, [=] __device__(int64_t s, int64_t c, int n) {
        wide v[ECH_PART], gate = sigmoid_of(by.get(s));
        from.load(s * C + c, n, v);
        for (int i = 0; i < ECH_PART; i++) v[i] *= gate;
        to.store(s * C + c, n, v);
    });
}

/* dlogits first: dx may be dy. */
void ECH_CUDA(row_gate_backward)(ech_kernel_context *context, const ech_tensor *dy,
                                 const ech_tensor *x, const ech_tensor *logits,
                                 const ech_tensor *dx, const ech_tensor *dlogits)
{
    int64_t C = x->shape[1];
    ech_cuda_check(ECH_OP_row_gate_backward, ECH_REAL, dy, x, logits, dx, dlogits);
    ECH_ASSERT(logits->shape[1] == 1);
    const ech_numbers d = dy, from = x, by = logits, to_logits = dlogits;
    ech_fold_rows(
        context, x->shape[0], C, ech_plus(),
        [=] __device__(int64_t s, int64_t c) {
            return (double)d.get(s * C + c) * (double)from.get(s * C + c);
        },
        [=] __device__(int64_t s, double sum) {
            wide z = by.get(s);
            to_logits.put(s, (wide)(sum * sigmoid_of(z) * sigmoid_of(-z)));
        });
    ECH_CUDA(row_gate_forward)(context, dy, logits, dx);
}
