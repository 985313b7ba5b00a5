/* SPDX-License-Identifier: Apache-2.0
 *
 * What is known to be complete when a step begins, whatever the lanes' speeds: a set of steps for
 * each step. It is computed slowly, from waits and the order of lanes alone. Free `known`.
 */
#ifndef ECH_TESTS_SCHEDULE_KNOWLEDGE_H
#define ECH_TESTS_SCHEDULE_KNOWLEDGE_H

#include "schedule/schedule.h"

/* known[s]: bit t is set where step t is complete whenever s begins. */
typedef struct knowledge {
    size_t words;
    uint64_t *known;
} knowledge;

static inline uint64_t *knowledge_of(const knowledge *k, size_t step)
{
    return &k->known[step * k->words];
}

static inline bool knowledge_has(const knowledge *k, size_t step, size_t other)
{
    return knowledge_of(k, step)[other / 64] >> other % 64 & 1;
}

static inline void knowledge_join(const knowledge *k, uint64_t *to, size_t from)
{
    for (size_t w = 0; w < k->words; w++) to[w] |= knowledge_of(k, from)[w];
}

/* `step` is complete, and with it all that its lane ended before. */
static inline void knowledge_complete(const knowledge *k, const ech_list *list, uint64_t *to,
                                      int step)
{
    ech_lane lane = list->step.at[step].lane;
    knowledge_join(k, to, (size_t)step);
    to[step / 64] |= (uint64_t)1 << step % 64;
    if (lane == ECH_LANE_SEND || lane == ECH_LANE_RECEIVE) return; /* messages overtake */
    for (int s = 0; s < step; s++)
        if (list->step.at[s].lane == lane) to[s / 64] |= (uint64_t)1 << s % 64;
}

static inline knowledge knowledge_find(const ech_list *list)
{
    knowledge k = {.words = list->step.n / 64 + 1};
    k.known = ech_calloc(list->step.n * k.words, sizeof *k.known);
    int last[ECH_LANES], before[ECH_LANES]; /* that one */
    for (int lane = 0; lane < ECH_LANES; lane++) last[lane] = before[lane] = -1;
    for (int s = 0; s < (int)list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        uint64_t *own = knowledge_of(&k, (size_t)s);
        for (int i = 0; i < step->afters; i++)
            knowledge_complete(&k, list, own, list->after.at[step->first_after + i]);
        /* A lane begins in order: what was complete then is complete now. */
        if (last[step->lane] >= 0) knowledge_join(&k, own, (size_t)last[step->lane]);
        if (step->lane == ECH_LANE_COMPUTE && last[step->lane] >= 0)
            knowledge_complete(&k, list, own, last[step->lane]);
        /* Other lanes may begin a step while the one before it ends, and end them in order. */
        bool overtakes = step->lane == ECH_LANE_SEND || step->lane == ECH_LANE_RECEIVE;
        if (!overtakes && before[step->lane] >= 0)
            knowledge_complete(&k, list, own, before[step->lane]);
        before[step->lane] = last[step->lane];
        last[step->lane] = s;
    }
    return k;
}

#endif
