/* SPDX-License-Identifier: Apache-2.0
 *
 * Dropout, sums of two tensors, copies and fills.
 */
#include "kernel/cuda/random.cuh"
#include "kernel/cuda/real.cuh"

void ECH_CUDA(add)(ech_kernel_context *context, const ech_tensor *a, const ech_tensor *b,
                   const ech_tensor *y)
{
    ech_cuda_check(ECH_OP_add, ECH_REAL, a, b, y);
    ech_each_pair(context, a, b, y, [] __device__(wide v, wide w) { return v + w; });
}

void ECH_CUDA(subtract)(ech_kernel_context *context, const ech_tensor *a, const ech_tensor *b,
                        const ech_tensor *y)
{
    ech_cuda_check(ECH_OP_subtract, ECH_REAL, a, b, y);
    ech_each_pair(context, a, b, y, [] __device__(wide v, wide w) { return v - w; });
}

void ECH_CUDA(scale)(ech_kernel_context *context, const ech_tensor *x, double factor, double cap,
                     const ech_tensor *y)
{
    ech_cuda_check(ECH_OP_scale, ECH_REAL, x, y);
    const ech_numbers from = x, to = y;
    const wide by = (wide)factor, most = (wide)cap;
    ech_each(context, ech_tensor_count(x), [=] __device__(int64_t i, int n) {
        wide v[ECH_PART];
        from.load(i, n, v);
        for (int k = 0; k < ECH_PART; k++) {
            v[k] *= by;
            if (most > 0) v[k] = most * tanh(v[k] / most);
        }
        to.store(i, n, v);
    });
}

void ECH_CUDA(fill)(ech_kernel_context *context, const ech_tensor *x, double value)
{
    ech_cuda_check(ECH_OP_fill, ECH_REAL, x);
    const ech_numbers to = x;
    ech_each(context, ech_tensor_count(x), [=] __device__(int64_t i, int n) {
        wide all[ECH_PART];
        for (int k = 0; k < ECH_PART; k++) all[k] = (wide)value;
        to.store(i, n, all);
    });
}

void ECH_CUDA(dropout)(ech_kernel_context *context, const ech_tensor *x, const ech_dropout *dropout,
                       const ech_rows *rows, const ech_tensor *y)
{
    int64_t R = x->shape[0], C = x->shape[1];
    ech_cuda_check(ECH_OP_dropout, ECH_REAL, x, y);
    ech_rows_check(__FILE__, __LINE__, rows, NULL, R);
    const ech_numbers from = x, to = y;
    const ech_dropout drop = *dropout;
    const ech_rows at = *rows;
    const uint64_t dropped = ech_dropped_words(drop.p);
    const wide scale = (wide)(1 / (1 - drop.p));
    ech_each_of_rows(context, R, C, [=] __device__(int64_t r, int64_t c, int n) {
        wide v[ECH_PART];
        uint32_t words[ECH_PART];
        const ech_rows now = ech_rows_now(&at);
        int64_t first = ech_dropout_first(&drop, ech_row_place(now, r).whole(now), C) + c;
        from.load(r * C + c, n, v);
        if (drop.p > 0) ech_draw_part(ech_dropout_key(&drop), (uint64_t)first, words);
        for (int k = 0; k < ECH_PART; k++)
            v[k] = drop.p > 0 && words[k] < dropped ? 0 : v[k] * scale;
        to.store(r * C + c, n, v);
    });
}

namespace
{
/* Where a row of x (B,T,H,D) is in a tensor with such strides: its token is t there. */
struct head_strides {
    int64_t stride[3];

    head_strides(const ech_tensor *x) : stride{x->stride[0], x->stride[1], x->stride[2]}
    {
    }
    __device__ int64_t place(int64_t b, int64_t t, int64_t h) const
    {
        return b * stride[0] + t * stride[1] + h * stride[2];
    }
};
} // namespace

