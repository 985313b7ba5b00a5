/* SPDX-License-Identifier: Apache-2.0
 *
 * Philox words, normals, and a permutation that needs no table.
 */
#include "base/random.h"

#include <Random123/philox.h>
#include <math.h>

#include "base/status.h"

#define TWO_PI 6.28318530717958647692

static philox4x32_key_t philox_key(uint64_t seed)
{
    philox4x32_key_t key = {{(uint32_t)seed, (uint32_t)(seed >> 32)}};
    return key;
}

void ech_random_words(ech_random_key key, uint64_t quad, uint32_t words[4])
{
    philox4x32_ctr_t counter = {{(uint32_t)quad, (uint32_t)(quad >> 32), key.step, key.stream}};
    philox4x32_ctr_t drawn = philox4x32_R(10, counter, philox_key(key.seed));
    for (int w = 0; w < 4; w++) words[w] = drawn.v[w];
}

uint32_t ech_random_word(ech_random_key key, uint64_t i)
{
    uint32_t words[4];
    ech_random_words(key, i / 4, words);
    return words[i % 4];
}

void ech_random_normals(ech_random_key key, uint64_t quad, double normals[4])
{
    uint32_t words[4];
    ech_random_words(key, quad, words);
    for (int pair = 0; pair < 4; pair += 2) {
        double r = sqrt(-2.0 * log(ech_random_unit(words[pair])));
        double angle = TWO_PI * ech_random_unit(words[pair + 1]);
        normals[pair] = r * cos(angle);
        normals[pair + 1] = r * sin(angle);
    }
}

/* Rounds draw from a stream of their own: the layer's 24 bits all ones, which no model reaches. */
enum { FEISTEL_ROUNDS = 8 };
static const uint32_t feistel_stream = 0xffffff00u;

/* One trip through the network on 2·half_bits bits (Luby and Rackoff 1988): each round makes
 * L, R into R, L ^ F(R). */
static uint64_t feistel(uint64_t seed, uint64_t epoch, int half_bits, uint64_t i)
{
    uint64_t mask = (UINT64_C(1) << half_bits) - 1;
    uint64_t left = i >> half_bits, right = i & mask;
    philox4x32_key_t key = philox_key(seed);
    for (uint32_t round = 0; round < FEISTEL_ROUNDS; round++) {
        philox4x32_ctr_t counter = {
            {(uint32_t)right, (uint32_t)epoch, (uint32_t)(epoch >> 32), feistel_stream | round}};
        uint64_t drawn = philox4x32_R(10, counter, key).v[0];
        uint64_t next = left ^ (drawn & mask);
        left = right;
        right = next;
    }
    return left << half_bits | right;
}

uint64_t ech_random_permute(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t i)
{
    ECH_ASSERT(i < n && n <= UINT64_C(1) << 62);
    int half_bits = 1;
    while (UINT64_C(1) << 2 * half_bits < n) half_bits++;
    /* Walking along the cycle of a permutation of the larger set until it is back below n is also
     * a permutation; the larger set has less than 4·n members (n > 1), so few steps are needed. */
    do {
        i = feistel(seed, epoch, half_bits, i);
    } while (i >= n);
    return i;
}
