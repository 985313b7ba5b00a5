/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of the checker. Private to src/check.
 */
#ifndef ECH_CHECK_CHECKER_H
#define ECH_CHECK_CHECKER_H

#include "check/check.h"

/* ---- one list of one rank's plan: ech_check_list runs all of these ---- */

/* Logs rank, step `marked` and the reason, prints the list's lines around that step, and returns
 * ECH_EINTERNAL. */
ech_status ech_list_reject(const ech_plan *plan, const ech_list *list, int marked,
                           const char *format, ...) __attribute__((format(printf, 4, 5)));
/* The same; check: a pointer to a struct with the plan and the list. */
#define ECH_REJECT(check, ...) ech_list_reject((check)->plan, (check)->list, __VA_ARGS__)

/* False for outlines, and for lists that no pass has made. */
bool ech_list_has_accesses(const ech_plan *plan, const ech_list *list);
/* True if the step accesses the value in the given mode: `write`, or read. */
bool ech_step_accesses(const ech_list *list, const ech_step *step, int value, bool write);

/* step[a][b]: the latest step of lane b that must have ended when a step of lane a begins now; -1:
 * none. Only for lanes that end their steps in order: all earlier steps have ended, too. */
typedef struct ech_known {
    int step[ECH_LANES][ECH_LANES];
} ech_known;
ech_known ech_known_begin(void);
/* Begins a step: its lane learns of all steps that it waits for. Call it for each step of the list,
 * in order. */
void ech_known_learn(ech_known *known, const ech_list *list, const ech_step *step);

/* True if the list must have F. */
bool ech_list_has_blocks(const ech_list *list);
/* True if the list must have F, B and W. */
bool ech_list_trains(const ech_list *list);
/* The global number q (layout.h), within its turn, of the micro-batch to which sequence chunk
 * `micro` belongs. */
int64_t ech_list_global_micro(const ech_plan *plan, const ech_list *list, int micro);

/* For each phase (F, B, W) of each block of the rank and each sequence chunk: the steps that run
 * it. */
typedef struct ech_block_steps {
    int chunks;        /* model chunks of the rank */
    int *first, *end;  /* [chunks]: model chunk c is blocks first[c] .. end[c] - 1 */
    int *base;         /* [chunks]: number of the rank's blocks before model chunk c */
    int micro_batches; /* list.micro_batches: values of `micro` */
    /* [((base[chunk] + block - first[chunk]) * micro_batches + micro) * ECH_PHASES + phase] */
    struct ech_block_step {
        int first, last; /* indices of the phase's first and last compute step; -1: none */
        int calls;       /* number of calls that its steps run, with COLLECTIVE steps */
    } * at;
} ech_block_steps;
/* Free *out with ech_block_steps_free. Errors: a step of a block, model chunk, sequence chunk or
 * turn that the rank does not have; calls that do not fit the step's kind, or that run twice or out
 * of order. */
ech_status ech_block_steps_create(const ech_plan *plan, const ech_list *list, ech_block_steps *out);
void ech_block_steps_free(ech_block_steps *steps);
/* ech_block_step.last and ech_block_step.first of a phase. */
int ech_block_step(const ech_block_steps *steps, int chunk, int micro, int block, ech_phase phase);
int ech_block_step_first(const ech_block_steps *steps, int chunk, int micro, int block,
                         ech_phase phase);

/* Every block runs its F, and if the list trains its B and W, once for every sequence chunk, in the
 * order in which activations and gradients flow. */
ech_status ech_check_blocks(const ech_plan *plan, const ech_list *list,
                            const ech_block_steps *blocks);
/* For every sequence chunk, each boundary to a block on another rank has one message in each
 * direction that the list needs. It names the right peer, is received before its reader begins, and
 * is sent after its writer has ended. There are no other messages. This looks at one rank alone;
 * ech_check_plans matches sends with receives. */
ech_status ech_check_messages(const ech_plan *plan, const ech_list *list,
                              const ech_block_steps *blocks);
