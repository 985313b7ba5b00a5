/* SPDX-License-Identifier: Apache-2.0
 *
 * What forward and backward of attention share: a call, which keys a query sees, tiles in shared memory, dropout.
 *
 * A block has 64 rows, of queries or keys, 16 a warp, and goes over tiles of the others. Heads wider than a tile are taken
 * in slices: scores are sums over them, and results are made slice by slice from scores that are computed again.
 */
#ifndef ECH_KERNEL_CUDA_ATTENTION_H
#define ECH_KERNEL_CUDA_ATTENTION_H

#include "kernel/cuda/product.cuh"
#include "kernel/cuda/random.cuh"
#include "kernel/cuda/reduce.cuh"

namespace
{
enum { ECH_ATTENTION_ROWS = 64, ECH_ATTENTION_THREADS = 128 };

/* q, k, v, out and their gradients (B,T,H,D). */
struct ech_heads {
    ech_numbers x;
    int64_t stride[3];

    ech_heads(const ech_tensor *t) : x(t), stride{}
    {
        for (int d = 0; t && d < 3; d++) stride[d] = t->stride[d];
    }
    __device__ int64_t at(int64_t b, int64_t t, int64_t h) const
    {
        return b * stride[0] + t * stride[1] + h * stride[2];
    }
};

struct ech_attention {
    int64_t B, Tq, Tk, H, G, D;
    ech_heads q, k, v, dout, out, dq, dk, dv;
    wide *lse, *delta; /* (B,H,Tq) */
    double scale;
    ech_attention_shard shard;
    ech_maybe starts;
    ech_dropout dropout;
    bool merge, add_q, add_kv;
};

/* Keys [first, end), which a query sees: positions ascend. */
struct ech_seen_keys {
    int first, end;
};

/* Tokens at positions before this one. */
static __device__ inline int ech_tokens_before(const ech_rows &rows, int64_t position)
{
    int64_t early = position - rows.start[0], late = position - rows.start[1];
    int64_t rest = rows.tokens - rows.split;
    early = early < 0 ? 0 : early < rows.split ? early : rows.split;
    late = late < 0 ? 0 : late < rest ? late : rest;
    return (int)(early + late);
}

/* query: at.shard.query of known positions. */
static __device__ inline ech_seen_keys ech_keys_seen(const ech_attention &at, const ech_rows &query,
                                                     int64_t b, int64_t t)
{
    if (t >= at.Tq) return {(int)at.Tk, 0};
    int64_t position = ech_rows_token_position(&query, t);
    int64_t start = ech_document_start(at.starts.get(), b, position);
    return {ech_tokens_before(at.shard.key, start), ech_tokens_before(at.shard.key, position + 1)};
}

/* Rows of W elements in shared memory: tokens [first, first + R) of a head, from column `column` on; 0 where there is no
 * token below `end` or none from `begin` on, or no column. */
template <int R, int W>
static __device__ inline void ech_load_tile(real *tile, const ech_heads &from, int64_t b, int64_t h,
                                            int first, int begin, int end, int column, int64_t D)
{
    enum { CHUNK = sizeof(ech_chunk) / sizeof(real), CHUNKS = W / CHUNK, ROW = W + ECH_TILE_PAD };
    const real *head = static_cast<const real *>(from.x.data) + from.at(b, 0, h) + column;
    for (int i = (int)threadIdx.x; i < R * CHUNKS; i += ECH_ATTENTION_THREADS) {
        int t = first + i / CHUNKS, c = i % CHUNKS * CHUNK;
        const real *at = head + (int64_t)t * from.stride[1] + c;
        real *to = tile + i / CHUNKS * ROW + c;
        bool is_there = t >= begin && t < end;
        if (is_there && column + c + CHUNK <= D && ech_is_aligned(at)) {
            *reinterpret_cast<ech_chunk *>(to) = *reinterpret_cast<const ech_chunk *>(at);
            continue;
        }
        for (int k = 0; k < CHUNK; k++) to[k] = is_there && column + c + k < D ? at[k] : real{};
    }
}

/* What dropout multiplies the probability of (query, key) by. */
struct ech_dropped {
    const ech_attention &at;
    const ech_rows &rows;
    ech_random_key key;
    int64_t head; /* among the heads of all samples */
    ech_drawn drawn;

    __device__ ech_dropped(const ech_attention &call, const ech_rows &query, int64_t b, int64_t h)
        : at(call), rows(query), key(ech_dropout_key(&call.dropout)),
          head((call.shard.query.first_sample + b) * call.shard.heads + call.shard.first_head + h)
    {
    }
    __device__ wide factor(int query, int k)
    {
        double p = at.dropout.p;
        if (!(p > 0)) return 1;
        int64_t row = head * rows.whole + ech_rows_token_position(&rows, query);
        int64_t i = row * rows.whole + ech_rows_token_position(&at.shard.key, k);
        return ech_drops(p, key, (uint64_t)i, &drawn) ? 0 : (wide)(1 / (1 - p));
    }
};

/* Writes (or adds to) columns of a head's tokens first and on: of the 16 rows of a warp. */
template <int N>
static __device__ inline void ech_store_rows(ech_sums<N> &c, const ech_heads &to, int64_t b,
                                             int64_t h, int first, int64_t end, int column,
                                             int64_t D, bool add)
{
    ech_each_sum(c, [&](int which, int n, wide value) {
        int t = first + ech_lane_row(which);
        if (t >= end || column + n >= D) return;
        int64_t i = to.at(b, t, h) + column + n;
        to.x.put(i, add ? to.x.get(i) + value : value);
    });
}

/* The real numbers of a warp's sums, into its own rows of a tile. */
template <int N, typename F>
static __device__ inline void ech_put_tile(ech_sums<N> &c, real *tile, F f)
{
    __syncwarp();
    ech_each_sum(c, [&](int which, int n, wide &value) {
        ech_narrow(f(which, n, value), tile + ech_lane_row(which) * (N + ECH_TILE_PAD) + n);
    });
    __syncwarp();
}

} // namespace

static inline ech_attention ech_attention_of(const ech_tensor *q, const ech_tensor *k,
                                             const ech_tensor *v, double scale,
                                             const ech_attention_shard *at,
                                             const ech_tensor *starts, const ech_dropout *dropout)
{
    const ech_tensor *none = NULL;
    int64_t B = q->shape[0], Tq = q->shape[1], Tk = k->shape[1], H = q->shape[2], G = k->shape[2];
    ECH_ASSERT(at->query.whole == at->key.whole && G > 0 && H % G == 0);
    ECH_ASSERT(at->first_head >= 0 && at->first_head + H <= at->heads);
    ECH_ASSERT(Tq <= INT32_MAX && Tk <= INT32_MAX);
    ech_rows_check(__FILE__, __LINE__, &at->key, NULL, B * Tk);
    if (!at->query.position) ech_rows_check(__FILE__, __LINE__, &at->query, NULL, B * Tq);
    ECH_ASSERT(B * Tq == 0 || (at->query.tokens == Tq && at->query.first == 0));
    return {B,    Tq,   Tk,   H,    G,     q->shape[3], q,      k,        v,     none,  none, none,
            none, none, NULL, NULL, scale, *at,         starts, *dropout, false, false, false};
}

#endif
