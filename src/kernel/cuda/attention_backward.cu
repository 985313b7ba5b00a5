/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention backward, without atomics: one kernel for the queries' gradient, and one for the
 * gradients of keys and values, which recomputes the probabilities. Dao 2023, "FlashAttention-2".
 *
 * With P the probabilities, m the factors of dropout, dP = m (dout v) and delta = dout out, the
 * gradient of a score is P (dP - delta).
 */
#include "kernel/cuda/attention.cuh"

/* ---- facts of queries ---- */

enum { FACT_LANES = 8 /* of a query */ };

static __global__ void find_facts(const ech_attention_call at, int64_t n)
{
    int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / FACT_LANES;
    int64_t row = i < n ? i : n - 1, t = row % at.Tq, h = row / at.Tq % at.H,
            b = row / at.Tq / at.H;
    int lane = (int)threadIdx.x % FACT_LANES;
    wide delta = 0;
    for (int64_t d = lane * ECH_PART; d < at.E; d += FACT_LANES * ECH_PART) {
        wide x[ECH_PART], y[ECH_PART];
        int count = ech_part_count(at.E - d);
        at.dout.x.load(at.dout.at(b, t, h) + d, count, x);
        at.out.x.load(at.out.at(b, t, h) + d, count, y);
        for (int k = 0; k < ECH_PART; k++) delta += x[k] * y[k];
    }
    for (int distance = FACT_LANES / 2; distance > 0; distance /= 2)
        delta += __shfl_xor_sync(~0u, delta, (unsigned)distance);
    if (lane != 0 || i >= n) return;
    at.facts[row] = {ech_keys_seen(at, at.shard.query, b, t), at.lse[row] * ECH_EXPONENT, delta};
}

/* The probability of the product q·k, given the row's lse times ECH_EXPONENT. *slope: the score's
 * derivative. */
template <bool Drops>
static __device__ inline wide ech_weight(const ech_attention_call &at, wide product, wide lse,
                                         wide *slope)
{
    *slope = at.scale;
    if (Drops && at.inner != 0) {
        product = tanh(product * at.inner);
        *slope *= 1 - product * product;
    }
    return ech_exponential(product * at.exponent - lse);
}

/* ---- queries ---- */

