/* SPDX-License-Identifier: Apache-2.0
 *
 * What steps have to do at least: the numbers that a measured time is held against.
 */
#ifndef ECH_SCHEDULE_WORK_H
#define ECH_SCHEDULE_WORK_H

#include "schedule/schedule.h"

typedef struct ech_work {
    double flops; /* of products and attention; a multiply-add is two */
    double bytes; /* compute lane: what is read and written, each once, scratch left out, parameters
                     and gradients of theirs included. Other lanes: what this rank sends */
} ech_work;

/* Call number `call` of the block's program, of a step F, B or W. */
ech_work ech_work_of_call(const ech_plan *plan, const ech_list *list, const ech_step *step,
                          int call);
/* Any other step; messages that are received are the sender's work. */
ech_work ech_step_work(const ech_plan *plan, const ech_list *list, const ech_step *step);

#endif
