/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of a blend's period.
 */
#include "data/blend.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/divisor.h"
#include "base/memory.h"

static void find_shares(const int64_t *weights, int64_t longest, ech_blend *blend)
{
    int64_t sum = 0, divisor = 0;
    for (int k = 0; k < blend->sources; k++) {
        sum += weights[k];
        divisor = ech_common_divisor(weights[k], divisor);
    }
    bool exact = sum / divisor <= longest;
    for (int k = 0; k < blend->sources; k++) {
        double part = (double)weights[k] / (double)sum * (double)longest;
        blend->share[k] = exact ? weights[k] / divisor : part < 1 ? 1 : llround(part);
        blend->period += blend->share[k];
    }
}

/* Whose turn it is after t samples, of which each source had had[k]. With e = 1 / (2 K - 2), a source
 * is due if of t + 1 samples it lacks e; among those due, the one that soonest would lack 1 - e, which
 * is at (had + 1 - e) / share. Then none is ever further than 1 - e from its share (Tijdeman). */
static int choose(const ech_blend *blend, const int64_t *had, int64_t t)
{
    int64_t whole = blend->sources > 1 ? 2 * blend->sources - 2 : 1; /* 1 / e */
    int best = -1;
    for (int k = 0; k < blend->sources; k++) {
        int64_t lacks = blend->share[k] * (t + 1) - had[k] * blend->period;
        if (lacks * whole < blend->period) continue;
        if (best < 0 || ((had[k] + 1) * whole - 1) * blend->share[best] <
                            ((had[best] + 1) * whole - 1) * blend->share[k])
            best = k;
    }
    ECH_ASSERT(best >= 0);
    return best;
}

void ech_blend_create(const int64_t *weights, int sources, int64_t longest, ech_blend *out)
{
    ECH_ASSERT(sources > 0 && sources <= ECH_BLEND_MOST);
    ECH_ASSERT(longest > 0 && longest <= ECH_BLEND_PERIOD);
    ech_blend blend = {.sources = sources};
    blend.share = ech_calloc((size_t)sources, sizeof *blend.share);
    find_shares(weights, longest, &blend);
    blend.source = ech_calloc((size_t)blend.period, sizeof *blend.source);
    blend.before = ech_calloc((size_t)blend.period, sizeof *blend.before);
    int64_t *had = ech_calloc((size_t)sources, sizeof *had);
    for (int64_t t = 0; t < blend.period; t++) {
        int k = choose(&blend, had, t);
        blend.source[t] = (uint16_t)k;
        blend.before[t] = (uint32_t)had[k]++;
    }
    free(had);
    *out = blend;
}

void ech_blend_free(ech_blend *blend)
{
    free(blend->share);
    free(blend->source);
    free(blend->before);
    *blend = (ech_blend){0};
}

int64_t ech_blend_position(const ech_blend *blend, int k, int64_t j)
{
    int64_t position, r = 0;
    while (blend->source[r] != k || blend->before[r] != j % blend->share[k]) r++;
    if (__builtin_mul_overflow(j / blend->share[k], blend->period, &position) ||
        __builtin_add_overflow(position, r, &position))
        return INT64_MAX;
    return position;
}
