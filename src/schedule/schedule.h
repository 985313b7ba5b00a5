/* SPDX-License-Identifier: Apache-2.0
 *
 * A PLAN says what a rank runs, in which order, and where its values are in memory. It is a few named LISTS of STEPS,
 * plain data that can be printed, checked, simulated and drawn without running anything.
 *
 *     generator (order of F, B, W)  ->  version (of the weights that each reads)
 *         ->  lower (to steps per block, with sends and receives)  ->  offload (of what blocks keep)  ->  hold (by a peer)
 *         ->  resident (weights that are gathered)
 *         ->  frame (adds load, reduce, update)  ->  access (which values each step touches)  ->  lifetime
 *         ->  inherit (successors: values at the offset of one that they replace)  ->  place (offsets)
 *         ->  peaks (of memory)  ->  check (check/check.h)
 *
 * A step (schedule/steps.h) names what it works on, the values it touches, and the steps it comes after: it waits until these
 * have ended.
 * A lane begins its steps in order. All lanes but send and receive also end them in order; send and receive may have
 * many messages under way. A rank's plan is made without making those of other ranks.
 *
 * The train list is one training step or a SPAN of several: of an asynchronous schedule (fill, steady state, drain), of pushes
 * (asp, ssp, backup workers), of lock-free ranks. With delayed updates (memory.offload_delayed_from) it is a span of synchronous steps, each but the last with its
 * update under the next one's compute; another list has the steps before. Training steps within a list are called turns, 0 .. turns - 1.
 *
 * What a plan tells of itself: peaks of memory (schedule/peaks.h), what it sends (schedule/traffic.h).
 *
 * Nothing here communicates. Texts are appended to `out`, the caller's. "Value" is a number as in ech_value, unless it
 * is a block's own value, called `local`.
 */
#ifndef ECH_SCHEDULE_SCHEDULE_H
#define ECH_SCHEDULE_SCHEDULE_H

#include "config/config.h"
#include "layout/layout.h"
#include "model/model.h"
#include "optim/optim.h"
#include "schedule/bucket.h"
#include "schedule/list.h"
#include "schedule/order/order.h"

/* ---- schedules ---- */

/* A run's schedule: a generator, or orders written by hand. */
typedef struct ech_schedule {
    const ech_generator *generator; /* NULL: by hand */
    ech_order *written;             /* [stages] orders by hand; NULL: there is a generator */
    int stages;
    ech_weights weights;
    bool stashing;      /* ECH_WEIGHTS_STASHED: a backward reads the version of its forward */
    bool vertical_sync; /* ECH_WEIGHTS_STASHED: all stages read the version that the first read */
    int turns;          /* training steps of a span; 1: synchronous */
    int64_t
        staleness; /* ECH_WEIGHTS_PULLED: steps by which a worker may be ahead of the slowest one */
    int64_t
        delayed_from; /* ECH_WEIGHTS_DELAYED: the training step with which the first span begins; else 0 */
} ech_schedule;

/* What parallel.schedule names, looked up once, by ech_schedule_find. No errors:
 * ech_schedule_create has them. */
typedef struct ech_schedule_choice {
    const char *name; /* borrowed */
    const ech_generator
        *generator;            /* NULL: an order written by hand, or no schedule of that name */
    bool is_written;           /* an order written by hand */
    char *text;                /* of the order's file, read when first needed; owned */
    size_t n;                  /* bytes of `text` */
    bool is_measured;          /* the two numbers below are set */
    int stages, micro_batches; /* of the order written by hand; stages 0: it is invalid */
} ech_schedule_choice;
ech_schedule_choice ech_schedule_find(const ech_config *config);
void ech_schedule_choice_free(ech_schedule_choice *choice);

/* Whether ech_schedule_create would accept a mesh of that shape; for an ech_layout_filter.
 * `choice`: an ech_schedule_choice. Checks only what depends on the mesh. False if an order written
 * by hand cannot be read. */
