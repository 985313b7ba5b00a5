/* SPDX-License-Identifier: Apache-2.0
 *
 * A PLAN says what a rank runs, in which order, and where its values are in memory. It consists of
 * a few named LISTS of STEPS: plain data that can be printed, checked, simulated and drawn without
 * running anything. Its passes:
 *
 *     generator (order of F, B, W)  ->  version (of the weights that each reads)
 *      ->  lower (to steps per block, with sends and receives)
 *      ->  offload (of kept activations)  ->  hold (by a peer)
 *      ->  weight gathering (ZeRO 3, and offloaded weights)
 *      ->  frame (adds load, reduce, gradient clipping, update)
 *      ->  access (which values each step touches)  ->  lifetime
 *      ->  inherit (successors: values at the offset of one that they replace)
 *      ->  place (offsets)  ->  peaks (of memory)  ->  check (check/check.h)
 *
 * A step (schedule/steps.h) names what it works on, the values it touches, and the earlier steps it
 * waits for. A lane begins its steps in order. All lanes but send and receive also end them in
 * order; send and receive may have many messages in flight. A rank's plan is made without other
 * ranks' plans.
 *
 * The train list is one training step, or a SPAN of several: of an asynchronous schedule (fill,
 * steady state, drain), of pushes (asp, ssp, backup workers), or of lock-free ranks. With delayed
 * updates (memory.offload_delayed_from) it is a span of synchronous steps: each update but the last
 * runs during the next step's compute. The steps before offload_delayed_from use another list.
 * Training steps within a list are called turns, 0 .. turns - 1.
 *
 * Results about a plan: peaks of memory (schedule/peaks.h) and bytes sent (schedule/traffic.h).
 * Nothing here communicates. Functions append texts to the caller's `out`. "Value" means a number
 * as in ech_value, unless it is a block's own value, called `local`.
 */
#ifndef ECH_SCHEDULE_PLAN_H
#define ECH_SCHEDULE_PLAN_H

#include "device/row.h"
#include "schedule/schedule.h"
#include "schedule/bucket.h"
#include "schedule/list.h"

typedef struct ech_plan_param {
    int64_t elements;                /* of this rank's shard; 0: this rank does not hold it */
    int first_state, states;         /* in plan.state */
    int first_statistic, statistics; /* in plan.statistic */
    int master;                      /* ech_optimizer_needs.master */
    /* persistent value: the copy of the weights that SAVE writes; -1: none, or the copy of the
     * master */
    int snapshot;
    int previous;          /* the same for the version before the newest */
    int bucket;            /* -1: this rank does not hold it */
    int64_t bucket_offset; /* elements from the bucket's beginning */
    /* Zero elements after it in its bucket: the next parameter begins at a multiple of plan.part in
     * any type. So gradients, weights and states have the same element offsets in each type. */
    int64_t padding;
    /* Compressed gradients: rank of the factors (0: not compressed), and element offsets of the
     * left and right factors in the bucket's value. The factors of a stack follow each other, each
     * pair for one whole matrix. */
    int64_t rank, left, right;
    /* Selections: numbers chosen per line (0: none), number of lines, and offset in a selection. */
    int64_t chosen, lines, in_selection;
    int stacked; /* matrices of a stack that this rank holds (ech_shape_is_stack); 1: not a stack */
    /* in plan.owner, per matrix: the member of its bucket's group that computes what one member
     * computes for all */
    int first_owner;
    int64_t norm_first; /* index of its first partial sum of squares in plan.partials */
} ech_plan_param;

/* A state of a parameter that this rank holds. */
typedef struct ech_plan_state {
    ech_state is;
    int value;     /* persistent value: its own, or its bucket's if it is element-wise */
    int number;    /* index of that value among the bucket's state_values */
    int64_t first; /* elements from the value's beginning */
    /* Range of this rank's shard of the state that is stored: all, or a part if the bucket is
     * sharded. */
    int64_t from, elements;
    int snapshot; /* persistent value: the copy that SAVE writes; -1: none */
} ech_plan_state;

/* A statistic of a parameter that this rank holds. Byte offsets count from the beginning of its
 * bucket's statistics. A round computes only the numbers of the elements that this rank works on;
 * the rest of its tensor shard is zero until the statistic is folded. */
