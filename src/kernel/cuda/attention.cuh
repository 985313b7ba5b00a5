/* SPDX-License-Identifier: Apache-2.0
 *
 * Common code of attention's forward and backward: a call's arguments, the keys that a query sees,
 * tiles in shared memory, dropout.
 *
 * A block has R rows of queries or keys, 16 per warp, and loops over tiles of N rows of the others;
 * the next tile is loaded during the computation with the current one. Heads wider than a tile are
 * processed in slices, without that overlap. Scores are sums over the slices; results are computed
 * slice by slice from scores that are recomputed. Queries and keys, D wide, and values, E wide,
 * have slices of their own.
 */
#ifndef ECH_KERNEL_CUDA_ATTENTION_H
#define ECH_KERNEL_CUDA_ATTENTION_H

#include "kernel/cuda/product.cuh"
#include "kernel/cuda/random.cuh"
#include "kernel/cuda/reduce.cuh"

namespace
{
/* 16-bit types have their own kernel for heads up to this width. */
enum { ECH_NARROW_HEAD = 64 };

/* The number of blocks that should run on a multiprocessor at the same time, which limits a
 * thread's registers. */
#define ECH_ATTENTION_BLOCKS(most) (ech_has_halves && !Drops && W <= ECH_NARROW_HEAD ? (most) : 1)

/* A block of R rows, 16 a warp, in slices of W columns, and tiles of N others. */
template <int R, int W, int N> struct ech_attention_shape {
    enum {
        THREADS = R / ECH_TILE_ROWS * ECH_WARP,
        ROW = W + ECH_TILE_PAD, /* in shared memory */
        BLOCK = R * ROW,
        TILE = N * ROW,
        /* A warp's own 16 rows of N sums: 16-bit types have them in registers. */
        OWN = ech_has_halves ? 0 : ECH_TILE_ROWS * (N + ECH_TILE_PAD),
    };
    /* Columns over which slices go: one slice where heads are narrow. */
    static __device__ int width(int64_t D)
    {
        return ech_has_halves && W <= ECH_NARROW_HEAD ? W : (int)D;
    }
    /* Bytes of so many blocks of rows and four tiles. */
    static size_t shared(int blocks)
    {
        return (size_t)(blocks * BLOCK + 4 * TILE + R / ECH_TILE_ROWS * OWN) * sizeof(real);
    }
};

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

/* Keys [first, end), which a query sees: positions ascend. */
struct ech_seen_keys {
    int first, end;

    __device__ bool have(int key) const
    {
        return (key >= first) & (key < end); /* without a branch */
    }
};

/* Numbers of a query and head that backward needs besides the tensors. lse: times ECH_EXPONENT;
 * delta: dout·out. */
struct alignas(16) ech_query_facts {
    ech_seen_keys seen;
    wide lse, delta;
};
static_assert(sizeof(ech_query_facts) == ECH_CUDA_FACTS_BYTES(sizeof(wide)), "scratch.c");

/* Kernels with Drops, which have registers to spare, also cap scores. */
struct ech_attention_call {
    int64_t B, Tq, Tk, H, G, D, E; /* values are E wide */
    ech_heads q, k, v, dout, out, dq, dk, dv;
    wide *lse;              /* (B,H,Tq) */
    ech_query_facts *facts; /* (B,H,Tq) */
    wide scale, exponent;   /* of scores, and of scores to be exponentiated */
    wide inner;             /* scale / cap, whose tanh `exponent` multiplies; 0: no cap */
    ech_attention_rule rule;
    ech_attention_shard shard;
    ech_maybe starts;
    ech_dropout dropout;
    bool merge, add_q, add_kv;
};

/* The factor of a number before its exponential: for 16-bit types exponentials are powers of 2,
 * which are one instruction. */
#if defined ECH_REAL_BF16 || defined ECH_REAL_F16
#define ECH_EXPONENT 1.4426950408889634f
static __device__ inline wide ech_exponential(wide x)
{
#ifdef ECH_EMULATED
    return exp2(x);
#else
    asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(x));
    return x;
#endif
}
#else
#define ECH_EXPONENT 1
static __device__ inline wide ech_exponential(wide x)
{
    return exp(x);
}
#endif

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
static __device__ inline ech_seen_keys ech_keys_seen(const ech_attention_call &at,
                                                     const ech_rows &query, int64_t b, int64_t t)
{
    if (t >= at.Tq) return {(int)at.Tk, 0};
    int64_t position = ech_rows_token_position(&query, t);
    int64_t start = ech_attention_first(&at.rule, at.starts.get(), b, position);
    return {ech_tokens_before(at.shard.key, start), ech_tokens_before(at.shard.key, position + 1)};
}

/* For a warp, whose lanes have two rows each: keys that some row may see end at `end`, and all rows
 * see the keys from `from` to `to`. */
struct ech_seen_by_all {
    int from, to, end;

    __device__ explicit ech_seen_by_all(const ech_seen_keys *seen)
    {
        struct smaller {
            __device__ int operator()(int a, int b) const
            {
                return a < b ? a : b;
            }
        };
        from = ech_warp_fold(ech_larger(), ech_larger()(seen[0].first, seen[1].first));
        to = ech_warp_fold(smaller(), smaller()(seen[0].end, seen[1].end));
        end = ech_warp_fold(ech_larger(), ech_larger()(seen[0].end, seen[1].end));
    }
    __device__ bool see(int key, int count) const
    {
        return key >= from && key + count <= to;
    }
};

