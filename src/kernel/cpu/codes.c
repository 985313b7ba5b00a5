/* SPDX-License-Identifier: Apache-2.0
 *
 * Codes of kept values (kernel/codes.h), in parts of rows.
 */
#include "kernel/codes.h"

#include "kernel/cpu/part.h"
#include "kernel/shape.h"

/* ---- bits ---- */

/* Bit i: x[i] > 0, for ECH_WIDE numbers. */
ECH_INLINE uint32_t signs_of(const float *x)
{
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask(_mm512_loadu_ps(x), _mm512_setzero_ps(), _CMP_GT_OQ);
#elif defined(__AVX2__)
    return (uint32_t)_mm256_movemask_ps(
        _mm256_cmp_ps(_mm256_loadu_ps(x), _mm256_setzero_ps(), _CMP_GT_OQ));
#elif defined(__SSE2__)
    return (uint32_t)_mm_movemask_ps(_mm_cmpgt_ps(_mm_loadu_ps(x), _mm_setzero_ps()));
#else
    uint32_t bits = 0;
    for (int i = 0; i < ECH_WIDE; i++) bits |= (uint32_t)(x[i] > 0.0F) << i;
    return bits;
#endif
}

/* n: a multiple of 8, but at the end of a row. */
static void encode_signs(const float *x, int64_t n, uint8_t *code)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        uint32_t bits = 0;
        for (int j = 0; j < 16; j += ECH_WIDE) bits |= signs_of(x + i + j) << j;
        code[i / 8] = (uint8_t)bits;
        code[i / 8 + 1] = (uint8_t)(bits >> 8);
    }
    for (; i < n; i++) {
        if (i % 8 == 0) code[i / 8] = 0;
        code[i / 8] = (uint8_t)(code[i / 8] | (unsigned)(x[i] > 0.0F) << i % 8);
    }
}

static void decode_signs(const uint8_t *code, int64_t n, float *x)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++) x[i + j] = (float)(code[i / 8] >> j & 1);
    for (; i < n; i++) x[i] = (float)(code[i / 8] >> i % 8 & 1);
}

void ECH_CPU(encode_bits)(ech_kernel_context *context, const ech_tensor *x, const ech_tensor *code)
{
    ECH_SHAPES(encode_bits, ECH_REAL, x, code);
    int64_t R = x->shape[0], C = x->shape[1], W = code->shape[1];
    ECH_ASSERT(W == ech_code_bytes(1, C));
#pragma omp parallel for collapse(2) num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t r = 0; r < R; r++)
        for (int64_t first = 0; first < C; first += ECH_PART) {
            ECH_ALIGNED float part[ECH_PART];
            int64_t n = ech_part(C, first, ECH_PART);
            encode_signs(ech_part_of(x, r * C + first, n, part), n,
                         (uint8_t *)code->data + r * W + first / 8);
        }
}

void ECH_CPU(decode_bits)(ech_kernel_context *context, const ech_tensor *code, const ech_tensor *x)
{
    ECH_SHAPES(decode_bits, ECH_REAL, code, x);
    int64_t R = x->shape[0], C = x->shape[1], W = code->shape[1];
    ECH_ASSERT(W == ech_code_bytes(1, C));
#pragma omp parallel for collapse(2) num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t r = 0; r < R; r++)
        for (int64_t first = 0; first < C; first += ECH_PART) {
            ECH_ALIGNED float part[ECH_PART];
            int64_t n = ech_part(C, first, ECH_PART);
            float *to = ech_part_to(x, r * C + first, part);
            decode_signs((const uint8_t *)code->data + r * W + first / 8, n, to);
            ech_part_done(x, r * C + first, n, to);
        }
}

/* ---- non-zeros: elements are words of 32 or 16 bits ---- */

