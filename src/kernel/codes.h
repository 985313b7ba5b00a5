/* SPDX-License-Identifier: Apache-2.0
 *
 * Codes of kept values (Gist, Jain et al. 2018): sizes, and the narrow codes of numbers.
 *
 * A narrow code of 16, 10 or 8 bits has a sign, an exponent of 5, 5 or 4 bits and a mantissa of 10,
 * 4 or 3 bits, with subnormal numbers as in IEEE 754. Numbers are rounded to nearest, ties to even.
 * Numbers beyond the largest, and infinities, become the largest. The last exponent is NaN's.
 */
#ifndef ECH_KERNEL_CODES_H
#define ECH_KERNEL_CODES_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

/* Columns of a run of a sparse code: their numbers fit into one byte. */
enum { ECH_CODE_RUN = 256 };
/* Codes of 10 bits in a word of 32. A row of W words has column c in word c % W, from bit
 * 10 * (c / W) on. */
enum { ECH_CODE_TEN = 10, ECH_CODE_THIRDS = 3 };
/* Number of places that a code of 4 bits can name. */
enum { ECH_CODE_PLACES = 16 };
/* What encode_sparse counts: tensors without room, non-zeros, elements. */
enum { ECH_SPARSE_SPILLED, ECH_SPARSE_NONZEROS, ECH_SPARSE_ELEMENTS, ECH_SPARSE_COUNTS };

static inline int64_t ech_code_runs(int64_t n)
{
    return (n + ECH_CODE_RUN - 1) / ECH_CODE_RUN;
}

/* Bytes of n numbers in a row. bits: 1, 4 (places), or of a narrow code. */
static inline int64_t ech_code_bytes(int bits, int64_t n)
{
    if (bits < 8) return (n * bits + 7) / 8;
    return bits == ECH_CODE_TEN ? (n + ECH_CODE_THIRDS - 1) / ECH_CODE_THIRDS * 4 : n * (bits / 8);
}

/* The share of non-zeros from which a sparse code of a ReLU's output, with the bits of the ReLU's
 * input, saves no memory. bytes: of a number. */
static inline double ech_code_densest(size_t bytes)
{
    return ((double)bytes - 1.0 / 8 - 4.0 / ECH_CODE_RUN) / ((double)bytes + 1);
}

static inline int ech_code_mantissa(int bits)
{
    return bits == 16 ? 10 : bits == 10 ? 4 : 3;
}

static inline int ech_code_exponent(int bits)
{
    return bits - 1 - ech_code_mantissa(bits);
}

static inline int ech_code_bias(int bits)
{
    return (1 << (ech_code_exponent(bits) - 1)) - 1;
}

/* The code of a number, and the number of a code. */
static inline uint32_t ech_code_of(double value, int bits)
{
    int mantissa = ech_code_mantissa(bits), bias = ech_code_bias(bits);
    uint32_t sign = signbit(value) ? 1u << (bits - 1) : 0;
    uint32_t last = ((1u << ech_code_exponent(bits)) - 1) << mantissa;
    double size = fabs(value), largest = ldexp(2 - ldexp(1, -mantissa), bias);
    if (isnan(value)) return sign | last | 1u << (mantissa - 1);
    if (size >= largest) return sign | (last - 1);
    int exponent = size > 0 ? ilogb(size) : 1 - bias;
    if (exponent < 1 - bias) exponent = 1 - bias;
    uint32_t units = (uint32_t)nearbyint(ldexp(size, mantissa - exponent));
    return sign | (units + ((uint32_t)(exponent + bias - 1) << mantissa));
}

static inline double ech_code_number(uint32_t code, int bits)
{
    int mantissa = ech_code_mantissa(bits), bias = ech_code_bias(bits);
    uint32_t units = code & ((1u << mantissa) - 1), sign = code >> (bits - 1) & 1;
    int exponent = (int)(code >> mantissa & ((1u << ech_code_exponent(bits)) - 1));
    double size = exponent ? ldexp(units + (1u << mantissa), exponent - bias - mantissa)
                           : ldexp(units, 1 - bias - mantissa);
    if (exponent == (1 << ech_code_exponent(bits)) - 1) size = (double)NAN;
    return sign ? -size : size;
}

#endif