bool ech_schedule_accepts(void *choice, const ech_layout_shape *shape);
/* The placement of virtual stages that the schedule needs. An order written by hand needs
 * ECH_PLACEMENT_LOOP. */
ech_placement ech_schedule_placement(const ech_schedule_choice *choice);
/* Fills parallel.virtual_stages if it is "auto": as many as the schedule needs, or 1. */
void ech_schedule_fill_chunks(ech_config *config, const ech_schedule_choice *choice);

/* Makes the schedule; the caller destroys it. Fills training.check_every, and for an asynchronous
 * schedule or delayed updates parallel.flush_every (the training steps of a span), where they are
 * "auto". The configuration must break no rule (config/rules.h). Errors: an unknown name; an order
 * file that does not fit; numbers of micro-batches that the generator refuses; training.steps,
 * validate_every, check_every, checkpoint.every or memory.offload_delayed_from that is no multiple
 * of a span, or of parallel.sync_every where replicas are apart. */
ech_status ech_schedule_create(ech_config *config, ech_schedule_choice *choice,
                               const ech_layout *layout, ech_schedule **out);
void ech_schedule_destroy(ech_schedule *schedule); /* accepts NULL */
/* The list that trains from a training step on, at which one begins. *turns: its training steps. */
ech_list_kind ech_schedule_list(const ech_schedule *schedule, int64_t step, int *turns);

/* Appends the order of a rank over `turns` training steps, of whole micro-batches (not of sequence
 * chunks). forwards: without backwards. */
void ech_schedule_order(const ech_schedule *schedule, const ech_layout *layout, int rank, int turns,
                        bool forwards, ech_order *order);
/* Writes the weight version (as ech_step.version) that each item of a rank's train order reads into
 * version[order->n]. Returns how many versions must be held at once. */
int ech_schedule_versions(const ech_schedule *schedule, const ech_layout *layout, int rank,
                          const ech_order *order, int *version);

/* Errors: memory.offload_activations is peer, and nobody has anything to hold. */
ech_status ech_balance_check(const ech_config *config, const ech_model *model,
                             const ech_layout *layout, const ech_schedule *schedule);
/* Errors: memory.recompute_blocks is more than the layers of any (virtual) stage. */
ech_status ech_segments_check(const ech_config *config, const ech_model *model,
                              const ech_layout *layout);

/* ---- plans ---- */

typedef struct ech_plan_param {
    int64_t elements;                /* of this rank's shard; 0: this rank does not hold it */
    int first_state, states;         /* in plan.state */
    int first_statistic, statistics; /* in plan.statistic */
    int master;                      /* ech_optimizer_needs.master */
    int snapshot; /* persistent value: the copy of the weights that SAVE writes; -1: none, or the master's */
    int previous;          /* the same of the version before the newest */
    int bucket;            /* -1: this rank does not hold it */
    int64_t bucket_offset; /* elements from the bucket's beginning */
    /* Elements behind it in its bucket, which are zero: the next parameter begins where plan.part says, in any type. So
     * what is laid out in the bucket's order (gradients, weights, states) has the same places in each type. */
    int64_t padding;
    /* Compressed: the rank of its factors (0: it is not), and where they begin, in elements of the bucket's: of a stack one after the
     * other, each those of the whole matrix. */
    int64_t rank, left, right;
    /* Or how many numbers of each of its `lines` are chosen (0: none are), and where they begin in a selection. */
    int64_t chosen, lines, in_selection;
    int stacked; /* how many this rank has stacked in it (ech_shape_is_stack); 1: it is no stack */
    int first_owner; /* in plan.owner, of each of them: the member of its bucket's group that makes what one makes */
    int64_t norm_first; /* index of its first partial sum of squares in plan.partials */
} ech_plan_param;

/* A state of a parameter that this rank holds. */
typedef struct ech_plan_state {
    ech_state is;
    int value;     /* persistent value: its own, or if it is element-wise its bucket's */
    int number;    /* of that value among its bucket's state_values */
    int64_t first; /* elements from the value's beginning */
    int64_t from,
        elements; /* which of this rank's shard of the state are there: all, or of a sharded bucket some */
    int snapshot; /* persistent value: the copy that SAVE writes; -1: none */
} ech_plan_state;