/* rows: destinations of x's tokens. */
static void copy_tokens(const ech_kernel_context *context, const ech_tensor *x,
                        const ech_rows &rows, const ech_tensor *y)
{
    const ech_numbers from = x, to = y;
    const head_strides in = x, out = y;
    const int64_t T = x->shape[1], H = x->shape[2];
    ech_each_of_rows(context, x->shape[0] * T * H, x->shape[3],
                     [=] __device__(int64_t r, int64_t d, int n) {
                         const ech_rows now = ech_rows_now(&rows);
                         int64_t h, t, b = ech_divide(ech_divide(r, H, &h), T, &t);
                         wide part[ECH_PART];
                         from.load(in.place(b, t, h) + d, n, part);
                         to.store(out.place(b, ech_rows_token_position(&now, t), h) + d, n, part);
                     });
}

void ECH_CUDA(copy)(ech_kernel_context *context, const ech_tensor *x, const ech_tensor *y)
{
    ech_rows all = {};
    ech_cuda_check(ECH_OP_copy, ECH_REAL, x, y);
    all.split = x->shape[1];
    copy_tokens(context, x, all, y);
}

void ECH_CUDA(sum_heads)(ech_kernel_context *context, const ech_tensor *x, const ech_tensor *y)
{
    ech_cuda_check(ECH_OP_sum_heads, ECH_REAL, x, y);
    const ech_numbers from = x, to = y;
    const head_strides in = x;
    const int64_t T = x->shape[1], H = x->shape[2], D = x->shape[3];
    ech_each_of_rows(context, x->shape[0] * T, D, [=] __device__(int64_t r, int64_t d, int n) {
        int64_t t, b = ech_divide(r, T, &t);
        wide sum[ECH_PART] = {};
        for (int64_t h = 0; h < H; h++) {
            wide part[ECH_PART];
            from.load(in.place(b, t, h) + d, n, part);
            for (int k = 0; k < n; k++) sum[k] += part[k];
        }
        to.store(r * D + d, n, sum);
    });
}

void ECH_CUDA(append)(ech_kernel_context *context, const ech_tensor *x, const ech_rows *rows,
                      const ech_tensor *cache)
{
    ech_cuda_check(ECH_OP_append, ECH_REAL, x, cache);
    ECH_ASSERT(rows->whole == cache->shape[1] && rows->tokens == x->shape[1] && rows->first == 0);
    copy_tokens(context, x, *rows, cache);
}

/* Normals by the Box-Muller transform, in fp64 as everywhere. A thread draws four; the tensor may
 * lack some of them. */
static __global__ void fill_normals(ech_numbers x, ech_random_key key, uint64_t first, uint64_t n,
                                    double mean, double std)
{
    uint64_t step = (uint64_t)gridDim.x * blockDim.x, last = (first + n + 3) / 4;
    for (uint64_t quad = first / 4 + (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; quad < last;
         quad += step) {
        uint32_t words[4];
        ech_philox(key, quad, words);
        for (int k = 0; k < 4; k++) {
            double r = sqrt(-2.0 * log(ech_random_unit(words[k & 2])));
            double angle = 6.28318530717958647692 * ech_random_unit(words[k | 1]);
            uint64_t i = quad * 4 + (uint64_t)k;
            if (i < first || i >= first + n) continue;
            x.put((int64_t)(i - first), (wide)(mean + std * r * (k & 1 ? sin(angle) : cos(angle))));
        }
    }
}

void ECH_CUDA(fill_normal)(ech_kernel_context *context, const ech_tensor *x, ech_random_key key,
                           int64_t first_element, double mean, double std)
{
    ech_cuda_check(ECH_OP_fill_normal, ECH_REAL, x);
    ECH_ASSERT(first_element >= 0);
    int64_t n = ech_tensor_count(x);
    if (n == 0) return;
    ech_launch(context, fill_normals, ech_blocks(n / 4 + 2, ECH_BLOCK), ECH_BLOCK, 0,
               ech_numbers(x), key, (uint64_t)first_element, (uint64_t)n, mean, std);
}

static __global__ void fill_truncated_normals(ech_numbers x, ech_random_key key, uint64_t first,
                                              uint64_t n, double mean, double std)
{
    uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t at = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; at < n; at += step) {
        uint64_t i = first + at;
        double normal;
        key.step = 0;
        do {
            uint32_t words[4];
            ech_philox(key, i / 4, words);
            double r = sqrt(-2.0 * log(ech_random_unit(i & 2 ? words[2] : words[0])));
            double angle = 6.28318530717958647692 * ech_random_unit(i & 2 ? words[3] : words[1]);
            normal = r * (i & 1 ? sin(angle) : cos(angle));
            key.step++;
        } while (fabs(normal) > 2);
        x.put((int64_t)at, (wide)(mean + std * normal));
    }
}

