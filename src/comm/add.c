/* SPDX-License-Identifier: Apache-2.0
 *
 * The additions of reductions.
 */
#include "comm/reduce.h"

enum { BLOCK_BYTES = 8192 }; /* of each addend: what is added up stays in the fastest cache */

#define X(name, type)                                                                              \
    static void add_to_##name(type *restrict to, const type *restrict from, int64_t n)             \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) to[i] += from[i];                                          \
    }                                                                                              \
    static void add_two_##name(type *restrict to, const type *restrict a, const type *restrict b,  \
                               int64_t n)                                                          \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) to[i] = a[i] + b[i];                                       \
    }
X(f32, float)
X(f64, double)
#undef X

void ech_add(ech_dtype dtype, void *to, const void *from, int64_t n)
{
    if (dtype == ECH_F32)
        add_to_f32(to, from, n);
    else
        add_to_f64(to, from, n);
}

/* to = a + b; `to` may be a or b. */
static void add_two(ech_dtype dtype, char *to, const char *a, const char *b, int64_t n)
{
    if (to == a)
        ech_add(dtype, to, b, n);
    else if (to == b)
        ech_add(dtype, to, a, n);
    else if (dtype == ECH_F32)
        add_two_f32((float *)to, (const float *)a, (const float *)b, n);
    else
        add_two_f64((double *)to, (const double *)a, (const double *)b, n);
}

/* One block. Until own has been added the sum lies in the first part, since `to` may be own. */
static void add_block(const ech_sum *sum, char *to, const char *own, char *parts, size_t stride,
                      int64_t n)
{
    int index = sum->group->index;
    const char *total = index == 0 ? own : parts;
    const char *next = index == 0 ? parts : parts + stride;
    for (int i = 1; i < sum->group->size; i++) {
        char *into = i < index ? parts : to;
        add_two(sum->dtype, into, total, i == index ? own : next, n);
        total = into;
        if (i != index) next += stride;
    }
}

void ech_add_in_order(const ech_sum *sum, char *to, const char *own, char *parts, int64_t n)
{
    int64_t block = BLOCK_BYTES / (int64_t)sum->item;
    for (int64_t at = 0; at < n; at += block) {
        size_t offset = (size_t)at * sum->item;
        add_block(sum, to + offset, own + offset, parts + offset, (size_t)n * sum->item,
                  ech_segment_count(n, at, block));
    }
}
