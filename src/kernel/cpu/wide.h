/* SPDX-License-Identifier: Apache-2.0
 *
 * SIMD vectors of fp32 with the width of the instruction set for which the file is compiled. For
 * loops whose values must stay in registers.
 */
#ifndef ECH_KERNEL_CPU_WIDE_H
#define ECH_KERNEL_CPU_WIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernel/cpu/vector.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
enum { ECH_WIDE = 16 };
#elif defined(__AVX2__)
enum { ECH_WIDE = 8 };
#else
enum { ECH_WIDE = 4 };
#endif

typedef float ech_wide __attribute__((vector_size(4 * ECH_WIDE), aligned(4), may_alias));
typedef int32_t ech_wide_int __attribute__((vector_size(4 * ECH_WIDE), aligned(4), may_alias));

ECH_INLINE ech_wide ech_wide_load(const float *x)
{
    return *(const ech_wide *)x;
}

ECH_INLINE void ech_wide_store(float *x, ech_wide value)
{
    *(ech_wide *)x = value;
}

ECH_INLINE ech_wide ech_wide_all(float x)
{
    return (ech_wide){0} + x;
}

/* a where the mask has ones, b where it has zeros. */
ECH_INLINE ech_wide ech_wide_select(ech_wide_int mask, ech_wide a, ech_wide b)
{
    return (ech_wide)((mask & (ech_wide_int)a) | (~mask & (ech_wide_int)b));
}

/* max: a > b ? a : b; min: a < b ? a : b. Thus b if either is NaN. */
#if defined(__AVX512F__)
#define ECH_WIDE_EXTREME(max, greater, a, b) (ech_wide) _mm512_##max##_ps((__m512)(a), (__m512)(b))
#elif defined(__AVX2__)
#define ECH_WIDE_EXTREME(max, greater, a, b) (ech_wide) _mm256_##max##_ps((__m256)(a), (__m256)(b))
#elif defined(__SSE2__)
#define ECH_WIDE_EXTREME(max, greater, a, b) (ech_wide) _mm_##max##_ps((__m128)(a), (__m128)(b))
#else
#define ECH_WIDE_EXTREME(max, greater, a, b) ech_wide_select((ech_wide_int)((a)greater(b)), a, b)
#endif

ECH_INLINE ech_wide ech_wide_max(ech_wide a, ech_wide b)
{
    return ECH_WIDE_EXTREME(max, >, a, b);
}

ECH_INLINE ech_wide ech_wide_min(ech_wide a, ech_wide b)
{
    return ECH_WIDE_EXTREME(min, <, a, b);
}

/* The sum of a vector's elements. */
ECH_INLINE float ech_wide_sum(ech_wide x)
{
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)x);
#else
    float sum = 0;
    for (int i = 0; i < ECH_WIDE; i++) sum += x[i];
    return sum;
#endif
}

ECH_INLINE ech_wide ech_wide_of_int(ech_wide_int x)
{
    return __builtin_convertvector(x, ech_wide);
}

/* Towards zero. */
ECH_INLINE ech_wide_int ech_wide_to_int(ech_wide x)
{
    return __builtin_convertvector(x, ech_wide_int);
}

/* Numbers of 64 bits in a vector. */
enum { ECH_LONGS = ECH_WIDE / 2 };

typedef uint64_t ech_wide_long __attribute__((vector_size(4 * ECH_WIDE), aligned(8), may_alias));

/* The products of the low halves of numbers by b, in 64 bits. */
ECH_INLINE ech_wide_long ech_wide_low_products(ech_wide_long a, uint32_t b)
{
    ech_wide_long all = (ech_wide_long){0} + b;
#if defined(__AVX512F__)
    return (ech_wide_long)_mm512_mul_epu32((__m512i)a, (__m512i)all);
#elif defined(__AVX2__)
    return (ech_wide_long)_mm256_mul_epu32((__m256i)a, (__m256i)all);
#elif defined(__SSE2__)
    return (ech_wide_long)_mm_mul_epu32((__m128i)a, (__m128i)all);
#else
    return (a & 0xffffffffu) * all;
#endif
}

