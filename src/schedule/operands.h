/* SPDX-License-Identifier: Apache-2.0
 *
 * Operands: the values that the steps of a list work on, and the parts of them that messages carry.
 * Values are numbers as in ech_value.
 */
#ifndef ECH_SCHEDULE_OPERANDS_H
#define ECH_SCHEDULE_OPERANDS_H

#include "schedule/plan.h"

const ech_value *ech_plan_value(const ech_plan *plan, const ech_list *list, int value);
/* The value of a block's own value (not a view) for a sequence chunk, as steps of that instance
 * touch it (ech_step_instance); -1: the list has none. */
int ech_list_value_of(const ech_plan *plan, const ech_list *list, const ech_block *block, int local,
                      int micro, ech_instance instance);
/* The value that a step of the block accesses. Use this for values that are carried between
 * sequence chunks: each return of a carried value is another value. */
int ech_list_operand(const ech_plan *plan, const ech_list *list, const ech_step *step, int local);
/* True if the list carries the block's value from one sequence chunk to the next: a KV cache, or
 * with ECH_RESOURCE_CARRIED_GRADIENTS its gradients. */
static inline bool ech_list_carries(const ech_list *list, const ech_block *block, int local,
                                    ech_resource kind)
{
    const ech_block_value *v = &block->value.at[local];
    bool gradients = v->role == ECH_ROLE_GRADIENT;
    return v->cached && v->source == ECH_FROM_NODE && v->purposes & 1u << list->purpose &&
           gradients == (kind == ECH_RESOURCE_CARRIED_GRADIENTS);
}
/* A value as steps of that instance touch it: itself, or the value as which it has come back. */
int ech_list_instance(const ech_plan *plan, const ech_list *list, int value, ech_instance instance);
/* The gradient instance of the bucket that steps of sequence chunk `micro` in a turn work on. */
int ech_list_gradient_instance(const ech_plan *plan, const ech_list *list, int bucket, int turn,
                               int micro);
/* True for the PULL after the final barrier. */
bool ech_step_pulls_all(const ech_list *list, const ech_step *step);
/* True for a RELAY of the last round, after the barrier that ends all additions. */
bool ech_step_relays_last(const ech_plan *plan, const ech_list *list, const ech_step *step);
/* Returns how many of the two clusters' weights (own first) no other rank accesses during this
 * step: 0, 1 or 2. */
int ech_step_relays_alone(const ech_plan *plan, const ech_list *list, const ech_step *step);
/* The value with the bucket's gradients that the step accesses first. For a step that declares none
 * (a fault, which the ledger reports), the last value of its instance. */
int ech_list_gradients(const ech_plan *plan, const ech_list *list, const ech_step *step,
                       int bucket);
/* The value in which a SCATTER_GRADS accumulates this rank's shard, if that is a separate value;
 * -1: none. */
int ech_list_shard_sum(const ech_plan *plan, const ech_list *list, const ech_step *step);
/* The value that a turn's steps of the bucket work on. */
static inline int ech_list_summed(const ech_plan *plan, const ech_list *list, int bucket, int turn)
{
    return list->summed[(size_t)turn * plan->bucket.n + (size_t)bucket];
}
/* True if a PULL copies only the rows that the turn of its version names. False if the list has no
 * such turn. */
bool ech_step_pulls_rows(const ech_plan *plan, const ech_step *step);
/* True if the call is the first to write the parameter's gradient in its instance; later calls add
 * to it. If gradients are zeroed at the beginning of a turn (ech_bucket.rows), all calls add. */
bool ech_list_writes_first(const ech_plan *plan, const ech_list *list, const ech_step *step,
                           int call, int param);
/* The step of a tick. Ticks are numbered through all steps of the list, in order. */
const ech_step *ech_list_step_at(const ech_list *list, int tick);
/* The value of a batch slot that this rank loads for `micro`. There is one per sequence chunk, or
 * for slots of whole samples one per micro-batch. */
int ech_list_batch(const ech_list *list, ech_slot slot, int micro);
/* True if a value of the kind may be used that way. */
bool ech_use_fits(ech_used_as use, ech_memory_kind kind);
/* The value that a bucket's step uses that way; -1: none. number: index among several, such as
 * states. */
int ech_step_uses(const ech_list *list, const ech_step *step, ech_used_as use, int number);
/* The persistent value of a version of a bucket's weights (as in ech_step.version) in a list that
 * begins with slot 0, as steps access it. In later lists the slots rotate. */
int ech_plan_weights(const ech_plan *plan, int bucket, int version);
/* Lock-free ranks: the value of a cluster's weights in the window. */
static inline int ech_plan_common(const ech_plan *plan, int bucket, int cluster)
{
    return plan->common + bucket + cluster * (int)plan->bucket.n;
}
/* The value of a bucket's weights that a block's step reads: the persistent value, or an instance;
 * -1: it reads none. */
int ech_list_weights(const ech_plan *plan, const ech_list *list, const ech_step *step, int bucket);
/* The slot of a weight version. */
static inline int ech_plan_slot(const ech_plan *plan, int version)
{
    int slot = version % plan->versions;
    return slot < 0 ? slot + plan->versions : slot;
}
/* Bytes of a block's value in a message: all of it, or this tensor rank's shard where messages are
 * sharded (ech_plan_shards_messages). *first (optional): the byte at which the shard begins. */
int64_t ech_plan_message_shard(const ech_plan *plan, const ech_list *list, const ech_block *block,
                               int local, int64_t *first);
/* True if messages between stages are sharded over tensor ranks. This is done when each tensor rank
 * holds a full copy of the boundary tensors: each sends one shard, and the receiving tensor ranks
 * all-gather the shards. */
bool ech_plan_shards_messages(const ech_plan *plan);
/* Calls `note` for each call that writes gradients of a bucket, in the order of the list; s is the
 * call's step. */
void ech_list_each_writer(const ech_plan *plan, const ech_list *list,
                          void (*note)(void *context, size_t s, int bucket), void *context);
/* Sets first and last [instance * buckets + bucket] to the first and the last step that write an
 * instance of a bucket's gradients; -1: none. */
void ech_list_writers(const ech_plan *plan, const ech_list *list, int *first, int *last);

#endif
