/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of a warp: 16 rows of a matrix in shared memory times another one there, with sums in registers. 16-bit types
 * by tensor cores, others by multiply-adds; lane l has the sums of rows l / 4 and l / 4 + 8, of columns 2 (l % 4) and the
 * next of every 8.
 */
#ifndef ECH_KERNEL_CUDA_PRODUCT_H
#define ECH_KERNEL_CUDA_PRODUCT_H

#include "kernel/cuda/real.cuh"

namespace
{
enum {
    ECH_TILE_ROWS = 16, /* of a warp */
    /* Elements behind a row in shared memory: rows begin at multiples of 16 bytes and in other banks. */
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

/* Calls f(row, column, sum) for each of the lane's; row: 0 is its first, 1 the other. */
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
/* Four matrices of 8 x 8, of which lane 8 i + r says where row r of matrix i is; of each, a lane gets two numbers of row
 * l / 4 or, transposed, of column l / 4. */
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

/* c += a (16, K) b, where b is (K, N), or (N, K) if it is transposed: rows of LA and LB elements. Of K the sixteens from
 * `end` on are left out: the same in all lanes. */
template <bool Transposed, int N, int K, int LA, int LB>
static __device__ inline void ech_product(ech_sums<N> &c, const real *a, const real *b, int end = K)
{
    unsigned lane = threadIdx.x % ECH_WARP;
#pragma unroll
    for (int k = 0; k < K; k += 16) {
        uint32_t left[4], right[4];
        if (k >= end) continue;
        ech_load_matrices(a + lane % 16 * LA + k + lane / 16 * 8, false, left);
#pragma unroll
        for (int n = 0; n < N; n += 16) {
            const real *row = Transposed
                                  ? b + (n + lane / 16 * 8 + lane % 8) * LB + k + lane / 8 % 2 * 8
                                  : b + (k + lane % 16) * LB + n + lane / 16 * 8;
            ech_load_matrices(row, !Transposed, right);
            ech_multiply(c.at[n / 8], left, right);
            ech_multiply(c.at[n / 8 + 1], left, right + 2);
        }
    }
}
#else
template <bool Transposed, int N, int K, int LA, int LB>
static __device__ inline void ech_product(ech_sums<N> &c, const real *a, const real *b, int end = K)
{
    const real *low = a + ech_lane_row(0) * LA, *high = a + ech_lane_row(1) * LA;
    int column = (int)(threadIdx.x % 4) * 2;
#pragma unroll 2
    for (int k = 0; k < K && k < (end + 15) / 16 * 16; k++) {
        wide x = low[k], y = high[k];
#pragma unroll
        for (int j = 0; j < N / 8; j++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                int n = 8 * j + column + i;
                wide z = Transposed ? b[n * LB + k] : b[k * LB + n];
                c.at[j][i] += x * z;
                c.at[j][i + 2] += y * z;
            }
    }
}
#endif
} // namespace

#endif
