/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention backward, without atomics: a kernel for the queries' gradient, and one for that of keys and values, which
 * computes the probabilities again. Dao 2023, "FlashAttention-2".
 *
 * With P the probabilities, m what dropout multiplies them by, dP = m (dout v) and delta = dout out, the gradient of a
 * score is P (dP - delta).
 */
#include "kernel/cuda/attention.cuh"

/* Keys of a tile beside queries' rows, and queries beside keys': of fp64 as many as registers hold. */
enum { COLUMNS = sizeof(real) == 8 ? 16 : 32 };

/* delta, a warp a row. */
static __global__ void multiply_rows(const ech_attention at, int64_t n)
{
    int64_t row = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / ECH_WARP;
    if (row >= n) return;
    int64_t t = row % at.Tq, h = row / at.Tq % at.H, b = row / at.Tq / at.H;
    wide sum = 0;
    for (int64_t d = threadIdx.x % ECH_WARP; d < at.D; d += ECH_WARP)
        sum += at.dout.x.get(at.dout.at(b, t, h) + d) * at.out.x.get(at.out.at(b, t, h) + d);
    sum = ech_warp(ech_plus(), sum);
    if (threadIdx.x % ECH_WARP == 0) at.delta[row] = sum;
}

/* ---- queries ---- */

template <int W>
static __global__ void __launch_bounds__(ECH_ATTENTION_THREADS, 1)
    query_gradient(const ech_attention at)
{
    enum { ROW = W + ECH_TILE_PAD, R = ECH_ATTENTION_ROWS, N = COLUMNS };
    ECH_DYNAMIC_SHARED(memory);
    real *q = reinterpret_cast<real *>(memory), *dout = q + R * ROW, *k = dout + R * ROW;
    real *v = k + N * ROW;
    int warp = (int)threadIdx.x / ECH_WARP * ECH_TILE_ROWS;
    real *own = v + N * ROW + warp * (N + ECH_TILE_PAD); /* the gradients of the warp's scores */
    int first = (int)(gridDim.x - 1 - blockIdx.x) * R, Tq = (int)at.Tq, D = (int)at.D;
    int64_t h = blockIdx.y, b = blockIdx.z, g = h / (at.H / at.G);
    int last = first + R < Tq ? first + R - 1 : Tq - 1;
    const int begin = ech_keys_seen(at, at.shard.query, b, first).first,
              end = ech_keys_seen(at, at.shard.query, b, last).end;
    ech_seen_keys seen[2];
    wide lse[2] = {}, delta[2] = {};
    for (int r = 0; r < 2; r++) {
        int t = first + warp + ech_lane_row(r);
        seen[r] = ech_keys_seen(at, at.shard.query, b, t);
        if (t < Tq) lse[r] = at.lse[(b * at.H + h) * Tq + t];
        if (t < Tq) delta[r] = at.delta[(b * at.H + h) * Tq + t];
    }
    ech_dropped dropped(at, at.shard.query, b, h);
    for (int column = 0; column < D; column += W) {
        ech_sums<W> sum;
        ech_clear(sum);
        for (int key = begin / N * N; key < end; key += N) {
            ech_sums<N> score, probability;
            ech_clear(score);
            ech_clear(probability);
            for (int slice = 0; slice < D; slice += W) {
                __syncthreads();
                if (key == begin / N * N || D > W) {
                    ech_load_tile<R, W>(q, at.q, b, h, first, 0, Tq, slice, D);
                    ech_load_tile<R, W>(dout, at.dout, b, h, first, 0, Tq, slice, D);
                }
                ech_load_tile<N, W>(k, at.k, b, g, key, begin, end, slice, D);
                ech_load_tile<N, W>(v, at.v, b, g, key, begin, end, slice, D);
                __syncthreads();
                ech_product<true, N, W, ROW, ROW>(score, q + warp * ROW, k);
                ech_product<true, N, W, ROW, ROW>(probability, dout + warp * ROW, v);
            }
            if (D > W) {
                __syncthreads();
                ech_load_tile<N, W>(k, at.k, b, g, key, begin, end, column, D);
                __syncthreads();
            }
            /* The same place of both sums: `probability` has dout v. */
#pragma unroll
            for (int j = 0; j < N / 8; j++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int n = key + 8 * j + (int)(threadIdx.x % 4) * 2 + i % 2, r = i / 2;
                    wide p = 0, &x = score.at[j][i];
                    if (n >= seen[r].first && n < seen[r].end) p = exp(x * (wide)at.scale - lse[r]);
                    wide m = p == 0 ? 1 : dropped.factor(first + warp + ech_lane_row(r), n);
                    x = p == 0 ? 0 : (wide)at.scale * p * (m * probability.at[j][i] - delta[r]);
                }
            ech_put_tile(score, own, [](int, int, wide x) { return x; });
            ech_product<false, W, N, N + ECH_TILE_PAD, ROW>(sum, own, k);
        }
        ech_store_rows(sum, at.dq, b, h, first + warp, Tq, column, D, at.add_q);
        __syncthreads();
    }
}

