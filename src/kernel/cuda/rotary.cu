/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotary position embeddings.
 */
#include "kernel/cuda/real.cuh"

/* Frequencies are host memory that is read at the call: they travel as an argument, so many in a launch. */
enum { PAIRS = 256 };

struct rotary_call {
    ech_numbers x, y;
    int64_t T, H, pairs, first, x_stride[3],
        y_stride[3]; /* pairs of a head, and the first of this launch */
    ech_rows rows;
    ech_maybe starts;
    bool inverse;
    int count; /* pairs of this launch */
    double frequency[PAIRS];
};

/* A thread turns one pair of all heads of a token, since they have one angle. */
static __global__ void turn(const rotary_call at, int64_t n)
{
    const ech_rows rows = ech_rows_now(&at.rows);
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        int64_t row = i / at.count, b = row / at.T, t = row % at.T, pair = at.first + i % at.count;
        double position = (double)ech_row_in_document(&rows, at.starts.get(), row);
        double angle = position * at.frequency[i % at.count];
        wide c = (wide)cos(angle), s = (wide)(at.inverse ? -sin(angle) : sin(angle));
        int64_t in = b * at.x_stride[0] + t * at.x_stride[1] + pair;
        int64_t out = b * at.y_stride[0] + t * at.y_stride[1] + pair;
        for (int64_t h = 0; h < at.H; h++, in += at.x_stride[2], out += at.y_stride[2]) {
            wide low = at.x.get(in), high = at.x.get(in + at.pairs);
            at.y.put(out, low * c - high * s);
            at.y.put(out + at.pairs, high * c + low * s);
        }
    }
}

void ECH_CUDA(rotary)(ech_kernel_context *context, const ech_tensor *x, const double *frequency,
                      const ech_rows *rows, const ech_tensor *starts, bool inverse,
                      const ech_tensor *y)
{
    int64_t tokens = x->shape[0] * x->shape[1], T = x->shape[1], H = x->shape[2], D = x->shape[3];
    ech_cuda_check(ECH_OP_rotary, ECH_REAL, x, y);
    ech_rows_check(__FILE__, __LINE__, rows, NULL, tokens);
    ECH_ASSERT(D % 2 == 0 && (tokens == 0 || (rows->tokens == T && rows->first == 0)));
    rotary_call at = {x, y, T, H, D / 2, 0, {}, {}, *rows, starts, inverse, 0, {}};
    for (int d = 0; d < 3; d++) {
        at.x_stride[d] = x->stride[d];
        at.y_stride[d] = y->stride[d];
    }
    for (; at.first < D / 2; at.first += at.count) {
        at.count = D / 2 - at.first < PAIRS ? (int)(D / 2 - at.first) : (int)PAIRS;
        for (int i = 0; i < at.count; i++) at.frequency[i] = frequency[at.first + i];
        int64_t n = tokens * at.count;
        ech_launch(context, turn, ech_blocks(n, ECH_BLOCK), ECH_BLOCK, 0, at, n);
    }
}