#define ECH_SPARSE(word, type)                                                                     \
    static int32_t count_##word(const type *x, int64_t n)                                          \
    {                                                                                              \
        int32_t count = 0;                                                                         \
        for (int64_t i = 0; i < n; i++) count += x[i] != 0;                                        \
        return count;                                                                              \
    }                                                                                              \
                                                                                                   \
    static void encode_##word(const type *x, int64_t n, type *values, uint8_t *columns)            \
    {                                                                                              \
        type found[ECH_CODE_RUN + 1];                                                              \
        uint8_t column[ECH_CODE_RUN + 1];                                                          \
        int64_t count = 0;                                                                         \
        for (int64_t i = 0; i < n; i++) {                                                          \
            found[count] = x[i];                                                                   \
            column[count] = (uint8_t)i;                                                            \
            count += x[i] != 0;                                                                    \
        }                                                                                          \
        memcpy(values, found, (size_t)count * sizeof(type));                                       \
        memcpy(columns, column, (size_t)count);                                                    \
    }                                                                                              \
                                                                                                   \
    static void decode_##word(const type *values, const uint8_t *columns, int64_t count, type *x,  \
                              int64_t n)                                                           \
    {                                                                                              \
        memset(x, 0, (size_t)n * sizeof(type));                                                    \
        for (int64_t i = 0; i < count; i++) x[columns[i]] = values[i];                             \
    }

ECH_SPARSE(u32, uint32_t)
ECH_SPARSE(u16, uint16_t)

/* Elements before a run, and in it. */
static int64_t begin_of(const ech_tensor *ends, int64_t run)
{
    return run ? ((const int32_t *)ends->data)[run - 1] : 0;
}

static int64_t count_of(const ech_tensor *ends, int64_t run)
{
    return ((const int32_t *)ends->data)[run] - begin_of(ends, run);
}

/* Sets ends; returns the number of elements. */
static int64_t count_all(const ech_kernel_context *context, const ech_tensor *x,
                         const ech_tensor *ends)
{
    int64_t R = x->shape[0], C = x->shape[1], S = ends->shape[1], sum = 0;
    int32_t *end = ends->data;
#pragma omp parallel for num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t run = 0; run < R * S; run++) {
        int64_t first = run % S * ECH_CODE_RUN, n = ech_part(C, first, ECH_CODE_RUN);
        const void *from = ech_either_at(x, run / S * C + first);
        end[run] = ech_is_wide(x) ? count_u32(from, n) : count_u16(from, n);
    }
    for (int64_t run = 0; run < R * S; run++) end[run] = (int32_t)(sum += end[run]);
    return sum;
}

void ECH_CPU(encode_sparse)(ech_kernel_context *context, const ech_tensor *x,
                            const ech_tensor *values, const ech_tensor *columns,
                            const ech_tensor *ends, const ech_tensor *spill,
                            const ech_tensor *counted)
{
    ECH_SHAPES(encode_sparse, ECH_REAL, x, values, columns, ends, spill, counted);
    int64_t R = x->shape[0], C = x->shape[1], S = ends->shape[1];
    ECH_ASSERT(S == ech_code_runs(C) && R * C <= INT32_MAX && values->dtype == x->dtype);
    int64_t sum = count_all(context, x, ends);
    bool spilled = sum > ech_tensor_count(values);
#pragma omp parallel for num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t run = 0; run < R * S; run++) {
        int64_t first = run / S * C + run % S * ECH_CODE_RUN;
        int64_t n = ech_part(C, run % S * ECH_CODE_RUN, ECH_CODE_RUN), to = begin_of(ends, run);
        uint8_t *column = (uint8_t *)columns->data + to;
        if (spilled)
            ech_part_copy(x, first, n, spill, first);
        else if (ech_is_wide(x))
            encode_u32(ech_either_at(x, first), n, ech_either_at(values, to), column);
        else
            encode_u16(ech_either_at(x, first), n, ech_either_at(values, to), column);
    }
    if (!counted) return;
    ((double *)counted->data)[ECH_SPARSE_SPILLED] += spilled;
    ((double *)counted->data)[ECH_SPARSE_NONZEROS] += (double)sum;
    ((double *)counted->data)[ECH_SPARSE_ELEMENTS] += (double)(R * C);
}