typedef struct ech_plan_statistic {
    ech_statistic is;
    /* Number of shards that each fold combines; 1: it is not folded there. */
    int shards[ECH_FOLDS];
    /* byte offset where a round computes it for this rank's shards, and where a folded sum or
     * maximum is */
    int64_t at;
    int64_t whole; /* byte offset after folding: `at`, or the gathered whole */
} ech_plan_statistic;

typedef struct ech_plan {
    int rank;
    bool outline;   /* ech_plan_request.outline */
    bool validates; /* ech_plan_request.validates: an evaluator's plan */
    const ech_model *model;
    const ech_layout *layout;
    const ech_schedule *schedule;
    const ech_optimizer *optimizer;
    const ech_kernels *kernels;
    ech_types types;         /* `compute` is the kernels' type */
    int threads;             /* of the compute lane */
    int host_threads;        /* for updates on the host; 0: there are none */
    ech_reduction reduction; /* algorithm of REDUCE_GRADS and its halves */
    int64_t sum_segment;     /* bytes of a message of a sum (ech_device_row) */
    /* this rank's groups over which gradients are summed; others are not set */
    ech_lineup lineup[ECH_GROUPS];
    int zero;         /* parallel.zero; without training 0 or 3 */
    /* Where weights are stored if they are not offloaded; without training, the device. */
    ech_space weights_in;
    bool keeps;     /* parallel.zero_keep: gathered weights stay until their last use */
    ech_space kept; /* where activations are stored between F and B (memory.offload_activations) */
    /* memory.offload_activations = peer: the rank that holds activations for this one, or for which
     * this one holds them (schedule/balance.h); -1: none. */
    int peer;
    ech_space states;  /* where optimizer states are stored (memory.offload_optimizer) */
    ech_space weights; /* where weights are stored (memory.offload_parameters) */
    int prefetch;                  /* memory.prefetch */
    int64_t at_once;               /* elements of a tensor that INIT and HASH process at a time */
    int64_t alignment[ECH_SPACES]; /* alignment of values in bytes; a power of two */
    ech_lane loads; /* lane of LOAD in lists that train and validate (ech_device_row) */
    int64_t part; /* alignment in bytes of gradients in their bucket, and of its shards */
    /* values that live in all lists, at the beginning of their arenas */
    ECH_LIST(ech_value) persistent;
    ech_plan_param *param;          /* [model.param.n] */
    ECH_LIST(ech_plan_state) state; /* parameter by parameter; empty without training */
    ECH_LIST(int) state_value;      /* persistent values with states, bucket by bucket */
    ECH_LIST(ech_plan_statistic) statistic; /* parameter by parameter; empty without training */
    ECH_LIST(int) owner;                    /* ech_plan_param.first_owner */
    ECH_LIST(ech_bucket) bucket;            /* buckets that this rank holds, in the model's order */
    ECH_LIST(int) bucket_param;             /* parameters, bucket by bucket */
    int64_t norm_partials;                  /* partial sums of squares of this rank's gradients */
    /* Weight versions that are stored, each in a slot: version k, counted in updates since the
     * training began or was resumed, is in slot k mod versions. */
    int versions;
    /* True: the checkpoint data of this rank is copied first: for each parameter the newest
     * weights, the states, and the previous version if it is saved (ech_weights_keep_previous).
     * False: no copies; training waits for the write. */
    bool snapshots;
    /* [blocks] The block whose input is kept for the recomputation of this one: itself, or the
     * first of its segment. -1: the block is not recomputed, or belongs neither to this rank nor to
     * its peer. */
    int *segment;
    int scalars; /* persistent value: an ech_scalar_row per turn */
    /* persistent value on the host: the same rows, as COUNT writes and READ fetches them */
    int staged;
    /* Two persistent values on the host for ECH_LIST_GENERATE: a row of logits in fp64, and in the
     * device's type. -1: none. */
    int logits;
    /* persistent value on the host: count tables that the lane COLLECTIVE reads there; -1: none */
    int counts;
    /* persistent value on the host: the bounce buffer, through which it accesses the device's
     * values */
    int bounce;
    /* Lock-free ranks: persistent values, one per bucket: its full weights in shared memory, first
     * cluster (ech_plan_common); and its cluster's weights at the ring token's last visit. -1:
     * none. */
    int common, relayed;
    /* persistent value on the host: number of relays of buckets by all clusters in a span; -1: the
     * rank never has the ring token */
    int ring_token;
    int partials; /* persistent value: norm_partials in fp64; -1: none */
    ech_list list[ECH_LIST_KINDS];
    /* of the first part of an arena; the lists' own values follow */
    int64_t persistent_bytes[ECH_SPACES];
    int64_t arena_bytes[ECH_SPACES]; /* persistent_bytes + the largest `bytes` of a list */
} ech_plan;

