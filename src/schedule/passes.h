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
/* Where a block's steps go, and what they have in common. */
typedef struct ech_block_lowering {
    const ech_plan *plan;
    ech_list *list;
    int block, chunk, micro, turn, version;
    int last;              /* compute step that was added last, or -1 */
    ECH_LIST(int) pending; /* steps for the next compute step to wait for */
    int outstanding;       /* the collective that was added last and nobody waits for yet, or -1 */
    int awaited;           /* the last collective that a compute step waits for, or -1 */
    int *writer,
        *reader; /* [locals] the last collective that does to a value of this block, or -1 */
    ECH_LIST(bool) weight_done; /* calls of the block's W program */
} ech_block_lowering;
/* A phase of a block as steps: F, B or W, cut where a group of ranks has to do something. */
void ech_lower_phase(ech_block_lowering *p, ech_phase phase);
/* B with its W, each W behind the collective that follows what it needs, so that the two overlap. */
void ech_lower_backward(ech_block_lowering *p);
/* A COLLECTIVE that makes the block's inputs (or, backward, the gradients of its outputs) whole, which
 * came in pieces with step `received`. Returns the step. */
int ech_lower_gather_message(ech_block_lowering *p, bool backward, int received);
/* Whether item i is a B that is one backward with its W, the next item. */
bool ech_order_is_joined(const ech_schedule *schedule, const ech_order *order, size_t i);
/* An order of whole micro-batches, with each in its sequence chunks: forwards first to last, backwards last to
 * first. version (optional) gets as many entries as items. */
void ech_order_expand_sequence_chunks(const ech_schedule *schedule, ech_order *order,
                                      ech_numbering numbering, int **version);

/* Which parameters go into which bucket, from the lowered steps. */
void ech_pass_bucket(ech_plan *plan, const ech_list *list, int64_t bucket_bytes);
/* Puts LOAD before, and communication, norms and updates between and behind the blocks' steps. */
void ech_pass_frame_training(ech_plan *plan, ech_list *list);
void ech_pass_frame_validation(const ech_plan *plan, ech_list *list);
/* Which values each step touches, and its scratch. */
void ech_pass_access(ech_plan *plan, ech_list *list);
/* Ticks of birth and death. */
void ech_pass_lifetime(const ech_plan *plan, ech_list *list);
/* Gradients that take over the place of what the call that writes them reads last. */
void ech_pass_inherit(const ech_plan *plan, ech_list *list);
/* Offsets, greedy by size; list->bytes. `start`: where the transient part begins. */
void ech_pass_place(ech_list *list, int64_t start);
/* What is live at once: list->lower_bound, peak, working, working_tick. */
void ech_pass_peaks(ech_list *list);

#endif
