/* SPDX-License-Identifier: Apache-2.0
 *
 * What kinds of steps say to the access pass (access.c) of the values that they touch. Private to this room.
 */
#ifndef ECH_SCHEDULE_ACCESS_H
#define ECH_SCHEDULE_ACCESS_H

#include "schedule/schedule.h"

/* A list whose accesses are being found, and the step that is. */
typedef struct ech_accessor {
    ech_plan *plan;
    ech_list *list;
    ech_step *step;
    int tick; /* of what is touched next */
    /* One more than the scratch bytes of each call, by phase and block; 0: nobody asked yet. The answer
     * is the same for every micro-batch, and libraries take their time to give it. */
    size_t **scratch[ECH_PHASES];
} ech_accessor;

/* A value of the list, new. */
int ech_access_new(ech_accessor *a, ech_value value);
void ech_access_value(ech_accessor *a, int value, bool write);
/* The list's value of a block's own value, made if it is new. */
int ech_access_value_of(ech_accessor *a, int block, int local, int micro);
/* A value of the step's own block and micro-batch. */
void ech_access_local(ech_accessor *a, int local, bool write);
/* The operands of call `call` of the program of the step's block. Returns the bytes of scratch that it asks
 * for. */
size_t ech_access_call(ech_accessor *a, int call);
/* The step has so many bytes of scratch, which its calls share: from its first tick to its last. */
void ech_access_scratch(ech_accessor *a, size_t bytes);

#endif
