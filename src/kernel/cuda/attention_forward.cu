/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention forward: Dao et al. 2022, "FlashAttention"; over parts of the keys: Liu et al. 2023,
 * "Ring Attention".
 */
#include "kernel/cuda/attention.cuh"

namespace
{
/* For each of a lane's two rows: the largest score so far, times ECH_EXPONENT, and the lane's sum
 * of exponentials relative to it. */
struct softmax {
    wide max[2], sum[2];
};
} // namespace

/* Over the four lanes that have a row. */
template <typename Fold> static __device__ wide fold_row(Fold fold, wide value)
{
    value = fold(value, __shfl_xor_sync(~0u, value, 1));
    return fold(value, __shfl_xor_sync(~0u, value, 2));
}

namespace
{
struct larger_number {
    __device__ wide operator()(wide a, wide b) const
    {
        return fmax(a, b);
    }
};
} // namespace

/* Scores become exponentials relative to the new maxima; earlier sums are scaled to these. scale:
 * the call's exponent. */
template <int W, int N>
static __device__ void move_softmax(ech_sums<N> &score, ech_sums<W> &sum, softmax *s, wide scale)
{
    wide most[2] = {-(wide)INFINITY, -(wide)INFINITY}, old[2];
    ech_each_sum(score, [&](int which, int, wide &x) { most[which] = fmax(most[which], x); });
#pragma unroll
    for (int r = 0; r < 2; r++) {
        wide max = fmax(s->max[r], fold_row(larger_number(), most[r]) * scale);
        most[r] = max == -(wide)INFINITY ? 0 : max; /* then all exponentials are 0 */
        old[r] = ech_exponential(s->max[r] - most[r]);
        s->max[r] = max;
        s->sum[r] *= old[r];
    }
    ech_each_sum(sum, [&](int which, int, wide &x) { x *= old[which]; });
    ech_each_sum(score, [&](int which, int, wide &x) {
        x = ech_exponential(x * scale - most[which]);
        s->sum[which] += x;
    });
}

/* The result of these keys, and of those before if it merges. Lanes of a row compute the same. */
template <int W>
static __device__ void finish(const ech_attention_call &at, const ech_sums<W> &sum,
                              const softmax *s, const ech_seen_keys *seen, int64_t b, int64_t h,
                              int first, int column)
{
    wide weight[2], kept[2] = {0, 0};
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int t = first + ech_lane_row(r);
        int64_t row = (b * at.H + h) * at.Tq + t;
        /* Read by all before they meet, and written by one after it. */
        wide before = t < at.Tq && at.merge ? at.lse[row] : -(wide)INFINITY;
        wide total = fold_row(ech_plus(), s->sum[r]);
        /* Scores that are all -infinity have no softmax; a row that sees no key is 0. */
        if (total == 0 && seen[r].first < seen[r].end) total = (wide)NAN;
        wide own = total == 0 ? -(wide)INFINITY : s->max[r] / ECH_EXPONENT + log(total), both = own;
        weight[r] = total == 0 ? 0 : 1 / total;
        if (before != -(wide)INFINITY && own != -(wide)INFINITY) {
            wide top = ech_larger()(before, own);
            both = top + log(exp(before - top) + exp(own - top));
            kept[r] = exp(before - both);
            weight[r] *= exp(own - both);
        } else if (before != -(wide)INFINITY) {
            both = before;
            kept[r] = 1;
        }
        __syncwarp();
        if (column + W >= at.E && t < at.Tq && threadIdx.x % 4 == 0) at.lse[row] = both;
    }
    ech_store_rows(sum, at.out, b, h, first, at.Tq, column, at.E, weight, kept);
}

