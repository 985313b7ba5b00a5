/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the floating-point types; from one half to the other by way of fp64, which holds them all; between fp32 and
 * halves by loops of their own, since gradients and weights go that way at every step. Halves go by their bits, so that
 * no compiler's or machine's support for them is needed. Those loops have no branches: compilers make vector
 * instructions of them.
 */
#include "tensor/tensor.h"

#include <string.h>

enum { BUFFER = 256 }; /* elements that go from one half to the other at a time */

bool ech_dtype_is_real(ech_dtype dtype)
{
    return dtype == ECH_F32 || dtype == ECH_F64 || dtype == ECH_BF16 || dtype == ECH_F16;
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

static double from_bf16(uint16_t half)
{
    return (double)float_of((uint32_t)half << 16);
}

static double from_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half >> 15) << 31, exponent = half >> 10 & 31, rest = half & 1023;
    if (exponent == 31) return (double)float_of(sign | 255u << 23 | rest << 13);
    if (exponent > 0) return (double)float_of(sign | (exponent + 112) << 23 | rest << 13);
    return (double)float_of(sign | 127u << 23) * (double)rest * 0x1p-24;
}

/* A double as the bits of a type with so many bits of exponent and of significand after the point. */
static uint16_t narrow(double value, int exponent_bits, int significand_bits)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = (uint32_t)(bits >> 63) << 15, infinite = (1u << exponent_bits) - 1;
    uint64_t significand = bits & ((UINT64_C(1) << 52) - 1);
    int exponent = (int)(bits >> 52 & 2047);
    if (exponent == 2047 && significand)
        return (uint16_t)(sign | infinite << significand_bits |
                          1u << (significand_bits - 1)); /* NaN */
    if (exponent > 0) significand |= UINT64_C(1) << 52;
    exponent -= 1023 - (1 << (exponent_bits - 1)) + 1;
    if (exponent >= (int)infinite) return (uint16_t)(sign | infinite << significand_bits);
    int dropped = 52 - significand_bits;
    if (exponent < 1) { /* a subnormal number: its last bit is worth as much as the smallest's */
        dropped += 1 - exponent;
        exponent = 1;
    }
    if (dropped > 54) return (uint16_t)sign;
    uint64_t number = significand >> dropped, rest = significand - (number << dropped);
    uint64_t half = UINT64_C(1) << (dropped - 1);
    number += rest > half || (rest == half && (number & 1));
    /* the leading bit counts as one of the exponent, and so does a carry into it */
    return (uint16_t)(sign | (((uint32_t)(exponent - 1) << significand_bits) + (uint32_t)number));
}

static void widen(const void *from, ech_dtype dtype, double *to, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (dtype == ECH_F64)
            to[i] = ((const double *)from)[i];
        else if (dtype == ECH_F32)
            to[i] = (double)((const float *)from)[i];
        else if (dtype == ECH_BF16)
            to[i] = from_bf16(((const uint16_t *)from)[i]);
        else
            to[i] = from_f16(((const uint16_t *)from)[i]);
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
            ((uint16_t *)to)[i] = narrow(from[i], 8, 7);
        else
            ((uint16_t *)to)[i] = narrow(from[i], 5, 10);
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

/* Significand and exponent move as one number; the exponent's bias differs by 112. */
static void f16_to_f32(const uint16_t *restrict from, float *restrict to, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t sign = (uint32_t)(from[i] & 0x8000) << 16, rest = (uint32_t)(from[i] & 0x7fff);
        uint32_t normal = (rest << 13) + (112u << 23);
        uint32_t subnormal = bits_of((float)(int32_t)rest * 0x1p-24f);
        uint32_t infinite = (rest << 13) | INFINITE | choose(rest > 0x7c00, QUIET, 0);
        uint32_t finite = choose(rest < 0x400, subnormal, normal);
        to[i] = float_of(sign | choose(rest < 0x7c00, finite, infinite));
    }
}

/* A subnormal result is what is left of the value's last bits once 1/2, whose last bit is worth as much as the
 * smallest half, has been added. */
static void f32_to_f16(const float *restrict from, uint16_t *restrict to, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = bits_of(from[i]), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
        uint32_t normal = (rest - (112u << 23) + 0xfff + (rest >> 13 & 1)) >> 13;
        uint32_t subnormal = bits_of(float_of(rest) + 0.5f) - bits_of(0.5f);
        uint32_t beyond = choose(rest > INFINITE, 0x7e00, 0x7c00);
        uint32_t finite = choose(rest < 113u << 23, subnormal, normal);
        to[i] = (uint16_t)(sign | choose(rest < 143u << 23, finite, beyond));
    }
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
    ECH_ASSERT(ech_dtype_is_real(from_dtype) && ech_dtype_is_real(to_dtype));
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