/* `alignment`: a power of two. */
static inline int64_t ech_align(int64_t bytes, int64_t alignment)
{
    return (bytes + alignment - 1) & -alignment;
}
/* The bytes that a value occupies: up to the next possible offset. */
static inline int64_t ech_plan_align(const ech_plan *plan, ech_memory_kind kind, int64_t bytes)
{
    return ech_align(bytes, plan->alignment[ech_memory_space(kind)]);
}

/* True if the step's members gather whole shards, which a backend's library can do
 * (ech_group_prepare_gathers). */
bool ech_step_gathers_shards(const ech_plan *plan, const ech_step *step);

/* A group of `members` for ech_collective_traffic and others. */
static inline ech_lineup ech_plan_among(const ech_plan *plan, int members)
{
    return (ech_lineup){.size = members, .segment = plan->sum_segment};
}

typedef struct ech_plan_request {
    const ech_config *config; /* resolved */
    const ech_model *model;
    const ech_layout *layout;
    const ech_schedule *schedule;
    const ech_kernels *kernels; /* queried for their scratch sizes */
    const ech_device_row *device;
    int rank, threads;
    bool forward_only; /* evaluation and sampling: no gradients, no optimizer, no train list */
    bool validates;    /* with forward_only: only the validation list, without a KV cache */
    /* Only steps, without values and memory: the train list, or with forward_only all other lists.
     * It serves to check, simulate and draw thousands of ranks and cannot be run. */
    bool outline;
    bool every_list; /* with outline: all lists */
    /* Only the train list. Its memory is summed up and not placed: arena_bytes is the least that
     * any placement needs. Such a plan cannot be run. */
    bool brief;
    bool listless; /* only buckets and persistent values, for ech_plan_snapshot_bytes */
} ech_plan_request;

/* True if the list's updates run during the compute of the next turn. */
static inline bool ech_list_is_delayed(const ech_plan *plan, const ech_list *list)
{
    return plan->schedule->weights == ECH_WEIGHTS_DELAYED && list->kind == ECH_LIST_TRAIN;
}

/* Turns of the rank's train list: training steps. Where servers update per push: pushes of a span,
 * for a worker the most it can have, for a server all (schedule/protocol/serving.h). */
int ech_plan_turns(const ech_plan *plan);

/* Makes a rank's plan, unchecked (check/check.h); the caller destroys it. Cannot fail. Borrows
 * model, layout, schedule and kernels, but not the configuration. */
ech_plan *ech_plan_create(const ech_plan_request *request);
void ech_plan_destroy(ech_plan *plan); /* accepts NULL */
ECH_DESTROY_AT(ech_plan, ech_plan_destroy)
/* Frees values and accesses, which are needed only to run the plan. Steps, buckets and memory sizes
 * stay; value lookups are invalid from then on. */
void ech_plan_forget_values(ech_plan *plan);
/* Reduces a plan with a train list to an outline (ech_plan_request.outline), with SYNC and GOSSIP.
 * like (optional): another plan, which must outlive this one. If both ranks' steps differ only by a
 * constant offset of peers, the outline borrows the other's steps. */
void ech_plan_make_outline(ech_plan *plan, const ech_plan *like);
/* Bytes of the snapshot of `rank`, which must have the same stage and number of micro-batches as
 * the plan's rank: the memory of such ranks differs only in their snapshots, since they write
 * different parameters. */
int64_t ech_plan_snapshot_bytes(const ech_plan *plan, int rank);

/* Numbers in a row of scalars, with squares and reports. */
int ech_plan_row(const ech_plan *plan);
/* Parts into which a block's work is divided: tensor ranks x context ranks x sequence chunks. */
int ech_plan_ways(const ech_plan *plan);

#endif
