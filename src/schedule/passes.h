/* SPDX-License-Identifier: Apache-2.0
 *
 * The passes that turn an order into a complete list (see plan.h), and helpers that they share.
 * Private to src/schedule.
 */
#ifndef ECH_SCHEDULE_PASSES_H
#define ECH_SCHEDULE_PASSES_H

#include "schedule/balance.h"
#include "schedule/plan.h"

/* Makes a step of that kind, in the kind's lane; appends one to a list and returns its index. */
ech_step ech_step_make(ech_step_kind kind);
int ech_list_add(ech_list *list, ech_step_kind kind);
/* Frees the list's contents and leaves it empty. */
void ech_list_free(ech_list *list);
/* Makes the list's last step also wait for `step`. */
void ech_list_add_after(ech_list *list, int step);
/* Appends a step of another list with its waits. after: the other list's; now[s]: index here of its
 * step s. */
int ech_list_copy_step(ech_list *list, const ech_step *from, const int *after, const int *now);
/* A step to insert right after step `after` (-1: before all), for which it waits. The steps
 * `before` wait for it. All three are indices into the list before insertion. The last array has
 * two earlier insertions that it also waits for. Each -1: none. */
typedef struct ech_insertion {
    ech_step step;
    int after, before[2], follows[2];
    bool yields; /* it goes after messages that are sent right after `after` */
} ech_insertion;
typedef ECH_LIST(ech_insertion) ech_insertion_list;
/* Inserts steps into a list that has no accesses yet. Insertions after the same step keep their
 * order. */
void ech_list_insert(ech_list *list, const ech_insertion_list *in);

/* Builds the lists that run no blocks. */
void ech_pass_other_lists(ech_plan *plan);
/* Sets plan->segment (activation recomputation). `order`: the training order with sequence chunks;
 * may be empty. */
void ech_pass_segments(ech_plan *plan, const ech_config *config, const ech_order *order);
/* Lowers an order to steps of blocks, with sends and receives where neighbouring blocks are on
 * other ranks. version[i]: the weight version (ech_step.version) that item i reads; NULL: 0 for
 * all. */
void ech_pass_lower(const ech_plan *plan, ech_list *list, const ech_order *order,
                    const int *version);
/* State of the lowering of one block: the target list, the common fields of its steps, and their
 * waits. */
typedef struct ech_block_lowering {
    const ech_plan *plan;
    ech_list *list;
    int block, chunk, micro, turn, version;
    int last;              /* compute step that was added last, or -1 */
    ECH_LIST(int) pending; /* steps that the next compute step waits for */
    int outstanding;       /* the collective added last if no step waits for it yet, or -1 */
    int awaited;     /* the last collective that a compute step waits for, or -1 */
    /* [locals]: the last collective that writes, or reads, the value; -1: none */
    int *writer, *reader;
    ECH_LIST(bool) weight_done; /* by call of the block's W program: it has been lowered */
} ech_block_lowering;
/* Lowers a phase of a block to steps of F, B or W, split at each collective of its program. */
void ech_lower_phase(ech_block_lowering *p, ech_phase phase);
/* Lowers B with its W. Parts of W follow a collective of B that they do not need, so that they
 * overlap. */
void ech_lower_backward(ech_block_lowering *p);
/* Adds the COLLECTIVE that all-gathers the block's inputs (backward: the gradients of its outputs)
 * over tensor ranks, after each received a shard in step `received`. Returns the step. */
int ech_lower_gather_message(ech_block_lowering *p, bool backward, int received);
/* True if item i is a B that is lowered together with its W, the next item. */
bool ech_order_is_joined(const ech_schedule *schedule, const ech_order *order, size_t i);
/* Replaces each item of an order of whole micro-batches by one item per sequence chunk: forwards in
 * ascending order of chunks, backwards in descending order. version (optional) is expanded
 * likewise. */
void ech_order_expand_sequence_chunks(const ech_schedule *schedule, ech_order *order,
                                      ech_numbering numbering, int **version);

/* Lists the states and statistics of a parameter that the rank holds. */
void ech_plan_states(ech_plan *plan, const ech_config *config, int param);
/* Adds the values of the states of a bucket's parameters. */
void ech_plan_state_values(ech_plan *plan, int bucket);
/* Plans the copies of a parameter and its states that SAVE writes. Runs last, so that no other
 * value moves. */
void ech_plan_snapshot(ech_plan *plan, int param);
/* True if `rank`, which holds the same parameters as the plan's rank, writes a parameter's state
 * into checkpoints; state -1: the weights. */
bool ech_plan_writes(const ech_plan *plan, int rank, int param, int state);
/* Lays out the statistics of each bucket. */
void ech_pass_statistics(ech_plan *plan);
/* Adds a persistent value; `index` as in ech_value. Returns its number. */
int ech_plan_add_persistent(ech_plan *plan, ech_memory_kind kind, int index, int64_t bytes);
/* Assigns the rank's parameters to buckets of at most `bucket_bytes` of gradients, or of one
 * parameter. */
void ech_pass_bucket(ech_plan *plan, const ech_config *config);
/* Cuts buckets that the host updates into pieces of at most `bucket_bytes` of gradients. Runs after
 * ech_pass_statistics. */
void ech_pass_pieces(ech_plan *plan, const ech_config *config);
/* Activation offloading (memory.offload_activations): what the blocks of a lowered list keep for
 * the backward, or carry between sequence chunks, leaves the device after its use and returns for
 * the next. */
void ech_pass_offload(const ech_plan *plan, ech_list *list);
/* The same with a peer's memory: adds the messages of the rank as evictor or acceptor. */
void ech_pass_hold(const ech_plan *plan, ech_list *list, const ech_balance *balance);
/* Adds COUNT and LOAD before and between the blocks' steps, and reductions, norms, gradient
 * clipping and updates between and after them. */
void ech_pass_frame_training(ech_plan *plan, ech_list *list);
void ech_pass_frame_validation(const ech_plan *plan, ech_list *list);
/* Records the values that each step touches, and its scratch. */
void ech_pass_access(ech_plan *plan, ech_list *list);
/* Sets the ticks at which each value is born and dies. */
void ech_pass_lifetime(const ech_plan *plan, ech_list *list);
/* Sets successors: a result reuses the offset of a value that its writer is the last to read. */
void ech_pass_inherit(const ech_plan *plan, ech_list *list);
/* Places the values of a space: sets offsets, greedily by size, and list->bytes[space]. */
void ech_pass_offsets(const ech_plan *plan, ech_list *list, ech_space space);
/* Sets the peaks of the list's memory: lower_bound, full_kind, peak, working, working_tick,
 * working_kind. */
void ech_pass_peaks(const ech_plan *plan, ech_list *list);

#endif
