/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses the next push to serve, decides which workers have another push, and binds lists to a
 * known order.
 */
#include "schedule/protocol/serving.h"

#include <string.h>

void ech_plan_bind(ech_plan *plan, const ech_serve *pushes)
{
    bool serves =
        plan->layout->sums == ECH_SUMS_SERVERS && ech_layout_serves(plan->layout, plan->rank);
    if (serves) plan->list[ECH_LIST_TRAIN].bound = pushes;
}

int ech_serve_number(const ech_serve *pushes, int turn)
{
    int n = 0;
    for (int before = 0; before < turn; before++) n += pushes[before].worker == pushes[turn].worker;
    return n;
}

static bool is_bounded(const ech_schedule *schedule)
{
    return schedule->staleness < INT64_MAX;
}

/* True if all workers have equally many pushes. */
static bool are_even(const ech_schedule *schedule)
{
    return is_bounded(schedule) || schedule->backups;
}

int ech_serving_summands(const ech_schedule *schedule, const ech_layout *layout)
{
    return schedule->backups ? ech_layout_workers(layout) - schedule->backups : 1;
}

int ech_serving_most(const ech_schedule *schedule, const ech_layout *layout)
{
    int workers = ech_layout_workers(layout);
    return are_even(schedule) ? schedule->turns : workers * (schedule->turns - 1) + 1;
}

ech_serving ech_serving_begin(const ech_schedule *schedule, const ech_layout *layout,
                              ech_pool *pool)
{
    size_t workers = (size_t)ech_layout_workers(layout);
    ech_serving serving = {.workers = (int)workers,
                           .pushes = (int)workers * schedule->turns,
                           .most = ech_serving_most(schedule, layout),
                           .staleness = schedule->staleness,
                           .each = are_even(schedule),
                           .drops = schedule->backups > 0,
                           .summands = ech_serving_summands(schedule, layout),
                           .done = ech_pool_alloc(pool, workers * sizeof *serving.done),
                           .came = ech_pool_alloc(pool, workers * sizeof *serving.came),
                           .ended = ech_pool_alloc(pool, workers * sizeof *serving.ended),
                           .lost = ech_pool_alloc(pool, workers * sizeof *serving.lost)};
    ech_serving_reset(&serving);
    return serving;
}

void ech_serving_reset(ech_serving *serving)
{
    size_t workers = (size_t)serving->workers;
    serving->coming = 0;
    serving->now = serving->summed = 0;
    serving->begun = serving->workers;
    memset(serving->done, 0, workers * sizeof *serving->done);
    memset(serving->came, 0, workers * sizeof *serving->came);
    memset(serving->ended, 0, workers * sizeof *serving->ended);
    for (int w = 0; w < serving->workers; w++)
        if (serving->lost[w]) ech_serving_come(serving, w);
}

void ech_serving_come(ech_serving *serving, int worker)
{
    ECH_ASSERT(serving->came[worker] == 0);
    serving->came[worker] = ++serving->coming;
}

bool ech_serving_may(const ech_serving *serving, int worker)
{
    int after = serving->done[worker] + 1, least = after;
    if (serving->ended[worker]) return false;
    for (int w = 0; w < serving->workers; w++)
        if (serving->done[w] < least && w != worker) least = serving->done[w];
    if (serving->lost[worker]) return true; /* otherwise others would wait for it */
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

void ech_serving_lose(ech_serving *serving, int worker)
{
    serving->lost[worker] = true;
    if (!serving->came[worker] && !serving->ended[worker]) ech_serving_come(serving, worker);
}

ech_served ech_serving_take(ech_serving *serving, int worker)
{
    ech_served served = {.worker = worker, .clock = serving->done[worker]++};
    serving->came[worker] = 0;
    served.more = serving->begun < serving->pushes && serving->done[worker] < serving->most;
    /* others take over its remaining pushes */
    if (serving->lost[worker]) served.more &= serving->each;
    serving->begun += served.more;
    serving->ended[worker] = !served.more;
    served.dropped = serving->lost[worker] || (serving->drops && served.clock < serving->now);
    if (serving->lost[worker] && served.more) ech_serving_come(serving, worker);
    if (!served.dropped) {
        served.first = serving->summed == 0;
        served.updates = ++serving->summed == serving->summands;
    }
    if (served.updates) serving->summed = 0, serving->now++;
    served.next = served.dropped ? serving->now : served.clock + 1;
    return served;
}

int ech_served_answered(const ech_served *served, int turn, int *workers)
{
    int n = 0, first = turn;
    if (!served[turn].dropped && !served[turn].updates) return 0;
    while (served[turn].updates && first > 0 && !served[first - 1].updates) first--;
    for (int i = first; i <= turn; i++) {
        if (served[i].dropped && i < turn) continue;
        if (workers) workers[n] = served[i].worker;
        n++;
    }
    return n;
}

int ech_served_update(const ech_served *served, int turns, int update)
{
    for (int i = 0; i < turns; i++)
        if (served[i].updates && update-- == 0) return i;
    return -1;
}
