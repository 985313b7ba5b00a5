/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of timelines: some to look at.
 */
#ifndef ECH_TESTS_SCHEDULE_TIMELINES_H
#define ECH_TESTS_SCHEDULE_TIMELINES_H

#include <math.h>
#include <stdlib.h>

#include "draw/timeline.h"
#include "unit.h"

/* cmocka compares floats only. */
#define assert_near(a, b, tolerance) assert_true(fabs((a) - (b)) <= (tolerance))

static inline void add(ech_timeline *timeline, int rank, ech_bar_kind kind, int micro, double begin,
                       double end)
{
    ECH_PUSH(timeline->bar, (ech_timeline_bar){rank, kind, 0, micro, begin, end, 0});
}

typedef struct pipeline_shape {
    int stages, micro_batches;
    double forward, backward; /* how long one takes; W is as long as B */
} pipeline_shape;

/* The i-th of stage r's 2m forwards and backwards: min(p - r - 1, m) forwards, then one of each. */
static inline bool is_forward(const pipeline_shape *shape, int rank, int i, int *micro)
{
    int m = shape->micro_batches, ahead = shape->stages - rank - 1;
    if (ahead > m) ahead = m;
    int pairs = 2 * (m - ahead), j = i - ahead;
    bool forward = j < 0 || (j < pairs && j % 2 == 0);
    *micro = j < 0 ? i : j < pairs ? j / 2 + (forward ? ahead : 0) : j - m + ahead;
    return forward;
}

/* 1F1B in which a stage sends a gradient when B and W are done: round after round each stage does
 * what it can. */
static inline ech_timeline make_1f1b(const pipeline_shape *shape)
{
    int p = shape->stages, m = shape->micro_batches, left = p * 2 * m;
    ech_timeline timeline = {.ranks = p, .chunks = 1};
    double *done[2]; /* when a stage is through with a micro-batch's F and B; -1: not yet */
    for (int i = 0; i < 2; i++) {
        done[i] = ech_calloc((size_t)(p * m), sizeof(double));
        for (int j = 0; j < p * m; j++) done[i][j] = -1;
    }
    double *now = ech_calloc((size_t)p, sizeof *now);
    int *next = ech_calloc((size_t)p, sizeof *next);
    while (left > 0) {
        int before = left;
        for (int rank = 0; rank < p; rank++)
            while (next[rank] < 2 * m) {
                int micro;
                bool forward = is_forward(shape, rank, next[rank], &micro);
                double *ends = done[!forward], ready = 0;
                int from = forward ? rank - 1 : rank + 1;
                if (from >= 0 && from < p) ready = ends[from * m + micro];
                if (ready < 0) break;
                double begin = fmax(now[rank], ready);
                if (forward) {
                    now[rank] = begin + shape->forward;
                    add(&timeline, rank, ECH_BAR_FORWARD, micro, begin, now[rank]);
                } else {
                    double middle = begin + shape->backward;
                    now[rank] = middle + shape->backward;
                    add(&timeline, rank, ECH_BAR_BACKWARD, micro, begin, middle);
                    add(&timeline, rank, ECH_BAR_WEIGHT, micro, middle, now[rank]);
                }
                ends[rank * m + micro] = now[rank];
                next[rank]++;
                left--;
            }
        assert_true(left < before);
    }
    free(done[0]);
    free(done[1]);
    free(now);
    free(next);
    ech_timeline_finish(&timeline);
    return timeline;
}

static const pipeline_shape usual = {4, 8, 1, 1};

#endif
