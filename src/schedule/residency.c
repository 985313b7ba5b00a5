/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds stays in one pass over the uses, with the last stay of each resource.
 */
#include "schedule/residency.h"

#include "base/status.h"

static ech_stay begin_stay(const ech_use *use, int at, int prefetch)
{
    int after = at - 1 - prefetch;
    return (ech_stay){.resource = use->resource,
                      .first = at,
                      .last = at,
                      .brought = !use->makes,
                      .written = use->makes || use->writes,
                      .room_after = after < 0 ? -1 : after};
}

/* Rooms are reused in the order in which they become free. */
static void find_rooms(ech_stay_list *out, size_t begin, int uses, int prefetch)
{
    ECH_FREED size_t *ends = ech_calloc((size_t)uses + 1, sizeof *ends); /* by last use; + 1 */
    int used = 0, next = 0;
    for (size_t s = begin; s < out->n; s++) ends[out->at[s].last] = s + 1;
    for (size_t s = begin; s < out->n; s++) {
        ech_stay *stay = &out->at[s];
        stay->takes = -1;
        if (used++ <= prefetch) continue;
        while (!ends[next]) next++;
        ECH_ASSERT(next <= stay->room_after);
        stay->takes = (int)ends[next++] - 1;
    }
}

void ech_residency(const ech_use *uses, size_t n, int resources, int prefetch, ech_stay_list *out)
{
    ECH_ASSERT(prefetch >= 0);
    size_t begin = out->n;
    ECH_FREED size_t *stay_of = ech_calloc((size_t)resources + 1, sizeof *stay_of); /* 0: none */
    for (int i = 0; i < (int)n; i++) {
        size_t *stay = &stay_of[uses[i].resource];
        ech_stay *before = *stay ? &out->at[*stay - 1] : NULL;
        ECH_ASSERT(!before || !uses[i].makes);
        if (before && i - before->last <= 1 + prefetch) {
            before->last = i;
            before->written |= uses[i].writes;
            continue;
        }
        if (before) before->returns = true;
        ECH_PUSH(*out, begin_stay(&uses[i], i, prefetch));
        *stay = out->n;
    }
    for (size_t s = begin; s < out->n; s++) {
        int next = out->at[s].last + 1 + prefetch;
        out->at[s].gone_before = next < (int)n ? next : -1;
    }
    find_rooms(out, begin, (int)n, prefetch);
}