/* ---- keys and values ---- */

/* Of a tile's queries. */
struct query_facts {
    ech_seen_keys seen;
    wide lse, delta;
};

/* Scores (keys, queries) become P m, and `gradient`, which has v dout, their gradients. */
template <int N>
static __device__ void move_scores(const ech_attention &at, ech_sums<N> &score,
                                   ech_sums<N> &gradient, const query_facts *facts, int key,
                                   int query, ech_dropped &dropped)
{
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int n = 8 * j + (int)(threadIdx.x % 4) * 2 + i % 2, row = key + ech_lane_row(i / 2);
            const query_facts &f = facts[n];
            wide p = 0, &x = score.at[j][i], &y = gradient.at[j][i];
            if (row >= f.seen.first && row < f.seen.end) p = exp(x * (wide)at.scale - f.lse);
            wide m = p == 0 ? 1 : dropped.factor(query + n, row);
            x = p * m;
            y = p == 0 ? 0 : (wide)at.scale * p * (m * y - f.delta);
        }
}

template <int W>
static __global__ void __launch_bounds__(ECH_ATTENTION_THREADS, 1)
    key_gradient(const ech_attention at)
{
    enum { ROW = W + ECH_TILE_PAD, R = ECH_ATTENTION_ROWS, N = COLUMNS };
    ECH_DYNAMIC_SHARED(memory);
    ECH_SHARED(query_facts, facts, N);
    real *k = reinterpret_cast<real *>(memory), *v = k + R * ROW, *q = v + R * ROW;
    real *dout = q + N * ROW;
    int warp = (int)threadIdx.x / ECH_WARP * ECH_TILE_ROWS;
    real *own = dout + N * ROW + warp * (N + ECH_TILE_PAD);
    int first = (int)blockIdx.x * R, Tq = (int)at.Tq, Tk = (int)at.Tk, D = (int)at.D;
    int64_t g = blockIdx.y, b = blockIdx.z, heads = at.H / at.G;
    /* Queries before the first key do not see any. */
    int begin = ech_tokens_before(at.shard.query, ech_rows_token_position(&at.shard.key, first));
    int last = first + R < Tk ? first + R : Tk;
    bool is_loaded = false; /* keys and values, which stay if a slice has them all */
    for (int column = 0; column < D; column += W) {
        ech_sums<W> dk, dv;
        ech_clear(dk);
        ech_clear(dv);
        for (int64_t h = g * heads; h < (g + 1) * heads; h++) {
            ech_dropped dropped(at, at.shard.query, b, h);
            for (int query = begin / N * N; query < Tq; query += N) {
                ech_sums<N> score, gradient;
                /* Documents begin later and later: from a query on that sees none of these keys, none does. */
                if (ech_keys_seen(at, at.shard.query, b, query).first >= last) break;
                ech_clear(score);
                ech_clear(gradient);
                for (int slice = 0; slice < D; slice += W) {
                    __syncthreads();
                    if (!is_loaded) {
                        ech_load_tile<R, W>(k, at.k, b, g, first, 0, Tk, slice, D);
                        ech_load_tile<R, W>(v, at.v, b, g, first, 0, Tk, slice, D);
                        is_loaded = D <= W;
                    }
                    ech_load_tile<N, W>(q, at.q, b, h, query, 0, Tq, slice, D);
                    ech_load_tile<N, W>(dout, at.dout, b, h, query, 0, Tq, slice, D);
                    if (threadIdx.x < N) {
                        int t = query + (int)threadIdx.x;
                        int64_t row = (b * at.H + h) * Tq + t;
                        facts[threadIdx.x] = {ech_keys_seen(at, at.shard.query, b, t),
                                              t < Tq ? at.lse[row] : 0, t < Tq ? at.delta[row] : 0};
                    }
                    __syncthreads();
                    ech_product<true, N, W, ROW, ROW>(score, k + warp * ROW, q);
                    ech_product<true, N, W, ROW, ROW>(gradient, v + warp * ROW, dout);
                }
                if (D > W) {
                    __syncthreads();
                    ech_load_tile<N, W>(q, at.q, b, h, query, 0, Tq, column, D);
                    ech_load_tile<N, W>(dout, at.dout, b, h, query, 0, Tq, column, D);
                    __syncthreads();
                }
                move_scores(at, score, gradient, facts, first + warp, query, dropped);
                ech_put_tile(score, own, [](int, int, wide x) { return x; });
                ech_product<false, W, N, N + ECH_TILE_PAD, ROW>(dv, own, dout);
                ech_put_tile(gradient, own, [](int, int, wide x) { return x; });
                ech_product<false, W, N, N + ECH_TILE_PAD, ROW>(dk, own, q);
            }
        }
        ech_store_rows(dk, at.dk, b, g, first + warp, Tk, column, D, at.add_kv);
        ech_store_rows(dv, at.dv, b, g, first + warp, Tk, column, D, at.add_kv);
        __syncthreads();
    }
}