template <bool Drops, int R, int W, int N>
static __global__ void __launch_bounds__(2 * R, ECH_ATTENTION_BLOCKS(3))
    query_gradient(const ech_attention_call at)
{
    typedef ech_attention_shape<R, W, N> shape;
    enum { ROW = shape::ROW, TILE = shape::TILE, THREADS = shape::THREADS };
    ECH_DYNAMIC_SHARED(memory);
    real *q = reinterpret_cast<real *>(memory), *dout = q + shape::BLOCK,
         *tiles = dout + shape::BLOCK;
    int warp = (int)threadIdx.x / ECH_WARP;
    real *own = tiles + 4 * TILE + warp * shape::OWN; /* the gradients of the warp's scores */
    warp *= ECH_TILE_ROWS;
    int first = (int)(gridDim.x - 1 - blockIdx.x) * R, Tq = (int)at.Tq, D = (int)at.D;
    int64_t h = blockIdx.y, b = blockIdx.z, g = (int)h / (int)(at.H / at.G);
    const ech_query_facts *facts = at.facts + (b * at.H + h) * Tq;
    int last = first + R < Tq ? first + R - 1 : Tq - 1;
    const int begin = facts[first].seen.first, end = facts[last].seen.end, start = begin / N * N;
    typedef ech_head_reader<W, THREADS> reader;
    const reader keys(at.k, b, g, D), values(at.v, b, g, at.E);
    const int width = shape::width(D), columns = shape::width(at.E);
    const int slices = width > columns ? width : columns;
    const int ahead = slices <= W ? N : 0; /* keys that come before those are computed with */
    ech_seen_keys seen[2];
    wide lse[2], delta[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int t = first + warp + ech_lane_row(r);
        const ech_query_facts f = t < Tq ? facts[t] : ech_query_facts{{(int)at.Tk, 0}, 0, 0};
        seen[r] = f.seen;
        lse[r] = f.lse;
        delta[r] = f.delta;
    }
    const ech_seen_by_all all(seen);
    ech_dropped dropped(at, at.shard.query, b, h);
    for (int column = 0; column < width; column += W) {
        ech_sums<W> sum;
        ech_clear(sum);
        int turn = 0;
        for (int key = start - ahead; key < end; key += N, turn ^= 1) {
            real *k = tiles + turn * 2 * TILE;
            bool is_own = key >= start && key < all.end;
            ech_sums<N> score, gradient; /* of the probabilities first */
            ech_clear(score);
            ech_clear(gradient);
            for (int slice = 0; slice < slices; slice += W) {
                int next = key + ahead;
                real *to = tiles + (ahead ? turn ^ 1 : turn) * 2 * TILE;
                ech_end_copies();
                __syncthreads();
                const bool has_key = slice < width, has_value = slice < columns;
                if (next < end && (!ahead || next == start)) {
                    if (has_key) reader(at.q, b, h, D).template load<R>(q, first, 0, Tq, slice);
                    if (has_value)
                        reader(at.dout, b, h, at.E).template load<R>(dout, first, 0, Tq, slice);
                }
                if (next < end) {
                    if (has_key) keys.template load<N>(to, next, begin, end, slice);
                    if (has_value) values.template load<N>(to + TILE, next, begin, end, slice);
                }
                if (!ahead) {
                    ech_end_copies();
                    __syncthreads();
                }
                if (!is_own) continue;
                if (has_key) ech_product<true, N, W>(score, q + warp * ROW, k);
                if (has_value) ech_product<true, N, W>(gradient, dout + warp * ROW, k + TILE);
            }
            if (!ahead) {
                __syncthreads();
                keys.template load<N>(k, key, begin, end, column);
                ech_end_copies();
                __syncthreads();
            }
            if (!is_own) continue;
            bool is_whole = all.see(key, N);
            /* The same place of both sums. */
#pragma unroll
            for (int j = 0; j < N / 8; j++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int n = key + 8 * j + (int)(threadIdx.x % 4) * 2 + i % 2, r = i / 2;
                    wide &x = gradient.at[j][i];
                    bool is_seen = is_whole || seen[r].have(n);
                    if (Drops && is_seen) x *= dropped.factor(first + warp + ech_lane_row(r), n);
                    wide slope, p = ech_weight<Drops>(at, score.at[j][i], lse[r], &slope);
                    x = is_seen ? slope * p * (x - delta[r]) : 0;
                }
            ech_left<N> left;
            if (Drops) __syncwarp(); /* lanes draw separately */
            ech_round_left(gradient, own, left);
            ech_product(sum, left, k);
        }
        ech_store_gradient(sum, at.dq, b, h, first + warp, Tq, column, D, at.add_q);
    }
}

/* ---- keys and values ---- */

/* Begins to copy the numbers of so many queries; queries from Tq on see no key. */
static __device__ inline void load_facts(ech_query_facts *to, const ech_query_facts *from,
                                         int first, int count, int Tq)
{
    enum { CHUNKS = sizeof *to / sizeof(ech_chunk) };
    int i = (int)threadIdx.x / CHUNKS, c = (int)threadIdx.x % CHUNKS;
    if (i < count)
        ech_begin_copy(reinterpret_cast<ech_chunk *>(to + i) + c,
                       reinterpret_cast<const ech_chunk *>(from + first + i) + c, first + i < Tq);
}

/* Scores (keys, queries) become P m, and `gradient`, which has v dout, their gradients. */
template <bool Drops, int N>
static __device__ void move_scores(const ech_attention_call &at, ech_sums<N> &score,
                                   ech_sums<N> &gradient, const ech_query_facts *facts,
                                   bool is_whole, int key, int query, ech_dropped &dropped)
{
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int n = 8 * j + (int)(threadIdx.x % 4) * 2 + i % 2, row = key + ech_lane_row(i / 2);
            const ech_query_facts &f = facts[n];
            wide &x = score.at[j][i], &y = gradient.at[j][i];
            bool is_seen = is_whole || f.seen.have(row);
            wide m = Drops && is_seen ? dropped.factor(query + n, row) : 1;
            wide slope, p = ech_weight<Drops>(at, x, f.lse, &slope);
            x = is_seen ? p * m : 0;
            y = is_seen ? slope * p * (m * y - f.delta) : 0;
        }
}

