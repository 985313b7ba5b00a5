/* SPDX-License-Identifier: Apache-2.0
 *
 * The least work of steps, in FLOPs and bytes: a lower bound for measured times.
 */
#ifndef ECH_SCHEDULE_WORK_H
#define ECH_SCHEDULE_WORK_H

#include "schedule/plan.h"

typedef struct ech_work {
    double flops; /* of products and attention; a multiply-add counts as two */
    /* Compute lane: bytes read and written, each value, parameter and gradient once, without
     * scratch. Other lanes: bytes that this rank sends. */
    double bytes;
} ech_work;

/* The work of one call of the block's program in a step F, B or W. */
ech_work ech_work_of_call(const ech_plan *plan, const ech_list *list, const ech_step *step,
                          int call);
/* The same where earlier micro-batches have written all gradients; the list may have forgotten its
 * accesses (ech_plan_forget_values). */
ech_work ech_work_of_later_call(const ech_plan *plan, const ech_list *list, const ech_step *step,
                                int call);
/* The work of any other step; a message counts at its sender. */
ech_work ech_step_work(const ech_plan *plan, const ech_list *list, const ech_step *step);

#endif
