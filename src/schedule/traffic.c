/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes that a rank sends in a run of its train list, counted only from the steps.
 */
#include <stdlib.h>

#include "schedule/step/step.h"

static const struct {
    const char *text;
    ech_space from, to;
} axes[ECH_TRAFFIC_AXES] = {
#define X(name, text, from, to, what) {text, ECH_SPACE_##from, ECH_SPACE_##to},
#include "schedule/traffic.def"
#undef X
};

const char *ech_traffic_axis_name(ech_traffic_axis axis)
{
    return axes[axis].text;
}

bool ech_traffic_copies(ech_traffic_axis axis, ech_space *from, ech_space *to)
{
    *from = axes[axis].from;
    *to = axes[axis].to;
    return *from != *to;
}

void ech_traffic_add_copy(ech_traffic_count *c, ech_space from, ech_space to, int64_t bytes)
{
    for (ech_traffic_axis axis = 0; axis < ECH_TRAFFIC_AXES; axis++)
        if (axes[axis].from == from && axes[axis].to == to)
            ech_traffic_add(&c->traffic[axis], ECH_COLLECTIVE_NONE, ECH_GROUP_WORLD,
                            (ech_flow){.calls = 1, .messages = -1, .bytes = bytes});
}

static void add(ech_flow *sum, const ech_flow *one)
{
    bool known = sum->messages >= 0 && one->messages >= 0;
    sum->calls += one->calls;
    sum->messages = known ? sum->messages + one->messages : -1;
    sum->bytes += one->bytes;
    sum->more += one->more;
}

void ech_traffic_add(ech_traffic *traffic, ech_collective kind, ech_layout_group group,
                     ech_flow flow)
{
    add(&traffic->of[group][kind], &flow);
}

ech_flow ech_traffic_of(const ech_traffic *traffic, int collective, int group)
{
    ech_flow sum = {0};
    for (int g = 0; g < ECH_GROUPS; g++)
        for (int kind = 0; kind < ECH_COLLECTIVES; kind++)
            if ((group < 0 || g == group) && (collective < 0 || kind == collective))
                add(&sum, &traffic->of[g][kind]);
    return sum;
}

ech_flow ech_plan_traffic_along(const ech_plan *plan, ech_traffic_axis axis)
{
    ech_traffic traffic[ECH_TRAFFIC_AXES];
    ech_plan_traffic(plan, traffic);
    return ech_traffic_all(&traffic[axis]);
}

void ech_plan_traffic(const ech_plan *plan, ech_traffic traffic[ECH_TRAFFIC_AXES])
{
    ech_plan_list_traffic(plan, ECH_LIST_TRAIN, traffic);
}

void ech_plan_list_traffic(const ech_plan *plan, ech_list_kind list,
                           ech_traffic traffic[ECH_TRAFFIC_AXES])
{
    ech_traffic_count c = {.plan = plan, .list = &plan->list[list], .traffic = traffic};
    for (int axis = 0; axis < ECH_TRAFFIC_AXES; axis++) traffic[axis] = (ech_traffic){0};
    for (int kind = 0; kind < ECH_GROUPS; kind++)
        c.of[kind] =
            ech_layout_membership(plan->layout, plan->model, plan->rank, (ech_layout_group)kind);
    for (size_t s = 0; s < c.list->step.n; s++) {
        const ech_step *step = &c.list->step.at[s];
        const ech_step_methods *methods = ech_step_row_of(step->kind)->methods;
        if (methods->count) methods->count(&c, step);
    }
}
