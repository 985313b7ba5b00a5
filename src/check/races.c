/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks what steps know of each other, for every value of every kind: a step that reads a value comes
 * after the step that wrote it and knows that it has ended; a step that writes knows this of all steps
 * that have touched the value. Weights that are updated in shards have two parts, since a step may
 * touch the rank's own shard while others' shards arrive.
 */
#include <stdlib.h>
#include <string.h>

#include "check/checker.h"

/* The last steps that touch a value; -1: none. */
typedef struct touched {
    int writer;
    int reader[ECH_LANES];
} touched;

/* Of each lane one step; -1: none. */
typedef struct steps_of_lanes {
    int step[ECH_LANES];
} steps_of_lanes;

/* Of a slot of weights that are updated in shards: the rank's own shard, and the others'. All other
 * values are OWN. */
typedef enum part { OWN, OTHERS, PARTS } part;

typedef struct race_check {
    const ech_plan *plan;
    const ech_list *list;
    touched *value; /* [persistent values, then the list's][PARTS] */
    int *heir_of;   /* [persistent values, then the list's] whose memory the value takes over (ech_value.successor); -1: none */
    steps_of_lanes *
        known; /* [steps] the latest of each lane that is complete when the step begins, and all before it */
    steps_of_lanes *
        waiter; /* [steps] of messages, which overtake each other: the first of each lane that has waited for it */
    steps_of_lanes last;
} race_check;

static bool is_message(const ech_step *step)
{
    return ech_step_sends(step) || ech_step_receives(step);
}

static void join(int *known, int step)
{
    if (step > *known) *known = step;
}

/* A lane begins its steps in order, and all but messages end in order. */
static void learn(race_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    int *own = c->known[s].step, last = c->last.step[step->lane];
    if (last >= 0) c->known[s] = c->known[last];
    if (last >= 0 && !is_message(step)) join(&own[step->lane], last);
    for (int i = 0; i < step->afters; i++) {
        int after = c->list->after.at[step->first_after + i];
        const ech_step *before = &c->list->step.at[after];
        int *waiter = &c->waiter[after].step[step->lane];
        for (int lane = 0; lane < ECH_LANES; lane++) join(&own[lane], c->known[after].step[lane]);
        if (!is_message(before)) join(&own[before->lane], after);
        if (*waiter < 0) *waiter = s;
    }
    c->last.step[step->lane] = s;
}

static bool knows(const race_check *c, int s, int other)
{
    const ech_step *step = &c->list->step.at[s], *before = &c->list->step.at[other];
    if (!is_message(before)) return c->known[s].step[before->lane] >= other;
    for (int lane = 0; lane < ECH_LANES; lane++) {
        int waiter = c->waiter[other].step[lane];
        if (waiter >= 0 && ((int)step->lane == lane || c->known[s].step[lane] >= waiter))
            return true;
    }
    return false;
}

static ech_status expect(const race_check *c, int s, int other, int value, const char *what)
{
    if (other < 0 || other == s || knows(c, s, other)) return ECH_OK;
    ECH_FREED_TEXT name = {0};
    ech_value_print(c->plan, c->list, value, &name);
    return ech_list_reject(c->plan, c->list, s, "does not wait for step %d, which %s %s", other,
                           what, name.at);
}

/* That all have ended that a read, or a write, of the value must not meet. */
static ech_status expect_all(const race_check *c, int s, int value, part of_it, bool write)
{
    const touched *of = &c->value[value * PARTS + (int)of_it];
    ECH_TRY(expect(c, s, of->writer, value, "writes"));
    for (int lane = 0; lane < ECH_LANES && write; lane++)
        ECH_TRY(expect(c, s, of->reader[lane], value, "reads"));
    return ECH_OK;
}

static ech_status touch(race_check *c, int s, int value, part of_it, bool write)
{
    touched *of = &c->value[value * PARTS + (int)of_it];
    bool is_new = value >= (int)c->plan->persistent.n && of->writer < 0;
    if (is_new && !write)
        return ech_list_reject(c->plan, c->list, s, "reads a value that nothing has written");
    ECH_TRY(expect_all(c, s, value, of_it, write));
    if (is_new && c->heir_of[value] >= 0)
        ECH_TRY(expect_all(c, s, c->heir_of[value], of_it, true));
    *(write ? &of->writer : &of->reader[c->list->step.at[s].lane]) = s;
    return ECH_OK;
}

/* Whether the value is a slot of weights that are updated in shards. */
static bool is_of_shards(const race_check *c, int value)
{
    if (value >= (int)c->plan->persistent.n) return false;
    const ech_value *v = &c->plan->persistent.at[value];
    return ech_memory_is_weights(v->kind) && v->index >= 0 && c->plan->bucket.at[v->index].sharded;
}

/* A gather reads the own shard and writes the others'. Of a bucket's other steps only a copy of
 * weights that are kept elsewhere is of all shards. */
static ech_status touch_shards(race_check *c, int s, const ech_access *access)
{
    const ech_step *step = &c->list->step.at[s];
    bool gathers = step->kind == ECH_STEP_GATHER_WEIGHTS && access->write;
    bool is_whole = step->kind == ECH_STEP_OFFLOAD_WEIGHTS && c->plan->weights != ECH_SPACE_DEVICE;
    ECH_TRY(touch(c, s, access->value, OWN, access->write && !gathers));
    if (ech_step_has_bucket(step) && !gathers && !is_whole) return ECH_OK;
    return touch(c, s, access->value, OTHERS, access->write);
}

static ech_status check_step(race_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    learn(c, s);
    for (int i = 0; i < step->accesses; i++) {
        const ech_access *access = &c->list->access.at[step->first_access + i];
        ECH_TRY(is_of_shards(c, access->value) ? touch_shards(c, s, access)
                                               : touch(c, s, access->value, OWN, access->write));
    }
    return ECH_OK;
}

ech_status ech_check_races(const ech_plan *plan, const ech_list *list)
{
    size_t values = plan->persistent.n + list->value.n, steps = list->step.n;
    race_check c = {.plan = plan,
                    .list = list,
                    .value = ech_calloc(values * PARTS + 1, sizeof *c.value),
                    .heir_of = ech_calloc(values + 1, sizeof *c.heir_of),
                    .known = ech_calloc(steps + 1, sizeof *c.known),
                    .waiter = ech_calloc(steps + 1, sizeof *c.waiter)};
    memset(c.value, -1, values * PARTS * sizeof *c.value);
    memset(c.heir_of, -1, values * sizeof *c.heir_of);
    for (size_t v = 0; v < list->value.n; v++)
        if (list->value.at[v].successor >= 0)
            c.heir_of[plan->persistent.n + (size_t)list->value.at[v].successor] =
                (int)(plan->persistent.n + v);
    memset(c.known, -1, steps * sizeof *c.known);
    memset(c.waiter, -1, steps * sizeof *c.waiter);
    memset(&c.last, -1, sizeof c.last);
    ech_status status = ECH_OK;
    for (int s = 0; s < (int)list->step.n && status == ECH_OK; s++) status = check_step(&c, s);
    free(c.value);
    free(c.heir_of);
    free(c.known);
    free(c.waiter);
    return status;
}
