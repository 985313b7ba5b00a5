/* SPDX-License-Identifier: Apache-2.0
 *
 * A PLAN says what a rank runs, in which order, and where its values are in memory. It is a few
 * named LISTS of STEPS, plain data that can be printed, checked, simulated and drawn without
 * running anything.
 *
 *     generator (order of F, B, W)  ->  version (of the weights that each reads)
 *         ->  lower (to steps per block, with sends and receives)
 *         ->  offload (of what blocks keep)  ->  hold (by a peer)
 *         ->  weight gathers (ZeRO 3, and offloaded weights)
 *         ->  frame (adds load, reduce, update)
 *         ->  access (which values each step touches)  ->  lifetime
 *         ->  inherit (successors: values at the offset of one that they replace)
 *         ->  place (offsets)  ->  peaks (of memory)  ->  check (check/check.h)
 *
 * A step (schedule/steps.h) names what it works on, the values it touches, and the steps it comes
 * after: it waits until these have ended. A lane begins its steps in order. All lanes but send and
 * receive also end them in order; send and receive may have many messages under way. A rank's plan
 * is made without the plans of other ranks.
 *
 * The train list is one training step or a SPAN of several: of an asynchronous schedule (fill,
 * steady state, drain), of pushes (asp, ssp, backup workers), of lock-free ranks. With delayed
 * updates (memory.offload_delayed_from) it is a span of synchronous steps, each but the last with
 * its update under the next one's compute; another list has the steps before. Training steps within
 * a list are called turns, 0 .. turns - 1.
 *
 * What a plan tells of itself: peaks of memory (schedule/peaks.h), what it sends
 * (schedule/traffic.h).
 *
 * Nothing here communicates. Texts are appended to `out`, the caller's. "Value" is a number as in
 * ech_value, unless it is a block's own value, called `local`.
 */
#ifndef ECH_SCHEDULE_PLAN_H
#define ECH_SCHEDULE_PLAN_H

#include "schedule/schedule.h"
#include "schedule/bucket.h"
#include "schedule/list.h"

typedef struct ech_plan_param {
    int64_t elements;                /* of this rank's shard; 0: this rank does not hold it */
    int first_state, states;         /* in plan.state */
    int first_statistic, statistics; /* in plan.statistic */
    int master;                      /* ech_optimizer_needs.master */
    /* persistent value: the copy of the weights that SAVE writes; -1: none, or the master's */
    int snapshot;
    int previous;          /* the same of the version before the newest */
    int bucket;            /* -1: this rank does not hold it */
    int64_t bucket_offset; /* elements from the bucket's beginning */
    /* Elements after it in its bucket, which are zero: the next parameter begins where plan.part
     * says, in any type. So what is laid out in the bucket's order (gradients, weights, states) has
     * the same places in each type. */
    int64_t padding;
    /* Compressed: the rank of its factors (0: it is not), and where they begin, in elements of the
     * bucket's: of a stack one after the other, each those of the whole matrix. */
    int64_t rank, left, right;
    /* Or how many numbers of each of its `lines` are chosen (0: none are), and where they begin in
     * a selection. */
    int64_t chosen, lines, in_selection;
    int stacked; /* how many this rank has stacked in it (ech_shape_is_stack); 1: it is no stack */
    /* in plan.owner, of each of them: the member of its bucket's group that makes what one makes */
    int first_owner;
    int64_t norm_first; /* index of its first partial sum of squares in plan.partials */
} ech_plan_param;

/* A state of a parameter that this rank holds. */
typedef struct ech_plan_state {
    ech_state is;
    int value;     /* persistent value: its own, or if it is element-wise its bucket's */
    int number;    /* of that value among its bucket's state_values */
    int64_t first; /* elements from the value's beginning */
    /* Which of this rank's shard of the state are there: all, or some if the bucket is sharded. */
    int64_t from, elements;
    int snapshot; /* persistent value: the copy that SAVE writes; -1: none */
} ech_plan_state;

