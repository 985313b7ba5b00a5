/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of a warp: 16 rows of a matrix times another one in shared memory, with sums in
 * registers. 16-bit types use tensor cores, others multiply-adds; lane l has the sums of rows l / 4
 * and l / 4 + 8, for columns 2 (l % 4) and the next of every 8. Rows in shared memory are followed
 * by ECH_TILE_PAD elements.
 */
#ifndef ECH_KERNEL_CUDA_PRODUCT_H
#define ECH_KERNEL_CUDA_PRODUCT_H

#include "kernel/cuda/real.cuh"

namespace
{
enum {
    ECH_TILE_ROWS = 16, /* of a warp */
    /* Elements after a row in shared memory: rows begin at multiples of 16 bytes and in other
     * banks. */
    ECH_TILE_PAD = 16 / sizeof(real)
};

/* The sums of N columns. */
template <int N> struct ech_sums {
    wide at[N / 8][4];
};

template <int N> static __device__ inline void ech_clear(ech_sums<N> &c)
{
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) c.at[j][i] = 0;
}

/* Calls f(row, column, sum) for each of the lane's sums; row: 0 is its first, 1 the other. */
template <int N, typename F> static __device__ inline void ech_each_sum(ech_sums<N> &c, F f)
{
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            f(i / 2, 8 * j + (int)(threadIdx.x % 4) * 2 + i % 2, c.at[j][i]);
}

static __device__ inline int ech_lane_row(int which)
{
    return (int)(threadIdx.x % ECH_WARP) / 4 + 8 * which;
}

#if defined ECH_REAL_BF16 || defined ECH_REAL_F16
/* Four matrices of 8 x 8; lane 8 i + r gives the address of row r of matrix i. From each, a lane
 * gets two numbers of row l / 4 or, transposed, of column l / 4. */
static __device__ inline void ech_load_matrices(const half16 *row, bool transposed, uint32_t *to)
{
#ifdef ECH_EMULATED
    unsigned lane = emulated::lane(), pair = lane % 4 * 2;
    if (reinterpret_cast<uintptr_t>(row) % 16) emulated::fail("a row of a matrix is not aligned");
    emulated::show(row);
    for (unsigned i = 0; i < 4; i++) {
        half16 two[2];
        for (unsigned k = 0; k < 2; k++)
            two[k] = transposed ? emulated::shown<const half16 *>(8 * i + pair + k)[lane / 4]
                                : emulated::shown<const half16 *>(8 * i + lane / 4)[pair + k];
        memcpy(&to[i], two, sizeof two);
    }
    emulated::meet_warp();
#else
    unsigned at = (unsigned)__cvta_generic_to_shared(row);
    if (transposed)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(at)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(at)
                     : "memory");
#endif
}

/* c (16 x 8) += a (16 x 16) b (16 x 8). PTX ISA, mma.m16n8k16. */
static __device__ inline void ech_multiply(float *c, const uint32_t *a, const uint32_t *b)
{
#if defined ECH_EMULATED
    struct fragments {
        float a[8], b[4];
    } own;
    half16 half[12];
    memcpy(half, a, 8 * sizeof *half);
    memcpy(half + 8, b, 4 * sizeof *half);
    for (unsigned i = 0; i < 12; i++) (i < 8 ? own.a[i] : own.b[i - 8]) = (float)ech_widen(half[i]);
    emulated::show(own);
    for (unsigned i = 0; i < 4; i++) {
        unsigned row = emulated::lane() / 4 + i / 2 * 8, column = emulated::lane() % 4 * 2 + i % 2;
        for (unsigned k = 0; k < 16; k++) {
            const fragments &left = emulated::shown<fragments>(row % 8 * 4 + k % 8 / 2);
            const fragments &right = emulated::shown<fragments>(column * 4 + k % 8 / 2);
            c[i] += left.a[(row / 8 + k / 8 * 2) * 2 + k % 2] * right.b[k / 8 * 2 + k % 2];
        }
    }
    emulated::meet_warp();
#elif defined ECH_REAL_BF16
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

/* The left side of a product that is computed from sums: a warp's 16 rows of K elements, in
 * registers. */
template <int K> struct ech_left {
    uint32_t at[K / 16][4];
};

/* Two numbers, rounded, the first in the low bits. */
static __device__ inline uint32_t ech_narrow_pair(float a, float b)
{
#if defined ECH_EMULATED
    half16 two[2];
    uint32_t pair;
    ech_narrow(a, &two[0]);
    ech_narrow(b, &two[1]);
    memcpy(&pair, two, sizeof pair);
    return pair;
#elif defined ECH_REAL_BF16
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(b), "f"(a));
    return pair;
#else
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(b), "f"(a));
    return pair;