template <bool Drops, int R, int W, int N>
static __global__ void __launch_bounds__(2 * R, ECH_ATTENTION_BLOCKS(3))
    key_gradient(const ech_attention_call at)
{
    typedef ech_attention_shape<R, W, N> shape;
    enum { ROW = shape::ROW, TILE = shape::TILE, THREADS = shape::THREADS };
    ECH_DYNAMIC_SHARED(memory);
    ECH_SHARED(ech_query_facts, facts_room, 2 * N);
    ECH_SHARED(int, room, THREADS / ECH_WARP);
    real *k = reinterpret_cast<real *>(memory), *v = k + shape::BLOCK, *tiles = v + shape::BLOCK;
    int warp = (int)threadIdx.x / ECH_WARP;
    real *own = tiles + 4 * TILE + warp * shape::OWN;
    warp *= ECH_TILE_ROWS;
    int first = (int)blockIdx.x * R, Tq = (int)at.Tq, Tk = (int)at.Tk, D = (int)at.D;
    int g = (int)blockIdx.y, b = (int)blockIdx.z, heads = (int)(at.H / at.G);
    const ech_query_facts *known =
        at.facts + (b * at.H + g * heads) * Tq; /* of the group's heads */
    /* Queries before the first key do not see any. Documents begin later and later: from the first
     * query whose document begins after these keys, no query sees them. */
    int begin = ech_tokens_before(at.shard.query, ech_rows_token_position(&at.shard.key, first)),
        end = Tq;
    int last = first + R < Tk ? first + R : Tk, key = first + warp;
    if (at.rule.window > 0)
        end = ech_tokens_before(at.shard.query,
                                ech_rows_token_position(&at.shard.key, last - 1) + at.rule.window);
    if (at.starts.is_here) {
        int more = 0;
        for (int t = begin + (int)threadIdx.x; t < end; t += THREADS)
            more += known[t].seen.first < last;
        end = begin + ech_block_fold(ech_plus(), more, room);
    }
    int start = begin / N * N;
    if (start >= end) heads = 0; /* there is nothing to read */
    typedef ech_head_reader<W, THREADS> reader;
    const int width = shape::width(D), columns = shape::width(at.E);
    const int slices = width > columns ? width : columns, ahead = slices <= W ? N : 0;
    for (int column = 0; column < slices; column += W) {
        ech_sums<W> dk, dv;
        ech_clear(dk);
        ech_clear(dv);
        int turn = 0;
        for (int i = 0; i < heads; i++) {
            const reader queries(at.q, b, g * heads + i, D),
                gradients(at.dout, b, g * heads + i, at.E);
            const ech_query_facts *known_of_head = known + (int64_t)i * Tq;
            ech_dropped dropped(at, at.shard.query, b, g * heads + i);
            for (int query = start - ahead; query < end; query += N, turn ^= 1) {
                const real *q = tiles + turn * 2 * TILE, *dout = q + TILE;
                const ech_query_facts *facts = &facts_room[turn * N];
                ech_sums<N> score, gradient;
                ech_clear(score);
                ech_clear(gradient);
                bool is_own = query >= start;
                for (int slice = 0; slice < slices; slice += W) {
                    const bool has_key = slice < width, has_value = slice < columns;
                    int next = query + ahead, to = ahead ? turn ^ 1 : turn;
                    real *room = tiles + to * 2 * TILE;
                    ech_end_copies();
                    __syncthreads();
                    if (!ahead || (query < start && i == 0)) {
                        if (has_key) reader(at.k, b, g, D).template load<R>(k, first, 0, Tk, slice);
                        if (has_value)
                            reader(at.v, b, g, at.E).template load<R>(v, first, 0, Tk, slice);
                    }
                    if (next < end) {
                        if (has_key) queries.template load<N>(room, next, 0, Tq, slice);
                        if (has_value) gradients.template load<N>(room + TILE, next, 0, Tq, slice);
                        load_facts(&facts_room[to * N], known_of_head, next, N, Tq);
                    }
                    if (!ahead) {
                        ech_end_copies();
                        __syncthreads();
                    }
                    /* The last query sees the most keys. */
                    if (is_own)
                        is_own = facts[query + N <= Tq ? N - 1 : Tq - 1 - query].seen.end > key;
                    if (!is_own) continue;
                    if (has_key) ech_product<true, N, W>(score, k + warp * ROW, q);
                    if (has_value) ech_product<true, N, W>(gradient, v + warp * ROW, dout);
                }
                if (!ahead) {
                    real *room = tiles + turn * 2 * TILE;
                    __syncthreads();
                    if (column < width) queries.template load<N>(room, query, 0, Tq, column);
                    if (column < columns)
                        gradients.template load<N>(room + TILE, query, 0, Tq, column);
                    ech_end_copies();
                    __syncthreads();
                }
                if (!is_own) continue;
                bool is_whole = query + N <= Tq && facts[N - 1].seen.first <= key &&
                                facts[0].seen.end >= key + ECH_TILE_ROWS;
                move_scores<Drops>(at, score, gradient, facts, is_whole, key, query, dropped);
                ech_left<N> left;
                if (Drops) __syncwarp();
                ech_round_left(score, own, left);
                if (column < columns) ech_product(dv, left, dout);
                ech_round_left(gradient, own, left);
                if (column < width) ech_product(dk, left, q);
            }
        }
        ech_store_gradient(dk, at.dk, b, g, key, Tk, column, D, at.add_kv);
        ech_store_gradient(dv, at.dv, b, g, key, Tk, column, at.E, at.add_kv);
    }
}