template <bool Drops, int R, int W, int N>
static __global__ void __launch_bounds__(2 * R, ECH_ATTENTION_BLOCKS(4))
    forward(const ech_attention_call at)
{
    typedef ech_attention_shape<R, W, N> shape;
    enum { ROW = shape::ROW, TILE = shape::TILE, THREADS = shape::THREADS };
    ECH_DYNAMIC_SHARED(memory);
    real *q = reinterpret_cast<real *>(memory),
         *tiles = q + shape::BLOCK; /* k, v, and the next ones */
    int warp = (int)threadIdx.x / ECH_WARP;
    real *own = tiles + 4 * TILE + warp * shape::OWN; /* the warp's probabilities */
    warp *= ECH_TILE_ROWS;
    int first = (int)(gridDim.x - 1 - blockIdx.x) * R; /* those with the most keys begin */
    int Tq = (int)at.Tq, D = (int)at.D;
    int64_t h = blockIdx.y, b = blockIdx.z, g = (int)h / (int)(at.H / at.G);
    const ech_rows rows = ech_rows_now(&at.shard.query);
    int last = first + R < Tq ? first + R - 1 : Tq - 1;
    const int begin = ech_keys_seen(at, rows, b, first).first,
              end = ech_keys_seen(at, rows, b, last).end, start = begin / N * N;
    const ech_seen_keys seen[2] = {ech_keys_seen(at, rows, b, first + warp + ech_lane_row(0)),
                                   ech_keys_seen(at, rows, b, first + warp + ech_lane_row(1))};
    const ech_seen_by_all all(seen);
    typedef ech_head_reader<W, THREADS> reader;
    const reader keys(at.k, b, g, D), values(at.v, b, g, at.E);
    const int width = shape::width(D), columns = shape::width(at.E);
    /* keys that come before those are computed with */
    const int ahead = width <= W && columns <= W ? N : 0;
    ech_dropped dropped(at, rows, b, h);
    for (int column = 0; column < columns; column += W) {
        softmax s = {{-(wide)INFINITY, -(wide)INFINITY}, {0, 0}};
        ech_sums<W> sum;
        ech_clear(sum);
        int turn = 0;
        for (int key = start - ahead; key < end; key += N, turn ^= 1) {
            real *k = tiles + turn * 2 * TILE, *v = k + TILE;
            bool is_own = key >= start && key < all.end; /* that the warp's rows see some of them */
            ech_sums<N> score;
            ech_left<N> probability;
            ech_clear(score);
            for (int slice = 0; slice < width; slice += W) {
                int next = key + ahead;
                real *to = tiles + (ahead ? turn ^ 1 : turn) * 2 * TILE;
                ech_end_copies();
                __syncthreads();
                if (next < end && (!ahead || next == start))
                    reader(at.q, b, h, D).template load<R>(q, first, 0, Tq, slice);
                if (next < end) keys.template load<N>(to, next, begin, end, slice);
                if (next < end && slice == 0)
                    values.template load<N>(to + TILE, next, begin, end, column);
                if (!ahead) {
                    ech_end_copies();
                    __syncthreads();
                }
                if (is_own) ech_product<true, N, W>(score, q + warp * ROW, k);
            }
            if (!is_own) continue;
            if (Drops && at.inner != 0)
                ech_each_sum(score, [&](int, int, wide &x) { x = tanh(x * at.inner); });
            if (!all.see(key, N))
                ech_each_sum(score, [&](int which, int n, wide &x) {
                    x = seen[which].have(key + n) ? x : -(wide)INFINITY;
                });
            move_softmax(score, sum, &s, at.exponent);
            if (Drops)
                ech_each_sum(score, [&](int which, int n, wide &x) {
                    if (x != 0) x *= dropped.factor(first + warp + ech_lane_row(which), key + n);
                });
            if (Drops) __syncwarp(); /* lanes draw separately */
            ech_round_left(score, own, probability);
            ech_product(sum, probability, v, all.end - key); /* later values may be NaN */
        }
        finish(at, sum, &s, seen, b, h, first + warp, column);
    }
}

template <int R, int W, int N>
static void put(const ech_kernel_context *context, const ech_attention_call &at)
{
    typedef ech_attention_shape<R, W, N> shape;
    dim3 grid((unsigned)ech_ceil(at.Tq, R), (unsigned)at.H, (unsigned)at.B);
    ech_launch(context,
               at.dropout.p > 0 || at.inner != 0 ? forward<true, R, W, N> : forward<false, R, W, N>,
               grid, shape::THREADS, shape::shared(1), at);
}

void ECH_CUDA(attention_forward)(ech_kernel_context *context, const ech_tensor *q,
                                 const ech_tensor *k, const ech_tensor *v,
                                 const ech_attention_rule *rule, const ech_attention_shard *shard,
                                 const ech_tensor *starts, const ech_dropout *dropout, bool merge,
                                 const ech_tensor *out, const ech_tensor *lse)
{
    ech_cuda_check(ECH_OP_attention_forward, ECH_REAL, q, k, v, out, lse);
    ech_attention_call at = ech_attention_of(q, k, v, rule, shard, starts, dropout);
    at.out = out;
    at.lse = static_cast<wide *>(lse->data);
    at.merge = merge;
#if defined ECH_REAL_F64
    put<64, 32, 32>(context, at);
#elif defined ECH_REAL_F32
    put<64, 64, 32>(context, at);
#else
    if (at.D <= ECH_NARROW_HEAD && at.E <= ECH_NARROW_HEAD)
        put<64, 64, 64>(context, at);
    else
        put<64, 128, 64>(context, at);
#endif
}
