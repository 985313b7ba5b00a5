/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads and stores of numbers of the kernel table's real type (ech_real), and of tensors that
 * kernel.def calls `either`: real or fp32, by their dtype. Numbers are widened to fp32 when loaded
 * and rounded once, to nearest even, when stored, like ech_convert. In the fp32 table ech_real is
 * fp32, and no dtype is looked at.
 */
#ifndef ECH_KERNEL_CPU_REAL_H
#define ECH_KERNEL_CPU_REAL_H

#include "kernel/cpu/rows.h"
#include "kernel/cpu/wide.h"
#include "tensor/tensor.h"

#if defined(ECH_REAL_BF16)

ECH_INLINE float ech_value(ech_real x)
{
    return ech_float_of_bits((uint32_t)x << 16);
}

ECH_INLINE ech_real ech_stored(float x)
{
    uint32_t bits = ech_bits_of_float(x), sign = bits & 0x80000000u;
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    return (ech_real)((bits & 0x7fffffffu) > 0x7f800000u ? sign >> 16 | 0x7fc0u : rounded);
}

typedef uint16_t ech_wide_bits16 __attribute__((vector_size(2 * ECH_WIDE), aligned(2), may_alias));
typedef uint32_t ech_wide_bits __attribute__((vector_size(4 * ECH_WIDE), aligned(4), may_alias));

/* Intrinsics, since gcc would convert the elements in two halves of the vector. */
ECH_INLINE ech_wide_bits ech_wide_lengthened(const ech_real *x)
{
#if defined(__AVX512F__)
    return (ech_wide_bits)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i_u *)x));
#elif defined(__AVX2__)
    return (ech_wide_bits)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i_u *)x));
#else
    return __builtin_convertvector(*(const ech_wide_bits16 *)x, ech_wide_bits);
#endif
}

ECH_INLINE void ech_wide_shortened(ech_real *x, ech_wide_bits bits)
{
#if defined(__AVX512F__)
    _mm256_storeu_si256((__m256i_u *)x, _mm512_cvtepi32_epi16((__m512i)bits));
#elif defined(__AVX2__)
    enum {
        EVEN = 0x08
    }; /* the 64-bit halves that each 128 bits of the packed numbers begin with */
    __m256i packed = _mm256_packus_epi32((__m256i)bits, (__m256i)bits);
    _mm_storeu_si128((__m128i_u *)x,
                     _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, EVEN)));
#else
    *(ech_wide_bits16 *)x = __builtin_convertvector(bits, ech_wide_bits16);
#endif
}

ECH_INLINE ech_wide ech_wide_value(const ech_real *x)
{
    return (ech_wide)(ech_wide_lengthened(x) << 16);
}

ECH_INLINE void ech_wide_stored(ech_real *x, ech_wide value)
{
    ech_wide_bits bits = (ech_wide_bits)value, sign = bits & 0x80000000u;
    ech_wide_int is_nan = (ech_wide_int)(value != value);
    ech_wide_bits rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    ech_wide_bits nan = sign >> 16 | 0x7fc0u;
    ech_wide_shortened(x, (nan & (ech_wide_bits)is_nan) | (rounded & ~(ech_wide_bits)is_nan));
}

#elif defined(ECH_REAL_F16)

ECH_INLINE float ech_value(ech_real x)
{
#if defined(__F16C__)
    return _cvtsh_ss(x);
#else
    float value;
    ech_convert(&x, ECH_F16, &value, ECH_F32, 1);
    return value;
#endif
}

ECH_INLINE ech_real ech_stored(float x)
{
#if defined(__F16C__)
    return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT);
#else
    ech_real stored;
    ech_convert(&x, ECH_F32, &stored, ECH_F16, 1);
    return stored;
#endif
}

ECH_INLINE ech_wide ech_wide_value(const ech_real *x)
{
#if defined(__AVX512F__)
    return (ech_wide)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i_u *)x));
#elif defined(__AVX2__)
    return (ech_wide)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i_u *)x));
#else
    ech_wide value;
    for (int i = 0; i < ECH_WIDE; i++) value[i] = ech_value(x[i]);
    return value;
#endif
}

ECH_INLINE void ech_wide_stored(ech_real *x, ech_wide value)
{
#if defined(__AVX512F__)
    _mm256_storeu_si256((__m256i_u *)x, _mm512_cvtps_ph((__m512)value, _MM_FROUND_TO_NEAREST_INT));
#elif defined(__AVX2__)
    _mm_storeu_si128((__m128i_u *)x, _mm256_cvtps_ph((__m256)value, _MM_FROUND_TO_NEAREST_INT));
#else
    for (int i = 0; i < ECH_WIDE; i++) x[i] = ech_stored(value[i]);
#endif
}

#else

ECH_INLINE float ech_value(ech_real x)
{
    return x;
}

ECH_INLINE ech_real ech_stored(float x)
{
    return x;
}

ECH_INLINE ech_wide ech_wide_value(const ech_real *x)
{
    return ech_wide_load(x);
}

ECH_INLINE void ech_wide_stored(ech_real *x, ech_wide value)
{
    ech_wide_store(x, value);
}

#endif

/* True if a tensor that may be `either` is fp32. */
ECH_INLINE bool ech_is_wide(const ech_tensor *x)
{
    return ECH_REAL == ECH_F32 || x->dtype == ECH_F32;
}

/* Load and store element i of a tensor's memory x, which is fp32 if `wide`, else real. */
ECH_INLINE float ech_either_value(bool wide, const void *x, int64_t i)
{
    return wide ? ((const float *)x)[i] : ech_value(((const ech_real *)x)[i]);
}

ECH_INLINE void ech_either_stored(bool wide, void *x, int64_t i, float value)
{
    if (wide)
        ((float *)x)[i] = value;
    else
        ((ech_real *)x)[i] = ech_stored(value);
}

/* The same for ECH_WIDE elements from element i. */
ECH_INLINE ech_wide ech_either_load(bool wide, const void *x, int64_t i)
{
    return wide ? ech_wide_load((const float *)x + i) : ech_wide_value((const ech_real *)x + i);
}

ECH_INLINE void ech_either_store(bool wide, void *x, int64_t i, ech_wide value)
{
    if (wide)
        ech_wide_store((float *)x + i, value);
    else
        ech_wide_stored((ech_real *)x + i, value);
}

/* The same for the first n of ECH_WIDE elements, or all if there are more; the others are 0. */
ECH_INLINE ech_wide ech_either_load_some(bool wide, const void *x, int64_t i, int64_t n)
{
    if (n >= ECH_WIDE) return ech_either_load(wide, x, i);
    ech_wide some = {0};
    for (int64_t l = 0; l < n; l++) some[l] = ech_either_value(wide, x, i + l);
    return some;
}

ECH_INLINE void ech_either_store_some(bool wide, void *x, int64_t i, int64_t n, ech_wide value)
{
    if (n >= ECH_WIDE)
        ech_either_store(wide, x, i, value);
    else
        for (int64_t l = 0; l < n; l++) ech_either_stored(wide, x, i + l, value[l]);
}

/* The address of element i of x. */
ECH_INLINE void *ech_either_at(const ech_tensor *x, int64_t i)
{
    return (char *)x->data + (size_t)i * (ech_is_wide(x) ? sizeof(float) : sizeof(ech_real));
}

#endif