/* The way in which a block's threads read slices of W columns of a head. */
template <int W, int THREADS> struct ech_head_reader {
    typedef ech_row_chunks<W, THREADS> chunks;
    const ech_heads &x;
    const real *from;
    int D;

    __device__ ech_head_reader(const ech_heads &heads, int64_t b, int64_t h, int64_t width)
        : x(heads),
          from(static_cast<const real *>(x.x.data) + x.at(b, chunks::row(), h) + chunks::column()),
          D((int)width)
    {
    }
    /* Begins to copy tokens [first, first + R), of the slice that begins at this column: with 0 for
     * tokens outside of [begin, end) and missing columns. */
    template <int R>
    __device__ void load(real *tile, int first, int begin, int end, int slice) const
    {
        chunks::template load<R>(tile, from + first * x.stride[1] + slice, x.stride[1],
                                 begin - first, end - first, D - slice);
    }
};

/* The factor by which dropout multiplies the probability of (query, key). */
struct ech_dropped {
    const ech_attention_call &at;
    const ech_rows &rows;
    ech_random_key key;
    int64_t head; /* among the heads of all samples */
    ech_drawn drawn;

    __device__ ech_dropped(const ech_attention_call &call, const ech_rows &query, int64_t b,
                           int64_t h)
        : at(call), rows(query), key(ech_dropout_key(&call.dropout)),
          head((call.shard.query.first_sample + b) * call.shard.heads + call.shard.first_head + h)
    {
    }
    __device__ wide factor(int query, int k)
    {
        double p = at.dropout.p;
        if (p == 0) return 1;
        int64_t row = head * rows.whole + ech_rows_token_position(&rows, query);
        int64_t i = row * rows.whole + ech_rows_token_position(&at.shard.key, k);
        return ech_drops(p, key, (uint64_t)i, &drawn) ? 0 : (wide)(1 / (1 - p));
    }
};

/* Writes columns of a head's tokens first and on: the 16 rows of a warp, times a weight; of what
 * was there, `kept` is added. Both: of the lane's two rows. */
template <int N>
static __device__ inline void
ech_store_rows(const ech_sums<N> &c, const ech_heads &to, int64_t b, int64_t h, int first,
               int64_t end, int column, int64_t D, const wide (&weight)[2], const wide (&kept)[2])
{
    column += (int)(threadIdx.x % 4) * 2;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int t = first + ech_lane_row(r);
        if (t >= end) continue;
        int64_t i = to.at(b, t, h) + column;
#pragma unroll
        for (int j = 0; j < N / 8; j++) {
            int left = (int)D - column - 8 * j, count = left < 2 ? left : 2;
            wide two[2] = {c.at[j][2 * r] * weight[r], c.at[j][2 * r + 1] * weight[r]};
            if (kept[r] != 0)
                for (int k = 0; k < count; k++) two[k] += kept[r] * to.x.get(i + 8 * j + k);
            ech_put_pair(to.x, i + 8 * j, count, two);
        }
    }
}

template <int N>
static __device__ inline void ech_store_gradient(const ech_sums<N> &c, const ech_heads &to,
                                                 int64_t b, int64_t h, int first, int64_t end,
                                                 int column, int64_t D, bool add)
{
    const wide kept = add ? 1 : 0;
    ech_store_rows(c, to, b, h, first, end, column, D, {1, 1}, {kept, kept});
}

} // namespace

static inline ech_attention_call
ech_attention_of(const ech_tensor *q, const ech_tensor *k, const ech_tensor *v,
                 const ech_attention_rule *rule, const ech_attention_shard *at,
                 const ech_tensor *starts, const ech_dropout *dropout)
{
    const ech_tensor *none = NULL;
    int64_t B = q->shape[0], Tq = q->shape[1], Tk = k->shape[1], H = q->shape[2], G = k->shape[2];
    ECH_ASSERT(at->query.whole == at->key.whole && G > 0 && H % G == 0);
    ECH_ASSERT(rule->scale > 0 && rule->cap >= 0 && rule->window >= 0);
    ECH_ASSERT(at->first_head >= 0 && at->first_head + H <= at->heads);
    ECH_ASSERT(Tq <= INT32_MAX && Tk <= INT32_MAX);
    ech_rows_check(__FILE__, __LINE__, &at->key, NULL, B * Tk);
    if (!at->query.position) ech_rows_check(__FILE__, __LINE__, &at->query, NULL, B * Tq);
    ECH_ASSERT(B * Tq == 0 || (at->query.tokens == Tq && at->query.first == 0));
    const double cap = rule->cap;
    return {B,
            Tq,
            Tk,
            H,
            G,
            q->shape[3],
            v->shape[3],
            q,
            k,
            v,
            none,
            none,
            none,
            none,
            none,
            NULL,
            NULL,
            (wide)rule->scale,
            (wide)((cap > 0 ? cap : rule->scale) * ECH_EXPONENT),
            (wide)(cap > 0 ? rule->scale / cap : 0),
            *rule,
            *at,
            starts,
            *dropout,
            false,
            false,
            false};
}

#endif
