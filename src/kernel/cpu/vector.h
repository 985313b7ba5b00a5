/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers of the fast fp32 loops: vectorizable exponentials, and which loops are worth threads.
 */
#ifndef ECH_KERNEL_CPU_VECTOR_H
#define ECH_KERNEL_CPU_VECTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Functions that are inlined at every optimization level. */
#define ECH_INLINE static inline __attribute__((always_inline))

/* Functions that must not be inlined: their loops need all registers. */
#define ECH_OUTLINE static __attribute__((noinline, unused))

/* The largest number of elements in a loop that is not worth an OpenMP region. */
enum { ECH_CHUNK = 16384 };

ECH_INLINE float ech_float_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

ECH_INLINE uint32_t ech_bits_of_float(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* x, or 0 unless `keep`. Bits are masked, so that loops need no masked loads to be vectorized. */
ECH_INLINE float ech_kept(bool keep, float x)
{
    return ech_float_of_bits(ech_bits_of_float(x) & (keep ? ~0u : 0u));
}

/* x = n ln 2 + r: e^r by the polynomial of Cephes' expf (Moshier 1992), and n in the low bits of
 * *shifted, which is 1.5·2^23 + n. */
ECH_INLINE float ech_exp_of_rest(float x, float *shifted)
{
    const float round = 12582912.0F; /* 1.5·2^23: adding it rounds to the nearest integer */
    *shifted = x * 1.44269504F + round;
    float n = *shifted - round;
    float r = x - n * 0.693359375F + n * 2.12194440e-4F;
    float p = 1.9875691500e-4F;
    p = p * r + 1.3981999507e-3F;
    p = p * r + 8.3334519073e-3F;
    p = p * r + 4.1665795894e-2F;
    p = p * r + 1.6666665459e-1F;
    p = p * r + 5.0000001201e-1F;
    return p * (r * r) + r + 1.0F;
}

/* e^x, within 1.1 ulp, for every x: 0 and infinity where fp32 under- or overflows (results may be
 * subnormal), NaN for NaN. */
ECH_INLINE float ech_exp(float x)
{
    float shifted;
    x = x > 89.0F ? 89.0F : x;
    x = x < -104.0F ? -104.0F : x;
    float p = ech_exp_of_rest(x, &shifted);
    /* 2^n in two factors, as n reaches from -150 to 128. */
    int32_t i = (int32_t)(ech_bits_of_float(shifted) - ech_bits_of_float(12582912.0F));
    int32_t half = i >> 1;
    return p * ech_float_of_bits((uint32_t)(half + 127) << 23) *
           ech_float_of_bits((uint32_t)(i - half + 127) << 23);
}

/* The same for |x| < 87.3, where n can be added to the exponent. Undefined for NaN. */
ECH_INLINE float ech_exp_bounded(float x)
{
    float shifted, p = ech_exp_of_rest(x, &shifted);
    return ech_float_of_bits(ech_bits_of_float(p) + (ech_bits_of_float(shifted) << 23));
}

/* 1 / (1 + e^-x), within 2.4 ulp, for every x; NaN for NaN. e^-|x| cannot overflow, so small
 * results are subnormal, not 0. */
ECH_INLINE float ech_sigmoid(float x)
{
    float e = ech_exp(x < 0.0F ? x : -x);
    return (x < 0.0F ? e : 1.0F) / (1.0F + e);
}

/* tanh, within 2 ulp, for every x; NaN for NaN: near 0 x + x^3 q(x^2), elsewhere an exponential. q
 * has the least relative error (3e-9) that 5 coefficients give for |x| < 0.6. */
ECH_INLINE float ech_tanh(float x)
{
    float a = x < 0.0F ? -x : x, s = x * x;
    float q = -5.89515608e-3F;
    q = q * s + 2.07959699e-2F;
    q = q * s - 5.37838297e-2F;
    q = q * s + 1.33319241e-1F;
    q = q * s - 3.33332980e-1F;
    float e = ech_exp(-2.0F * a), large = (1.0F - e) / (1.0F + e);
    return a < 0.6F ? x + x * (s * q) : x < 0.0F ? -large : large;
}

#endif
