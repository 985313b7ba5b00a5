/* SPDX-License-Identifier: Apache-2.0
 *
 * Operands: which values a step of a rank's list reads and writes, and which part of a value a
 * message carries. The passes that make a list, the checker, the simulator and the executor ask
 * here. All functions are pure; none communicates.
 *
 * A VALUE is a piece of memory that the plan places (schedule/values.h): a tensor of a block for
 * one sequence chunk, a bucket's weights or gradients, a batch slot. Functions return its index:
 * persistent values come first (ech_plan.persistent), then the list's own
 * (ech_list.value); -1 means none. `micro` numbers the sequence chunks of the list over all turns
 * (numbering.h). A TURN is a training step; a list may hold several. A TICK is the index of a step
 * in its list.
 */
#ifndef ECH_SCHEDULE_OPERANDS_H
#define ECH_SCHEDULE_OPERANDS_H

#include "schedule/plan.h"

const ech_value *ech_plan_value(const ech_plan *plan, const ech_list *list, int value);
const ech_step *ech_list_step_at(const ech_list *list, int tick);

/* ---- tensors of blocks ----
 * `local` is the tensor's index in ech_block.value; it is not a view. An activation that leaves the
 * device and comes back (offload) is one value before that and another one after it. The INSTANCE
 * says which of the two a step works on: a forward step the first, a backward step the second. */

/* The value of a block's tensor for a sequence chunk, in steps of that instance
 * (ech_step_instance). */
int ech_list_value_of(const ech_plan *plan, const ech_list *list, const ech_block *block, int local,
                      int micro, ech_instance instance);
/* The same for any value: itself, or the value in which it came back. */
int ech_list_instance(const ech_plan *plan, const ech_list *list, int value, ech_instance instance);
/* The value of a block's tensor that the step accesses. Use it, not ech_list_value_of, for tensors
 * that the list carries: each time a carried tensor comes back, it is a new value. */
int ech_list_operand(const ech_plan *plan, const ech_list *list, const ech_step *step, int local);
/* True if the list carries the tensor from one sequence chunk to the next: a KV cache, or for
 * ECH_RESOURCE_CARRIED_GRADIENTS its gradients. */
static inline bool ech_list_carries(const ech_list *list, const ech_block *block, int local,
                                    ech_resource kind)
{
    const ech_block_value *v = &block->value.at[local];
    bool gradients = v->role == ECH_ROLE_GRADIENT;
    return v->cached && v->source == ECH_FROM_NODE && v->purposes & 1u << list->purpose &&
           gradients == (kind == ECH_RESOURCE_CARRIED_GRADIENTS);
}
/* The value of a batch slot (tokens, targets) that this rank loads for `micro`. There is one per
 * sequence chunk, or for slots of whole samples one per micro-batch. */
int ech_list_batch(const ech_list *list, ech_slot slot, int micro);

/* ---- weights and gradients of buckets ---- */

/* The value of a bucket's weights that a step of a block reads: the persistent value, or weights
 * that were gathered for it (ZeRO 3). */
int ech_list_weights(const ech_plan *plan, const ech_list *list, const ech_step *step, int bucket);
/* The persistent value of a version of a bucket's weights (ech_step.version). The plan keeps
 * `versions` copies, in slots that are used in turn. The result holds for a list whose first
 * version is in slot 0; when a list is executed again, the slots have rotated. */
int ech_plan_weights(const ech_plan *plan, int bucket, int version);
/* The slot of a version. */
static inline int ech_plan_slot(const ech_plan *plan, int version)
{
    int slot = version % plan->versions;
    return slot < 0 ? slot + plan->versions : slot;
}
/* The value that a bucket's step (UPDATE, SCATTER_GRADS ...) uses as `use`; `number` is an index
 * among several, such as optimizer states. */
int ech_step_uses(const ech_list *list, const ech_step *step, ech_used_as use, int number);
/* The bucket of the table whose rows the call looks up by the turn's row list: its ids are places
 * in the list, and its weights or gradients are the listed rows (ech_listed). -1: there is none. */
