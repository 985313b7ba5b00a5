/* SPDX-License-Identifier: Apache-2.0
 *
 * A STEP: the work that a rank does on one lane without waiting in between, such as part of a
 * block's program, a message, or a sum over ranks. It is plain data; its kind is a row of
 * steps.def. Functions append texts to the caller's `out`.
 */
#ifndef ECH_SCHEDULE_STEPS_H
#define ECH_SCHEDULE_STEPS_H

#include "comm/collective.h"
#include "layer/layer.h"
#include "layout/layout.h"

typedef enum __attribute__((packed)) ech_lane {
#define X(name, ...) ECH_LANE_##name,
#include "schedule/lanes.def"
#undef X
    ECH_LANES
} ech_lane;

typedef enum __attribute__((packed)) ech_step_kind {
#define X(name, ...) ECH_STEP_##name,
#include "schedule/steps.def"
#undef X
    ECH_STEPS
} ech_step_kind;

/* Memories that hold values. */
typedef enum __attribute__((packed)) ech_space {
#define X(name, ...) ECH_SPACE_##name,
#include "schedule/spaces.def"
#undef X
    ECH_SPACES
} ech_space;

/* The units that FETCH and OFFLOAD copy. */
typedef enum __attribute__((packed)) ech_resource {
#define X(name, ...) ECH_RESOURCE_##name,
#include "schedule/resources.def"
#undef X
    ECH_RESOURCES
} ech_resource;

/* The contents of messages. Messages between two ranks across one boundary differ in them. */
typedef enum ech_message_kind {
#define X(name, ...) ECH_MESSAGE_##name,
#include "schedule/messages.def"
#undef X
    ECH_MESSAGES
} ech_message_kind;

const char *ech_message_name(ech_message_kind kind);
const char *ech_space_name(ech_space space);
const char *ech_lane_name(ech_lane lane);
/* True if the lane's steps are collective: all members of step->group must run theirs. */
bool ech_lane_gathers(ech_lane lane);
const char *ech_step_name(ech_step_kind kind);

/* Kinds of bars in timelines, in colours that colour-blind readers can distinguish. */
typedef enum ech_bar_kind {
#define X(name, text, colour, meaning) ECH_BAR_##name,
#include "schedule/bars.def"
#undef X
    ECH_BAR_KINDS
} ech_bar_kind;

const char *ech_bar_kind_text(ech_bar_kind kind);    /* "F" */
const char *ech_bar_kind_colour(ech_bar_kind kind);  /* "#56b4e9" */
const char *ech_bar_kind_meaning(ech_bar_kind kind); /* "forward" */

/* Plans of many ranks have millions of steps, so small fields are bytes. */
typedef struct ech_step {
    ech_step_kind kind;
    ech_lane lane;
    ech_layout_group group;    /* of REDUCE, REDUCE_GRADS, COLLECTIVE */
    ech_phase phase;           /* of F, B, W, R, COLLECTIVE: which of the block's programs */
    ech_collective collective; /* of COLLECTIVE */
    /* FETCH and OFFLOAD: the spaces of the values and of their copies. */
    ech_space from : 4, to : 4;
    bool is_part : 1;      /* of F, B, W, R: other steps run other calls of the program */
    bool maximum : 1;      /* REDUCE takes the maximum, not the sum */
    /* SCATTER_GRADS adds to the shard, which earlier steps of its turn have written (gradient
     * accumulation) */
    bool adds : 1;
    ech_resource resource; /* of FETCH and OFFLOAD */
    /* The model chunk, sequence chunk (ech_numbering) and block of F, B, W, R, COLLECTIVE,
     * messages, and copies of kept values. For LOAD, and for SCATTER_GRADS of a single micro-batch,
     * `micro` is the micro-batch's first sequence chunk. For GATHER_WEIGHTS on behalf of a block,
     * `block` is that block. Otherwise -1. */
    int chunk, micro, block;
    int turn; /* training step within the list */
    /* The weight version that F, B, W, R, STASH and a block's GATHER_WEIGHTS read, or that UPDATE
     * (with its STATISTICS) writes. 0: the newest at the list's beginning; k: after k more updates;
     * -1: the one before version 0 (read under ECH_WEIGHTS_BUFFERED). */
    int version;
    int peer; /* rank at the other end of a message (ech_list_peer); otherwise -1 */
    /* of a message or copy, all tensors; of COLLECTIVE, bytes sent by this rank (expected bytes if
     * count tables decide) */
    int64_t bytes;
    int index; /* bucket (ech_step_has_bucket); first scalar of REDUCE and HASH */
    /* Number of scalars of REDUCE; round of STATISTICS and FOLD; for steps that work piece by piece
     * (ech_step_piece), the bucket's piece, from 1, or 0 for the whole bucket. */
    int count;
    /* The step runs calls first_call .. first_call + calls - 1 of that program: F, B, W and R the
     * calls between two collectives, COLLECTIVE one call. A COLLECTIVE with calls 0 all-gathers a
     * received message over the tensor ranks of this stage; each received a shard. */
    int first_call, calls;
    int first_after, afters;    /* in list.after: earlier steps that must have ended */
    int first_access, accesses; /* in list.access */
    int scratch;                /* value: scratch; for LOAD and LIST_ROWS their staging; -1: none */
    int tick;                   /* the first of its ticks (ech_step_ticks) */
} ech_step;

/* A channel is a group on a lane. Collectives of one channel run one after the other; collectives
 * of two channels may overlap. */