void ECH_CPU(decode_sparse)(ech_kernel_context *context, const ech_tensor *values,
                            const ech_tensor *columns, const ech_tensor *ends,
                            const ech_tensor *spill, const ech_tensor *x)
{
    ECH_SHAPES(decode_sparse, ECH_REAL, values, columns, ends, spill, x);
    int64_t R = x->shape[0], C = x->shape[1], S = ends->shape[1];
    ECH_ASSERT(S == ech_code_runs(C) && values->dtype == x->dtype);
    bool spilled = R * C > 0 && begin_of(ends, R * S) > ech_tensor_count(values);
#pragma omp parallel for num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t run = 0; run < R * S; run++) {
        int64_t first = run / S * C + run % S * ECH_CODE_RUN;
        int64_t n = ech_part(C, run % S * ECH_CODE_RUN, ECH_CODE_RUN), from = begin_of(ends, run);
        const uint8_t *column = (const uint8_t *)columns->data + from;
        if (spilled)
            ech_part_copy(spill, first, n, x, first);
        else if (ech_is_wide(x))
            decode_u32(ech_either_at(values, from), column, count_of(ends, run),
                       ech_either_at(x, first), n);
        else
            decode_u16(ech_either_at(values, from), column, count_of(ends, run),
                       ech_either_at(x, first), n);
    }
}

/* ---- places of 4 bits ---- */

/* n: even, but at the end of a row. */
static void encode_pairs(const uint8_t *x, int64_t n, uint8_t *code)
{
    for (int64_t i = 0; i < n / 2; i++) code[i] = (uint8_t)(x[2 * i] | x[2 * i + 1] << 4);
    if (n % 2) code[n / 2] = x[n - 1];
}

static void decode_pairs(const uint8_t *code, int64_t n, uint8_t *x)
{
    for (int64_t i = 0; i < n / 2; i++) {
        x[2 * i] = code[i] & 15;
        x[2 * i + 1] = code[i] >> 4;
    }
    if (n % 2) x[n - 1] = code[n / 2] & 15;
}

void ECH_CPU(encode_places)(ech_kernel_context *context, const ech_tensor *x,
                            const ech_tensor *code)
{
    ECH_SHAPES(encode_places, ECH_REAL, x, code);
    int64_t R = x->shape[0], C = x->shape[1], W = code->shape[1];
    ECH_ASSERT(W == ech_code_bytes(4, C));
#pragma omp parallel for collapse(2) num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t r = 0; r < R; r++)
        for (int64_t first = 0; first < C; first += ECH_PART)
            encode_pairs((const uint8_t *)x->data + r * C + first, ech_part(C, first, ECH_PART),
                         (uint8_t *)code->data + r * W + first / 2);
}

void ECH_CPU(decode_places)(ech_kernel_context *context, const ech_tensor *code,
                            const ech_tensor *x)
{
    ECH_SHAPES(decode_places, ECH_REAL, code, x);
    int64_t R = x->shape[0], C = x->shape[1], W = code->shape[1];
    ECH_ASSERT(W == ech_code_bytes(4, C));
#pragma omp parallel for collapse(2) num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t r = 0; r < R; r++)
        for (int64_t first = 0; first < C; first += ECH_PART)
            decode_pairs((const uint8_t *)code->data + r * W + first / 2,
                         ech_part(C, first, ECH_PART), (uint8_t *)x->data + r * C + first);
}

/* ---- narrow codes ---- */

/* A part has whole words of three codes. */
enum { NARROW_PART = ECH_PART / (8 * ECH_CODE_THIRDS) * (8 * ECH_CODE_THIRDS) };

/* ech_code_of: normal numbers are rounded as integers, smaller ones by adding a number whose units
 * are theirs. */
ECH_INLINE uint32_t code_of(float x, int bits)
{
    const int mantissa = ech_code_mantissa(bits), bias = ech_code_bias(bits);
    const uint32_t shift = (uint32_t)(23 - mantissa), moved = (uint32_t)(127 - bias) << mantissa;
    const uint32_t last = ((1u << ech_code_exponent(bits)) - 1) << mantissa;
    const uint32_t largest = (last - 1 + moved) << shift, least = (uint32_t)(128 - bias) << 23;
    const uint32_t units = (uint32_t)(127 + 24 - mantissa - bias) << 23;
    uint32_t raw = ech_bits_of_float(x), sign = raw >> 31 << (bits - 1), size = raw & 0x7fffffffu;
    uint32_t kept = size < largest ? size : largest;
    uint32_t normal = ((kept + (1u << (shift - 1)) - 1 + (kept >> shift & 1)) >> shift) - moved;
    uint32_t small = ech_bits_of_float(ech_float_of_bits(kept) + ech_float_of_bits(units)) - units;
    uint32_t code = kept < least ? small : normal;
    return sign | (size > 0x7f800000u ? last | 1u << (mantissa - 1) : code);
}

