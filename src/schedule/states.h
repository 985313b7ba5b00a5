/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's memory for each parameter, in bytes and elements: its tensor shard, its shard of the
 * bucket (ZeRO), optimizer states, statistics and compression factors.
 */
#ifndef ECH_SCHEDULE_STATES_H
#define ECH_SCHEDULE_STATES_H

#include "schedule/plan.h"

/* The types of a parameter, of its gradient, and of an optimizer state. */
ech_dtype ech_plan_param_dtype(const ech_plan *plan, int param);
ech_dtype ech_plan_gradient_dtype(const ech_plan *plan, int param);
ech_dtype ech_plan_state_dtype(const ech_plan *plan, const ech_state *state);
/* Bytes at the beginning of TRANSFORM_BACK's scratch in which a left factor is made orthonormal. */
int64_t ech_plan_orthogonal_room(const ech_plan *plan, int param);
/* Rows and columns of one of a parameter's matrices, unsharded. */
void ech_plan_matrix(const ech_plan *plan, int param, int64_t size[2]);
/* This rank's rows and columns of one of a parameter's matrices. */
void ech_plan_own_matrix(const ech_plan *plan, int param, int64_t size[2]);
/* Number of selections, of `chosen` elements each, that a bucket has: one per member of its group,
 * in their order. */
int ech_plan_selections(const ech_plan *plan, const ech_bucket *bucket);
/* Bytes at the beginning of NORM's scratch for a parameter's gradient as selections represent
 * it. */
int64_t ech_plan_sent_room(const ech_plan *plan, int param);
/* A parameter's state with the role; -1: none. */
int ech_plan_state_of(const ech_plan *plan, int param, ech_state_role role);
/* The value of a bucket's element-wise states with a role, and of its master weights; -1: none. */
int ech_plan_bucket_state_of(const ech_plan *plan, int bucket, ech_state_role role);
int ech_plan_masters(const ech_plan *plan, int bucket);
/* Which fold a FOLD step performs; and whether it folds the statistic after a round. */
ech_fold_over ech_step_fold(const ech_plan *plan, const ech_step *step);
bool ech_plan_statistic_folds(const ech_plan_statistic *statistic, ech_fold_over fold, int round);
/* True if the step works on a parameter in a round, or in the update (ECH_MAX_ROUNDS). one: index
 * of a stack's matrix among those that the rank has. */
bool ech_step_takes_part(const ech_plan *plan, const ech_step *step, int param, int one, int round);
/* FLOPs of the products that this rank computes for a parameter in the step's last round. */
double ech_step_round_flops(const ech_plan *plan, const ech_step *step, int param);
/* The shape of a state or statistic that tensor ranks assemble: the whole parameter's; of a stack,
 * this rank's. */
ech_shape ech_plan_put_together(const ech_plan *plan, const ech_state *state);
/* Why the update of a bucket on the host is never cut, as in "updated whole: ..."; NULL: it is cut
 * if it is large. */
const char *ech_bucket_uncut(const ech_plan *plan, const ech_bucket *bucket);
/* Among the states that a step passes to the optimizer (ECH_USE_STATE), the number of the bucket's
 * state_values number `state`. Negative: none, since the step is a round of a bucket that is cut,
 * and the host does not store these element-wise states whole. */
int ech_step_state_use(const ech_plan *plan, const ech_step *step, int state);
/* The elements that the step works on, among those that this rank updates of its bucket. *first:
 * the first of them, counted from the first updated one (ech_bucket_updated). Returns their
 * number. */
int64_t ech_step_part(const ech_plan *plan, const ech_step *step, int64_t *first);
/* The same as elements of the parameter: *first: its first element. 0: none. */
int64_t ech_step_part_of(const ech_plan *plan, const ech_step *step, int param, int64_t *first);
/* The same for matrix number `one` of a parameter's stack; *first counts from that matrix's first
 * element. */
int64_t ech_step_part_of_one(const ech_plan *plan, const ech_step *step, int param, int one,
                             int64_t *first);
/* The index at which that part begins in a value of `elements` elements: a value of the part alone,
 * of all that the rank updates, or of the bucket. */
int64_t ech_step_part_in(const ech_plan *plan, const ech_step *step, int64_t elements);
/* The elements of a parameter in this rank's shard of its bucket. *first: its first element.
 * Returns their number; 0: none. */
int64_t ech_plan_own(const ech_plan *plan, int param, int64_t *first);
/* The same for all parameters of a bucket: elements of its shard without padding. */
int64_t ech_plan_own_all(const ech_plan *plan, const ech_bucket *bucket);
/* ech_plan_own for another rank that holds the parameter. */
int64_t ech_plan_part(const ech_plan *plan, int rank, int param, int64_t *first);
/* ech_state_part for this rank's shard of a parameter, for a state or statistic. */
int64_t ech_plan_state_numbers(const ech_plan *plan, int param, const ech_state *state,
                               int64_t first, int64_t n, int64_t *from);
/* ech_state_part of a parameter that both this plan's rank and `rank` hold: the range in which the
 * states of `rank` are. */
int64_t ech_plan_state_part(const ech_plan *plan, int rank, int param, int state, int64_t *from);
/* Where n elements of this rank's tensor shard of a parameter, from `first`, are in the whole
 * tensor. */
ech_held ech_plan_elements(const ech_plan *plan, int param, int64_t first, int64_t n);
/* ech_layout_held with parallel.zero: `rank` has, and writes into checkpoints, only its shard of
 * states of sharded buckets and of gathered weights; of gradients it has only its shard. This
 * plan's rank must hold the parameter, too. state: index; otherwise -1. */
ech_held ech_plan_held(const ech_plan *plan, int rank, int param, ech_held_kind kind, int state);
/* True if the bucket's weights are rounded from master weights: UPDATE writes all of the next
 * version, and STASH copies nothing. */
bool ech_plan_has_masters(const ech_plan *plan, const ech_bucket *bucket);
/* True if this rank stores the parameter's weights whole off the device, and a shard of their
 * masters: INIT draws them in full. */
bool ech_plan_draws_whole(const ech_plan *plan, int param);
/* Bytes of INIT's and HASH's scratch for a parameter's weights if these are on disk; a state, or
 * weights in full, follows. Each has at most plan.at_once elements. */
int64_t ech_plan_weights_room(const ech_plan *plan);
/* Bytes of this rank's shard of a parameter, of a state, and of a bucket's stored gradients. */
int64_t ech_plan_param_bytes(const ech_plan *plan, int param);
int64_t ech_plan_state_bytes(const ech_plan *plan, const ech_state *state);
int64_t ech_plan_bucket_bytes(const ech_plan *plan, int bucket);
/* Counts by type the numbers that this rank stores, without padding: weights of all versions
 * (PARAMETERS), optimizer states (OPTIMIZER), or gradients (GRADIENTS; only of the shards where
 * each micro-batch is scattered). */
void ech_plan_numbers(const ech_plan *plan, ech_memory_kind kind, int64_t numbers[ECH_DTYPES]);
/* The bytes of these numbers. */
int64_t ech_plan_number_bytes(const ech_plan *plan, ech_memory_kind kind);
/* The kinds accepted above; together they are the model states (Rajbhandari et al. 2020). */
enum { ECH_MODEL_STATES = 3 };
extern const ech_memory_kind ech_model_states[ECH_MODEL_STATES];

#endif