enum { ECH_CHANNELS = ECH_GROUPS * ECH_LANES };
static inline int ech_step_channel(const ech_step *step)
{
    return (int)step->group * ECH_LANES + (int)step->lane;
}
static inline ech_layout_group ech_channel_group(int channel)
{
    return (ech_layout_group)(channel / ECH_LANES);
}

/* What a step does with parameters and their gradients. All uses but the first two work on one
 * bucket. */
typedef enum ech_params_use {
    ECH_PARAMS_NOTHING,
    ECH_PARAMS_READ,      /* computes with a version of the weights */
    ECH_PARAMS_GRADIENTS, /* works on gradients, or on data computed from them */
    ECH_PARAMS_COPY,      /* STASH: copies the newest version to the slot of the next */
    ECH_PARAMS_UPDATE,    /* makes the next version */
    ECH_PARAMS_GATHER     /* gathers a version that ranks hold in shards */
} ech_params_use;

ech_params_use ech_step_params(const ech_step *step);
ech_bar_kind ech_step_bar(const ech_step *step); /* how it is drawn */
/* A value that leaves its space after its last use in forwards and comes back for the backward is
 * two values: one for forwards with their messages and collectives, one for all other steps. */
typedef enum ech_instance { ECH_INSTANCE_FORWARD, ECH_INSTANCE_BACKWARD } ech_instance;
ech_instance ech_step_instance(const ech_step *step);
/* The phase of a block that steps of this kind run; -1: none. */
int ech_step_kind_phase(ech_step_kind kind);
/* Number of ticks of the step: one for each call of a layer, at least one. */
int ech_step_ticks(const ech_step *step);

/* The half of a reduction that REDUCE_GRADS, SCATTER_GRADS, GATHER_WEIGHTS and the steps of
 * compressed gradients perform. */
ech_reduction_part ech_step_reduction_part(const ech_step *step);
/* True for these kinds. */
bool ech_step_is_sum(const ech_step *step);
/* The boundary that the step's message crosses: the number of the block after the boundary, in
 * either direction; for activations held by a peer the block's number; for the ring token 0. Among
 * messages of one kind (ech_message_kind) from one rank to another across one boundary, the n-th
 * send matches the n-th receive. */
int ech_step_boundary(const ech_step *step);
/* The number of the queue that runs the step: its lane. Messages have one queue per boundary and
 * kind, numbered after all lanes, since they wait for no other messages. */
int ech_step_queue(const ech_step *step);
/* Number of queues for a model of `blocks` blocks; and the kind and boundary of a message queue. */
static inline int ech_queues_of(size_t blocks)
{
    return ECH_LANES + ECH_MESSAGES * ((int)blocks + 1);
}
static inline ech_message_kind ech_queue_message(int queue)
{
    return (ech_message_kind)((queue - ECH_LANES) % ECH_MESSAGES);
}
static inline int ech_queue_boundary(int queue)
{
    return (queue - ECH_LANES) / ECH_MESSAGES;
}
/* Most thread blocks that a transfer of the queue runs on a GPU; 0: it has none. */
int ech_queue_blocks(int queue);
bool ech_step_sends(const ech_step *step);
bool ech_step_receives(const ech_step *step);
/* The same for a kind of step. */
bool ech_step_kind_sends(ech_step_kind kind);
bool ech_step_kind_receives(ech_step_kind kind);
/* The contents of messages of this kind of step. */
ech_message_kind ech_step_kind_message(ech_step_kind kind);
/* True if these are gradients; true if these are kept activations, sent to or returned by the peer
 * that holds them. */
bool ech_step_kind_is_gradient(ech_step_kind kind);
bool ech_step_kind_is_held(ech_step_kind kind);
/* True if these are a block's outputs for the next block, or gradients of them. */
bool ech_step_kind_is_of_blocks(ech_step_kind kind);
/* True if messages of this kind cross the boundary at their block's outputs, not at its inputs. */
bool ech_step_kind_is_at_output(ech_step_kind kind);
/* True if the step is collective: all members of step->group must run theirs. */
bool ech_step_gathers(const ech_step *step);
/* True if the step works on one bucket, step->index. */
bool ech_step_has_bucket(const ech_step *step);
/* The piece of its bucket that the step works on, from 1; 0: the whole bucket. */
int ech_step_piece(const ech_step *step);
/* True if it fetches or gathers an instance of a bucket's weights for the steps of step->block. */
bool ech_step_brings_weights(const ech_step *step);

/* *ports: the values of `block` in the step's message, or those that a COLLECTIVE with calls 0
 * gathers; an entry of -1 is no value. Borrowed from the block. Returns their number. */
size_t ech_step_ports(const ech_step *step, const ech_block *block, const int **ports);

/* Elements of the tensor that a call's collective works on, counted as in comm/collective.h; and
 * their type. */
int64_t ech_step_exchange_elements(const ech_block *block, const ech_block_call *call,
                                   ech_extent extent);
/* What a member sends of these elements: a SLIDE's last ones nothing. */
int64_t ech_step_sent_elements(const ech_exchange *does, int64_t elements, ech_membership of);
/* True if it belongs to a round after the first, for which usually no rows are left. */
static inline bool ech_step_exchanges_rest(const ech_block *block, const ech_block_call *call)
{
    return ech_node_round(&block->node.at[call->node]).at > 0;
}
ech_dtype ech_step_exchange_dtype(const ech_block *block, const ech_block_call *call,
                                  ech_types types);

/* Appends "F0.3/5": F of model chunk 0, sequence chunk (`micro`) 3, block 5; or "F0.3/5[4-9]" if
 * the step runs only calls 4 to 9 of the block's program. */
void ech_step_print(const ech_step *step, ech_text *out);

#endif
