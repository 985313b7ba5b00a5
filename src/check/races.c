/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks for races on every value of every kind: a step that reads a value waits for the step that
 * wrote it; a step that writes a value waits for all steps that have touched it. A value may have
 * parts. A step that works on a piece of a bucket touches no other piece of the bucket's weights
 * and states. If weights are updated in shards, a step may touch the rank's own shard while others'
 * shards arrive.
 */
#include <string.h>

#include "check/checker.h"
#include "schedule/print.h"

/* The last steps that touch a value; -1: none. */
typedef struct touched {
    int writer;
    int reader[ECH_LANES];
} touched;

/* One step per lane; -1: none. */
typedef struct steps_of_lanes {
    int step[ECH_LANES];
} steps_of_lanes;

typedef struct race_check {
    const ech_plan *plan;
    const ech_list *list;
    /* [persistent values, then the list's] index of a value's first part: its bucket's pieces, then
     * the other ranks' shards of weights that are updated in shards */
    int *first;
    touched *part;
    /* [likewise] the value whose memory it reuses (ech_value.successor); -1: none */
    int *heir_of;
    /* [steps] the latest step of each lane that has ended, with all before it, when the step
     * begins */
    steps_of_lanes *known;
    /* [steps] of messages, which overtake each other: the first step of each lane that has waited
     * for it */
    steps_of_lanes *waiter;
    steps_of_lanes last;
    int scratch[ECH_LANES]; /* of the lane's last step, a sum over ranks; -1: it has none */
} race_check;

static bool is_message(const ech_step *step)
{
    return ech_step_sends(step) || ech_step_receives(step);
}

static void join(int *known, int step)
{
    if (step > *known) *known = step;
}

/* A lane begins its steps in order; all but messages end in order. */
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
    return ECH_REJECT(c, s, "does not wait for step %d, which %s %s", other, what, name.at);
}

/* Checks that all steps have ended that must not overlap a read, or a write, of a part of the
 * value. */
static ech_status expect_all(const race_check *c, int s, int value, int part, bool write)
{
    const touched *of = &c->part[part];
    ECH_TRY(expect(c, s, of->writer, value, "writes"));
    for (int lane = 0; lane < ECH_LANES && write; lane++)
        ECH_TRY(expect(c, s, of->reader[lane], value, "reads"));
    return ECH_OK;
}

static ech_status touch_part(race_check *c, int s, int value, int part, bool write)
{
    touched *of = &c->part[part];
    bool is_new = value >= (int)c->plan->persistent.n && of->writer < 0;
    if (is_new && !write) return ECH_REJECT(c, s, "reads a value that nothing has written");
    ECH_TRY(expect_all(c, s, value, part, write));
    int heir = is_new ? c->heir_of[value] : -1;
    if (heir >= 0) ECH_TRY(expect_all(c, s, heir, c->first[heir], true));
    *(write ? &of->writer : &of->reader[c->list->step.at[s].lane]) = s;
    return ECH_OK;
}

/* True if the value is a slot of weights that are updated in shards. */
static bool is_of_shards(const race_check *c, size_t value)
{
    if (value >= c->plan->persistent.n) return false;
    const ech_value *v = &c->plan->persistent.at[value];
    return ech_memory_is_weights(v->kind) && v->index >= 0 &&
           ech_bucket_is_sharded(&c->plan->bucket.at[v->index]);
}

/* A gather reads its own shard and writes the others'. Among a bucket's other steps, only a copy of
 * weights stored elsewhere touches all shards. */
static ech_status touch(race_check *c, int s, const ech_access *access)
{
    const ech_step *step = &c->list->step.at[s];
    int value = access->value, first = c->first[value], end = c->first[value + 1];
    bool of_shards = is_of_shards(c, (size_t)value);
    bool gathers = of_shards && step->kind == ECH_STEP_GATHER_WEIGHTS && access->write;
    bool is_whole = step->kind == ECH_STEP_OFFLOAD_WEIGHTS && c->plan->weights != ECH_SPACE_DEVICE;
    int piece = ech_step_piece(step), pieces = end - first - (of_shards ? 1 : 0);
    for (int i = 0; i < pieces; i++)
        if (!piece || pieces == 1 || i == (piece - 1) % pieces)
            ECH_TRY(touch_part(c, s, value, first + i, access->write && !gathers));
    if (!of_shards || (ech_step_has_bucket(step) && !gathers && !is_whole)) return ECH_OK;
    return touch_part(c, s, value, end - 1, access->write);
}

/* Counts the parts of each value, then finds where they begin. Returns the total. */
static size_t find_parts(const race_check *c, size_t values)
{
    int parts = 0;
    for (size_t v = 0; v < values; v++) c->first[v] = 1;
    for (size_t b = 0; b < c->plan->bucket.n && c->plan->persistent.n; b++) {
        const ech_bucket *bucket = &c->plan->bucket.at[b];
        for (int v = 0; v < bucket->versions; v++) c->first[bucket->weights + v] = bucket->pieces;
        for (int i = 0; i < bucket->state_values; i++)
            c->first[c->plan->state_value.at[bucket->first_state_value + i]] =
                i < bucket->states ? bucket->pieces : 1;
    }
    for (size_t v = 0; v <= values; v++) {
        int here = c->first[v] + (is_of_shards(c, v) ? 1 : 0);
        c->first[v] = parts;
        parts += here;
    }
    return (size_t)parts;
}

/* A sum over ranks begins while the previous one on its lane ends. */
static ech_status check_scratch(race_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    int before = c->scratch[step->lane], now = ech_step_is_sum(step) ? step->scratch : -1;
    c->scratch[step->lane] = now;
    if (now < 0 || now != before) return ECH_OK;
    return ECH_REJECT(c, s, "has the scratch of the sum before it");
}

static ech_status check_step(race_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    learn(c, s);
    ECH_TRY(check_scratch(c, s));
    for (int i = 0; i < step->accesses; i++) {
        const ech_access *access = &c->list->access.at[step->first_access + i];
        ECH_TRY(touch(c, s, access));
    }
    return ECH_OK;
}

ech_status ech_check_races(const ech_plan *plan, const ech_list *list)
{
    size_t values = plan->persistent.n + list->value.n, steps = list->step.n;
    ECH_FREED int *first = ech_calloc(values + 1, sizeof *first);
    ECH_FREED int *heir_of = ech_calloc(values + 1, sizeof *heir_of);
    ECH_FREED steps_of_lanes *known = ech_calloc(steps + 1, sizeof *known);
    ECH_FREED steps_of_lanes *waiter = ech_calloc(steps + 1, sizeof *waiter);
    race_check c = {plan, list, first, .heir_of = heir_of, .known = known, .waiter = waiter};
    size_t parts = find_parts(&c, values);
    ECH_FREED touched *part = c.part = ech_calloc(parts + 1, sizeof *part);
    memset(c.part, -1, parts * sizeof *c.part);
    memset(c.heir_of, -1, values * sizeof *c.heir_of);
    for (size_t v = 0; v < list->value.n; v++)
        if (list->value.at[v].successor >= 0)
            c.heir_of[plan->persistent.n + (size_t)list->value.at[v].successor] =
                (int)(plan->persistent.n + v);
    memset(c.known, -1, steps * sizeof *c.known);
    memset(c.waiter, -1, steps * sizeof *c.waiter);
    memset(&c.last, -1, sizeof c.last);
    memset(c.scratch, -1, sizeof c.scratch);
    for (int s = 0; s < (int)list->step.n; s++) ECH_TRY(check_step(&c, s));
    return ECH_OK;
}
