/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the floating-point types; from one half to the other by way of fp64, which holds them
 * all; between fp32 and halves by loops of their own, since gradients and weights go that way at
 * every step. Halves go by their bits, so that no compiler's or machine's support for them is
 * needed. Those loops have no branches: compilers make vector instructions of them.
 */
#include "tensor/tensor.h"

#include <string.h>

#include "tensor/half.h"

enum { E6 = ECH_E6M9_EXPONENT, M9 = ECH_E6M9_SIGNIFICAND };
enum { BUFFER = 256 }; /* elements that go from one half to the other at a time */

bool ech_dtype_is_real(ech_dtype dtype)
{
    return dtype == ECH_F32 || dtype == ECH_F64 || dtype == ECH_BF16 || dtype == ECH_F16;
}

bool ech_dtype_converts(ech_dtype dtype)
{
    return ech_dtype_is_real(dtype) || dtype == ECH_E6M9;
}

ech_dtype ech_dtype_wide(ech_dtype compute)
{
    return compute == ECH_F64 ? ECH_F64 : ECH_F32;
}

ech_types ech_types_of(ech_dtype compute)
{
    ech_dtype wide = ech_dtype_wide(compute);
    return (ech_types){.compute = compute, .wide = wide, .gradient = wide};
}

ech_dtype ech_type_dtype(ech_type type, ech_dtype fixed, ech_types types)
{
    return type == ECH_TYPE_COMPUTE ? types.compute : type == ECH_TYPE_WIDE ? types.wide : fixed;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void widen(const void *from, ech_dtype dtype, double *to, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (dtype == ECH_F64)
            to[i] = ((const double *)from)[i];
        else if (dtype == ECH_F32)
            to[i] = (double)((const float *)from)[i];
        else if (dtype == ECH_BF16)
            to[i] = ech_half_widen(((const uint16_t *)from)[i], 8, 7);
        else if (dtype == ECH_F16)
            to[i] = ech_half_widen(((const uint16_t *)from)[i], 5, 10);
        else
            to[i] = ech_half_widen(((const uint16_t *)from)[i], E6, M9);
    }
}

static void put(const double *from, void *to, ech_dtype dtype, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (dtype == ECH_F64)
            ((double *)to)[i] = from[i];
        else if (dtype == ECH_F32)
            ((float *)to)[i] = (float)from[i];
        else if (dtype == ECH_BF16)
            ((uint16_t *)to)[i] = ech_half_narrow(from[i], 8, 7);
        else if (dtype == ECH_F16)
            ((uint16_t *)to)[i] = ech_half_narrow(from[i], 5, 10);
        else
            ((uint16_t *)to)[i] = ech_half_narrow(from[i], E6, M9);
    }
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* The direct ways keep a NaN a NaN, and quiet, as fp64 does. */
enum { INFINITE = 0x7f800000, QUIET = 1 << 22 };

static void bf16_to_f32(const uint16_t *restrict from, float *restrict to, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)from[i] << 16;
        bool nan = (bits & 0x7fffffff) > INFINITE;
        to[i] = float_of(bits | (nan ? QUIET : 0));
    }
}

static void f32_to_bf16(const float *restrict from, uint16_t *restrict to, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = bits_of(from[i]);
        uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        bool nan = (bits & 0x7fffffff) > INFINITE;
        to[i] = (uint16_t)(nan ? (bits >> 16 & 0x8000) | 0x7fc0 : rounded);
    }
}

/* By masks: compilers make a branch of a choice between results of floating-point arithmetic. */
static uint32_t choose(bool first, uint32_t a, uint32_t b)
{
    uint32_t mask = 0 - (uint32_t)first;
    return (a & mask) | (b & ~mask);
}

/* Widens a type with e bits of exponent and m bits of significand. Significand and exponent move as
 * one number; the exponent's bias differs, and an exponent with all bits set stands for
 * infinity. */
