/* SPDX-License-Identifier: Apache-2.0
 *
 * A pipeline in virtual time: every F, B and W takes one unit, messages take none, and each rank
 * executes its order item by item. With `merged`, B and W are one backward of two units. The stage
 * before then waits for the end of both, as in the papers on GPipe, 1F1B and interleaving.
 */
#ifndef ECH_TESTS_SCHEDULE_VIRTUAL_TIME_H
#define ECH_TESTS_SCHEDULE_VIRTUAL_TIME_H

#include <stdlib.h>
#include <string.h>

#include "schedule/order/order.h"

enum { MOST_STAGES = 8, MOST_REPLICAS = 4, DEADLOCK = -1 };

typedef struct virtual_rank {
    ech_pipe pipe;
    ech_order order;
    size_t done;
    int begun, time, busy;
} virtual_rank;

typedef struct virtual_run {
    int stages, chunks, micro_batches; /* of all replicas together */
    bool vee;                          /* down the stages and back up, again and again */
    int replicas[MOST_STAGES];
    virtual_rank rank[MOST_STAGES][MOST_REPLICAS];
    int *end; /* [(virtual stage * micro_batches + q) * 3 + action]; 0: not yet */
} virtual_run;

/* `schedule` NULL: forwards alone. */
static inline virtual_run *virtual_begin(const char *schedule, int stages, const int *replicas,
                                         int chunks, int micro_batches)
{
    virtual_run *run = ech_calloc(1, sizeof *run);
    run->stages = stages;
    run->chunks = chunks;
    run->micro_batches = micro_batches;
    run->vee = schedule && ech_generator_find(schedule)->placement == ECH_PLACEMENT_VEE;
    run->end = ech_calloc((size_t)(stages * chunks * micro_batches * 3), sizeof *run->end);
    int behind = 0;
    for (int s = stages; s-- > 0;) {
        int r = run->replicas[s] = replicas ? replicas[s] : 1;
        behind += r;
        for (int j = 0; j < r; j++) {
            virtual_rank *rank = &run->rank[s][j];
            rank->pipe = (ech_pipe){.stages = stages,
                                    .stage = s,
                                    .chunks = chunks,
                                    .micro_batches = (micro_batches - j + r - 1) / r,
                                    .depth = (behind + r - 1) / r};
            if (schedule)
                ech_generator_find(schedule)->generate(&rank->pipe, &rank->order);
            else
                ech_order_forwards(&rank->pipe, &rank->order);
        }
    }
    return run;
}

static inline void virtual_end(virtual_run *run)
{
    for (int s = 0; s < run->stages; s++)
        for (int j = 0; j < run->replicas[s]; j++) free(run->rank[s][j].order.at);
    free(run->end);
    free(run);
}

static inline int virtual_stage_of(const virtual_run *run, int stage, int chunk)
{
    bool back = run->vee && chunk % 2;
    return chunk * run->stages + (back ? run->stages - 1 - stage : stage);
}

static inline int *virtual_at(const virtual_run *run, int virtual_stage, int q, ech_action action)
{
    return &run->end[(virtual_stage * run->micro_batches + q) * 3 + (int)action];
}

/* When the item's input from another virtual stage is there; 0: it has none. DEADLOCK: not yet
 * known. */
static inline int virtual_ready(const virtual_run *run, int virtual_stage, int q, ech_action action,
                                bool merged)
{
    int last = run->stages * run->chunks - 1, end;
    if (action == ECH_F && virtual_stage > 0)
        end = *virtual_at(run, virtual_stage - 1, q, ECH_F);
    else if (action == ECH_B && virtual_stage < last)
        end = *virtual_at(run, virtual_stage + 1, q, merged ? ECH_W : ECH_B);
    else
        return 0;
    return end > 0 ? end : DEADLOCK;
}

/* As far as the rank comes; whether that was at least an item. */
static inline bool virtual_advance(virtual_run *run, int stage, int replica, bool merged)
{
    virtual_rank *rank = &run->rank[stage][replica];
    size_t before = rank->done;
    for (; rank->done < rank->order.n; rank->done++) {
        const ech_order_item *item = &rank->order.at[rank->done];
        int q = item->micro * run->replicas[stage] + replica;
        int virtual_stage = virtual_stage_of(run, stage, item->chunk);
        int ready = virtual_ready(run, virtual_stage, q, item->action, merged);
        if (ready == DEADLOCK) break;
        rank->time = (ready > rank->time ? ready : rank->time) + 1;
        if (rank->done == 0) rank->begun = rank->time - 1;
        rank->busy++;
        *virtual_at(run, virtual_stage, q, item->action) = rank->time;
    }
    return rank->done > before;
}

/* When the last rank is done, or DEADLOCK. */
static inline int virtual_makespan(virtual_run *run, bool merged)
{
    bool moved = true;
    int last = 0;
    memset(run->end, 0,
           sizeof *run->end * (size_t)(run->stages * run->chunks * run->micro_batches * 3));
    for (int s = 0; s < run->stages; s++)
        for (int j = 0; j < run->replicas[s]; j++) {
            virtual_rank *rank = &run->rank[s][j];
            rank->done = 0;
            rank->time = rank->busy = 0;
        }
    while (moved) {
        moved = false;
        for (int s = 0; s < run->stages; s++)
            for (int j = 0; j < run->replicas[s]; j++) moved |= virtual_advance(run, s, j, merged);
    }
    for (int s = 0; s < run->stages; s++)
        for (int j = 0; j < run->replicas[s]; j++) {
            if (run->rank[s][j].done < run->rank[s][j].order.n) return DEADLOCK;
            if (run->rank[s][j].time > last) last = run->rank[s][j].time;
        }
    return last;
}

#endif
