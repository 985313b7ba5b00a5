/* SPDX-License-Identifier: Apache-2.0
 *
 * TRAFFIC is what a rank sends, by the axis of the layout that makes it necessary, the kind of
 * collective and its group; and what it copies from one space to another.
 */
#ifndef ECH_SCHEDULE_TRAFFIC_H
#define ECH_SCHEDULE_TRAFFIC_H

#include "schedule/plan.h"

typedef enum ech_traffic_axis {
#define X(name, ...) ECH_TRAFFIC_##name,
#include "schedule/traffic.def"
#undef X
    ECH_TRAFFIC_AXES
} ech_traffic_axis;

const char *ech_traffic_axis_name(ech_traffic_axis axis);
/* The spaces between which bytes are copied along the axis. False: they are sent to other ranks. */
bool ech_traffic_copies(ech_traffic_axis axis, ech_space *from, ech_space *to);

/* What this rank sends by one kind of collective over groups of one kind: REDUCE_GRADS counts as
 * ALL_REDUCE, SCATTER_GRADS as REDUCE_SCATTER, GATHER_WEIGHTS as ALL_GATHER, a message between
 * stages or a copy as NONE, over the world. */
typedef struct ech_flow {
    int64_t calls;
    /* -1: unknown, where another algorithm than `direct` reduces gradients, and of copies */
    int64_t messages;
    int64_t bytes; /* of rows by counts what is expected: as many to each expert */
    int64_t more;  /* of these, by how much at most it may be more */
} ech_flow;

/* All that goes along an axis. */
typedef struct ech_traffic {
    ech_flow of[ECH_GROUPS][ECH_COLLECTIVES];
} ech_traffic;

enum { ECH_FLOW_ANY = -1 };
/* The sum over kinds of collectives, groups (ECH_FLOW_ANY), or both. */
ech_flow ech_traffic_of(const ech_traffic *traffic, int collective, int group);
static inline ech_flow ech_traffic_all(const ech_traffic *traffic)
{
    return ech_traffic_of(traffic, ECH_FLOW_ANY, ECH_FLOW_ANY);
}

/* What this rank sends and copies in one execution of the train list (all its turns), counted from
 * its steps; works for outlines, too. REDUCE steps, which fold scalars, are left out. */
void ech_plan_traffic(const ech_plan *plan, ech_traffic traffic[ECH_TRAFFIC_AXES]);
/* The same of one execution of another list, of a plan that is no outline. */
void ech_plan_list_traffic(const ech_plan *plan, ech_list_kind list,
                           ech_traffic traffic[ECH_TRAFFIC_AXES]);
ech_flow ech_plan_traffic_along(const ech_plan *plan, ech_traffic_axis axis);

#endif
