/* SPDX-License-Identifier: Apache-2.0
 *
 * Whom a server serves next.
 */
#include "schedule/serving.h"

#include <string.h>

ech_serving ech_serving_begin(const ech_schedule *schedule, const ech_layout *layout,
                              ech_pool *pool)
{
    size_t workers = (size_t)ech_layout_workers(layout);
    ech_serving serving = {.workers = (int)workers,
                           .turns = schedule->turns,
                           .staleness = schedule->staleness,
                           .clock = ech_pool_alloc(pool, workers * sizeof *serving.clock),
                           .came = ech_pool_alloc(pool, workers * sizeof *serving.came)};
    ech_serving_reset(&serving);
    return serving;
}

void ech_serving_reset(ech_serving *serving)
{
    serving->coming = 0;
    memset(serving->clock, 0, (size_t)serving->workers * sizeof *serving->clock);
    memset(serving->came, 0, (size_t)serving->workers * sizeof *serving->came);
}

void ech_serving_come(ech_serving *serving, int worker)
{
    ECH_ASSERT(serving->came[worker] == 0);
    serving->came[worker] = ++serving->coming;
}

bool ech_serving_may(const ech_serving *serving, int worker)
{
    int after = serving->clock[worker] + 1, least = after;
    if (after > serving->turns) return false;
    for (int w = 0; w < serving->workers; w++)
        if (serving->clock[w] < least && w != worker) least = serving->clock[w];
    return after - least <= serving->staleness;
}

int ech_serving_next(const ech_serving *serving)
{
    int first = -1;
    for (int w = 0; w < serving->workers; w++) {
        bool may = serving->came[w] > 0 && ech_serving_may(serving, w);
        if (may && (first < 0 || serving->came[w] < serving->came[first])) first = w;
    }
    return first;
}

void ech_serving_take(ech_serving *serving, int worker)
{
    serving->came[worker] = 0;
    serving->clock[worker]++;
}
