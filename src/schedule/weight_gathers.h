/* SPDX-License-Identifier: Apache-2.0
 *
 * Weight gathering and fetching: the pass that brings weights to the blocks that use them, just in
 * time (schedule/residency.h). Private to src/schedule.
 *
 * A GATHER_WEIGHTS brings an instance of weights that are stored in shards (ZeRO stage 3,
 * Rajbhandari et al. 2020) for the block that reads it; the instance lives until the block's last
 * read. A FETCH does so for weights that are stored on the host (memory.offload_parameters; GeePS,
 * Cui et al. 2016). Sharded weights on the host need both.
 *
 * A use is the part of a block on the compute lane up to another block's first read of such
 * weights: its F; or its R and B with the calls of W that read weights. The first step that reads a
 * bucket waits for its gather, which begins once the use before the last `plan.prefetch` uses has
 * ended. With plan.keeps each bucket is gathered once in a list, in the order of first uses, and
 * stays until the last.
 */
#ifndef ECH_SCHEDULE_WEIGHT_GATHERS_H
#define ECH_SCHEDULE_WEIGHT_GATHERS_H

#include "schedule/passes.h"

/* Inserts the FETCH and GATHER_WEIGHTS of blocks' weights into a lowered list. */
void ech_pass_resident(const ech_plan *plan, ech_list *list);

#endif
