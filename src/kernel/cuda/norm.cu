/* SPDX-License-Identifier: Apache-2.0
 *
 * LayerNorm; and RMSNorm, whose mean, bias and dbias are absent here. A block takes a row. The gradient of x, and those
 * of gain and bias, are kernels of their own: the one goes along rows, the others along columns.
 */
#include "kernel/cuda/reduce.cuh"

/* f(first element, count) for the parts of a row of C elements that the thread has. */
template <typename F> static __device__ void each_part(int64_t C, F f)
{
    for (int64_t c = (int64_t)threadIdx.x * ECH_PART; c < C; c += blockDim.x * ECH_PART)
        f(c, ech_part_count(C - c));
}

/* ---- forward ---- */

struct forward_call {
    ech_numbers x, gain, bias, y, mean, rstd;
    int64_t C;
    double eps;
};

static __global__ void forward_rows(forward_call at)
{
    ECH_SHARED(double, room, ECH_BLOCK / ECH_WARP);
    int64_t r = blockIdx.x, row = r * at.C, C = at.C;
    double sum = 0, squares = 0;
    if (at.mean.is_here())
        each_part(C, [&](int64_t c, int n) {
            wide x[ECH_PART];
            at.x.load(row + c, n, x);
            for (int k = 0; k < ECH_PART; k++) sum += x[k];
        });
    wide mean = at.mean.is_here() ? (wide)(ech_block(ech_plus(), sum, room) / (double)C) : 0;
    each_part(C, [&](int64_t c, int n) {
        wide x[ECH_PART];
        at.x.load(row + c, n, x);
        for (int k = 0; k < ECH_PART; k++)
            if (k < n) squares += (x[k] - mean) * (x[k] - mean);
    });
    wide rstd = (wide)(1 / sqrt(ech_block(ech_plus(), squares, room) / (double)C + at.eps));
    each_part(C, [&](int64_t c, int n) {
        wide x[ECH_PART], gain[ECH_PART], bias[ECH_PART] = {};
        at.x.load(row + c, n, x);
        at.gain.load(c, n, gain);
        if (at.bias.is_here()) at.bias.load(c, n, bias);
        for (int k = 0; k < ECH_PART; k++) x[k] = (x[k] - mean) * rstd * gain[k] + bias[k];
        at.y.store(row + c, n, x);
    });
    if (threadIdx.x != 0) return;
    if (at.mean.is_here()) at.mean.put(r, mean);
    at.rstd.put(r, rstd);
}

static void forward(const ech_kernel_context *context, const ech_tensor *x, const forward_call &at)
{
    ech_launch(context, forward_rows, dim3((unsigned)x->shape[0]), ech_row_threads(at.C), 0, at);
}

void ECH_CUDA(layernorm_forward)(ech_kernel_context *context, const ech_tensor *x,
                                 const ech_tensor *gain, const ech_tensor *bias, double eps,
                                 const ech_tensor *y, const ech_tensor *mean,
                                 const ech_tensor *rstd)
{
    ech_cuda_check(ECH_OP_layernorm_forward, ECH_REAL, x, gain, bias, y, mean, rstd);
    forward(context, x, {x, gain, bias, y, mean, rstd, x->shape[1], eps});
}

void ECH_CUDA(rmsnorm_forward)(ech_kernel_context *context, const ech_tensor *x,
                               const ech_tensor *gain, double eps, const ech_tensor *y,
                               const ech_tensor *rstd)
{
    const ech_tensor *none = NULL;
    ech_cuda_check(ECH_OP_rmsnorm_forward, ECH_REAL, x, gain, y, rstd);
    forward(context, x, {x, gain, none, y, none, rstd, x->shape[1], eps});
}

/* ---- backward: with n = (x - mean) rstd and e = dy gain, dx = rstd (e - mean(e) - n mean(e n)), without mean(e) of
 * RMSNorm; dgain = sum of dy n, dbias = sum of dy ---- */

struct backward_call {
    ech_numbers dy, x, gain, mean, rstd, add, dx;
    int64_t C;
};

