/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotary position embeddings.
 */
#include "kernel/cuda/real.cuh"

/* Frequencies are host memory that is read at the call: they travel as an argument, so many in a
 * launch. */
enum { PAIRS = 256 };

namespace
{
struct rotary_call {
    ech_numbers x, y;
    int64_t T, H, pairs, first, x_stride[3],
        y_stride[3]; /* pairs of a head, and the first of this launch */
    double factor;
    bool neighbours;
    ech_rows rows;
    ech_maybe starts;
    bool inverse;
    int count; /* pairs of this launch */
    double frequency[PAIRS];
};
} // namespace

/* Pairs of neighbours, as many as a part has numbers: two parts. */
static __device__ void rotate_neighbours(const rotary_call &at, int64_t in, int64_t out, int count,
                                         const wide *c, const wide *s)
{
    wide x[2 * ECH_PART];
    for (int half = 0; half < 2; half++)
        if (2 * count > half * ECH_PART)
            at.x.load(in + half * ECH_PART, ech_part_count(2 * count - half * ECH_PART),
                      x + half * ECH_PART);
#pragma unroll
    for (int k = 0; k < ECH_PART; k++) {
        wide a = x[2 * k], b = x[2 * k + 1];
        x[2 * k] = a * c[k] - b * s[k];
        x[2 * k + 1] = b * c[k] + a * s[k];
    }
    for (int half = 0; half < 2; half++)
        if (2 * count > half * ECH_PART)
            at.y.store(out + half * ECH_PART, ech_part_count(2 * count - half * ECH_PART),
                       x + half * ECH_PART);
}

/* A thread rotates a part of the pairs of all heads of a token, since they have the same angles. */
static __global__ void rotate(const rotary_call at, int64_t parts, int64_t n)
{
    const ech_rows rows = ech_rows_now(&at.rows);
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        int64_t part, t, row = ech_divide(i, parts, &part), b = ech_divide(row, at.T, &t);
        int first = (int)part * ECH_PART, count = ech_part_count(at.count - first);
        double position = (double)ech_row_place(rows, row).in_document(at.starts.get());
        wide c[ECH_PART], s[ECH_PART];
#pragma unroll
        for (int k = 0; k < ECH_PART; k++) {
            double sine = 0, cosine = 0;
            if (k < count) sincos(position * at.frequency[first + k], &sine, &cosine);
            c[k] = (wide)(at.factor * cosine);
            s[k] = (wide)(at.factor * (at.inverse ? -sine : sine));
        }
        int64_t pair = at.neighbours ? 2 * (at.first + first) : at.first + first;
        int64_t in = b * at.x_stride[0] + t * at.x_stride[1] + pair;
        int64_t out = b * at.y_stride[0] + t * at.y_stride[1] + pair;
        for (int64_t h = 0; h < at.H; h++, in += at.x_stride[2], out += at.y_stride[2]) {
            wide low[ECH_PART], high[ECH_PART], rotated[ECH_PART];
            if (at.neighbours) {
                rotate_neighbours(at, in, out, count, c, s);
                continue;
            }
            at.x.load(in, count, low);
            at.x.load(in + at.pairs, count, high);
            for (int k = 0; k < ECH_PART; k++) {
                rotated[k] = low[k] * c[k] - high[k] * s[k];
                high[k] = high[k] * c[k] + low[k] * s[k];
            }
            at.y.store(out, count, rotated);
            at.y.store(out + at.pairs, count, high);
        }
    }
}

/* The numbers after the rotated ones. */
static void copy_rest(ech_kernel_context *context, const ech_tensor *x, int64_t width,
                      const ech_tensor *y)
{
    ech_tensor from = ech_tensor_narrow(x, 3, width, x->shape[3] - width);
    ech_tensor to = ech_tensor_narrow(y, 3, width, x->shape[3] - width);
    if (from.shape[3] > 0 && from.data != to.data) ECH_CUDA(copy)(context, &from, &to);
}

void ECH_CUDA(rotary)(ech_kernel_context *context, const ech_tensor *x, const double *frequency,
                      int64_t width, bool neighbours, double factor, const ech_rows *rows,
                      const ech_tensor *starts, bool inverse, const ech_tensor *y)
{
    int64_t tokens = x->shape[0] * x->shape[1], T = x->shape[1], H = x->shape[2];
    ech_cuda_check(ECH_OP_rotary, ECH_REAL, x, y);
    ech_rows_check(__FILE__, __LINE__, rows, NULL, tokens);
    ECH_ASSERT(width % 2 == 0 && width >= 0 && width <= x->shape[3]);
    ECH_ASSERT((tokens == 0 || (rows->tokens == T && rows->first == 0)));
    rotary_call at = {x,      y,          T,     H,      width / 2, 0, {}, {},
                      factor, neighbours, *rows, starts, inverse,   0, {}};
    for (int d = 0; d < 3; d++) {
        at.x_stride[d] = x->stride[d];
        at.y_stride[d] = y->stride[d];
    }
    for (; at.first < at.pairs; at.first += at.count) {
        at.count = at.pairs - at.first < PAIRS ? (int)(at.pairs - at.first) : (int)PAIRS;
        for (int i = 0; i < at.count; i++) at.frequency[i] = frequency[at.first + i];
        int64_t parts = ech_ceil(at.count, ECH_PART), n = tokens * parts;
        ech_launch(context, rotate, ech_blocks(n, ECH_BLOCK), ECH_BLOCK, 0, at, parts, n);
    }
    copy_rest(context, x, width, y);
}
