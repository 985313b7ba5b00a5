/* SPDX-License-Identifier: Apache-2.0
 *
 * Segments of recomputed blocks: what forwards keep, and which calls run again in the backward
 * (memory.recompute).
 */
#ifndef ECH_SCHEDULE_SEGMENTS_H
#define ECH_SCHEDULE_SEGMENTS_H

#include "schedule/plan.h"

/* Errors: memory.recompute_blocks is more than the layers of any (virtual) stage. */
ech_status ech_segments_check(const ech_config *config, const ech_model *model,
                              const ech_layout *layout);
/* Bytes of what a block's forward keeps of one `micro`, and what steps of ECH_RESOURCE_KEPT move;
 * 0: nothing, or a KV cache alone, which all of them share. */
int64_t ech_plan_kept_bytes(const ech_plan *plan, int block);
/* Bytes of activations that the forward of one `micro` makes for the backward in all blocks of this
 * rank, by how they are kept. */
void ech_plan_kept(const ech_plan *plan, int64_t bytes[ECH_KEPTS]);
/* Whether a block's forward keeps anything but a KV cache, if it begins a segment. */
bool ech_segments_keep(const ech_block *block);
/* Sets kept[values of the block] of those that its forward reads or makes, and its R, B or W reads;
 * a KV cache, too. */
void ech_plan_find_kept(const ech_plan *plan, int block, bool *kept);
/* Which calls of a block's program are run in the list: those of ech_program_calls. But within a
 * segment F keeps no shards of inputs and R gathers none, and R makes outputs only where the next
 * block needs them. */
typedef struct ech_calls {
    int first, end;
} ech_calls;
ech_calls ech_plan_calls(const ech_plan *plan, const ech_list *list, int block, ech_phase phase);
/* Whether the block's input is recomputed: it is the output of the block before it in the segment.
 * */
bool ech_plan_continues_segment(const ech_plan *plan, int block);

#endif