#endif
}

/* Converts a warp's sums to a left side: each lane has what it needs. */
template <int K>
static __device__ inline void ech_round_left(const ech_sums<K> &c, real *, ech_left<K> &left)
{
#pragma unroll
    for (int k = 0; k < K / 16; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *two = &c.at[2 * k + i / 2][i % 2 * 2];
            left.at[k][i] = ech_narrow_pair(two[0], two[1]);
        }
}

/* c += a (16, 16) b, where b is rows from k of a (K, N), or columns of a (N, K) if it is
 * transposed. */
template <bool Transposed, int N, int K>
static __device__ inline void ech_add_product(ech_sums<N> &c, const uint32_t *a, const real *b,
                                              int k)
{
    enum { ROW = (Transposed ? K : N) + ECH_TILE_PAD };
    unsigned lane = threadIdx.x % ECH_WARP;
    b += Transposed ? (lane / 16 * 8 + lane % 8) * ROW + lane / 8 % 2 * 8 + k
                    : (lane % 16 + k) * ROW + lane / 16 * 8;
#pragma unroll
    for (int n = 0; n < N; n += 16) {
        uint32_t right[4];
        ech_load_matrices(b + (Transposed ? n * ROW : n), !Transposed, right);
        ech_multiply(c.at[n / 8], a, right);
        ech_multiply(c.at[n / 8 + 1], a, right + 2);
    }
}

/* c += a (16, K) b, where b is (K, N), or (N, K) if it is transposed. M: a is 16 columns of a (K,
 * M); 0: it is not transposed. */
template <bool Transposed, int N, int K, int M = 0>
static __device__ inline void ech_product(ech_sums<N> &c, const real *a, const real *b)
{
    enum { ROW = (M ? M : K) + ECH_TILE_PAD };
    unsigned lane = threadIdx.x % ECH_WARP;
    a += M ? (lane % 8 + lane / 16 * 8) * ROW + lane / 8 % 2 * 8 : lane % 16 * ROW + lane / 16 * 8;
#pragma unroll
    for (int k = 0; k < K; k += 16) {
        uint32_t left[4];
        ech_load_matrices(a + (M ? k * ROW : k), M != 0, left);
        ech_add_product<Transposed, N, K>(c, left, b, k);
    }
}

/* The same without the groups of 16 of K from `end` on, which is the same in all lanes. */
template <int N, int K>
static __device__ inline void ech_product(ech_sums<N> &c, const ech_left<K> &a, const real *b,
                                          int end = K)
{
    if (end >= K) {
#pragma unroll
        for (int k = 0; k < K; k += 16) ech_add_product<false, N, K>(c, a.at[k / 16], b, k);
        return;
    }
#pragma unroll
    for (int k = 0; k < K; k += 16)
        if (k < end) ech_add_product<false, N, K>(c, a.at[k / 16], b, k);
}
#else
/* The left side of a product that is computed from sums: the address of a warp's 16 rows of K
 * elements. */
template <int K> struct ech_left {
    const real *rows;
};

/* Converts a warp's sums to a left side, in 16 rows of shared memory. */
template <int K>
static __device__ inline void ech_round_left(ech_sums<K> &c, real *room, ech_left<K> &left)
{
    __syncwarp();
    ech_each_sum(c, [&](int which, int n, wide x) {
        room[ech_lane_row(which) * (K + ECH_TILE_PAD) + n] = x;
    });
    __syncwarp();
    left.rows = room;
}