/* A statistic of a parameter that this rank holds. Bytes are those from the beginning of its
 * bucket's statistics. Of the tensor rank's shard of it a round computes the numbers of the
 * elements that this rank works on; others are zero until it is folded. */
typedef struct ech_plan_statistic {
    ech_statistic is;
    /* Into how many shards that fold's ranks cut what it is taken of; 1: they do not fold it. */
    int shards[ECH_FOLDS];
    int64_t
        at; /* where a round computes it, of this rank's shards; where it is sum or maximum later */
    int64_t whole; /* where it is later: `at`, or where it is gathered */
} ech_plan_statistic;

typedef struct ech_plan {
    int rank;
    bool outline;   /* ech_plan_request.outline */
    bool validates; /* likewise: an evaluator's */
    const ech_model *model;
    const ech_layout *layout;
    const ech_schedule *schedule;
    const ech_optimizer *optimizer;
    const ech_kernels *kernels;
    ech_types types;         /* `compute` is that of the kernels */
    int threads;             /* of the compute lane */
    int host_threads;        /* of updates on the host; 0: there are none */
    ech_reduction reduction; /* the algorithm of REDUCE_GRADS and its halves */
    ech_lineup lineup
        [ECH_GROUPS]; /* this rank's groups over which gradients are summed; of others not set */
    int zero;         /* parallel.zero; in plans of forwards alone 0, or 3 */
    /* Where weights are that are not offloaded; in plans of forwards alone the device. */
    ech_space weights_in;
    bool keeps;     /* parallel.zero_keep: what is gathered stays to its last use */
    ech_space kept; /* where what forwards keep is meanwhile (memory.offload_activations) */
    /* memory.offload_activations = peer: the rank that holds some of what this one's forwards keep,
     * or for which this one does (schedule/balance.h); -1: none. */
    int peer;
    ech_space states;              /* where the optimizer's states are (memory.offload_optimizer) */
    ech_space weights;             /* where weights are (memory.offload_parameters) */
    int prefetch;                  /* memory.prefetch */
    int64_t at_once;               /* elements of a tensor on which INIT and HASH work at a time */
    int64_t alignment[ECH_SPACES]; /* bytes at whose multiples values begin; a power of two */
    int64_t part;                  /* the same of gradients in their bucket, and of its shards */
    ECH_LIST(ech_value) persistent; /* values that live in all lists, at their arenas' beginning */
    ech_plan_param *param;          /* [model.param.n] */
    ECH_LIST(ech_plan_state) state; /* parameter by parameter; none in plans of forwards alone */
    ECH_LIST(int) state_value;      /* persistent values with states, bucket by bucket */
    ECH_LIST(ech_plan_statistic) statistic; /* likewise */
    ECH_LIST(int) owner;                    /* ech_plan_param.first_owner */
    ECH_LIST(ech_bucket) bucket;            /* of what this rank holds, in the model's order */
    ECH_LIST(int) bucket_param;             /* parameters, bucket by bucket */
    int64_t norm_partials;                  /* partial sums of squares of this rank's gradients */
    /* Weight versions that are held, each in a slot: version k, in updates since the training began
     * or was resumed, is in slot k mod versions. */
    int versions;
    /* What this rank writes into checkpoints is copied first: of each parameter the newest weights,
     * the states, and where it is kept (ech_weights_keep_previous) the version before. False: no
     * copies, training waits for the write. */
    bool snapshots;
    /* [blocks] The block whose input is kept for the recomputation of this one: itself, or the
     * first of its segment. -1: the block is not recomputed, or is neither this rank's nor its
     * peer's. */
    int *segment;
    int scalars; /* persistent value: an ech_scalar_row for each turn */
    /* persistent value of the host: the same rows, as COUNT puts and READ fetches them */
    int staged;
    /* Two persistent values of the host, of ECH_LIST_GENERATE: a row of logits in fp64, and as the
     * device has it. -1: none. */
    int logits;
    /* persistent value of the host: tables of counts that the lane COLLECTIVE reads there; -1:
     * it reads none */
    int counts;
    /* persistent value of the host, of ECH_WINDOW_BYTES, by way of which it sees the device's */
    int window;
    /* Persistent values, one for each bucket: all its weights in the window, as the first cluster
     * of lock-free ranks has them (ech_plan_common); and as this rank's cluster had them when it
     * had the token last. -1: none. */
    int common, relayed;
    /* persistent value of the host: how many relays of buckets all clusters have made in a span;
     * -1: the rank never has the token */
    int token;
    int partials; /* persistent value: norm_partials in fp64; -1: none */
    ech_list list[ECH_LIST_KINDS];
    int64_t persistent_bytes
        [ECH_SPACES];                /* of an arena's first part; lists' own values come after it */
    int64_t arena_bytes[ECH_SPACES]; /* persistent_bytes + the most `bytes` of a list */
} ech_plan;

