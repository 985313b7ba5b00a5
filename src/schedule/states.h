/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank keeps of parameters: its tensor shard, its bucket's shard, optimizer states,
 * statistics, factors, and how many bytes these take.
 */
#ifndef ECH_SCHEDULE_STATES_H
#define ECH_SCHEDULE_STATES_H

#include "schedule/plan.h"

/* The types of a parameter, and of its gradient; and of an optimizer's state. */
ech_dtype ech_plan_param_dtype(const ech_plan *plan, int param);
ech_dtype ech_plan_gradient_dtype(const ech_plan *plan, int param);
ech_dtype ech_plan_state_dtype(const ech_plan *plan, const ech_state *state);
/* Bytes of room for TRANSFORM_BACK to make a left factor of the parameter orthonormal, at the
 * beginning of its scratch. */
int64_t ech_plan_orthogonal_room(const ech_plan *plan, int param);
/* Rows, columns of one of a parameter's matrices, not sharded. */
void ech_plan_matrix(const ech_plan *plan, int param, int64_t size[2]);
/* This rank's rows, columns of one of a parameter's matrices. */
void ech_plan_own_matrix(const ech_plan *plan, int param, int64_t size[2]);
/* How many selections, of `chosen` elements each, a bucket has: one of each member of its group, in
 * their order. */
int ech_plan_selections(const ech_plan *plan, const ech_bucket *bucket);
/* Bytes of room for a parameter's gradient as selections have it, at the beginning of NORM's
 * scratch. */
int64_t ech_plan_sent_room(const ech_plan *plan, int param);
/* A parameter's state of that role; -1: it has none. */
int ech_plan_state_of(const ech_plan *plan, int param, ech_state_role role);
/* The value of a bucket's states of a role that are element-wise, and of its masters; -1: it has
 * none. */
int ech_plan_bucket_state_of(const ech_plan *plan, int bucket, ech_state_role role);
int ech_plan_masters(const ech_plan *plan, int bucket);
/* Which fold the step, a FOLD, is; and whether that folds the statistic after that round. */
ech_fold_over ech_step_fold(const ech_plan *plan, const ech_step *step);
bool ech_plan_statistic_folds(const ech_plan_statistic *statistic, ech_fold_over fold, int round);
/* Whether the step works on the parameter, of a stack on number `one` of those that the rank has,
 * in that round, or in the update (ECH_MAX_ROUNDS). */
bool ech_step_takes_part(const ech_plan *plan, const ech_step *step, int param, int one, int round);
/* FLOPs of the products of a parameter that this rank makes in the step, its last round. */
double ech_step_round_flops(const ech_plan *plan, const ech_step *step, int param);
/* The shape of a state or statistic as tensor ranks put it together: whole, of a stack this rank's.
 * */
ech_shape ech_plan_put_together(const ech_plan *plan, const ech_state *state);
/* What the step works on of the elements that this rank updates of its bucket: *first: the first of
 * them, counted from where they begin (ech_bucket_updated). Returns how many. */
int64_t ech_step_part(const ech_plan *plan, const ech_step *step, int64_t *first);
/* The same as elements of the parameter: *first: its first element. 0: none. */
int64_t ech_step_part_of(const ech_plan *plan, const ech_step *step, int param, int64_t *first);
/* And of number `one` of a parameter's stack: *first: counted from that one's first. */
int64_t ech_step_part_of_one(const ech_plan *plan, const ech_step *step, int param, int one,
                             int64_t *first);
/* Where that part begins in a value of so many elements: of the part alone, of all that the rank
 * updates, or of the bucket. */
int64_t ech_step_part_in(const ech_plan *plan, const ech_step *step, int64_t elements);
/* What lies of a parameter in this rank's shard of its bucket: *first: its first element. Returns
 * how many; 0: none. */
int64_t ech_plan_own(const ech_plan *plan, int param, int64_t *first);
/* The same of all parameters of a bucket: elements of its shard that are no padding. */
int64_t ech_plan_own_all(const ech_plan *plan, const ech_bucket *bucket);
/* ech_plan_own of another rank that holds the parameter. */
int64_t ech_plan_part(const ech_plan *plan, int rank, int param, int64_t *first);
/* ech_state_part of this rank's shard of a parameter, of a state or statistic. */
int64_t ech_plan_state_numbers(const ech_plan *plan, int param, const ech_state *state,
                               int64_t first, int64_t n, int64_t *from);
/* ech_state_part of a parameter that this plan's rank and `rank` hold, in which the latter's states
 * of it lie. */
int64_t ech_plan_state_part(const ech_plan *plan, int rank, int param, int state, int64_t *from);
/* Where n elements of this rank's tensor shard of a parameter lie in the whole, from `first` on. */
ech_held ech_plan_elements(const ech_plan *plan, int param, int64_t first, int64_t n);
/* ech_layout_held with parallel.zero: of gradients and states of sharded buckets, and of weights
 * that are gathered, `rank` has what lies in its shard, and writes that of states and weights. A
 * parameter that this plan's rank holds, too. state: index; of others -1. */
ech_held ech_plan_held(const ech_plan *plan, int rank, int param, ech_held_kind kind, int state);
/* Whether the bucket's weights are the roundings of masters: UPDATE writes all of the next version,
 * and STASH copies nothing. */
bool ech_plan_has_masters(const ech_plan *plan, const ech_bucket *bucket);
/* Whether this rank keeps the parameter's weights whole, not on the device, and of their masters a
 * shard: INIT draws them in full. */
bool ech_plan_draws_whole(const ech_plan *plan, int param);
/* Bytes of the scratch of INIT and HASH that are for a parameter's weights, where these are on
 * disk; after them comes a state, or weights in full. Each has at most plan.at_once elements. */
int64_t ech_plan_weights_room(const ech_plan *plan);
/* Bytes of this rank's shard of a parameter, of a state, and of a bucket's gradients as they are
 * kept. */
int64_t ech_plan_param_bytes(const ech_plan *plan, int param);
int64_t ech_plan_state_bytes(const ech_plan *plan, const ech_state *state);
int64_t ech_plan_bucket_bytes(const ech_plan *plan, int bucket);
/* By type, how many numbers this rank keeps of its weights in all versions (PARAMETERS), optimizer
 * states (OPTIMIZER) or gradients (GRADIENTS; where each micro-batch is scattered, of their
 * shards), without padding. */
void ech_plan_numbers(const ech_plan *plan, ech_memory_kind kind, int64_t numbers[ECH_DTYPES]);
/* Their bytes. */
int64_t ech_plan_number_bytes(const ech_plan *plan, ech_memory_kind kind);
/* The kinds that it takes, of which model states consist (Rajbhandari et al. 2020). */
enum { ECH_MODEL_STATES = 3 };
extern const ech_memory_kind ech_model_states[ECH_MODEL_STATES];

#endif
