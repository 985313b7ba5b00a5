/* SPDX-License-Identifier: Apache-2.0
 *
 * Vectorized random numbers of dropout: base/random.h's Philox4x32-10 for 16 counters at a time.
 * Tests compare it with base/random.h word by word.
 */
#ifndef ECH_KERNEL_CPU_DROPOUT_H
#define ECH_KERNEL_CPU_DROPOUT_H

#include <math.h>

#include "kernel/cpu/part.h"
#include "kernel/cpu/vector.h"
#include "kernel/kernel.h"

enum { ECH_DRAWS = 16 }; /* counters at a time; each gives the four words of a quad */

/* Counters, one in each 64 bits of a vector. Of a word only the low 32 bits count, above them is
 * whatever the rounds left. */
typedef struct ech_counters {
    ech_wide_long word[4];
} ech_counters;

/* Of quads first, first + 1 ... */
ECH_INLINE ech_counters ech_counters_from(ech_random_key key, uint64_t first)
{
    ech_wide_long quad, none = {0};
    for (int l = 0; l < ECH_LONGS; l++) quad[l] = first + (uint64_t)l;
    return (ech_counters){{quad, quad >> 32, none + key.step, none + key.stream}};
}

ECH_INLINE void ech_counters_round(ech_counters *c, uint32_t k0, uint32_t k1)
{
    ech_wide_long a = ech_wide_low_products(c->word[0], 0xD2511F53u);
    ech_wide_long b = ech_wide_low_products(c->word[2], 0xCD9E8D57u);
    *c = (ech_counters){{(b >> 32) ^ c->word[1] ^ k0, b, (a >> 32) ^ c->word[3] ^ k1, a}};
}

/* words[4 l + w] = word w of counter l. */
ECH_INLINE void ech_counters_store(const ech_counters *c, uint32_t *words)
{
    ech_wide_long low = (c->word[0] & 0xffffffffu) | c->word[1] << 32;
    ech_wide_long high = (c->word[2] & 0xffffffffu) | c->word[3] << 32;
    for (int l = 0; l < ECH_LONGS; l++) {
        uint64_t of_counter[] = {low[l], high[l]};
        memcpy(words + 4 * l, of_counter, sizeof of_counter);
    }
}

/* words[4 l + w] = word w of quad (base/random.h: the four words of a counter) first + l. */
ECH_INLINE void ech_lane_words(ech_random_key key, uint64_t first, uint32_t words[4 * ECH_DRAWS])
{
    for (int l = 0; l < ECH_DRAWS; l += 2 * ECH_LONGS) {
        ech_counters c = ech_counters_from(key, first + (uint64_t)l);
        ech_counters d = ech_counters_from(key, first + (uint64_t)(l + ECH_LONGS));
        uint32_t k0 = (uint32_t)key.seed, k1 = (uint32_t)(key.seed >> 32);
#pragma GCC unroll 10
        for (int round = 0; round < 10; round++) {
            ech_counters_round(&c, k0, k1);
            ech_counters_round(&d, k0, k1);
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        ech_counters_store(&c, words + 4 * l);
        ech_counters_store(&d, words + 4 * (l + ECH_LONGS));
    }
}

/* Elements whose word w is below this are dropped. (w + 0.5) / 2^32 < p is the same as w < ceil(p
 * 2^32 - 0.5), which fits into 32 bits if p <= 1 - 2^-33; keys allow at most 0.99. */
static inline uint32_t ech_drop_threshold(double p)
{
    double t = ceil(p * 0x1p32 - 0.5);
    return t >= 0xffffffffu ? 0xffffffffu : (uint32_t)t;
}

/* factor[i] = 0 if element first + i is dropped, else `scale`; i < n. */
ECH_INLINE void ech_dropout_mask(ech_random_key key, uint32_t threshold, float scale,
                                 uint64_t first, int64_t n, float *factor)
{
    uint32_t words[4 * ECH_DRAWS];
    for (int64_t done = 0; done < n;) {
        uint64_t element = first + (uint64_t)done;
        int64_t skip = (int64_t)(element % 4), count = 4 * ECH_DRAWS - skip;
        if (count > n - done) count = n - done;
        ech_lane_words(key, element / 4, words);
        for (int64_t i = 0; i < count; i++)
            factor[done + i] = words[skip + i] < threshold ? 0.0F : scale;
        done += count;
    }
}

/* A call's dropout, p > 0: elements are multiplied by 0 or `scale` (ech_dropout_mask). */
typedef struct ech_dropper {
    ech_random_key key;
    uint32_t threshold;
    float scale;
} ech_dropper;

static inline ech_dropper ech_dropper_of(const ech_dropout *dropout)
{
    return (ech_dropper){ech_dropout_key(dropout), ech_drop_threshold(dropout->p),
                         (float)(1 / (1 - dropout->p))};
}

/* Applies dropout to row r of x and writes row r of y. `first`: index of the row's first element
 * in the whole tensor. */
ECH_INLINE void ech_drop_row(const ech_dropper *drop, uint64_t first, int64_t r,
                             const ech_tensor *x, const ech_tensor *y)
{
    enum { PART = 256 };
    float factor[PART], part[2][PART];
    for (int64_t c = 0, C = x->shape[1]; c < C; c += PART) {
        int64_t count = ech_part(C, c, PART);
        const float *in = ech_part_of(x, r * C + c, count, part[0]);
        float *out = ech_part_to(y, r * C + c, part[1]);
        ech_dropout_mask(drop->key, drop->threshold, drop->scale, first + (uint64_t)c, count,
                         factor);
        /* A dropped element is 0 even if x is NaN. */
#pragma omp simd
        for (int64_t j = 0; j < count; j++) out[j] = ech_kept(factor[j] != 0.0F, in[j] * factor[j]);
        ech_part_done(y, r * C + c, count, out);
    }
}

#endif
