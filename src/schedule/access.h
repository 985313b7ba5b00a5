/* SPDX-License-Identifier: Apache-2.0
 *
 * What kinds of steps tell the access pass (access.c) of the values that they touch. Private to src/schedule.
 */
#ifndef ECH_SCHEDULE_ACCESS_H
#define ECH_SCHEDULE_ACCESS_H

#include "schedule/schedule.h"

/* The list and the step whose accesses are being found. */
typedef struct ech_accessor {
    ech_plan *plan;
    ech_list *list;
    ech_step *step;
    int tick; /* of the next access */
    /* Cache: scratch bytes + 1 of each call, by phase and block; 0: not asked yet. All micro-batches need as much,
     * and libraries are slow to say how much. */
    size_t **scratch[ECH_PHASES];
} ech_accessor;

/* Adds a value to the list; returns its number (ech_value). */
int ech_access_new(ech_accessor *a, ech_value value);
/* Records that the step touches the value, at the accessor's tick. */
void ech_access_value(ech_accessor *a, int value, bool write);
/* The value of a block's own value `local` for sequence chunk `micro`; it is added to the list if it is new. */
int ech_access_value_of(ech_accessor *a, int block, int local, int micro);
/* Records that the step touches a value of its own block and sequence chunk. */
void ech_access_local(ech_accessor *a, int local, bool write);
/* Records that the step touches the operands of a call of its block's program. Returns the call's scratch bytes. */
size_t ech_access_call(ech_accessor *a, int call);
/* Gives the step `bytes` of scratch: one value for all its calls, live from its first tick to its last. */
void ech_access_scratch(ech_accessor *a, size_t bytes);

#endif