template <int W> static void put(const ech_kernel_context *context, const ech_attention &at)
{
    size_t row = (W + ECH_TILE_PAD) * sizeof(real), own = (COLUMNS + ECH_TILE_PAD) * sizeof(real);
    size_t shared = 2 * (ECH_ATTENTION_ROWS + COLUMNS) * row + ECH_ATTENTION_ROWS * own;
    int64_t rows = at.B * at.H * at.Tq;
    ech_launch(context, multiply_rows, dim3((unsigned)ech_ceil(rows * ECH_WARP, ECH_BLOCK)),
               ECH_BLOCK, 0, at, rows);
    ech_launch(context, query_gradient<W>,
               dim3((unsigned)ech_ceil(at.Tq, ECH_ATTENTION_ROWS), (unsigned)at.H, (unsigned)at.B),
               ECH_ATTENTION_THREADS, shared, at);
    ech_launch(context, key_gradient<W>,
               dim3((unsigned)ech_ceil(at.Tk, ECH_ATTENTION_ROWS), (unsigned)at.G, (unsigned)at.B),
               ECH_ATTENTION_THREADS, shared, at);
}

void ECH_CUDA(attention_backward)(ech_kernel_context *context, const ech_tensor *dout,
                                  const ech_tensor *q, const ech_tensor *k, const ech_tensor *v,
                                  const ech_tensor *out, const ech_tensor *lse, double scale,
                                  const ech_attention_shard *shard, const ech_tensor *starts,
                                  const ech_dropout *dropout, bool add_q, bool add_kv,
                                  const ech_tensor *dq, const ech_tensor *dk, const ech_tensor *dv)
{
    ech_cuda_check(ECH_OP_attention_backward, ECH_REAL, dout, q, k, v, out, lse, dq, dk, dv);
    ECH_ASSERT(!shard->query.position);
    ech_attention at = ech_attention_of(q, k, v, scale, shard, starts, dropout);
    at.dout = dout;
    at.out = out;
    at.dq = dq;
    at.dk = dk;
    at.dv = dv;
    at.lse = static_cast<wide *>(lse->data);
    at.delta =
        static_cast<wide *>(ech_scratch(context, (size_t)(at.B * at.H * at.Tq) * sizeof(wide)));
    at.add_q = add_q;
    at.add_kv = add_kv;
#if defined ECH_REAL_F64
    put<32>(context, at);
#elif defined ECH_REAL_F32
    put<64>(context, at);
#else
    if (at.D <= 64)
        put<64>(context, at);
    else
        put<128>(context, at);
#endif
}
