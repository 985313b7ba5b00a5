/* SPDX-License-Identifier: Apache-2.0
 *
 * Counter-based random numbers: Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as
 * easy as 1, 2, 3"). A number depends only on seed, training step, layer, site and element, never
 * on the rank that computes it or on the time:
 *
 *     key     = seed (64 bits, low word first)
 *     counter = floor(i / 4) in 64 bits (low word first), step, stream
 *     word    = i mod 4
 *
 * i is the element's index in the whole (unsharded) tensor; `stream` encodes layer and site. So
 * every layout, a recomputation and a resumed run draw the same numbers.
 */
#ifndef ECH_BASE_RANDOM_H
#define ECH_BASE_RANDOM_H

#include <stdint.h>

#include "base/inline.h"

typedef struct ech_random_key {
    uint64_t seed;
    uint32_t step;   /* training step; 0 for initial parameters */
    uint32_t stream; /* ech_random_stream(layer, site) */
} ech_random_key;

/* The uses of random numbers. One layer has at most 256 sites. */
enum {
    ECH_SITE_DROPOUT = 0,     /* + index of the dropout in its block */
    ECH_SITE_ATTENTION = 64,  /* + index of the attention in its block */
    ECH_SITE_PARAMETER = 128, /* + index of the parameter in its block, at step 0 */
    ECH_SITE_ADAPTER = 192,   /* + index of the adapters' parameter in its block, at step 0 */
    ECH_SITE_SAMPLE = 255     /* sampling of tokens in `echelon sample`; layer 0 */
};

static inline uint32_t ech_random_stream(uint32_t layer, uint32_t site)
{
    return layer << 8 | (site & 255u);
}

/* The four words of elements 4·quad .. 4·quad + 3. */
void ech_random_words(ech_random_key key, uint64_t quad, uint32_t words[4]);

/* The word of element i. */
uint32_t ech_random_word(ech_random_key key, uint64_t i);

/* Maps a word to a uniform number in the open interval (0, 1): (w + 0.5) / 2^32. */
ECH_EVERYWHERE double ech_random_unit(uint32_t word)
{
    return ((double)word + 0.5) * 0x1p-32;
}

/* The four standard normals of elements 4·quad .. 4·quad + 3, by the Box-Muller transform: with
 * u0..u3 the units of the four words, r = sqrt(-2 ln u0): n0 = r cos(2 pi u1), n1 = r sin(2 pi u1),
 * and n2, n3 likewise from u2, u3. */
void ech_random_normals(ech_random_key key, uint64_t quad, double normals[4]);

/* A pseudorandom permutation of [0, n) keyed by seed and epoch: the image of i. n up to 2^62; no
 * table. A balanced Feistel network on the next power of 4, applied until the result is below n. */
uint64_t ech_random_permute(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t i);

#endif
