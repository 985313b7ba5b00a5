/* SPDX-License-Identifier: Apache-2.0
 *
 * What kinds of steps tell the access pass (access.c) of the values that they touch. Private to
 * src/schedule.
 */
#ifndef ECH_SCHEDULE_ACCESS_H
#define ECH_SCHEDULE_ACCESS_H

#include "schedule/plan.h"
#include "schedule/weight_reads.h"

/* What is brought of a bucket's weights: of each block that uses it the instance of now. */
typedef struct ech_of_block {
    int block, value;
} ech_of_block;
typedef struct ech_instances {
    ECH_LIST(ech_of_block) all;
} ech_instances;

/* The list and the step whose accesses are being found. */
typedef struct ech_accessor {
    ech_plan *plan;
    ech_list *list;
    ech_step *step;
    int tick; /* of the next access */
    /* Cache: scratch bytes + 1 of each call, by phase and block; 0: not asked yet. All
     * micro-batches need as much, and libraries are slow to say how much. */
    size_t **scratch[ECH_PHASES];
    ech_weight_reads reads;
    ech_instances *brought; /* [buckets] */
    /* [buckets] What the host has for updates: of each piece the value with its weights (-1: none),
     * and the values with the bucket's state_values. Ask ech_access_on_host. */
    int **on_host;
    /* By lane: the scratch of its last sum (at 0), and of the one before; 0: none yet. */
    int sum_scratch[ECH_LANES][2];
} ech_accessor;

/* Adds a value to the list; returns its number (ech_value). */
int ech_access_new(ech_accessor *a, ech_value value);
/* Records that the step touches the value, at the accessor's tick. */
void ech_access_value(ech_accessor *a, int value, bool write);
/* The value of a block's own value `local` for sequence chunk `micro`; it is added to the list if
 * it is new. */
int ech_access_value_of(ech_accessor *a, int block, int local, int micro);
/* What is carried (ech_list_carries) has come back, or is on its way, as that value: steps of the
 * block access it from now on. */
void ech_access_bring(ech_accessor *a, int local, int value);
/* Adds a value of so many of a bucket's gradients to the list. micro: of an instance; -1: of none
 * alone. */
int ech_access_new_gradients(ech_accessor *a, int bucket, int micro, int64_t elements);
/* The same of a step of a bucket, which uses it as that; and of the sum of its gradients. */
void ech_access_as(ech_accessor *a, ech_used_as use, int value, bool write);
void ech_access_sum(ech_accessor *a, bool write);
/* The value of the step's instance of a bucket's gradients, which is made if it is new: those of a
 * turn are one for all turns of the list, but for partials of layer states and those that leave the
 * device. */
int ech_access_gradients(ech_accessor *a, int bucket);
/* Makes a new value in which the turn's gradients, or where each micro-batch's are scattered those
 * of the shard, add up from now on. */
int ech_access_renew_sum(ech_accessor *a, int bucket);
/* The value that steps of the bucket in the step's turn work on; the caller may set it. */
int *ech_access_summed(const ech_accessor *a, int bucket);
/* Records that the step touches a version of a bucket's weights. */
void ech_access_weights(ech_accessor *a, int bucket, int version, bool write);
/* Adds an instance of so many of a bucket's weights, on the device or the host, for the step's
 * block, to the list. */
int ech_access_new_weights(ech_accessor *a, int bucket, ech_space space, int64_t elements);
/* The weights of a bucket that steps of the step's block read now: of what is brought the instance
 * that was added last. */
int ech_access_weights_of(const ech_accessor *a, int bucket);
/* Records that the step reads its version of the weights of its calls, or the block's instance of
 * them: each bucket's once, or where it lives no longer than it is read at the first and the last
 * such call. */
void ech_access_reads(ech_accessor *a);
/* Records that the step touches the optimizer's states of a bucket. */
void ech_access_states(ech_accessor *a, int bucket, bool write);
/* Records that the step touches a value of its own block and sequence chunk. */
void ech_access_local(ech_accessor *a, int local, bool write);
/* Records that the step touches the operands of a call of its block's program. Returns the call's
 * scratch bytes. */
size_t ech_access_call(ech_accessor *a, int call);
/* The values that the host has of the piece of a bucket that the step works on: [0] its weights,
 * [1 + i] state_values, where they are kept or as they have come from disk. The step may set
 * them. */
int *ech_access_on_host(const ech_accessor *a);
/* FETCH and OFFLOAD: the step copies a value to another one, of as many bytes. */
void ech_access_pair(ech_accessor *a, int from, int to);
/* Adds a value of that kind to the list, for a copy of `value`. Returns its number. */
int ech_access_twin(ech_accessor *a, int value, ech_memory_kind kind);
/* Gives the step `bytes` of scratch: one value for all its calls, live from its first tick to its
 * last. */
void ech_access_scratch(ech_accessor *a, size_t bytes);
/* Gives the step, a sum over ranks, at least `bytes` of scratch. All sums of a lane take turns with
 * two values: a sum begins while the one before it ends, when all others have ended. So the scratch
 * of the sums under way does not grow with their number, whoever waits for them, and when. */
void ech_access_sum_scratch(ech_accessor *a, size_t bytes);

#endif
