/* SPDX-License-Identifier: Apache-2.0
 *
 * Halves against the compiler's own arithmetic where there is one, and against what IEEE 754 says
 * at the edges: every half there and back, every rounding between two halves.
 */
#include <math.h>
#include <string.h>

#include "tensor/tensor.h"
#include "unit.h"

enum { ALL = 1 << 16 };

static double value_of(uint16_t half, ech_dtype dtype)
{
    double value;
    ech_convert(&half, dtype, &value, ECH_F64, 1);
    return value;
}

static uint16_t half_of(double value, ech_dtype dtype)
{
    uint16_t half;
    ech_convert(&value, ECH_F64, &half, dtype, 1);
    return half;
}

/* sign, significand and exponent by arithmetic, not by bits */
static double defined(uint16_t half, int exponent_bits, int kept)
{
    int exponent = half >> kept & ((1 << exponent_bits) - 1), bias = (1 << (exponent_bits - 1)) - 1;
    double rest = (double)(half & ((1 << kept) - 1)), sign = half >> 15 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1) return rest > 0 ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * ldexp(rest, 1 - bias - kept);
    return sign * ldexp(ldexp(1, kept) + rest, exponent - bias - kept);
}

TEST(every_half)
{
    for (int i = 0; i < ALL; i++) {
        uint16_t half = (uint16_t)i;
        double brain = value_of(half, ECH_BF16), ieee = value_of(half, ECH_F16);
        double e6m9 = value_of(half, ECH_E6M9);
        if (isnan(defined(half, 6, 9)))
            assert_true(isnan(e6m9) && isnan(value_of(half_of(e6m9, ECH_E6M9), ECH_E6M9)));
        else
            assert_true(e6m9 == defined(half, 6, 9) && half_of(e6m9, ECH_E6M9) == half);
        if (isnan(defined(half, 8, 7)))
            assert_true(isnan(brain) && isnan(value_of(half_of(brain, ECH_BF16), ECH_BF16)));
        else
            assert_true(brain == defined(half, 8, 7) && half_of(brain, ECH_BF16) == half);
        if (isnan(defined(half, 5, 10)))
            assert_true(isnan(ieee) && isnan(value_of(half_of(ieee, ECH_F16), ECH_F16)));
        else
            assert_true(ieee == defined(half, 5, 10) && half_of(ieee, ECH_F16) == half);
    }
}

/* Between neighbours a and b the middle goes to the even one, and what is beside it to the
 * nearer. */
static void check_between(uint16_t half, ech_dtype dtype)
{
    double a = value_of(half, dtype), b = value_of((uint16_t)(half + 1), dtype);
    if (isinf(b)) b = 2 * a - value_of((uint16_t)(half - 1), dtype); /* as if it went on */
    double middle = a + (b - a) / 2;
    uint16_t even = half & 1 ? (uint16_t)(half + 1) : half;
    assert_int_equal(half_of(middle, dtype), even);
    assert_int_equal(half_of(nextafter(middle, 0), dtype), half);
    assert_int_equal(half_of(nextafter(middle, INFINITY), dtype), half + 1);
    assert_int_equal(half_of(-middle, dtype), even | 1 << 15);
}

TEST(every_rounding)
{
    for (uint16_t half = 0; half < 0x7f80; half++) check_between(half, ECH_BF16);
    for (uint16_t half = 0; half < 0x7c00; half++) check_between(half, ECH_F16);
    for (uint16_t half = 0; half < 0x7e00; half++) check_between(half, ECH_E6M9);
}

TEST(edges)
{
    assert_int_equal(half_of(1e300, ECH_BF16), 0x7f80);
    assert_int_equal(half_of(-1e300, ECH_F16), 0xfc00);
    assert_int_equal(half_of(INFINITY, ECH_F16), 0x7c00);
    assert_int_equal(half_of(5e-324, ECH_F16), 0);
    assert_int_equal(half_of(-5e-324, ECH_BF16), 0x8000);
    assert_int_equal(half_of(-0.0, ECH_BF16), 0x8000);
    assert_int_equal(half_of(0x1p32, ECH_E6M9), 0x7e00);
    assert_true(value_of(0x7dff, ECH_E6M9) == 0x1.ff8p31 && value_of(1, ECH_E6M9) == 0x1p-39);
    assert_int_equal(half_of(0x1p-25, ECH_F16), 0);
    assert_int_equal(half_of(nextafter(0x1p-25, 1), ECH_F16), 1);
}

TEST(long_arrays)
{
    enum { N = 1000 };
    float floats[N], back[N];
    uint16_t halves[N];
    double doubles[N];
    for (int i = 0; i < N; i++) floats[i] = (float)(i - 300);
    ech_convert(floats, ECH_F32, halves, ECH_F16, N);
    ech_convert(halves, ECH_F16, doubles, ECH_F64, N);
    ech_convert(doubles, ECH_F64, back, ECH_F32, N);
    for (int i = 0; i < N; i++) assert_true(back[i] == floats[i]);
    assert_true(ech_dtype_is_real(ECH_BF16) && !ech_dtype_is_real(ECH_I32));
    assert_true(ech_dtype_converts(ECH_E6M9) && !ech_dtype_is_real(ECH_E6M9));
    assert_false(ech_dtype_converts(ECH_U16));
    assert_true(ech_dtype_wide(ECH_F64) == ECH_F64 && ech_dtype_wide(ECH_F16) == ECH_F32);
    ech_types types = {.compute = ECH_BF16, .wide = ECH_F32, .gradient = ECH_F32};
    assert_true(ech_type_dtype(ECH_TYPE_COMPUTE, ECH_I32, types) == ECH_BF16);
    assert_true(ech_type_dtype(ECH_TYPE_WIDE, ECH_I32, types) == ECH_F32);
    assert_true(ech_type_dtype(ECH_TYPE_FIXED, ECH_I32, types) == ECH_I32);
}

/* From fp32 directly and by way of fp64: the same bits, NaN included. */
static void check_direct(uint32_t bits)
{
    static const ech_dtype halves[] = {ECH_BF16, ECH_F16, ECH_E6M9};
    float value;
    memcpy(&value, &bits, sizeof value);
    for (int i = 0; i < 3; i++) {
        uint16_t half;
        ech_convert(&value, ECH_F32, &half, halves[i], 1);
        assert_int_equal(half, half_of((double)value, halves[i]));
    }
}

/* Every sign, exponent and rounding: each pattern of the upper half, with the lower bits at and
 * beside where roundings of either type turn. */
TEST(directly_as_by_fp64)
{
    static const uint32_t lower[] = {0, 1, 0xfff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001, 0xffff};
    for (uint32_t upper = 0; upper < ALL; upper++)
        for (size_t i = 0; i < sizeof lower / sizeof *lower; i++)
            check_direct(upper << 16 | lower[i]);
    for (int i = 0; i < ALL; i++)
        for (int k = 0; k < 3; k++) {
            uint16_t half = (uint16_t)i;
            ech_dtype dtype = k == 0 ? ECH_BF16 : k == 1 ? ECH_F16 : ECH_E6M9;
            float direct, other = (float)value_of(half, dtype);
            ech_convert(&half, dtype, &direct, ECH_F32, 1);
            assert_memory_equal(&direct, &other, sizeof direct);
        }
}
