/* SPDX-License-Identifier: Apache-2.0
 *
 * Synchronization of diverged replicas: DIFFERENCE and OUTER_UPDATE, bucket by bucket; EXCHANGE;
 * and averaging with neighbours: NEIGHBOURS and MIX. The data exchanged for a
 * bucket has the layout of its gradients, in a value of the list's own.
 */
#include "schedule/step/step.h"
#include "schedule/protocol/protocol.h"
#include "schedule/states.h"

static const ech_bucket *bucket_of(const ech_plan *plan, const ech_step *step)
{
    return &plan->bucket.at[step->index];
}

static void touch_state(ech_accessor *a, ech_state_role role, bool write)
{
    int value = ech_plan_bucket_state_of(a->plan, a->step->index, role);
    if (value >= 0) ech_access_value(a, value, write);
}

/* Weights, and their masters if there are any. */
static void touch_weights(ech_accessor *a, bool write)
{
    int masters = ech_plan_masters(a->plan, a->step->index);
    if (masters >= 0) ech_access_value(a, masters, write);
    ech_access_weights(a, a->step->index, a->step->version, write);
}

/* Adds a value for `times` times the bucket's elements. */
static void touch_new(ech_accessor *a, int times)
{
    const ech_bucket *bucket = bucket_of(a->plan, a->step);
    int *summed = ech_access_summed(a, a->step->index);
    *summed = ech_access_new_gradients(a, a->step->index, -1, times * bucket->elements);
    ech_access_sum(a, true);
}

/* How DIFFERENCE, OUTER_UPDATE or EXCHANGE uses tensors. */
typedef struct use {
    bool reads, writes;
} use;

static void find_uses(const ech_plan *plan, const ech_step *step, use uses[ECH_MEETING_TENSORS])
{
    ech_meeting meeting = ech_protocol_meeting(plan, step);
    bool has = ech_plan_bucket_state_of(plan, step->index, ECH_STATE_OUTER_MOMENTUM) >= 0;
    for (int i = 0; i < ECH_MEETING_TENSORS; i++) uses[i] = (use){0};
    for (int i = 0; i < meeting.rows; i++) {
        use *from = &uses[meeting.row[i].from], *to = &uses[meeting.row[i].to];
        bool lacks = from == &uses[ECH_MEETING_MOMENTUM] || to == &uses[ECH_MEETING_MOMENTUM];
        if (lacks && !has) continue;
        from->reads |= !from->writes;
        to->reads |= meeting.row[i].keep && !to->writes;
        to->writes = true;
    }
}

/* In a train list the value has held the first turn's partials (ech_frame_average). */
static void touch_difference(ech_accessor *a)
{
    if (*ech_access_summed(a, a->step->index) < 0)
        touch_new(a, 1);
    else
        ech_access_sum(a, true);
    touch_state(a, ECH_STATE_ANCHOR, false);
    touch_weights(a, false);
}

static void touch_outer_update(ech_accessor *a)
{
    use uses[ECH_MEETING_TENSORS];
    find_uses(a->plan, a->step, uses);
    ech_access_sum(a, uses[ECH_MEETING_SUM].writes);
    touch_state(a, ECH_STATE_ANCHOR, true);
    touch_state(a, ECH_STATE_OUTER_MOMENTUM, true);
    touch_weights(a, true);
}

static void touch_exchange(ech_accessor *a)
{
    touch_new(a, 1);
    touch_state(a, ECH_STATE_ANCHOR, true);
    touch_weights(a, true);
}

/* The data of two neighbours; masters are sent if there are any. */
static void touch_neighbours(ech_accessor *a)
{
    touch_new(a, 2);
    touch_weights(a, false);
}

static void touch_mix(ech_accessor *a)
{
    ech_access_sum(a, false);
    touch_weights(a, true);
}

/* n passes over the bucket's numbers. */
static ech_work passes(const ech_step_query *q, int n)
{
    const ech_bucket *bucket = bucket_of(q->plan, q->step);
    return (ech_work){.bytes = n * (double)bucket->elements *
                               (double)ech_dtype_bytes(q->plan->types.wide)};
}

static ech_work meeting_work(const ech_step_query *q)
{
    use uses[ECH_MEETING_TENSORS];
    int n = 0;
    find_uses(q->plan, q->step, uses);
    for (int i = 0; i < ECH_MEETING_TENSORS; i++) n += uses[i].reads + uses[i].writes;
    return passes(q, n);
}

const ech_step_methods ech_difference_methods = {.touch = touch_difference,
                                                 .print = ech_step_print_bucket,
                                                 .work = meeting_work,
                                                 .seconds = ech_step_pass_seconds};
const ech_step_methods ech_outer_update_methods = {.touch = touch_outer_update,
                                                   .print = ech_step_print_bucket,
                                                   .work = meeting_work,
                                                   .seconds = ech_step_pass_seconds};
const ech_step_methods ech_exchange_methods = {.touch = touch_exchange,
                                               .print = ech_step_print_bucket,
                                               .work = meeting_work,
                                               .seconds = ech_step_pass_seconds};

/* ---- neighbours ---- */

static int64_t bytes_of(const ech_plan *plan, const ech_step *step)
{
    return bucket_of(plan, step)->elements * (int64_t)ech_dtype_bytes(plan->types.wide);
}

static ech_work neighbours_work(const ech_step_query *q)
{
    return (ech_work){.bytes = 2 * (double)bytes_of(q->plan, q->step)};
}

static double neighbours_seconds(const ech_step_query *q)
{
    const ech_rates *rates = &q->costs->rates;
    return ech_rates_latency(rates, 2, q->among.first, q->among.last) +
           neighbours_work(q).bytes / ech_step_bandwidth(q);
}

static void count_neighbours(ech_traffic_count *c, const ech_step *step)
{
    ech_flow flow = {.calls = 2, .messages = 2, .bytes = 2 * bytes_of(c->plan, step)};
    ech_traffic_add(&c->traffic[ECH_TRAFFIC_DATA], ECH_COLLECTIVE_SHIFT, step->group, flow);
}

static ech_work mix_work(const ech_step_query *q)
{
    return passes(q, 5);
}

const ech_step_methods ech_neighbours_methods = {
    touch_neighbours, ech_step_print_over, neighbours_work, neighbours_seconds, count_neighbours};
const ech_step_methods ech_mix_methods = {.touch = touch_mix,
                                          .print = ech_step_print_bucket,
                                          .work = mix_work,
                                          .seconds = ech_step_pass_seconds};
