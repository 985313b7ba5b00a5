/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversions against the machine's instructions: each half widened; floats narrowed, those around
 * each boundary and tie, and others at even distances. ECHELON_CONVERSIONS=all narrows every float.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/tensor.h"
#include "unit.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

enum { AT_ONCE = 16 };

__attribute__((target("f16c"))) static void widen_f16(const uint16_t *from, float *to)
{
    for (int i = 0; i < AT_ONCE; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + i))));
}

__attribute__((target("f16c"))) static void narrow_f16(const float *from, uint16_t *to)
{
    for (int i = 0; i < AT_ONCE; i += 8)
        _mm_storeu_si128((__m128i *)(to + i), _mm256_cvtps_ph(_mm256_loadu_ps(from + i), 0));
}

__attribute__((target("avx512f,avx512bf16"))) static void narrow_bf16(const float *from,
                                                                      uint16_t *to)
{
    __m256bh halves = _mm512_cvtneps_pbh(_mm512_loadu_ps(from));
    memcpy(to, &halves, sizeof halves);
}

static bool is_nan_of(uint16_t half, ech_dtype dtype)
{
    return (half & 0x7fff) > (dtype == ECH_F16 ? 0x7c00 : 0x7f80);
}

/* AVX512-BF16 takes subnormal floats for zero. */
static uint16_t expected_of(float x, uint16_t hardware, ech_dtype dtype, uint16_t own)
{
    return dtype == ECH_BF16 && fpclassify(x) == FP_SUBNORMAL ? own : hardware;
}

static void check_narrow(void (*narrow)(const float *, uint16_t *), ech_dtype dtype,
                         const uint32_t *bits)
{
    float x[AT_ONCE];
    uint16_t own[AT_ONCE], hardware[AT_ONCE];
    memcpy(x, bits, sizeof x);
    ech_convert(x, ECH_F32, own, dtype, AT_ONCE);
    narrow(x, hardware);
    for (int i = 0; i < AT_ONCE; i++) {
        uint16_t want = expected_of(x[i], hardware[i], dtype, own[i]);
        bool same =
            isnan(x[i]) ? is_nan_of(own[i], dtype) && is_nan_of(want, dtype) : own[i] == want;
        if (!same)
            fail_msg("%s of %a is %04x, expected %04x", ech_dtype_name(dtype), (double)x[i], own[i],
                     want);
    }
}

/* Each value of the upper 16 bits, with lower bits that are zero but for one, and one less and more
 * than those. */
static void check_edges(void (*narrow)(const float *, uint16_t *), ech_dtype dtype)
{
    for (uint32_t upper = 0; upper < 1 << 16; upper++) {
        uint32_t bits[3][AT_ONCE];
        for (uint32_t i = 0; i < AT_ONCE; i++)
            for (uint32_t k = 0; k < 3; k++) bits[k][i] = (upper << 16 | 1U << i) + k - 1;
        for (int k = 0; k < 3; k++) check_narrow(narrow, dtype, bits[k]);
    }
}

/* Every float, or one in 4099. */
static void check_all(void (*narrow)(const float *, uint16_t *), ech_dtype dtype)
{
    const char *form = getenv("ECHELON_CONVERSIONS");
    uint64_t step = form && strcmp(form, "all") == 0 ? 1 : 4099;
    for (uint64_t first = 0; first < UINT64_C(1) << 32; first += step * AT_ONCE) {
        uint32_t bits[AT_ONCE];
        for (uint64_t i = 0; i < AT_ONCE; i++) bits[i] = (uint32_t)(first + i * step);
        check_narrow(narrow, dtype, bits);
    }
}

TEST(fp16_is_that_of_f16c)
{
    unsigned a = 0, b = 0, c = 0, d = 0; /* by CPUID, as clang 14 has no name for it */
    if (!__builtin_cpu_supports("avx") || !__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_F16C))
        skip();
    for (uint32_t first = 0; first < 1 << 16; first += AT_ONCE) {
        uint16_t halves[AT_ONCE];
        float own[AT_ONCE], hardware[AT_ONCE];
        for (uint32_t i = 0; i < AT_ONCE; i++) halves[i] = (uint16_t)(first + i);
        ech_convert(halves, ECH_F16, own, ECH_F32, AT_ONCE);
        widen_f16(halves, hardware);
        for (int i = 0; i < AT_ONCE; i++)
            assert_true(isnan(own[i]) ? isnan(hardware[i])
                                      : memcmp(&own[i], &hardware[i], sizeof *own) == 0);
    }
    check_edges(narrow_f16, ECH_F16);
    check_all(narrow_f16, ECH_F16);
}

TEST(bf16_is_that_of_avx512)
{
    unsigned a = 0, b = 0, c = 0, d = 0;
    (void)state;
    if (!__builtin_cpu_supports("avx512f")) skip();
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !(a & 1 << 5)) skip();
    check_edges(narrow_bf16, ECH_BF16);
    check_all(narrow_bf16, ECH_BF16);
}
#else
static void fp16_is_that_of_f16c(void **state)
{
    (void)state;
    skip();
}

static void bf16_is_that_of_avx512(void **state)
{
    (void)state;
    skip();
}
#endif

/* A bf16 number is a float's upper half. */
TEST(bf16_is_the_upper_half)
{
    for (uint32_t upper = 0; upper < 1 << 16; upper++) {
        uint32_t bits = upper << 16, got;
        uint16_t half = (uint16_t)upper;
        float x;
        ech_convert(&half, ECH_BF16, &x, ECH_F32, 1);
        memcpy(&got, &x, sizeof got);
        assert_true((bits << 1) > 0xff000000 ? isnan(x) : got == bits);
    }
}
