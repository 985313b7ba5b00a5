/* SPDX-License-Identifier: Apache-2.0
 *
 * The pass that brings what blocks use and what does not lie where they use it
 * (schedule/residency.h). Private to src/schedule.
 *
 * Gathered weights (ZeRO stage 3, Rajbhandari et al. 2020): of a bucket whose weights are kept in
 * shards a GATHER_WEIGHTS brings an instance for the block that reads it, a value that lives until
 * the block has read it for the last time; of weights that lie on the host
 * (memory.offload_parameters; GeePS, Cui et al. 2016) a FETCH does, or of shards both. A use is
 * what a block does on the compute lane before another block reads such weights: its F; its R and
 * its B, and what of its W reads weights. The step that is the first to read a bucket waits for its
 * gather, which begins when the use before the last `plan.prefetch` ones has ended. With plan.keeps
 * all are gathered once in a list, in the order of their first uses, and stay to the last.
 */
#ifndef ECH_SCHEDULE_WEIGHT_GATHERS_H
#define ECH_SCHEDULE_WEIGHT_GATHERS_H

#include "schedule/passes.h"

/* Puts the FETCH and GATHER_WEIGHTS of blocks' weights into a lowered list. */
void ech_pass_resident(const ech_plan *plan, ech_list *list);

#endif
