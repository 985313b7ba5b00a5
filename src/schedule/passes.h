/* SPDX-License-Identifier: Apache-2.0
 *
 * The passes between an order and a finished list. Private to this room.
 */
#ifndef ECH_SCHEDULE_PASSES_H
#define ECH_SCHEDULE_PASSES_H

#include "schedule/schedule.h"

/* Appends a step of that kind, in its lane; returns its index. */
int ech_list_add(ech_list *list, ech_step_kind kind);
/* The last step added also comes after `step`. */
void ech_list_add_after(ech_list *list, int step);

/* Order -> steps per block, with sends and receives where neighbours are on other ranks. version: of the
 * weights that each item reads; NULL: all the newest. */
void ech_pass_lower(const ech_plan *plan, ech_list *list, const ech_order *order,
                    const int *version);
/* Which parameters go into which bucket, from the lowered steps. */
void ech_pass_bucket(ech_plan *plan, const ech_list *list, int64_t bucket_bytes);
/* Puts LOAD before, and communication, norms and updates between and behind the blocks' steps. */
void ech_pass_frame_training(ech_plan *plan, ech_list *list);
void ech_pass_frame_validation(const ech_plan *plan, ech_list *list);
/* Which values each step touches, and its scratch. */
void ech_pass_access(ech_plan *plan, ech_list *list);
/* Ticks of birth and death. */
void ech_pass_lifetime(const ech_plan *plan, ech_list *list);
/* Offsets, greedy by size; list->bytes, lower_bound, peak. `start`: where the transient part begins. */
void ech_pass_place(ech_list *list, int64_t start);

/* The phase that a step of F, B or W runs. */
ech_phase ech_step_phase(const ech_step *step);
/* The last step of every turn that adds to each parameter's gradient: last[turn * params + param],
 * -1 where none does. */
void ech_list_last_writers(const ech_plan *plan, const ech_list *list, int *last);

#endif
