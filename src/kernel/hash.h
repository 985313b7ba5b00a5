/* SPDX-License-Identifier: Apache-2.0
 *
 * An element's contribution to a hash. Private to src/kernel.
 */
#ifndef ECH_KERNEL_HASH_H
#define ECH_KERNEL_HASH_H

#include <stdint.h>

#include "base/inline.h"

/* The finalizer of SplitMix64: Steele et al. 2014. */
ECH_EVERYWHERE uint64_t ech_hash_mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* index: from 0; bits: the element's. */
ECH_EVERYWHERE uint64_t ech_hash_of(int64_t index, uint64_t bits)
{
    return ech_hash_mix(ech_hash_mix((uint64_t)(index + 1)) + bits);
}

#endif
