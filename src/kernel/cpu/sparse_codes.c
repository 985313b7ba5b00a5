/* SPDX-License-Identifier: Apache-2.0
 *
 * Sparse codes of kept values (kernel/codes.h): non-zeros and their columns, in runs of 256 columns
 * of a row. Elements are words of 32 or 16 bits.
 */
#include "kernel/codes.h"

#include "kernel/cpu/part.h"
#include "kernel/shape.h"

enum {
    GROUP = 8, /* elements that are packed at once */
    /* Runs of a thread that are counted before they are packed; they stay in its L2 cache. */
    TILE = 256
};

/* order[mask]: byte k has the place of the k-th of those elements of a group whose bit is set. */
typedef uint64_t orders[1 << GROUP];

static void make_orders(orders order)
{
    for (int mask = 0; mask < 1 << GROUP; mask++) {
        order[mask] = 0;
        for (int i = 0, k = 0; i < GROUP; i++)
            if (mask >> i & 1) order[mask] |= (uint64_t)i << 8 * k++;
    }
}

/* pack_group_u32, _u16: stores the non-zeros of a group in order; returns their mask. After them,
 * `found` has anything. */
#if defined(__AVX2__)
ECH_INLINE uint32_t pack_group_u32(const uint32_t *x, const uint64_t *order, uint32_t *found)
{
    __m256i v = _mm256_loadu_si256((const __m256i *)x);
    __m256i zeros = _mm256_cmpeq_epi32(v, _mm256_setzero_si256());
    uint32_t mask = 0xffu ^ (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(zeros));
    __m256i places = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)order[mask]));
    _mm256_storeu_si256((__m256i *)found, _mm256_permutevar8x32_epi32(v, places));
    return mask;
}

ECH_INLINE uint32_t pack_group_u16(const uint16_t *x, const uint64_t *order, uint16_t *found)
{
    __m128i v = _mm_loadu_si128((const __m128i *)x);
    __m128i zeros = _mm_cmpeq_epi16(v, _mm_setzero_si128());
    uint32_t mask = 0xffu & ~(uint32_t)_mm_movemask_epi8(_mm_packs_epi16(zeros, zeros));
    __m128i low = _mm_cvtsi64_si128((long long)(2 * order[mask]));
    __m128i bytes = _mm_unpacklo_epi8(low, _mm_add_epi8(low, _mm_set1_epi8(1)));
    _mm_storeu_si128((__m128i *)found, _mm_shuffle_epi8(v, bytes));
    return mask;
}
#else
#define ECH_PACK(word, type)                                                                       \
    ECH_INLINE uint32_t pack_group_##word(const type *x, const uint64_t *order, type *found)       \
    {                                                                                              \
        uint32_t mask = 0;                                                                         \
        for (int i = 0; i < GROUP; i++) mask |= (uint32_t)(x[i] != 0) << i;                        \
        for (int k = 0; k < GROUP; k++) found[k] = x[order[mask] >> 8 * k & 7];                    \
        return mask;                                                                               \
    }
ECH_PACK(u32, uint32_t)
ECH_PACK(u16, uint16_t)
#endif

#define ECH_SPARSE(word, type)                                                                     \
    static int32_t count_##word(const type *x, int64_t n)                                          \
    {                                                                                              \
        int32_t count = 0;                                                                         \
        for (int64_t i = 0; i < n; i++) count += x[i] != 0;                                        \
        return count;                                                                              \
    }                                                                                              \
                                                                                                   \
    static void encode_##word(const type *x, int64_t n, const uint64_t *order, type *values,       \
                              uint8_t *columns)                                                    \
    {                                                                                              \
        type found[ECH_CODE_RUN + GROUP];                                                          \
        uint8_t column[ECH_CODE_RUN + GROUP];                                                      \
        int64_t count = 0, i = 0;                                                                  \
        for (; i + GROUP <= n; i += GROUP) {                                                       \
            uint32_t mask = pack_group_##word(x + i, order, found + count);                        \
            uint64_t places = order[mask] + (uint64_t)i * UINT64_C(0x0101010101010101);            \
            memcpy(column + count, &places, sizeof places);                                        \
            count += __builtin_popcount(mask);                                                     \
        }                                                                                          \
        for (; i < n; i++) {                                                                       \
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

/* Sets ends[run] to the run's own count. */
static void count_run(const ech_tensor *x, const ech_tensor *ends, int64_t run)
{
    int64_t C = x->shape[1], S = ends->shape[1], first = run % S * ECH_CODE_RUN;
    int64_t n = ech_part(C, first, ECH_CODE_RUN);
    const void *from = ech_either_at(x, run / S * C + first);
    ((int32_t *)ends->data)[run] = ech_is_wide(x) ? count_u32(from, n) : count_u16(from, n);
}

static void encode_run(const ech_tensor *x, const uint64_t *order, const ech_tensor *values,
                       const ech_tensor *columns, const ech_tensor *ends, int64_t run)
{
    int64_t C = x->shape[1], S = ends->shape[1], first = run / S * C + run % S * ECH_CODE_RUN;
    int64_t n = ech_part(C, run % S * ECH_CODE_RUN, ECH_CODE_RUN), to = begin_of(ends, run);
    uint8_t *column = (uint8_t *)columns->data + to;
    if (ech_is_wide(x))
        encode_u32(ech_either_at(x, first), n, order, ech_either_at(values, to), column);
    else
        encode_u16(ech_either_at(x, first), n, order, ech_either_at(values, to), column);
}

/* Sets ends; packs until there is no more room. Returns the number of non-zeros. */
static int64_t encode_all(const ech_kernel_context *context, const ech_tensor *x,
                          const ech_tensor *values, const ech_tensor *columns,
                          const ech_tensor *ends)
{
    int64_t R = x->shape[0], C = x->shape[1], runs = R * ends->shape[1], sum = 0;
    int64_t tile = (int64_t)TILE * context->threads;
    int32_t *end = ends->data;
    orders order;
    make_orders(order);
    for (int64_t first = 0; first < runs; first += tile) {
        int64_t last = first + ech_part(runs, first, tile);
#pragma omp parallel for num_threads(context->threads) if (R * C > ECH_CHUNK)
        for (int64_t run = first; run < last; run++) count_run(x, ends, run);
        for (int64_t run = first; run < last; run++) end[run] = (int32_t)(sum += end[run]);
        if (sum > ech_tensor_count(values)) continue;
#pragma omp parallel for num_threads(context->threads) if (R * C > ECH_CHUNK)
        for (int64_t run = first; run < last; run++)
            encode_run(x, order, values, columns, ends, run);
    }
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
    int64_t sum = encode_all(context, x, values, columns, ends);
    bool spilled = sum > ech_tensor_count(values);
#pragma omp parallel for num_threads(context->threads) if (spilled && R * C > ECH_CHUNK)
    for (int64_t r = 0; r < (spilled ? R : 0); r++) ech_part_copy(x, r * C, C, spill, r * C);
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