typedef double ech_wide_double __attribute__((vector_size(4 * ECH_WIDE), aligned(8), may_alias));
typedef float ech_wide_half __attribute__((vector_size(2 * ECH_WIDE), aligned(4), may_alias));

/* Intrinsics, since gcc would convert two halves. */
ECH_INLINE ech_wide_double ech_wide_doubles(ech_wide_half x)
{
#if defined(__AVX512F__)
    return (ech_wide_double)_mm512_cvtps_pd((__m256)x);
#elif defined(__AVX2__)
    return (ech_wide_double)_mm256_cvtps_pd((__m128)x);
#else
    return __builtin_convertvector(x, ech_wide_double);
#endif
}

/* Adds x's elements to ECH_WIDE sums. */
ECH_INLINE void ech_wide_add_to(double *sums, ech_wide x)
{
    ech_wide_half half[2];
    ech_wide_double *sum = (ech_wide_double *)sums;
    memcpy(half, &x, sizeof half);
    sum[0] += ech_wide_doubles(half[0]);
    sum[1] += ech_wide_doubles(half[1]);
}

typedef uint8_t ech_wide_byte __attribute__((vector_size(ECH_WIDE), aligned(1), may_alias));

ECH_INLINE ech_wide_int ech_wide_of_bytes(const uint8_t *x)
{
#if defined(__AVX512F__)
    return (ech_wide_int)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i_u *)x));
#else
    return __builtin_convertvector(*(const ech_wide_byte *)x, ech_wide_int);
#endif
}

/* The low bytes. */
ECH_INLINE void ech_wide_to_bytes(ech_wide_int x, uint8_t *to)
{
#if defined(__AVX512F__)
    _mm_storeu_si128((__m128i_u *)to, _mm512_cvtepi32_epi8((__m512i)x));
#else
    *(ech_wide_byte *)to = __builtin_convertvector(x, ech_wide_byte);
#endif
}

enum { ECH_WIDE_TABLE = 8 };

/* For each element of `at`, the entry of the table with its three low bits as the index. */
ECH_INLINE ech_wide ech_wide_pick(const float table[ECH_WIDE_TABLE], ech_wide_int at)
{
#if defined(__AVX512F__)
    __m512 twice = _mm512_broadcast_f32x8(_mm256_loadu_ps(table));
    return (ech_wide)_mm512_permutexvar_ps((__m512i)at, twice);
#elif defined(__AVX2__)
    return (ech_wide)_mm256_permutevar8x32_ps(_mm256_loadu_ps(table), (__m256i)at);
#else
    ech_wide picked;
    for (int i = 0; i < ECH_WIDE; i++) picked[i] = table[at[i] & (ECH_WIDE_TABLE - 1)];
    return picked;
#endif
}

/* 2^x for x below 128.5, with a relative error below 2e-7: infinity from 127.5, 0 where 2^x is
 * subnormal (negligible in a softmax), NaN for NaN. x = n + r; 2^r is the minimax polynomial of
 * relative error 2e-9 on [-1/2, 1/2] (Lawson's iteration, coefficients rounded). */
ECH_INLINE ech_wide ech_wide_exp2(ech_wide x)
{
    const float round = 12582912.0F + 127; /* 1.5·2^23: adding it rounds to the nearest integer */
    x = ech_wide_max(ech_wide_all(-127.0F), x);
    ech_wide shifted = x + round, r = x - (shifted - round);
    ech_wide p = ech_wide_all(1.534581242594868e-4F);
    p = p * r + 1.3399930903688073e-3F;
    p = p * r + 9.618489071726799e-3F;
    p = p * r + 5.550328642129898e-2F;
    p = p * r + 2.4022646248340607e-1F;
    p = p * r + 6.931471824645996e-1F;
    p = p * r + 1.0F;
    /* n + 127 is in shifted's low bits, and is shifted to the exponent's bits. */
    return p * (ech_wide)((ech_wide_int)shifted << 23);
}

#endif
