/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention forward: Dao et al. 2022, "FlashAttention"; over parts of the keys: Liu et al. 2023, "Ring Attention".
 */
#include "kernel/cuda/attention.cuh"

/* Of each of a lane's two rows: the largest score so far, and the lane's sum of exponentials over it. */
struct softmax {
    wide max[2], sum[2];
};

/* Over the four lanes that have a row. */
template <typename Fold> static __device__ wide fold_row(Fold fold, wide value)
{
    value = fold(value, __shfl_xor_sync(~0u, value, 1));
    return fold(value, __shfl_xor_sync(~0u, value, 2));
}

struct larger_number {
    __device__ wide operator()(wide a, wide b) const
    {
        return fmax(a, b);
    }
};

/* Scores become exponentials over the new maxima; what was summed before is scaled to these. */
template <int W, int N>
static __device__ void move_softmax(ech_sums<N> &score, ech_sums<W> &sum, softmax *s, wide scale,
                                    const ech_seen_keys *seen, int first)
{
    wide most[2] = {-(wide)INFINITY, -(wide)INFINITY}, old[2];
    ech_each_sum(score, [&](int which, int n, wide &x) {
        int key = first + n;
        x = key >= seen[which].first && key < seen[which].end ? x * scale : -(wide)INFINITY;
        most[which] = fmax(most[which], x);
    });
    for (int r = 0; r < 2; r++) {
        wide max = fmax(s->max[r], fold_row(larger_number(), most[r]));
        most[r] = max == -(wide)INFINITY ? 0 : max; /* then all exponentials are 0 */
        old[r] = exp(s->max[r] - most[r]);
        s->max[r] = max;
        s->sum[r] *= old[r];
    }
    ech_each_sum(sum, [&](int which, int, wide &x) { x *= old[which]; });
    ech_each_sum(score, [&](int which, int, wide &x) {
        x = exp(x - most[which]);
        s->sum[which] += x;
    });
}

/* The result of these keys, and of those before if it merges. Lanes of a row compute the same. */
template <int W>
static __device__ void finish(const ech_attention &at, ech_sums<W> &sum, softmax *s,
                              const ech_seen_keys *seen, int64_t b, int64_t h, int first,
                              int column)
{
    for (int r = 0; r < 2; r++) {
        int t = first + ech_lane_row(r);
        int64_t row = (b * at.H + h) * at.Tq + t;
        /* Read by all before they meet, and written by one after it. */
        wide before = t < at.Tq && at.merge ? at.lse[row] : -(wide)INFINITY;
        wide total = fold_row(ech_plus(), s->sum[r]);
        /* Scores that are all -infinity have no softmax; a row that sees no key is 0. */
        if (total == 0 && seen[r].first < seen[r].end) total = (wide)NAN;
        wide own = total == 0 ? -(wide)INFINITY : s->max[r] + log(total), both = own;
        wide weight = total == 0 ? 0 : 1 / total, kept = 0;
        if (before != -(wide)INFINITY && own != -(wide)INFINITY) {
            wide top = ech_larger()(before, own);
            both = top + log(exp(before - top) + exp(own - top));
            kept = exp(before - both);
            weight *= exp(own - both);
        } else if (before != -(wide)INFINITY) {
            both = before;
            kept = 1;
        }
        ech_each_sum(sum, [&](int which, int n, wide &x) {
            if (which != r || t >= at.Tq || column + n >= at.D) return;
            int64_t i = at.out.at(b, t, h) + column + n;
            at.out.x.put(i, x * weight + (kept == 0 ? 0 : kept * at.out.x.get(i)));
        });
        __syncwarp();
        if (column + W >= at.D && t < at.Tq && threadIdx.x % 4 == 0) at.lse[row] = both;
    }
}

