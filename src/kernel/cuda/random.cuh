/* SPDX-License-Identifier: Apache-2.0
 *
 * The random numbers of base/random.h on a GPU: the same bits.
 */
#ifndef ECH_KERNEL_CUDA_RANDOM_H
#define ECH_KERNEL_CUDA_RANDOM_H

#include "kernel/cuda/launch.cuh"

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

/* The words of elements that ascend: those of four are drawn together. */
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

/* Whether dropout drops element i, of elements that ascend; key: ech_dropout_key. */
static __device__ inline bool ech_drops(double p, const ech_random_key &key, uint64_t i,
                                        ech_drawn *d)
{
    return ech_random_unit(ech_draw(key, i, d)) < p;
}

} // namespace

#endif
