/* SPDX-License-Identifier: Apache-2.0
 *
 * The values of a list: which value a step of a block or a bucket works on, and what messages
 * carry of it.
 */
#ifndef ECH_SCHEDULE_OPERANDS_H
#define ECH_SCHEDULE_OPERANDS_H

#include "schedule/plan.h"

const ech_value *ech_plan_value(const ech_plan *plan, const ech_list *list, int value);
/* The value of a block's own value, which must not be a view, for a sequence chunk, as steps of
 * that instance (ech_step_instance) touch it; -1: the list has none. */
int ech_list_value_of(const ech_plan *plan, const ech_list *list, const ech_block *block, int local,
                      int micro, ech_instance instance);
/* The same as a step of the block accesses it. What is carried from sequence chunk to sequence
 * chunk is another value each time that it has come back: only this function knows which. */
int ech_list_operand(const ech_plan *plan, const ech_list *list, const ech_step *step, int local);
/* Whether a block's own value is carried from sequence chunk to sequence chunk in the list: keys
 * and values, or with ECH_RESOURCE_CARRIED_GRADIENTS their gradients. */
static inline bool ech_list_carries(const ech_list *list, const ech_block *block, int local,
                                    ech_resource kind)
{
    const ech_block_value *v = &block->value.at[local];
    bool gradients = v->role == ECH_ROLE_GRADIENT;
    return v->cached && v->source == ECH_FROM_NODE && v->purposes & 1u << list->purpose &&
           gradients == (kind == ECH_RESOURCE_CARRIED_GRADIENTS);
}
/* A value as steps of that instance touch it: itself, or what it has come back as. */
int ech_list_instance(const ech_plan *plan, const ech_list *list, int value, ech_instance instance);
/* Which instance of the bucket's gradients the steps of sequence chunk `micro` and a turn work on.
 * */
int ech_list_gradient_instance(const ech_plan *plan, const ech_list *list, int bucket, int turn,
                               int micro);
/* Whether a PULL comes after the last turn, when all have met. */
bool ech_step_pulls_all(const ech_list *list, const ech_step *step);
/* Whether a RELAY is of the last round, after the meeting after which no rank adds. */
bool ech_step_relays_last(const ech_plan *plan, const ech_list *list, const ech_step *step);
/* Of its cluster's weights and the next one's, in this order, how many no other rank uses
 * meanwhile. */
int ech_step_relays_alone(const ech_plan *plan, const ech_list *list, const ech_step *step);
/* The value with the bucket's gradients that the step accesses first; where it declares none (a
 * fault, which the ledger finds) its instance's last one. */
int ech_list_gradients(const ech_plan *plan, const ech_list *list, const ech_step *step,
                       int bucket);
/* Of a SCATTER_GRADS: the value in which the sum of this rank's shard adds up, where that is one of
 * its own; -1: none. */
int ech_list_shard_sum(const ech_plan *plan, const ech_list *list, const ech_step *step);
/* The value that a turn's steps of the bucket work on. */
static inline int ech_list_summed(const ech_plan *plan, const ech_list *list, int bucket, int turn)
{
    return list->summed[(size_t)turn * plan->bucket.n + (size_t)bucket];
}
/* Of a PULL: whether it is of the rows alone that the turn of its version names: none if the list
 * has no such turn. */
bool ech_step_pulls_rows(const ech_plan *plan, const ech_step *step);
/* Whether that call is the first to write the parameter's gradient in its instance; later ones add
 * to it, and all do where it is zero when a turn begins (ech_bucket.rows). */
bool ech_list_writes_first(const ech_plan *plan, const ech_list *list, const ech_step *step,
                           int call, int param);
/* The step of a tick. Ticks are numbered through all steps of the list, in order. */
const ech_step *ech_list_step_at(const ech_list *list, int tick);
/* The value of a batch slot that this rank loads for `micro`: one for each sequence chunk, or for
 * slots of whole samples one for all chunks of a micro-batch. */
int ech_list_batch(const ech_list *list, ech_slot slot, int micro);
/* Whether a value of that kind may be used so. */
bool ech_use_fits(ech_used_as use, ech_memory_kind kind);
/* The value that a step of a bucket uses as that; -1: none. number: of several, as states. */
int ech_step_uses(const ech_list *list, const ech_step *step, ech_used_as use, int number);
/* The persistent value of a version of a bucket's weights, as in ech_step.version, in a list that
 * begins with slot 0; so steps access them. In later lists slots go round. */
int ech_plan_weights(const ech_plan *plan, int bucket, int version);
/* Of lock-free ranks: a cluster's weights in the window. */
static inline int ech_plan_common(const ech_plan *plan, int bucket, int cluster)
{
    return plan->common + bucket + cluster * (int)plan->bucket.n;
}
/* The value of a bucket's weights that a step of a block reads: that one, or an instance; -1: the
 * step reads none. */
int ech_list_weights(const ech_plan *plan, const ech_list *list, const ech_step *step, int bucket);
/* That value's slot. */
static inline int ech_plan_slot(const ech_plan *plan, int version)
{
    int slot = version % plan->versions;
    return slot < 0 ? slot + plan->versions : slot;
}
/* Bytes of a block's value in a message: of all of it, or where messages are sharded
 * (ech_plan_shards_messages) of this tensor rank's shard. *first (optional): the byte at which the
 * shard begins. */
int64_t ech_plan_message_shard(const ech_plan *plan, const ech_list *list, const ech_block *block,
                               int local, int64_t *first);
/* Whether messages between stages are sharded over tensor ranks. They are where every tensor rank
 * holds the values at block boundaries whole: each then sends one shard, and the receiving tensor
 * ranks all-gather the shards. */
bool ech_plan_shards_messages(const ech_plan *plan);
/* Calls `note` for each call of the blocks' steps that writes gradients of a bucket, in their
 * order: s is its step. */
void ech_list_each_writer(const ech_plan *plan, const ech_list *list,
                          void (*note)(void *context, size_t s, int bucket), void *context);
/* Writes into first and last [instance * buckets + bucket] the steps that are the first and the
 * last to write an instance of a bucket's gradients; -1: none. */
void ech_list_writers(const ech_plan *plan, const ech_list *list, int *first, int *last);

#endif
