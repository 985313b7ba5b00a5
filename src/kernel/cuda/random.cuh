/* SPDX-License-Identifier: Apache-2.0
 *
 * The random numbers of base/random.h on a GPU: the same bits.
 */
#ifndef ECH_KERNEL_CUDA_RANDOM_H
#define ECH_KERNEL_CUDA_RANDOM_H

#include "kernel/cuda/real.cuh"

namespace
{

/* Philox4x32-10: Salmon et al. 2011. */
static __device__ inline void ech_philox(const ech_random_key &key, uint64_t quad, uint32_t *words)
{
    uint32_t k0 = (uint32_t)key.seed, k1 = (uint32_t)(key.seed >> 32);
    words[0] = (uint32_t)quad;
    words[1] = (uint32_t)(quad >> 32);
    words[2] = key.step;
    words[3] = key.stream;
#pragma unroll
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * words[0], b = (uint64_t)0xCD9E8D57u * words[2];
        words[0] = (uint32_t)(b >> 32) ^ words[1] ^ k0;
        words[2] = (uint32_t)(a >> 32) ^ words[3] ^ k1;
        words[1] = (uint32_t)b;
        words[3] = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* The words of ascending elements: four elements' words are drawn together. */
struct ech_drawn {
    uint64_t quad = UINT64_MAX;
    uint32_t words[4] = {};
};

static __device__ inline uint32_t ech_draw(const ech_random_key &key, uint64_t i, ech_drawn *d)
{
    if (d->quad != i / 4) {
        d->quad = i / 4;
        ech_philox(key, d->quad, d->words);
    }
    unsigned w = (unsigned)(i % 4);
    uint32_t low = w == 0 ? d->words[0] : d->words[1], high = w == 2 ? d->words[2] : d->words[3];
    return w < 2 ? low : high;
}

/* The words of a part of elements from i on. */
static __device__ inline void ech_draw_part(const ech_random_key &key, uint64_t i, uint32_t *words)
{
    uint32_t drawn[ECH_PART + 4] = {};
    unsigned skipped = (unsigned)(i % 4);
#pragma unroll
    for (int q = 0; q < ECH_PART; q += 4) ech_philox(key, (i + (unsigned)q) / 4, drawn + q);
    if (skipped != 0) ech_philox(key, (i + ECH_PART) / 4, drawn + ECH_PART);
#pragma unroll
    for (int k = 0; k < ECH_PART; k++) {
        uint32_t low = skipped == 0 ? drawn[k] : drawn[k + 1];
        uint32_t high = skipped == 2 ? drawn[k + 2] : drawn[k + 3];
        words[k] = skipped < 2 ? low : high;
    }
}

/* The number of words, from 0 on, that are dropped: those with ech_random_unit(word) < p, which is
 * word + 0.5 < 2^32 p, since a unit is exact in fp64. So is the difference here if it is not
 * negative. */
static inline uint64_t ech_dropped_words(double p)
{
    double least_kept = ceil(p * 0x1p32 - 0.5);
    return least_kept > 0 ? (uint64_t)least_kept : 0;
}

/* True if dropout drops element i, for ascending elements; key: ech_dropout_key. */
static __device__ inline bool ech_drops(double p, const ech_random_key &key, uint64_t i,
                                        ech_drawn *d)
{
    return ech_random_unit(ech_draw(key, i, d)) < p;
}

} // namespace

#endif
