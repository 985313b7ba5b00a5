/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of the checker. Private to src/check.
 */
#ifndef ECH_CHECK_CHECKER_H
#define ECH_CHECK_CHECKER_H

#include "check/check.h"

/* ---- of one list of one rank's plan: ech_check_list runs all of these ---- */

/* Logs rank, step `marked` and why, prints the list's lines around that step, and returns
 * ECH_EINTERNAL. */
ech_status ech_list_reject(const ech_plan *plan, const ech_list *list, int marked,
                           const char *format, ...) __attribute__((format(printf, 4, 5)));

/* False of outlines, and of lists that the passes have not made. */
bool ech_list_has_accesses(const ech_plan *plan, const ech_list *list);
/* Whether the step accesses the value, to write it, or not to. */
bool ech_step_accesses(const ech_list *list, const ech_step *step, int value, bool write);

/* step[a][b]: the latest step of lane b that is complete when one of lane a begins now; -1: none is
 * known. For lanes that end their steps in order: who knows of one step knows of those before
 * it. */
typedef struct ech_known {
    int step[ECH_LANES][ECH_LANES];
} ech_known;
ech_known ech_known_begin(void);
/* The step begins: its lane knows of all that it waits for. Call it for each step of the list, in
 * order. */
void ech_known_learn(ech_known *known, const ech_list *list, const ech_step *step);

/* Whether the list must have F. */
bool ech_list_has_blocks(const ech_list *list);
/* Whether the list must have F, B and W. */
bool ech_list_trains(const ech_list *list);
/* The global number q (layout.h), within its turn, of the micro-batch that sequence chunk `micro`
 * is a part of. */
int64_t ech_list_global_micro(const ech_plan *plan, const ech_list *list, int micro);

/* For each phase (F, B, W) of each block of the rank and each sequence chunk: the steps that run
 * it. */
typedef struct ech_block_steps {
    int chunks;        /* model chunks of the rank */
    int *first, *end;  /* [chunks]: model chunk c is blocks first[c] .. end[c] - 1 */
    int *base;         /* [chunks]: how many blocks of the rank come before model chunk c */
    int micro_batches; /* list.micro_batches: values of `micro` */
    /* [((base[chunk] + block - first[chunk]) * micro_batches + micro) * ECH_PHASES + phase] */
    struct ech_block_step {
        int first, last; /* indices of the phase's first and last compute step; -1: none */
        int calls;       /* how many calls its steps run, COLLECTIVE steps included */
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
 * is sent after its writer has ended. There are no other messages. Looks at this rank alone;
 * ech_check_plans matches sends with receives. */
ech_status ech_check_messages(const ech_plan *plan, const ech_list *list,
                              const ech_block_steps *blocks);
/* Where layers are sharded: steps touch values in the order of the blocks' programs, and wait for
 * the steps of other lanes that write or read these values; messages that come as shards are
 * gathered. Call it after ech_check_blocks. */
ech_status ech_check_collectives(const ech_plan *plan, const ech_list *list);
/* In every turn all is done to each bucket that its protocol promises (promise.h), once. Where
 * replicas that are apart meet: its difference is summed over all of them, and moves its weights;
 * or they mix with neighbours'. */
ech_status ech_check_buckets(const ech_plan *plan, const ech_list *list);
/* Each step reads the weight version that the schedule promises, and no later update has
 * overwritten it. */
ech_status ech_check_versions(const ech_plan *plan, const ech_list *list);
/* Of weights that all ranks share: each update waits until all ranks have read what it overwrites;
 * or where ranks are lock-free they begin and end a span together. */
ech_status ech_check_window(const ech_plan *plan, const ech_list *list);
/* Where ranks are lock-free: of a table each turn works on the rows that its batch names. */
ech_status ech_check_rows(const ech_plan *plan, const ech_list *list);
/* Weights that are fetched or gathered: each instance is written once, of its own bucket and for
 * one block, whose steps alone read it; a step of a block reads all the instances that its calls
 * need. Unless the plan keeps them, those of 1 + memory.prefetch blocks live at most at a time. */
ech_status ech_check_resident(const ech_plan *plan, const ech_list *list);
/* What is carried from sequence chunk to sequence chunk: a chunk's forward appends to keys and
 * values that have those of the chunks before it, backwards read those of all, and each adds to
 * gradients that have those of the chunks after it; copies bring and take what they say. Where it
 * is offloaded, that of 1 + memory.prefetch blocks is on the device at most at a time. */
ech_status ech_check_carried(const ech_plan *plan, const ech_list *list);
/* Values of at most 1 + memory.prefetch resources live at a time. resource: of a value, of so many;
 * -1: it is of none. what: their name. */
ech_status ech_check_together(const ech_plan *plan, const ech_list *list, size_t resources,
                              int (*resource)(const ech_plan *plan, const ech_list *list,
                                              const ech_value *value),
                              const char *what);
/* Of two steps that touch a value, one of which writes it, the later waits for the earlier; what is
 * read has been written. */
ech_status ech_check_races(const ech_plan *plan, const ech_list *list);
/* An update accesses all optimizer states of its bucket, and no step those of another one; where
 * replicas meet, weights and anchors. */
ech_status ech_check_states(const ech_plan *plan, const ech_list *list);
/* As what steps of buckets use values (ech_used_as) is what these are. */
ech_status ech_check_uses(const ech_plan *plan, const ech_list *list);
/* What is copied from space to space comes back as what has left, and updates on the host work on
 * their bucket's. */
ech_status ech_check_copies(const ech_plan *plan, const ech_list *list);
/* What a rank keeps and its peer holds meanwhile: each block's of a sequence chunk goes at most
 * once and comes back as often, value by value, from and to the rank of the mirrored stage; what
 * has gone nobody writes any more. */
ech_status ech_check_held(const ech_plan *plan, const ech_list *list);
/* Values that live at the same time do not overlap; all lie inside the arena. */
ech_status ech_check_memory(const ech_plan *plan, const ech_list *list);

/* ---- of all ranks' lists ---- */

/* Whether the steps' buckets, which may have other numbers where ranks hold other parameters, hold
 * the same. */
bool ech_buckets_meet(const ech_plan *a, const ech_step *x, const ech_plan *b, const ech_step *y);
/* Where servers' lists are bound to pushes: each push is served once by all servers, in an order
 * that may be. */
ech_status ech_check_served(const ech_plan *const *plans, int n, ech_list_kind kind);

#endif
