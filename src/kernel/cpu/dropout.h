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

/* words[4 l + w] = word w of quad (base/random.h: the four words of a counter) first + l. */
ECH_INLINE void ech_lane_words(ech_random_key key, uint64_t first, uint32_t words[4 * ECH_DRAWS])
{
    uint32_t c0[ECH_DRAWS], c1[ECH_DRAWS], c2[ECH_DRAWS], c3[ECH_DRAWS];
    for (int l = 0; l < ECH_DRAWS; l++) {
        uint64_t quad = first + (uint64_t)l;
        c0[l] = (uint32_t)quad;
        c1[l] = (uint32_t)(quad >> 32);
        c2[l] = key.step;
        c3[l] = key.stream;
    }
    uint32_t k0 = (uint32_t)key.seed, k1 = (uint32_t)(key.seed >> 32);
    for (int round = 0; round < 10; round++) {
#pragma omp simd
        for (int l = 0; l < ECH_DRAWS; l++) {
            uint64_t a = (uint64_t)c0[l] * 0xD2511F53u, b = (uint64_t)c2[l] * 0xCD9E8D57u;
            c0[l] = (uint32_t)(b >> 32) ^ c1[l] ^ k0;
            c1[l] = (uint32_t)b;
            c2[l] = (uint32_t)(a >> 32) ^ c3[l] ^ k1;
            c3[l] = (uint32_t)a;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int l = 0; l < ECH_DRAWS; l++) {
        words[4 * l] = c0[l];
        words[4 * l + 1] = c1[l];
        words[4 * l + 2] = c2[l];
        words[4 * l + 3] = c3[l];
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