template <bool Transposed, int N, int K, int M = 0>
static __device__ inline void ech_product(ech_sums<N> &c, const real *a, const real *b, int end = K)
{
    enum {
        LEFT = M ? 1 : K + ECH_TILE_PAD,
        NEXT = M ? M + ECH_TILE_PAD : 1,
        ROW = (Transposed ? K : N) + ECH_TILE_PAD
    };
    const real *low = a + ech_lane_row(0) * LEFT, *high = a + ech_lane_row(1) * LEFT;
    int column = (int)(threadIdx.x % 4) * 2;
#pragma unroll 2
    for (int k = 0; k < K && k < (end + 15) / 16 * 16; k++) {
        wide x = low[k * NEXT], y = high[k * NEXT];
#pragma unroll
        for (int j = 0; j < N / 8; j++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                int n = 8 * j + column + i;
                wide z = Transposed ? b[n * ROW + k] : b[k * ROW + n];
                c.at[j][i] += x * z;
                c.at[j][i + 2] += y * z;
            }
    }
}

template <int N, int K>
static __device__ inline void ech_product(ech_sums<N> &c, const ech_left<K> &a, const real *b,
                                          int end = K)
{
    ech_product<false, N, K>(c, a.rows, b, end);
}
#endif

/* Writes the first `count` of two adjacent numbers. */
static __device__ inline void ech_put_pair(const ech_numbers &to, int64_t i, int count,
                                           const wide *two)
{
#if defined ECH_REAL_BF16 || defined ECH_REAL_F16
    half16 *at = static_cast<half16 *>(to.data) + i;
    if (count > 1 && to.has_halves() && reinterpret_cast<uintptr_t>(at) % sizeof(uint32_t) == 0) {
        *reinterpret_cast<uint32_t *>(at) = ech_narrow_pair(two[0], two[1]);
        return;
    }
#endif
    if (count > 0) to.put(i, two[0]);
    if (count > 1) to.put(i + 1, two[1]);
}

/* Begins to copy 16 bytes into shared memory, or zeroes them. They are complete after the thread's
 * wait. */
static __device__ inline void ech_begin_copy(void *to, const void *from, bool is_there)
{
#ifdef ECH_EMULATED
    emulated::begin_copy(to, from, is_there ? sizeof(ech_chunk) : 0, sizeof(ech_chunk));
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                     (unsigned)__cvta_generic_to_shared(to)),
                 "l"(from), "r"(is_there ? 16 : 0)
                 : "memory");
#endif
}

/* Waits for the thread's own copies; a barrier must follow for other threads' copies. */
static __device__ inline void ech_end_copies()
{
#ifdef ECH_EMULATED
    emulated::end_copies();
#else
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

/* How a block's threads share rows of W elements: each copies 16 bytes of every n-th row. */
template <int W, int THREADS> struct ech_row_chunks {
    enum { CHUNK = sizeof(ech_chunk) / sizeof(real), CHUNKS = W / CHUNK, STEP = THREADS / CHUNKS };
    static __device__ int row()
    {
        return (int)threadIdx.x / CHUNKS;
    }
    static __device__ int column()
    {
        return (int)threadIdx.x % CHUNKS * CHUNK;
    }
    /* Begins to copy rows 0 .. R - 1 of a matrix into a tile: 0 for rows below `begin` or from
     * `end` on, and for missing columns. at: the thread's first element. */
    template <int R>
    static __device__ void load(real *tile, const real *at, int64_t stride, int begin, int end,
                                int columns)
    {
        static_assert(R % STEP == 0, "each thread has as many rows");
        tile += row() * (W + ECH_TILE_PAD) + column();
        columns -= column();
        if (ech_is_aligned(at) && stride % CHUNK == 0 && columns >= CHUNK) {
#pragma unroll
            for (int i = 0; i < R; i += STEP, at += STEP * stride)
                ech_begin_copy(tile + i * (W + ECH_TILE_PAD), at,
                               (row() + i >= begin) & (row() + i < end));
            return;
        }
#pragma unroll 1
        for (int i = 0; i < R; i += STEP, at += STEP * stride)
#pragma unroll 1
            for (int k = 0; k < CHUNK; k++) {
                bool is_there = row() + i >= begin && row() + i < end && k < columns;
                tile[i * (W + ECH_TILE_PAD) + k] = is_there ? at[k] : real{};
            }
    }
};
} // namespace

#endif