/* e and n of a part. */
static __device__ void load_part(const backward_call &at, int64_t row, int64_t c, int count,
                                 wide mean, wide rstd, wide *e, wide *n)
{
    wide gain[ECH_PART];
    at.dy.load(row + c, count, e);
    at.x.load(row + c, count, n);
    at.gain.load(c, count, gain);
    for (int k = 0; k < ECH_PART; k++) {
        e[k] *= gain[k];
        n[k] = (n[k] - mean) * rstd;
    }
}

static __global__ void backward_rows(backward_call at)
{
    ECH_SHARED(double, room, 2 * ECH_BLOCK / ECH_WARP);
    int64_t r = blockIdx.x, row = r * at.C, C = at.C;
    bool has_mean = at.mean.is_here();
    wide mean = has_mean ? at.mean.get(r) : 0, rstd = at.rstd.get(r);
    double e_sum = 0, en_sum = 0;
    each_part(C, [&](int64_t c, int count) {
        wide e[ECH_PART], n[ECH_PART];
        load_part(at, row, c, count, mean, rstd, e, n);
        for (int k = 0; k < ECH_PART; k++) {
            e_sum += e[k]; /* 0 behind the row's end, as are gradients there */
            en_sum += (double)e[k] * n[k];
        }
    });
    wide e_mean = has_mean ? (wide)(ech_block(ech_plus(), e_sum, room) / (double)C) : 0;
    wide en_mean = (wide)(ech_block(ech_plus(), en_sum, room + ECH_BLOCK / ECH_WARP) / (double)C);
    each_part(C, [&](int64_t c, int count) {
        wide e[ECH_PART], n[ECH_PART], add[ECH_PART] = {};
        load_part(at, row, c, count, mean, rstd, e, n);
        if (at.add.is_here()) at.add.load(row + c, count, add);
        for (int k = 0; k < ECH_PART; k++) e[k] = rstd * (e[k] - e_mean - n[k] * en_mean) + add[k];
        at.dx.store(row + c, count, e);
    });
}

/* Columns first: dx may take x's place. */
template <int N>
static void backward(const ech_kernel_context *context, const backward_call &at, int64_t R,
                     bool accumulate, ech_numbers dgain, ech_numbers dbias)
{
    ech_columns<N>(
        context, R, at.C, ech_plus(),
        [=] __device__(int64_t r, int64_t c, wide * value) {
            wide dy = at.dy.get(r * at.C + c), mean = at.mean.is_here() ? at.mean.get(r) : 0;
            value[0] = dy * ((at.x.get(r * at.C + c) - mean) * at.rstd.get(r));
            if (N > 1) value[N - 1] = dy;
        },
        [=] __device__(int s, int64_t c, double sum) {
            const ech_numbers to = s ? dbias : dgain;
            to.put(c, (wide)(accumulate ? sum + to.get(c) : sum));
        });
    ech_launch(context, backward_rows, dim3((unsigned)R), ech_row_threads(at.C), 0, at);
}

void ECH_CUDA(layernorm_backward)(ech_kernel_context *context, const ech_tensor *dy,
                                  const ech_tensor *x, const ech_tensor *gain,
                                  const ech_tensor *mean, const ech_tensor *rstd,
                                  const ech_tensor *add, const ech_tensor *dx, bool accumulate,
                                  const ech_tensor *dgain, const ech_tensor *dbias)
{
    ech_cuda_check(ECH_OP_layernorm_backward, ECH_REAL, dy, x, gain, mean, rstd, add, dx, dgain,
                   dbias);
    backward<2>(context, {dy, x, gain, mean, rstd, add, dx, x->shape[1]}, x->shape[0], accumulate,
                dgain, dbias);
}

void ECH_CUDA(rmsnorm_backward)(ech_kernel_context *context, const ech_tensor *dy,
                                const ech_tensor *x, const ech_tensor *gain, const ech_tensor *rstd,
                                const ech_tensor *add, const ech_tensor *dx, bool accumulate,
                                const ech_tensor *dgain)
{
    const ech_tensor *none = NULL;
    ech_cuda_check(ECH_OP_rmsnorm_backward, ECH_REAL, dy, x, gain, rstd, add, dx, dgain);
    backward<1>(context, {dy, x, gain, none, rstd, add, dx, x->shape[1]}, x->shape[0], accumulate,
                dgain, none);
}
