/* SPDX-License-Identifier: Apache-2.0
 *
 * Codes of kept values (kernel/codes.h), in parts of rows. Sparse codes are in sparse_codes.c.
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

/* x[i] = bit i, for 8 numbers. */
ECH_INLINE void numbers_of(uint8_t bits, float *x)
{
#if defined(__AVX2__)
    const __m256i each = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    __m256i set = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(bits), each), each);
    _mm256_storeu_ps(x, _mm256_and_ps(_mm256_castsi256_ps(set), _mm256_set1_ps(1)));
#else
    for (int j = 0; j < 8; j++) x[j] = (float)(bits >> j & 1);
#endif
}

static void decode_signs(const uint8_t *code, int64_t n, float *x)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) numbers_of(code[i / 8], x + i);
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

/* Columns of [first, first + n), n > 0, that the row has, of C. */
static int64_t part_within(int64_t C, int64_t first, int64_t n)
{
    return first + n <= C ? n : first < C ? C - first : 0;
}

/* Words [first, first + n) of row r. A word has the columns c, c + W and c + 2 W, so each loop
 * reads and writes in order. */
static void encode_words(const ech_tensor *x, int64_t r, int64_t first, int64_t n, uint32_t *word,
                         int64_t W)
{
    ECH_ALIGNED float part[ECH_PART];
    int64_t C = x->shape[1];
    for (int third = 0; third < ECH_CODE_THIRDS; third++) {
        int64_t column = first + third * W, have = part_within(C, column, n);
        const float *from = have ? ech_part_of(x, r * C + column, have, part) : part;
        uint32_t keep = third ? UINT32_MAX : 0;
        int shift = ECH_CODE_TEN * third;
#pragma omp simd
        for (int64_t i = 0; i < have; i++)
            word[i] = (word[i] & keep) | code_of(from[i], ECH_CODE_TEN) << shift;
    }
}

static void decode_words(const uint32_t *word, int64_t W, const ech_tensor *x, int64_t r,
                         int64_t first, int64_t n)
{
    ECH_ALIGNED float part[ECH_PART];
    int64_t C = x->shape[1];
    for (int third = 0; third < ECH_CODE_THIRDS; third++) {
        int64_t column = first + third * W, have = part_within(C, column, n);
        if (have == 0) continue;
        float *to = ech_part_to(x, r * C + column, part);
        int shift = ECH_CODE_TEN * third;
#pragma omp simd
        for (int64_t i = 0; i < have; i++)
            to[i] = number_of(word[i] >> shift & ((1u << ECH_CODE_TEN) - 1), ECH_CODE_TEN);
        ech_part_done(x, r * C + column, have, to);
    }
}

/* Codes of 10 bits of all rows. */
static void encode_tens(const ech_kernel_context *context, const ech_tensor *x,
                        const ech_tensor *code)
{
    int64_t R = x->shape[0], W = code->shape[1] / (int64_t)sizeof(uint32_t);
#pragma omp parallel for collapse(2) num_threads(context->threads) if (R * W > ECH_CHUNK)
    for (int64_t r = 0; r < R; r++)
        for (int64_t first = 0; first < W; first += ECH_PART)
            encode_words(x, r, first, ech_part(W, first, ECH_PART),
                         (uint32_t *)code->data + r * W + first, W);
}

static void decode_tens(const ech_kernel_context *context, const ech_tensor *code,
                        const ech_tensor *x)
{
    int64_t R = x->shape[0], W = code->shape[1] / (int64_t)sizeof(uint32_t);
#pragma omp parallel for collapse(2) num_threads(context->threads) if (R * W > ECH_CHUNK)
    for (int64_t r = 0; r < R; r++)
        for (int64_t first = 0; first < W; first += ECH_PART)
            decode_words((const uint32_t *)code->data + r * W + first, W, x, r, first,
                         ech_part(W, first, ECH_PART));
}

void ECH_CPU(encode_narrow)(ech_kernel_context *context, const ech_tensor *x, int64_t bits,
                            const ech_tensor *code)
{
    ECH_SHAPES(encode_narrow, ECH_REAL, x, code);
    int64_t R = x->shape[0], C = x->shape[1], W = code->shape[1];
    ECH_ASSERT(W == ech_code_bytes((int)bits, C));
    if (bits == ECH_CODE_TEN) {
        encode_tens(context, x, code);
        return;
    }
#pragma omp parallel for collapse(2) num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t r = 0; r < R; r++)
        for (int64_t first = 0; first < C; first += ECH_PART) {
            ECH_ALIGNED float part[ECH_PART];
            int64_t n = ech_part(C, first, ECH_PART);
            const float *from = ech_part_of(x, r * C + first, n, part);
            void *to = (char *)code->data + r * W + ech_code_bytes((int)bits, first);
            (bits == 16 ? encode_16 : encode_8)(from, n, to);
        }
}

void ECH_CPU(decode_narrow)(ech_kernel_context *context, const ech_tensor *code, int64_t bits,
                            const ech_tensor *x)
{
    ECH_SHAPES(decode_narrow, ECH_REAL, code, x);
    int64_t R = x->shape[0], C = x->shape[1], W = code->shape[1];
    ECH_ASSERT(W == ech_code_bytes((int)bits, C));
    if (bits == ECH_CODE_TEN) {
        decode_tens(context, code, x);
        return;
    }
#pragma omp parallel for collapse(2) num_threads(context->threads) if (R * C > ECH_CHUNK)
    for (int64_t r = 0; r < R; r++)
        for (int64_t first = 0; first < C; first += ECH_PART) {
            ECH_ALIGNED float part[ECH_PART];
            int64_t n = ech_part(C, first, ECH_PART);
            float *to = ech_part_to(x, r * C + first, part);
            const void *from = (const char *)code->data + r * W + ech_code_bytes((int)bits, first);
            (bits == 16 ? decode_16 : decode_8)(from, n, to);
            ech_part_done(x, r * C + first, n, to);
        }
}
