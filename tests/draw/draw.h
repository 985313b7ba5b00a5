/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests: random numbers, each from the state that the one before has left.
 */
#ifndef ECH_TESTS_SCHEDULE_DRAW_H
#define ECH_TESTS_SCHEDULE_DRAW_H

#include <stdint.h>

/* Steele, Lea, Flood 2014: splitmix64. */
static inline uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Below n. */
static inline int draw(uint64_t *state, int n)
{
    return (int)(next_random(state) % (uint64_t)n);
}

#endif