ECH_INLINE float number_of(uint32_t code, int bits)
{
    const int mantissa = ech_code_mantissa(bits), bias = ech_code_bias(bits);
    const uint32_t last = ((1u << ech_code_exponent(bits)) - 1) << mantissa;
    uint32_t size = code & ((1u << (bits - 1)) - 1), sign = code >> (bits - 1) << 31;
    uint32_t normal = (size << (23 - mantissa)) + ((uint32_t)(127 - bias) << 23);
    float small = (float)(int32_t)size * ech_float_of_bits((uint32_t)(128 - bias - mantissa) << 23);
    uint32_t raw = size >> mantissa ? normal : ech_bits_of_float(small);
    return ech_float_of_bits(sign | (size >= last ? 0x7fc00000u : raw));
}

#define ECH_NARROW(bits, type)                                                                     \
    static void encode_##bits(const float *x, int64_t n, void *code)                               \
    {                                                                                              \
        type *to = code;                                                                           \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) to[i] = (type)code_of(x[i], bits);     \
    }                                                                                              \
                                                                                                   \
    static void decode_##bits(const void *code, int64_t n, float *x)                               \
    {                                                                                              \
        const type *from = code;                                                                   \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) x[i] = number_of(from[i], bits);       \
    }

ECH_NARROW(16, uint16_t)
ECH_NARROW(8, uint8_t)

static void encode_10(const float *x, int64_t n, void *code)
{
    uint32_t of[NARROW_PART + 2], *word = code;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) of[i] = code_of(x[i], 10);
    of[n] = of[n + 1] = 0;
    for (int64_t i = 0; i < n; i += ECH_CODE_THIRDS)
        word[i / ECH_CODE_THIRDS] = of[i] | of[i + 1] << 10 | of[i + 2] << 20;
}

static void decode_10(const void *code, int64_t n, float *x)
{
    uint32_t of[NARROW_PART + 2];
    const uint32_t *word = code;
    for (int64_t i = 0; i < n; i += ECH_CODE_THIRDS) {
        uint32_t w = word[i / ECH_CODE_THIRDS];
        of[i] = w & 1023;
        of[i + 1] = w >> 10 & 1023;
        of[i + 2] = w >> 20 & 1023;
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++) x[i] = number_of(of[i], 10);
}

void ECH_CPU(encode_narrow)(ech_kernel_context *context, const ech_tensor *x, int64_t bits,
                            const ech_tensor *code)
{
    ECH_SHAPES(encode_narrow, ECH_REAL, x, code);
    int64_t R = x->shape[0], C = x->shape[1], W = code->shape[1];
    ECH_ASSERT(W == ech_code_bytes((int)bits, C));
#pragma omp parallel for collapse(2) num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t r = 0; r < R; r++)
        for (int64_t first = 0; first < C; first += NARROW_PART) {
            ECH_ALIGNED float part[NARROW_PART];
            int64_t n = ech_part(C, first, NARROW_PART);
            const float *from = ech_part_of(x, r * C + first, n, part);
            void *to = (char *)code->data + r * W + ech_code_bytes((int)bits, first);
            (bits == 16 ? encode_16 : bits == 10 ? encode_10 : encode_8)(from, n, to);
        }
}

void ECH_CPU(decode_narrow)(ech_kernel_context *context, const ech_tensor *code, int64_t bits,
                            const ech_tensor *x)
{
    ECH_SHAPES(decode_narrow, ECH_REAL, code, x);
    int64_t R = x->shape[0], C = x->shape[1], W = code->shape[1];
    ECH_ASSERT(W == ech_code_bytes((int)bits, C));
#pragma omp parallel for collapse(2) num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t r = 0; r < R; r++)
        for (int64_t first = 0; first < C; first += NARROW_PART) {
            ECH_ALIGNED float part[NARROW_PART];
            int64_t n = ech_part(C, first, NARROW_PART);
            float *to = ech_part_to(x, r * C + first, part);
            const void *from = (const char *)code->data + r * W + ech_code_bytes((int)bits, first);
            (bits == 16 ? decode_16 : bits == 10 ? decode_10 : decode_8)(from, n, to);
            ech_part_done(x, r * C + first, n, to);
        }
}