int ech_list_rows_of(const ech_plan *plan, const ech_list *list, const ech_step *step, int call);
/* True if a value of the kind may be used as `use`. */
bool ech_use_fits(ech_used_as use, ech_memory_kind kind);
/* The value with gradients of the bucket that the step declares first. If it declares none, which
 * is a fault that the check reports, the last value of the gradients' instance. */
int ech_list_gradients(const ech_plan *plan, const ech_list *list, const ech_step *step,
                       int bucket);
/* Gradients are one value per turn, or one per micro-batch where each is reduced by itself (ZeRO
 * 2): returns the index of the one to which steps of sequence chunk `micro` in a turn add. */
int ech_list_gradient_instance(const ech_plan *plan, const ech_list *list, int bucket, int turn,
                               int micro);
/* The separate value in which a SCATTER_GRADS accumulates this rank's shard. */
int ech_list_shard_sum(const ech_plan *plan, const ech_list *list, const ech_step *step);
/* The value on which a turn's steps of the bucket work: its gradients, or that shard. */
static inline int ech_list_summed(const ech_plan *plan, const ech_list *list, int bucket, int turn)
{
    return list->summed[(size_t)turn * plan->bucket.n + (size_t)bucket];
}
/* True if the call is the first to write the parameter's gradient in its instance; later calls add
 * to it. If gradients are zeroed at the beginning of a turn (ech_bucket.rows), all calls add. */
bool ech_list_writes_first(const ech_plan *plan, const ech_list *list, const ech_step *step,
                           int call, int param);
/* Calls `note` for each call that writes gradients of a bucket, in the order of the list; s is the
 * call's step. */
void ech_list_each_writer(const ech_plan *plan, const ech_list *list,
                          void (*note)(void *context, size_t s, int bucket), void *context);
/* Sets first and last [instance * buckets + bucket] to the first and the last step that write an
 * instance of a bucket's gradients; -1: none. */
void ech_list_writers(const ech_plan *plan, const ech_list *list, int *first, int *last);

/* ---- weights in memory that ranks of a machine share (Hogwild!, HogWild++: protocol/lock_free.c)
 * A cluster is a group of ranks that update one shared copy of the weights without locks. A PULL
 * copies shared weights to the rank's own. With several clusters a RELAY, which the rank that holds
 * the ring token executes, mixes its cluster's weights with the next cluster's. */

/* The shared value of a cluster's weights. */
static inline int ech_plan_common(const ech_plan *plan, int bucket, int cluster)
{
    return plan->common + bucket + cluster * (int)plan->bucket.n;
}
/* The number of buckets before `bucket` whose weights are shared. Layer states are each rank's
 * own. */
static inline int ech_plan_shared(const ech_plan *plan, int bucket)
{
    int shared = 0;
    for (int b = 0; b < bucket; b++) shared += !plan->bucket.at[b].commits;
    return shared;
}
/* True if a PULL copies only the rows that the samples of one turn read: the turn whose number is
 * the step's version. */
bool ech_step_pulls_rows(const ech_plan *plan, const ech_step *step);
/* True for the last PULL of a list, after a barrier: it copies the weights of all clusters. */
bool ech_step_pulls_all(const ech_list *list, const ech_step *step);
/* True for a RELAY of the last round, after a barrier that ends all updates. */
bool ech_step_relays_last(const ech_plan *plan, const ech_list *list, const ech_step *step);
/* A RELAY accesses the weights of two clusters, its own and the next. Returns for how many of them,
 * its own first, no other rank can access them at the same time: 0, 1 or 2. */
int ech_step_relays_alone(const ech_plan *plan, const ech_list *list, const ech_step *step);

/* ---- messages between stages ---- */

/* True if messages between stages are sharded over tensor ranks. This is done when each tensor rank
 * holds a full copy of the boundary tensors: each sends one shard, and the receiving tensor ranks
 * all-gather the shards. */
bool ech_plan_shards_messages(const ech_plan *plan);
/* Bytes of a block's value in a message: all of it, or this tensor rank's shard. *first (optional):
 * the byte at which the shard begins. */
int64_t ech_plan_message_shard(const ech_plan *plan, const ech_list *list, const ech_block *block,
                               int local, int64_t *first);

#endif