static inline void to_f32(const uint16_t *restrict from, float *restrict to, int64_t n, int e,
                          int m)
{
    const uint32_t bias = 127u - (1u << (e - 1)) + 1, infinity = ((1u << e) - 1) << m;
    const float unit = float_of((bias + 1 - (uint32_t)m) << 23);
    for (int64_t i = 0; i < n; i++) {
        uint32_t sign = (uint32_t)(from[i] & 0x8000) << 16, rest = (uint32_t)(from[i] & 0x7fff);
        uint32_t normal = (rest << (23 - m)) + (bias << 23);
        uint32_t subnormal = bits_of((float)(int32_t)rest * unit);
        uint32_t infinite = (rest << (23 - m)) | INFINITE | choose(rest > infinity, QUIET, 0);
        uint32_t finite = choose(rest < 1u << m, subnormal, normal);
        to[i] = float_of(sign | choose(rest < infinity, finite, infinite));
    }
}

/* A subnormal result is what is left of the value's last bits once `least`, whose last bit is worth
 * as much as the smallest number's, has been added. */
static inline void from_f32(const float *restrict from, uint16_t *restrict to, int64_t n, int e,
                            int m)
{
    const uint32_t bias = 127u - (1u << (e - 1)) + 1, infinity = ((1u << e) - 1) << m;
    const uint32_t half = (1u << (22 - m)) - 1;
    const float least = float_of((bias + 24 - (uint32_t)m) << 23);
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = bits_of(from[i]), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
        uint32_t normal = (rest - (bias << 23) + half + (rest >> (23 - m) & 1)) >> (23 - m);
        uint32_t subnormal = bits_of(float_of(rest) + least) - bits_of(least);
        uint32_t beyond = choose(rest > INFINITE, infinity | 1u << (m - 1), infinity);
        uint32_t finite = choose(rest < (bias + 1) << 23, subnormal, normal);
        uint32_t last = (bias + (1u << e) - 1) << 23;
        to[i] = (uint16_t)(sign | choose(rest < last, finite, beyond));
    }
}

static void f16_to_f32(const uint16_t *from, float *to, int64_t n)
{
    to_f32(from, to, n, 5, 10);
}

static void f32_to_f16(const float *from, uint16_t *to, int64_t n)
{
    from_f32(from, to, n, 5, 10);
}

static void e6m9_to_f32(const uint16_t *from, float *to, int64_t n)
{
    to_f32(from, to, n, E6, M9);
}

static void f32_to_e6m9(const float *from, uint16_t *to, int64_t n)
{
    from_f32(from, to, n, E6, M9);
}

/* False: both are of 16 bits. */
static bool convert_directly(const void *from, ech_dtype from_dtype, void *to, ech_dtype to_dtype,
                             int64_t n)
{
    if (from_dtype == ECH_BF16 && to_dtype == ECH_F32)
        bf16_to_f32(from, to, n);
    else if (from_dtype == ECH_F16 && to_dtype == ECH_F32)
        f16_to_f32(from, to, n);
    else if (from_dtype == ECH_F32 && to_dtype == ECH_BF16)
        f32_to_bf16(from, to, n);
    else if (from_dtype == ECH_F32 && to_dtype == ECH_F16)
        f32_to_f16(from, to, n);
    else if (from_dtype == ECH_E6M9 && to_dtype == ECH_F32)
        e6m9_to_f32(from, to, n);
    else if (from_dtype == ECH_F32 && to_dtype == ECH_E6M9)
        f32_to_e6m9(from, to, n);
    else if (to_dtype == ECH_F64)
        widen(from, from_dtype, to, n);
    else if (from_dtype == ECH_F64)
        put(from, to, to_dtype, n);
    else
        return false;
    return true;
}

void ech_convert(const void *from, ech_dtype from_dtype, void *to, ech_dtype to_dtype, int64_t n)
{
    ECH_ASSERT(ech_dtype_converts(from_dtype) && ech_dtype_converts(to_dtype));
    size_t in = ech_dtype_bytes(from_dtype), out = ech_dtype_bytes(to_dtype);
    if (from_dtype == to_dtype) {
        memmove(to, from, (size_t)n * in);
        return;
    }
    if (convert_directly(from, from_dtype, to, to_dtype, n)) return;
    double buffer[BUFFER];
    for (int64_t done = 0; done < n; done += BUFFER) {
        int64_t count = n - done < BUFFER ? n - done : BUFFER;
        widen((const char *)from + (size_t)done * in, from_dtype, buffer, count);
        put(buffer, (char *)to + (size_t)done * out, to_dtype, count);
    }
}
