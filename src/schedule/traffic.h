/* SPDX-License-Identifier: Apache-2.0
 *
 * What kinds of steps add to a rank's traffic (ech_plan_traffic). Private to this room.
 */
#ifndef ECH_SCHEDULE_TRAFFIC_H
#define ECH_SCHEDULE_TRAFFIC_H

#include "schedule/schedule.h"

/* A rank's group, and its place in it. */
typedef struct ech_membership {
    int size, index;
} ech_membership;

typedef struct ech_traffic_count {
    const ech_plan *plan;
    const ech_list *list;
    ech_membership of[ECH_GROUPS];
    ech_traffic *traffic; /* [ECH_TRAFFIC_AXES] */
} ech_traffic_count;

ech_membership ech_traffic_membership(const ech_plan *plan, ech_group_kind group);
/* So many calls of a collective over a group. */
void ech_traffic_add_calls(ech_traffic *traffic, ech_collective kind, ech_group_kind group,
                           int64_t calls);

#endif