/* NQ: keys of a tile beside queries' rows; NK: queries beside keys'. */
template <bool Drops, int R, int W, int NQ, int NK>
static void put(const ech_kernel_context *context, const ech_attention_call &at)
{
    typedef ech_attention_shape<R, W, NQ> by_query;
    typedef ech_attention_shape<R, W, NK> by_key;
    int64_t rows = at.B * at.H * at.Tq;
    ech_launch(context, find_facts, dim3((unsigned)ech_ceil(rows * FACT_LANES, ECH_BLOCK)),
               ECH_BLOCK, 0, at, rows);
    ech_launch(context, query_gradient<Drops, R, W, NQ>,
               dim3((unsigned)ech_ceil(at.Tq, R), (unsigned)at.H, (unsigned)at.B),
               by_query::THREADS, by_query::shared(2), at);
    ech_launch(context, key_gradient<Drops, R, W, NK>,
               dim3((unsigned)ech_ceil(at.Tk, R), (unsigned)at.G, (unsigned)at.B), by_key::THREADS,
               by_key::shared(2), at);
}

void ECH_CUDA(attention_backward)(ech_kernel_context *context, const ech_tensor *dout,
                                  const ech_tensor *q, const ech_tensor *k, const ech_tensor *v,
                                  const ech_tensor *out, const ech_tensor *lse,
                                  const ech_attention_rule *rule, const ech_attention_shard *shard,
                                  const ech_tensor *starts, const ech_dropout *dropout, bool add_q,
                                  bool add_kv, const ech_tensor *dq, const ech_tensor *dk,
                                  const ech_tensor *dv)
{
    ech_cuda_check(ECH_OP_attention_backward, ECH_REAL, dout, q, k, v, out, lse, dq, dk, dv);
    ECH_ASSERT(!shard->query.position);
    ech_attention_call at = ech_attention_of(q, k, v, rule, shard, starts, dropout);
    at.dout = dout;
    at.out = out;
    at.dq = dq;
    at.dk = dk;
    at.dv = dv;
    at.lse = static_cast<wide *>(lse->data);
    at.facts = static_cast<ech_query_facts *>(
        ech_scratch(context, (size_t)(at.B * at.H * at.Tq) * sizeof(ech_query_facts)));
    at.add_q = add_q;
    at.add_kv = add_kv;
    const bool drops = dropout->p > 0 || at.inner != 0;
    /* Tiles as wide as registers and shared memory allow. */
#if defined ECH_REAL_F64
    (drops ? put<true, 64, 32, 16, 16> : put<false, 64, 32, 16, 16>)(context, at);
#elif defined ECH_REAL_F32
    (drops ? put<true, 64, 64, 32, 32> : put<false, 64, 64, 32, 32>)(context, at);
#else
    if (at.D <= ECH_NARROW_HEAD && at.E <= ECH_NARROW_HEAD)
        (drops ? put<true, 64, 64, 32, 32> : put<false, 64, 64, 64, 32>)(context, at);
    else
        (drops ? put<true, 64, 128, 32, 16> : put<false, 64, 128, 48, 32>)(context, at);
#endif
}
