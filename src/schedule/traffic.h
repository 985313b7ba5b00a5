/* SPDX-License-Identifier: Apache-2.0
 *
 * TRAFFIC is what a rank sends, by the axis of the layout that makes it necessary.
 */
#ifndef ECH_SCHEDULE_TRAFFIC_H
#define ECH_SCHEDULE_TRAFFIC_H

#include "schedule/schedule.h"

typedef enum ech_traffic_axis {
#define X(name, text, what) ECH_TRAFFIC_##name,
#include "schedule/traffic.def"
#undef X
    ECH_TRAFFIC_AXES
} ech_traffic_axis;

const char *ech_traffic_axis_name(ech_traffic_axis axis);
typedef struct ech_traffic {
    int64_t bytes;
    int64_t messages; /* -1: unknown, where another algorithm than `direct` reduces gradients */
    /* Collectives by kind; REDUCE_GRADS counts as ALL_REDUCE, a message between stages as NONE. */
    int64_t calls[ECH_COLLECTIVES];
    int64_t groups[ECH_GROUPS]; /* the same collectives by group */
} ech_traffic;

/* What this rank sends in one execution of the train list (all its turns), counted from its steps; works for outlines,
 * too. REDUCE steps, which fold scalars, are left out. */
void ech_plan_traffic(const ech_plan *plan, ech_traffic traffic[ECH_TRAFFIC_AXES]);
ech_traffic ech_plan_traffic_along(const ech_plan *plan, ech_traffic_axis axis);

#endif