void ECH_CUDA(fill_truncated)(ech_kernel_context *context, const ech_tensor *x, ech_random_key key,
                              int64_t first_element, double mean, double std)
{
    ech_cuda_check(ECH_OP_fill_truncated, ECH_REAL, x);
    ECH_ASSERT(first_element >= 0 && key.step == 0);
    int64_t n = ech_tensor_count(x);
    ech_launch(context, fill_truncated_normals, ech_blocks(n, ECH_BLOCK), ECH_BLOCK, 0,
               ech_numbers(x), key, (uint64_t)first_element, (uint64_t)n, mean, std);
}

static __global__ void fill_uniforms(ech_numbers x, ech_random_key key, uint64_t first, uint64_t n,
                                     double low, double high)
{
    uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t at = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; at < n; at += step) {
        uint32_t words[4];
        uint64_t i = first + at;
        ech_philox(key, i / 4, words);
        double unit = ech_random_unit(i & 2 ? words[i & 1 ? 3 : 2] : words[i & 1 ? 1 : 0]);
        x.put((int64_t)at, (wide)(low + (high - low) * unit));
    }
}

void ECH_CUDA(fill_uniform)(ech_kernel_context *context, const ech_tensor *x, ech_random_key key,
                            int64_t first_element, double low, double high)
{
    ech_cuda_check(ECH_OP_fill_uniform, ECH_REAL, x);
    ECH_ASSERT(first_element >= 0);
    int64_t n = ech_tensor_count(x);
    if (n == 0) return;
    ech_launch(context, fill_uniforms, ech_blocks(n, ECH_BLOCK), ECH_BLOCK, 0, ech_numbers(x), key,
               (uint64_t)first_element, (uint64_t)n, low, high);
}

/* Functions of plugins run on the processor: runs on this device refuse them. */
void ECH_CUDA(user)(ech_kernel_context *context, const ech_user_call *call)
{
    (void)context, (void)call;
    ech_assert_failed(__FILE__, __LINE__, "a plugin's function on a GPU");
}

/* Runs on this device refuse memory.encode. */
#define NOT_ENCODED(name, ...)                                                                     \
    void ECH_CUDA(name)(ech_kernel_context * context, __VA_ARGS__)                                 \
    {                                                                                              \
        (void)context;                                                                             \
        ech_assert_failed(__FILE__, __LINE__, #name " on a GPU");                                  \
    }
NOT_ENCODED(encode_bits, const ech_tensor *, const ech_tensor *)
NOT_ENCODED(decode_bits, const ech_tensor *, const ech_tensor *)
NOT_ENCODED(encode_sparse, const ech_tensor *, const ech_tensor *, const ech_tensor *,
            const ech_tensor *, const ech_tensor *, const ech_tensor *)
NOT_ENCODED(decode_sparse, const ech_tensor *, const ech_tensor *, const ech_tensor *,
            const ech_tensor *, const ech_tensor *)
NOT_ENCODED(encode_places, const ech_tensor *, const ech_tensor *)
NOT_ENCODED(decode_places, const ech_tensor *, const ech_tensor *)
NOT_ENCODED(encode_narrow, const ech_tensor *, int64_t, const ech_tensor *)
NOT_ENCODED(decode_narrow, const ech_tensor *, int64_t, const ech_tensor *)