/* A statistic of a parameter that this rank holds. Bytes are those from the beginning of its
 * bucket's statistics. Of the tensor rank's shard of it a round computes the numbers of the
 * elements that this rank works on; others are zero until it is folded. */
typedef struct ech_plan_statistic {
    ech_statistic is;
    int shards
        [ECH_FOLDS]; /* into which that fold's ranks cut what it is taken of; 1: they do not fold it */
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
    ech_space
        weights_in; /* where weights are that are not offloaded; in plans of forwards alone the device */
    bool keeps;  /* parallel.zero_keep: what is gathered stays to its last use */
    ech_space kept; /* where what forwards keep is meanwhile (memory.offload_activations) */
    /* memory.offload_activations = peer: the rank that holds some of what this one's forwards keep, or for which this one
     * does (schedule/balance.h); -1: none. */
    int peer;
    ech_space states;              /* where the optimizer's states are (memory.offload_optimizer) */
    ech_space weights;             /* where weights are (memory.offload_parameters) */
    int prefetch;                  /* memory.prefetch */
    int64_t at_once; /* elements of a tensor on which INIT and HASH work at a time */
    int64_t alignment[ECH_SPACES]; /* bytes at whose multiples values begin; a power of two */
    int64_t part;                  /* the same of gradients in their bucket, and of its shards */
    ECH_LIST(ech_value) persistent; /* values that live in all lists, at their arenas' beginning */
    ech_plan_param *param;          /* [model.param.n] */
    ECH_LIST(ech_plan_state) state; /* parameter by parameter; none in plans of forwards alone */
    ECH_LIST(int) state_value;      /* persistent values with states, bucket by bucket */
    ECH_LIST(ech_plan_statistic) statistic;     /* likewise */
    ECH_LIST(int) owner;                        /* ech_plan_param.first_owner */
    ECH_LIST(ech_bucket) bucket;                /* of what this rank holds, in the model's order */
    ECH_LIST(int) bucket_param;                 /* parameters, bucket by bucket */
    int64_t norm_partials; /* partial sums of squares of this rank's gradients */
    /* Weight versions that are held, each in a slot: version k, in updates since the training began or was resumed, is
     * in slot k mod versions. */
    int versions;
    /* What this rank writes into checkpoints is copied first: of each parameter the newest weights, the states, and
     * where it is kept (ech_weights_keep_previous) the version before. False: no copies, training waits for the write. */
    bool snapshots;
    /* [blocks] The block whose input is kept for the recomputation of this one: itself, or the first of its segment.
     * -1: the block is not recomputed, or is neither this rank's nor its peer's. */
    int *segment;
    int scalars; /* persistent value: an ech_scalar_row for each turn */
    int staged; /* persistent value of the host: the same rows, as COUNT puts and READ fetches them */
    /* Two persistent values of the host, of ECH_LIST_GENERATE: a row of logits in fp64, and as the device has it. -1: none. */
    int logits;
    int counts; /* persistent value of the host: tables of counts that the lane COLLECTIVE reads there; -1: it reads none */
    int window; /* persistent value of the host, of ECH_WINDOW_BYTES, by way of which it sees the device's */
    /* Persistent values, one for each bucket: all its weights in the window, as the first cluster
     * of lock-free ranks has them (ech_plan_common); and as this rank's cluster had them when it
     * had the token last. -1: none. */
    int common, relayed;
    int token; /* persistent value of the host: how many relays of buckets all clusters have made in a span; -1: the rank never has the token */
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
    bool
        outline; /* only steps, without values and memory, of the train list, or with forward_only of
                          all others: to check, simulate and draw thousands of ranks. Cannot be run */
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

const ech_value *ech_plan_value(const ech_plan *plan, const ech_list *list, int value);
/* Bytes of what a block's forward keeps of one `micro`, and what steps of ECH_RESOURCE_KEPT move;
 * 0: nothing, or a KV cache alone, which all of them share. */
int64_t ech_plan_kept_bytes(const ech_plan *plan, int block);
/* Bytes of activations that the forward of one `micro` makes for the backward in all blocks of this
 * rank, by how they are kept. */
void ech_plan_kept(const ech_plan *plan, int64_t bytes[ECH_KEPTS]);
/* Whether a block's forward keeps anything but a KV cache, if it begins a segment. */
bool ech_segments_keep(const ech_block *block);
/* Sets kept[values of the block] of those that its forward reads or makes, and its R, B or W reads;
 * a KV cache, too. */
void ech_plan_find_kept(const ech_plan *plan, int block, bool *kept);
/* Which calls of a block's program are run in the list: those of ech_program_calls. But within a
 * segment F keeps no shards of inputs and R gathers none, and R makes outputs only where the next
 * block needs them. */
typedef struct ech_calls {
    int first, end;
} ech_calls;
ech_calls ech_plan_calls(const ech_plan *plan, const ech_list *list, int block, ech_phase phase);
/* Whether the block's input is recomputed: it is the output of the block before it in the segment.
 * */
bool ech_plan_continues_segment(const ech_plan *plan, int block);
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
/* Whether a PULL comes behind the last turn, when all have met. */
bool ech_step_pulls_all(const ech_list *list, const ech_step *step);
/* Whether a RELAY is of the last round, behind the meeting after which no rank adds. */
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

/* Numbers in a row of scalars, squares and reports included. */
int ech_plan_row(const ech_plan *plan);
/* The types of a parameter, and of its gradient; and of an optimizer's state. */
ech_dtype ech_plan_param_dtype(const ech_plan *plan, int param);
ech_dtype ech_plan_gradient_dtype(const ech_plan *plan, int param);
ech_dtype ech_plan_state_dtype(const ech_plan *plan, const ech_state *state);
/* The value that a step of a bucket uses as that; -1: none. number: of several, as states. */
int ech_step_uses(const ech_list *list, const ech_step *step, ech_used_as use, int number);
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

/* Bytes of a block's value in a message: of all of it, or where messages are sharded
 * (ech_plan_shards_messages) of this tensor rank's shard. *first (optional): the byte at which the
 * shard begins. */
int64_t ech_plan_message_shard(const ech_plan *plan, const ech_list *list, const ech_block *block,
                               int local, int64_t *first);
/* Into how many parts a block's work is divided: tensor ranks x context ranks x sequence chunks. */
int ech_plan_ways(const ech_plan *plan);
/* Appends a step's text (ech_step_print), with the peer that it has in this list. */
void ech_list_print_step(const ech_list *list, const ech_step *step, ech_text *out);
/* Appends "model.layers.3: linear4.out, micro-batch 2". */
void ech_value_print(const ech_plan *plan, const ech_list *list, int value, ech_text *out);
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
/* Appends a line for each step: number, lane, text, the steps that it comes after. */
void ech_list_print(const ech_list *list, ech_text *out);
/* Appends one line: F, B, W and R of the compute lane as the papers write them, "F0.0 B0.0 W0.0
 * ..." (model chunk, `micro`). Successive blocks of a model chunk are one word; so is a B with the
 * W right after it, and with the R of the next block. */
void ech_list_print_row(const ech_list *list, ech_text *out);

/* ---- refusals ---- */

/* Logs that `rank`'s step is wrong, and why; prints the rows (ech_list_print_row) of up to 8 ranks
 * about it with that step marked. Returns ECH_EUSAGE for orders written by hand, else
 * ECH_EINTERNAL. step -1: the end of the list. standing[n] (optional): the step at which each other
 * rank waits, marked as well; -1: none. */
ech_status ech_plans_reject(const ech_plan *const *plans, int n, ech_list_kind list, int rank,
                            int step, const int *standing, const char *why);

#endif
