/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversion of single 16-bit floats with the given numbers of exponent and significand bits, as in
 * IEEE 754. Also for kernels on GPUs; ech_convert is for arrays.
 */
#ifndef ECH_TENSOR_HALF_H
#define ECH_TENSOR_HALF_H

#include <stdint.h>
#include <string.h>

#include "base/inline.h"

enum { ECH_E6M9_EXPONENT = 6, ECH_E6M9_SIGNIFICAND = 9 };

/* Exact. */
ECH_EVERYWHERE double ech_half_widen(uint16_t half, int exponent_bits, int significand_bits)
{
    uint64_t sign = (uint64_t)(half >> 15) << 63, rest = half & ((1u << significand_bits) - 1);
    int infinite = (1 << exponent_bits) - 1, exponent = half >> significand_bits & infinite;
    int bias = infinite >> 1, up = 52 - significand_bits;
    uint64_t bits = sign | (uint64_t)(exponent - bias + 1023) << 52 | rest << up;
    double value, unit;
    if (exponent == infinite) bits = sign | UINT64_C(2047) << 52 | rest << up;
    if (exponent == 0) bits = sign | UINT64_C(1023) << 52; /* 1: times the subnormal number */
    memcpy(&value, &bits, sizeof value);
    if (exponent > 0) return value;
    bits = (uint64_t)(1 - bias - significand_bits + 1023) << 52;
    memcpy(&unit, &bits, sizeof unit);
    return value * (double)rest * unit;
}

/* Rounds to nearest, ties to even; overflows to infinity; a NaN becomes a quiet one. */
ECH_EVERYWHERE uint16_t ech_half_narrow(double value, int exponent_bits, int significand_bits)
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
    if (exponent < 1) { /* a subnormal number: its last bit has the weight of the smallest one */
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

#endif