/* For sharded layers: steps touch values in the order of the blocks' programs, and wait for the
 * steps of other lanes that write or read these values; messages received as shards are gathered.
 * Runs after ech_check_blocks. */
ech_status ech_check_collectives(const ech_plan *plan, const ech_list *list);
/* In every turn, each bucket gets everything that its protocol promises (promise.h), once. When
 * diverged replicas synchronize, the bucket's difference is summed over all of them and moves its
 * weights; or replicas average with their neighbours. */
ech_status ech_check_buckets(const ech_plan *plan, const ech_list *list);
/* Each step reads the weight version that the schedule promises, and no later update has
 * overwritten it. */
ech_status ech_check_versions(const ech_plan *plan, const ech_list *list);
/* For weights that all ranks share: each update waits until all ranks have read what it overwrites.
 * Lock-free ranks instead begin and end a span together. */
ech_status ech_check_shared(const ech_plan *plan, const ech_list *list);
/* For lock-free ranks: each turn works on the rows of a table that its batch names. */
ech_status ech_check_rows(const ech_plan *plan, const ech_list *list);
/* Weight gathering and fetching: each instance is written once, from its own bucket and for one
 * block, and only that block's steps read it. A block's step reads all the instances that its calls
 * need. Unless the plan keeps them, the instances of at most 1 + memory.prefetch blocks are live at
 * the same time. */
ech_status ech_check_resident(const ech_plan *plan, const ech_list *list);
/* Values that are carried between sequence chunks (KV cache). A chunk's forward appends to the keys
 * and values of the chunks before it. Backwards read all of them, and each adds to the gradients of
 * the chunks after it. Copies match their declarations. If they are offloaded, at most 1 +
 * memory.prefetch blocks have theirs on the device at the same time. */
ech_status ech_check_carried(const ech_plan *plan, const ech_list *list);
/* Values of at most 1 + memory.prefetch resources are live at the same time. resource: the resource
 * of a value, below `resources`; -1: none. what: their name. */
ech_status ech_check_together(const ech_plan *plan, const ech_list *list, size_t resources,
                              int (*resource)(const ech_plan *plan, const ech_list *list,
                                              const ech_value *value),
                              const char *what);
/* If two steps touch a value and one of them writes it, the later waits for the earlier; every
 * value read has been written. */
ech_status ech_check_races(const ech_plan *plan, const ech_list *list);
/* An update accesses all optimizer states of its bucket, and no step accesses the states of another
 * bucket; a synchronization accesses weights and anchors. */
ech_status ech_check_states(const ech_plan *plan, const ech_list *list);
/* Each value is of the kind that the use by a bucket's step (ech_used_as) requires. */
ech_status ech_check_uses(const ech_plan *plan, const ech_list *list);
/* Data copied from space to space returns unchanged, and updates on the host work on their own
 * bucket's data. */
ech_status ech_check_copies(const ech_plan *plan, const ech_list *list);
/* Kept activations held by a peer: for each block and sequence chunk they go at most once and
 * return as often, value by value, to and from the rank of the mirrored stage; nothing writes them
 * after they were sent. */
ech_status ech_check_held(const ech_plan *plan, const ech_list *list);
/* Persistent values, which always live, follow one another in the first part of each arena. */
ech_status ech_check_persistent(const ech_plan *plan);
/* Values that live at the same time do not overlap; all are inside the arena, after persistent
 * values. */
ech_status ech_check_memory(const ech_plan *plan, const ech_list *list);

/* ---- all ranks' lists ---- */

/* True if the two steps' buckets hold the same parameters. Their numbers may differ if the ranks
 * hold different parameters. */
bool ech_buckets_meet(const ech_plan *a, const ech_step *x, const ech_plan *b, const ech_step *y);
/* If servers' lists are bound to pushes: all servers serve each push once, in a possible order. */
ech_status ech_check_served(const ech_plan *const *plans, int n, ech_list_kind kind);

#endif
