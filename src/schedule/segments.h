/* SPDX-License-Identifier: Apache-2.0
 *
 * Activation recomputation (memory.recompute): segments of recomputed blocks, what forwards keep,
 * and which calls run again in the backward.
 */
#ifndef ECH_SCHEDULE_SEGMENTS_H
#define ECH_SCHEDULE_SEGMENTS_H

#include "schedule/plan.h"

/* Errors: memory.recompute_blocks exceeds the layers of every (virtual) stage. */
ech_status ech_segments_check(const ech_config *config, const ech_model *model,
                              const ech_layout *layout);
/* Bytes that a block's forward keeps of one `micro`, which steps of ECH_RESOURCE_KEPT move; 0:
 * nothing, or only a KV cache, which all `micro` share. */
int64_t ech_plan_kept_bytes(const ech_plan *plan, int block);
/* Bytes of activations that the forward of one `micro` makes for the backward in all blocks of this
 * rank, by how they are kept. */
void ech_plan_kept(const ech_plan *plan, int64_t bytes[ECH_KEPTS]);
/* True if the forward of a block that begins a segment keeps anything but a KV cache. */
bool ech_segments_keep(const ech_block *block);
/* Sets kept[values of the block] for the values that its forward reads or makes and that its R, B
 * or W reads, including a KV cache. */
void ech_plan_find_kept(const ech_plan *plan, int block, bool *kept);
/* The range of a block's program that runs in the list: the calls of ech_program_calls, except that
 * within a segment F keeps no shards of inputs, R gathers none, and R makes outputs only where the
 * next block needs them. */
typedef struct ech_calls {
    int first, end;
} ech_calls;
ech_calls ech_plan_calls(const ech_plan *plan, const ech_list *list, int block, ech_phase phase);
/* True if the block's input is recomputed, as the output of the previous block of the segment. */
bool ech_plan_continues_segment(const ech_plan *plan, int block);

#endif
