/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of the checker. Private to this room.
 */
#ifndef ECH_CHECK_CHECKER_H
#define ECH_CHECK_CHECKER_H

#include "check/check.h"

/* ---- of one list: ech_check_list runs them all ---- */

/* Fails: logs rank, step and why, and prints the lines around the step. */
ech_status ech_list_reject(const ech_plan *plan, const ech_list *list, int marked,
                           const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Whether the list has F; and whether it has B and W, too. */
bool ech_list_has_blocks(const ech_list *list);
bool ech_list_trains(const ech_list *list);
/* The number of a rank's micro-batch over all replicas, within its turn. */
int64_t ech_list_global_micro(const ech_plan *plan, const ech_list *list, int micro);

/* The steps of each F, B and W of a list. Errors: a step of a block, chunk, micro-batch or turn that the rank does
 * not have, or the same work twice. */
typedef struct ech_block_steps {
    int chunks, *first, *end; /* [chunks] blocks */
    int *base;                /* [chunks] index of the chunk's first block in `at` */
    int micro_batches;
    struct ech_block_step {
        int first, last; /* steps of the compute lane that run it, or -1 */
        int calls;       /* that these and its collectives run */
    } * at;
} ech_block_steps;
ech_status ech_block_steps_create(const ech_plan *plan, const ech_list *list, ech_block_steps *out);
void ech_block_steps_free(ech_block_steps *steps);
/* The last step that runs a phase of a block, or -1; and the first. */
int ech_block_step(const ech_block_steps *steps, int chunk, int micro, int block, ech_phase phase);
int ech_block_step_first(const ech_block_steps *steps, int chunk, int micro, int block,
                         ech_phase phase);

/* Every block's F, B and W of every micro-batch once, in the order in which data flows. */
ech_status ech_check_blocks(const ech_plan *plan, const ech_list *list,
                            const ech_block_steps *blocks);
/* Each boundary to a block on another rank has one message, with the right peer, received before its reader begins,
 * sent after its writer has ended; and there are no other messages. */
ech_status ech_check_messages(const ech_plan *plan, const ech_list *list,
                              const ech_block_steps *blocks);
/* Where layers are sharded: calls touch values in the order of their programs, and wait for the steps of other lanes
 * that write or read them; messages that come as shards are gathered. The blocks' steps are already checked. */
ech_status ech_check_collectives(const ech_plan *plan, const ech_list *list);
/* In every turn each bucket is written, reduced once, has its norm taken, and is updated. */
ech_status ech_check_buckets(const ech_plan *plan, const ech_list *list);
/* Each step reads the weight version that the schedule promises, and no later update has overwritten it. */
ech_status ech_check_versions(const ech_plan *plan, const ech_list *list);
/* Values that live at the same time do not overlap; all lie inside the arena. */
ech_status ech_check_memory(const ech_plan *plan, const ech_list *list);

#endif