template <int W, int N>
static __global__ void __launch_bounds__(ECH_ATTENTION_THREADS, 1) forward(const ech_attention at)
{
    enum { ROW = W + ECH_TILE_PAD, R = ECH_ATTENTION_ROWS };
    ECH_DYNAMIC_SHARED(memory);
    real *q = reinterpret_cast<real *>(memory), *k = q + R * ROW, *v = k + N * ROW;
    int warp = (int)threadIdx.x / ECH_WARP * ECH_TILE_ROWS;
    real *own = v + N * ROW + warp * (N + ECH_TILE_PAD); /* the warp's probabilities */
    int first = (int)(gridDim.x - 1 - blockIdx.x) * R;   /* those with the most keys begin */
    int64_t h = blockIdx.y, b = blockIdx.z, g = h / (at.H / at.G);
    const ech_rows rows = ech_rows_now(&at.shard.query);
    int last = first + R < at.Tq ? first + R - 1 : (int)at.Tq - 1;
    const int begin = ech_keys_seen(at, rows, b, first).first,
              end = ech_keys_seen(at, rows, b, last).end;
    const ech_seen_keys seen[2] = {ech_keys_seen(at, rows, b, first + warp + ech_lane_row(0)),
                                   ech_keys_seen(at, rows, b, first + warp + ech_lane_row(1))};
    /* Of the warp: keys behind it are not multiplied, whose values may be NaN. */
    const int own_end =
        ech_warp(ech_larger(), seen[0].end > seen[1].end ? seen[0].end : seen[1].end);
    ech_dropped dropped(at, rows, b, h);
    for (int column = 0; column < at.D; column += W) {
        softmax s = {{-(wide)INFINITY, -(wide)INFINITY}, {0, 0}};
        ech_sums<W> sum;
        ech_clear(sum);
        for (int key = begin / N * N; key < end; key += N) {
            ech_sums<N> score;
            ech_clear(score);
            for (int slice = 0; slice < at.D; slice += W) {
                __syncthreads();
                if (key == begin / N * N || at.D > W)
                    ech_load_tile<R, W>(q, at.q, b, h, first, 0, (int)at.Tq, slice, at.D);
                ech_load_tile<N, W>(k, at.k, b, g, key, begin, end, slice, at.D);
                if (slice == 0) ech_load_tile<N, W>(v, at.v, b, g, key, begin, end, column, at.D);
                __syncthreads();
                ech_product<true, N, W, ROW, ROW>(score, q + warp * ROW, k);
            }
            move_softmax(score, sum, &s, (wide)at.scale, seen, key);
            ech_put_tile(score, own, [&](int which, int n, wide x) {
                return x == 0 ? x : x * dropped.factor(first + warp + ech_lane_row(which), key + n);
            });
            ech_product<false, W, N, N + ECH_TILE_PAD, ROW>(sum, own, v, own_end - key);
        }
        finish(at, sum, &s, seen, b, h, first + warp, column);
        __syncthreads();
    }
}

template <int W, int N> static void put(const ech_kernel_context *context, const ech_attention &at)
{
    size_t row = (W + ECH_TILE_PAD) * sizeof(real), own = (N + ECH_TILE_PAD) * sizeof(real);
    dim3 grid((unsigned)ech_ceil(at.Tq, ECH_ATTENTION_ROWS), (unsigned)at.H, (unsigned)at.B);
    ech_launch(context, forward<W, N>, grid, ECH_ATTENTION_THREADS,
               (ECH_ATTENTION_ROWS + 2 * N) * row + ECH_ATTENTION_ROWS * own, at);
}

void ECH_CUDA(attention_forward)(ech_kernel_context *context, const ech_tensor *q,
                                 const ech_tensor *k, const ech_tensor *v, double scale,
                                 const ech_attention_shard *shard, const ech_tensor *starts,
                                 const ech_dropout *dropout, bool merge, const ech_tensor *out,
                                 const ech_tensor *lse)
{
    ech_cuda_check(ECH_OP_attention_forward, ECH_REAL, q, k, v, out, lse);
    ech_attention at = ech_attention_of(q, k, v, scale, shard, starts, dropout);
    at.out = out;
    at.lse = static_cast<wide *>(lse->data);
    at.merge = merge;
#if defined ECH_REAL_F64
    put<32, 32>(context, at);
#elif defined ECH_REAL_F32
    put<64, 32>(context, at);
#else
    if (at.D <= 64)
        put<64, 64>(context, at);
    else
        put<128, 64>(context, at);
#endif
}
