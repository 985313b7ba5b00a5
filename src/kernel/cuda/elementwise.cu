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

/* A row's index in the whole tensor is asked for once a part, and where the next row begins. */
void ECH_CUDA(dropout)(ech_kernel_context *context, const ech_tensor *x, const ech_dropout *dropout,
                       const ech_rows *rows, const ech_tensor *y)
{
    int64_t R = x->shape[0], C = x->shape[1];
    ech_cuda_check(ECH_OP_dropout, ECH_REAL, x, y);
    ech_rows_check(__FILE__, __LINE__, rows, NULL, R);
    const ech_numbers from = x, to = y;
    const ech_dropout drop = *dropout;
    const ech_rows at = *rows;
    ech_each(context, R * C, [=] __device__(int64_t i, int n) {
        wide v[ECH_PART];
        ech_drawn drawn;
        const ech_random_key key = ech_dropout_key(&drop);
        const ech_rows now = ech_rows_now(&at);
        int64_t r = i / C, c = i % C, first = ech_row_whole(&now, r) * C;
        const double scale = 1 / (1 - drop.p);
        from.load(i, n, v);
        for (int k = 0; k < ECH_PART; k++) {
            bool dropped = drop.p > 0 && ech_drops(drop.p, key, (uint64_t)(first + c), &drawn);
            v[k] = dropped ? 0 : (wide)(v[k] * scale);
            if (++c == C && k + 1 < n) {
                c = 0;
                first = ech_row_whole(&now, ++r) * C;
            }
        }
        to.store(i, n, v);
    });
}

/* Where part i of rows of `parts` parts each lies in x (B,T,H,D). */
struct heads {
    int64_t T, H, D, parts, x_stride[3], y_stride[3];
    ech_rows rows; /* where x's tokens go */
};

static __device__ int64_t place_of(const int64_t *stride, int64_t b, int64_t t, int64_t h)
{
    return b * stride[0] + t * stride[1] + h * stride[2];
}

static __global__ void copy_rows(ech_numbers x, ech_numbers y, heads at, int64_t parts)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    at.rows = ech_rows_now(&at.rows);
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < parts; i += step) {
        int64_t row = i / at.parts, d = i % at.parts * ECH_PART, h = row % at.H;
        int64_t b = row / at.H / at.T, t = row / at.H % at.T;
        int n = ech_part_count(at.D - d);
        wide part[ECH_PART];
        x.load(place_of(at.x_stride, b, t, h) + d, n, part);
        y.store(place_of(at.y_stride, b, ech_rows_token_position(&at.rows, t), h) + d, n, part);
    }
}

static void copy_tokens(const ech_kernel_context *context, const ech_tensor *x,
                        const ech_rows &rows, const ech_tensor *y)
{
    int64_t n = x->shape[0] * x->shape[1] * x->shape[2], D = x->shape[3];
    heads at = {x->shape[1], x->shape[2], D, ech_ceil(D, ECH_PART), {}, {}, rows};
    for (int d = 0; d < 3; d++) {
        at.x_stride[d] = x->stride[d];
        at.y_stride[d] = y->stride[d];
    }
    ech_launch(context, copy_rows, ech_blocks(n * at.parts, ECH_BLOCK), ECH_BLOCK, 0,
               ech_numbers(x), ech_numbers(y), at, n * at.parts);
}

void ECH_CUDA(copy)(ech_kernel_context *context, const ech_tensor *x, const ech_tensor *y)
{
    ech_rows all = {};
    ech_cuda_check(ECH_OP_copy, ECH_REAL, x, y);
    all.split = x->shape[1];
    copy_tokens(context, x, all, y);
}

void ECH_CUDA(append)(ech_kernel_context *context, const ech_tensor *x, const ech_rows *rows,
                      const ech_tensor *cache)
{
    ech_cuda_check(ECH_OP_append, ECH_REAL, x, cache);
    ECH_ASSERT(rows->whole == cache->shape[1] && rows->tokens == x->shape[1] && rows->first == 0);
    copy_tokens(context, x, *rows, cache);
}

/* Normals by Box and Muller, in fp64 as everywhere. A thread draws four, of which the tensor may lack some. */
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
