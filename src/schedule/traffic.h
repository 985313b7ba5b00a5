/* SPDX-License-Identifier: Apache-2.0
 *
 * TRAFFIC: the bytes and messages that a rank sends, by axis of the layout, kind of collective and
 * group; and the bytes that it copies from one space to another.
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
/* The spaces between which bytes of the axis are copied. False: the bytes are sent to other
 * ranks. */
bool ech_traffic_copies(ech_traffic_axis axis, ech_space *from, ech_space *to);

/* The amount that this rank sends by one kind of collective over one kind of group. REDUCE_GRADS
 * counts as ALL_REDUCE, SCATTER_GRADS as REDUCE_SCATTER, GATHER_WEIGHTS as ALL_GATHER; a message
 * between stages or a copy counts as NONE, over the world. */
typedef struct ech_flow {
    int64_t calls;
    /* -1: unknown, if gradients are reduced by an algorithm other than `direct`, and for copies */
    int64_t messages;
    /* for exchanges of counted rows the expected bytes, with equally many rows per expert */
    int64_t bytes;
    int64_t more; /* the most by which `bytes` may be exceeded */
} ech_flow;

/* All traffic along an axis. */
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

/* Counts what this rank sends and copies in one execution of the train list (all its turns), from
 * its steps; works for outlines, too. REDUCE steps, which fold scalars, are excluded. */
void ech_plan_traffic(const ech_plan *plan, ech_traffic traffic[ECH_TRAFFIC_AXES]);
/* The same for one execution of another list; the plan must not be an outline. */
void ech_plan_list_traffic(const ech_plan *plan, ech_list_kind list,
                           ech_traffic traffic[ECH_TRAFFIC_AXES]);
ech_flow ech_plan_traffic_along(const ech_plan *plan, ech_traffic_axis axis);

#endif
