/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls by which the methods of step kinds report to the access pass (access.c) which values a step
 * touches. Private to src/schedule.
 */
#ifndef ECH_SCHEDULE_ACCESS_H
#define ECH_SCHEDULE_ACCESS_H

#include "schedule/plan.h"
#include "schedule/weight_reads.h"

/* The current gathered or fetched copies of a bucket's weights, one for each block that uses it. */
typedef struct ech_of_block {
    int block, value;
} ech_of_block;
typedef struct ech_instances {
    ECH_LIST(ech_of_block) all;
} ech_instances;

/* The list and step whose accesses are being recorded. */
typedef struct ech_accessor {
    ech_plan *plan;
    ech_list *list;
    ech_step *step;
    int tick; /* tick of the next access */
    /* Cache: scratch bytes + 1 of each call, by phase and block; 0: unknown yet. The size is the
     * same for all micro-batches, and libraries are slow to compute it. */
    size_t **scratch[ECH_PHASES];
    ech_weight_reads reads;
    ech_instances *brought; /* [buckets] */
    /* [buckets] Values on the host for updates: for each piece its weights (-1: none), and the
     * bucket's state_values. Use ech_access_on_host. */
    int **on_host;
    /* By lane: scratch of the last sum at index 0, of the one before at index 1; 0: none yet. */
    int sum_scratch[ECH_LANES][2];
} ech_accessor;

/* Adds a value to the list and returns its number (ech_value). */
int ech_access_new(ech_accessor *a, ech_value value);
/* The same for a value that belongs to no block and no micro-batch; index: as in ech_value. */
int ech_access_new_plain(ech_accessor *a, ech_memory_kind kind, int index, int64_t bytes);
/* Records that the step touches the value, at the accessor's tick. */
void ech_access_value(ech_accessor *a, int value, bool write);
/* Returns the value of a block's own value `local` for sequence chunk `micro`; adds it to the list
 * if it is new. */
int ech_access_value_of(ech_accessor *a, int block, int local, int micro);
/* Notes that a carried value (ech_list_carries) has come back, or is on its way back, as `value`:
 * the block's steps access it from now on. */
void ech_access_bring(ech_accessor *a, int local, int value);
/* Adds a value for `elements` of a bucket's gradients. micro: the micro-batch of an instance; -1:
 * no single one. */
int ech_access_new_gradients(ech_accessor *a, int bucket, int micro, int64_t elements);
/* Records an access of a bucket's step to a value in the given use; and an access to its gradient
 * sum. */
void ech_access_as(ech_accessor *a, ech_used_as use, int value, bool write);
void ech_access_sum(ech_accessor *a, bool write);
/* Returns the value of the step's gradient instance of a bucket; adds it if it is new. All turns of
 * the list share one value per instance, except for partials of layer states and gradients that
 * leave the device. */
int ech_access_gradients(ech_accessor *a, int bucket);
/* Begins a new value in which the turn's gradients are accumulated (only this rank's shard if each
 * micro-batch's gradients are scattered). */
int ech_access_renew_sum(ech_accessor *a, int bucket);
/* The value that the turn's steps of the bucket work on; the caller may change it. */
int *ech_access_summed(const ech_accessor *a, int bucket);
/* Records that the step touches a version of a bucket's weights. */
void ech_access_weights(ech_accessor *a, int bucket, int version, bool write);
/* Adds an instance of `elements` of a bucket's weights, on the device or the host, for the step's
 * block. */
int ech_access_new_weights(ech_accessor *a, int bucket, ech_space space, int64_t elements);
/* The value from which steps of the step's block read a bucket's weights now; for gathered or
 * fetched weights, the newest instance. */
int ech_access_weights_of(const ech_accessor *a, int bucket);
/* Records that the step reads the weights of its calls: its version, or the block's instance. A
 * bucket is recorded at its first call. An instance of weights that dies after this step is
 * recorded at its last call, too. */
void ech_access_reads(ech_accessor *a);
/* Records that the step touches the optimizer's states of a bucket. */
void ech_access_states(ech_accessor *a, int bucket, bool write);
/* Records that the step touches a value of its own block and sequence chunk. */
void ech_access_local(ech_accessor *a, int local, bool write);
/* Records the operands of one call of its block's program. Returns the call's scratch bytes. */
size_t ech_access_call(ech_accessor *a, int call);
/* Host values of the bucket's piece that the step works on: [0] weights, [1 + i] state_values; the
 * resident ones or those fetched from disk. The step may change them. */
int *ech_access_on_host(const ech_accessor *a);
/* FETCH and OFFLOAD: records the copy of one value to another of equal size. */
void ech_access_pair(ech_accessor *a, int from, int to);
/* Adds a value of the given kind for a copy of `value`. Returns its number. */
int ech_access_twin(ech_accessor *a, int value, ech_memory_kind kind);
/* Gives the step `bytes` of scratch: one value for all its calls, live from its first tick to its
 * last. */
void ech_access_scratch(ech_accessor *a, size_t bytes);
/* Gives the step, a sum over ranks, at least `bytes` of scratch. The sums of a lane alternate
 * between two values: a sum may begin while the previous one ends, after all earlier ones have
 * ended. So total scratch does not grow with the number of pending sums. */
void ech_access_sum_scratch(ech_accessor *a, size_t bytes);

#endif