/* `alignment`: a power of two. */
static inline int64_t ech_align(int64_t bytes, int64_t alignment)
{
    return (bytes + alignment - 1) & -alignment;
}
/* The bytes that a value of so many takes: up to where the next may begin. */
static inline int64_t ech_plan_align(const ech_plan *plan, ech_memory_kind kind, int64_t bytes)
{
    return ech_align(bytes, plan->alignment[ech_memory_space(kind)]);
}

typedef struct ech_plan_request {
    const ech_config *config; /* resolved */
    const ech_model *model;
    const ech_layout *layout;
    const ech_schedule *schedule;
    const ech_kernels *kernels; /* say how much scratch they need */
    ech_alignment alignment;    /* of device memory (ech_kernels_alignment) */
    int rank, threads;
    bool forward_only; /* evaluation and sampling: no gradients, no optimizer, no train list */
    bool validates;    /* of these the first alone: no KV cache either. With forward_only */
    /* Only steps, without values and memory, of the train list, or with forward_only of all other
     * lists: to check, simulate and draw thousands of ranks. It cannot be run. */
    bool outline;
} ech_plan_request;

/* Whether the list's updates run under the compute of the next turn. */
static inline bool ech_list_is_delayed(const ech_plan *plan, const ech_list *list)
{
    return plan->schedule->weights == ECH_WEIGHTS_DELAYED && list->kind == ECH_LIST_TRAIN;
}

/* Turns of the rank's train list: training steps; where servers update at each push, pushes of a
 * span: of a worker the most that it can have, of a server all (schedule/protocol/serving.h). */
int ech_plan_turns(const ech_plan *plan);

/* Makes a rank's plan, unchecked (check/check.h); the caller destroys it. Cannot fail. Borrows
 * model, layout, schedule and kernels, not the configuration. */
ech_plan *ech_plan_create(const ech_plan_request *request);
void ech_plan_destroy(ech_plan *plan); /* accepts NULL */
ECH_DESTROY_AT(ech_plan, ech_plan_destroy)
/* Frees values and accesses, which only running the plan needs. Steps, buckets and sizes of memory
 * stay; no value may be asked for any more. */
void ech_plan_forget_values(ech_plan *plan);
/* Makes an outline (ech_plan_request.outline) of a plan that has a train list: frees all else but
 * SYNC and GOSSIP. like (optional): another plan, which is kept as long; if the two ranks' steps
 * are the same but for peers, which are as far from each, the outline borrows its steps. */
void ech_plan_make_outline(ech_plan *plan, const ech_plan *like);
/* Bytes of the snapshot of `rank`. It must have the stage of the plan's rank and equally many
 * micro-batches: the memory of such ranks differs only in their snapshots, since they write
 * different parameters into checkpoints. */
int64_t ech_plan_snapshot_bytes(const ech_plan *plan, int rank);

/* Numbers in a row of scalars, squares and reports included. */
int ech_plan_row(const ech_plan *plan);
/* Into how many parts a block's work is divided: tensor ranks x context ranks x sequence chunks. */
int ech_plan_ways(const ech_plan *plan);

#endif
