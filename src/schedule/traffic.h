/* SPDX-License-Identifier: Apache-2.0
 *
 * How kinds of steps add to a rank's traffic (ech_plan_traffic). Private to src/schedule.
 */
#ifndef ECH_SCHEDULE_TRAFFIC_H
#define ECH_SCHEDULE_TRAFFIC_H

#include "schedule/schedule.h"

typedef struct ech_traffic_count {
    const ech_plan *plan;
    const ech_list *list;
    ech_membership of[ECH_GROUPS]; /* the rank's */
    ech_traffic *traffic;          /* [ECH_TRAFFIC_AXES]; what is counted is added to it */
} ech_traffic_count;

/* Adds `calls` of a collective over a group. */
void ech_traffic_add_calls(ech_traffic *traffic, ech_collective kind, ech_layout_group group,
                           int64_t calls);

#endif
