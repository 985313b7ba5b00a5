/* SPDX-License-Identifier: Apache-2.0
 *
 * Lives of values that several lanes touch in turn: a copy writes a value, and a gather reads it.
 */

#include "schedule/passes.h"
#include "unit.h"

static void touch(ech_list *list, int step, int value)
{
    ech_access access = {.value = value, .write = true};
    list->step.at[step].first_access = (int)list->access.n;
    list->step.at[step].accesses = 1;
    ECH_PUSH(list->access, access);
}

static int add(ech_list *list, ech_lane lane, int after)
{
    int step = ech_list_add(list, ECH_STEP_NORM);
    list->step.at[step].lane = lane;
    list->step.at[step].tick = list->ticks;
    if (lane == ECH_LANE_COMPUTE) list->ticks++;
    if (after >= 0) ech_list_add_after(list, after);
    return step;
}

/* Compute 0, 1, 2, 3, 4, 5; the copy comes after 0, the gather after the copy, and compute 3 after
 * the gather. */
TEST(what_the_awaited_has_waited_for_has_ended)
{
    ech_plan plan = {0};
    ech_list list = {0};
    int first = add(&list, ECH_LANE_COMPUTE, -1);
    int copy = add(&list, ECH_LANE_COPY_IN, first);
    int gather = add(&list, ECH_LANE_GATHER, copy);
    add(&list, ECH_LANE_COMPUTE, -1);
    add(&list, ECH_LANE_COMPUTE, -1);
    add(&list, ECH_LANE_COMPUTE, gather);
    int late = add(&list, ECH_LANE_COPY_OUT, gather); /* for which nobody waits */
    add(&list, ECH_LANE_COMPUTE, -1);
    add(&list, ECH_LANE_COMPUTE, -1);
    for (int v = 0; v < 3; v++) ECH_PUSH(list.value, (ech_value){.successor = -1});
    touch(&list, copy, 0);
    touch(&list, gather, 1);
    touch(&list, late, 2);
    ech_pass_lifetime(&plan, &list);
    assert_int_equal(list.value.at[0].born, 1);
    assert_int_equal(list.value.at[0].dies, 3);
    assert_int_equal(list.value.at[1].born, 1);
    assert_int_equal(list.value.at[1].dies, 3);
    assert_int_equal(list.value.at[2].born, 1);
    assert_int_equal(list.value.at[2].dies, 5);
    ech_list_free(&list);
}
