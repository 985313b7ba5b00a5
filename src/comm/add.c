/* SPDX-License-Identifier: Apache-2.0
 *
 * The additions of reductions.
 */
#include "comm/reduce.h"

static void add_f32(float *restrict to, const float *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] += from[i];
}

static void add_f64(double *restrict to, const double *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] += from[i];
}

void ech_add(ech_dtype dtype, void *to, const void *from, int64_t n)
{
    if (dtype == ECH_F32)
        add_f32(to, from, n);
    else
        add_f64(to, from, n);
}

void ech_add_in_order(const ech_sum *sum, char *own, char *parts, int64_t n)
{
    int index = sum->group->index;
    size_t bytes = (size_t)n * sum->item;
    char *total = index == 0 ? own : parts; /* where the sum so far lies */
    char *next = index == 0 ? parts : parts + bytes;
    for (int i = 1; i < sum->group->size; i++) {
        if (i == index) {
            ech_add(sum->dtype, own, total, n);
            total = own;
        } else {
            ech_add(sum->dtype, total, next, n);
            next += bytes;
        }
    }
}
