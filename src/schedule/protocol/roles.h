/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts that the roles of several protocols share. Private to src/schedule/protocol.
 */
#ifndef ECH_SCHEDULE_PROTOCOL_ROLES_H
#define ECH_SCHEDULE_PROTOCOL_ROLES_H

#include "schedule/framing.h"
#include "schedule/protocol/protocol.h"
#include "schedule/protocol/serving.h"

/* Stages that send gradients as factors or selections. */
#define ECH_STAGES_COMPRESS                                                                        \
    ECH_BUCKET_RESIDUAL, ECH_BUCKET_TRANSFORM, ECH_BUCKET_REDUCE_LEFT, ECH_BUCKET_TRANSFORM_BACK,  \
        ECH_BUCKET_REDUCE_RIGHT, ECH_BUCKET_CHOOSE, ECH_BUCKET_GATHER_CHOSEN
/* Stages that compute the optimizer's statistics, before it updates the shard or bucket on the
 * device. */
#define ECH_STAGES_STATISTICS ECH_BUCKET_STATISTICS, ECH_BUCKET_FOLD_SHARDS, ECH_BUCKET_FOLD

#define ECH_STAGES(array) .stage = array, .stages = sizeof array / sizeof *array

/* The stages of layer states that workers commit by themselves (ech_protocol.averages). */
#define ECH_OWN_STATES .state_stage = ech_stages_of_own_states, .state_stages = 2
extern const ech_bucket_stage ech_stages_of_own_states[2];
/* Adds a step of the mean at the list's end, of the bucket's states at that version. */
int ech_frame_average(ech_framing *f, ech_step_kind kind, int bucket, int version, int after);

/* A list whose turns are training steps; each begins with its token count and needs nothing
 * else. */
#define ECH_COUNTED_TURNS                                                                          \
    .expect = ech_frame_count, .turns = ech_turns_of_span, .sleeps = ECH_STEP_COUNT

/* Adds the COUNT of the turn's tokens. */
void ech_frame_count(ech_framing *f, int turn);
/* Adds updates by the gradients summed over ranks of `whole`, with one norm for gradient clipping;
 * in an asynchronous pipeline each stage uses its own norm. */
void ech_frame_update_summed(ech_framing *f, ech_layout_group whole, int turn);
void ech_frame_update_all(ech_framing *f, int turn); /* all ranks */
/* Adds the rank's clip factor from its own norm. */
void ech_frame_clip(ech_framing *f, int turn);
/* Adds a sum of `count` scalars of a turn over a group, after step `after`. Returns the step; -1:
 * the group has one member. */
int ech_frame_reduce(ech_framing *f, ech_layout_group group, int turn, ech_scalar first, int count,
                     int after);
/* Sums flags, losses and squares of a turn; or of all turns of a span whose ranks have not
 * synchronized before. */
int ech_frame_reduce_turn(ech_framing *f, ech_layout_group group, int turn, int after);
int ech_frame_reduce_span(ech_framing *f);
/* The training steps of a span. */
int ech_turns_of_span(const ech_schedule *schedule, const ech_layout *layout);

/* Defaults: a protocol whose replicas never diverge, and whose ranks take each training step
 * together. */
#define ECH_NEVER_APART .meets_every = ech_protocol_never, .mixes_every = ech_protocol_never
#define ECH_SAME_STEP   .clocks = ech_protocol_no_ranks, .adders = ech_protocol_one_rank

/* Each member of a bucket's group owns a shard. With parallel.zero members keep only their own. */
#define ECH_SHARED_BY_MEMBERS .owner = ech_protocol_each_owns, .share = ech_protocol_shares_by_zero
/* Each server owns a shard. */
#define ECH_SHARED_BY_SERVERS                                                                      \
    .owner = ech_protocol_servers_own, .share = ech_protocol_shares_by_servers

/* Replicas that diverge: the stages of a bucket, other fields of a worker's role, and
 * fields of the protocol. */
#define ECH_STAGES_OF_REPLICA                                                                      \
    ECH_BUCKET_WRITE, ECH_BUCKET_REDUCE, ECH_BUCKET_NORM, ECH_BUCKET_STASH, ECH_STAGES_STATISTICS, \
        ECH_BUCKET_UPDATE
#define ECH_DIVERGING_WORKER ECH_COUNTED_TURNS, .update = ech_replica_update, .end = ech_replica_end
#define ECH_DIVERGING                                                                              \
    .space = ECH_SPACE_DEVICE, ECH_SHARED_BY_MEMBERS, .joining = ech_protocol_gathers,             \
    .meets_every = ech_replicas_meet_every, ECH_SAME_STEP, .skipping = {.remedy = ""},             \
    .alike = ECH_GROUP_REPLICAS

/* Operations of serial programs that load and store each replica's weights and states; and the
 * programs at the beginning and after training steps. */
#define ECH_LOAD_EACH  ECH_OP(EACH_WORKER), ECH_WITH(LOAD, OWN)
#define ECH_STORE_EACH ECH_WITH(STORE, OWN), ECH_OP(END)
extern const ech_serial_step ech_serial_replicas_begin[], ech_serial_replicas_train[];

/* The equation of layer states when replicas meet: each becomes the mean. */
void ech_serial_average(const ech_config *config, ech_serial_element *of, int workers);

/* Adds updates by a replica's own gradients. */
void ech_replica_update(ech_framing *f, int turn);
/* Sums the reported numbers of all replicas. */
int ech_replica_end(ech_framing *f);
/* Adds the list SYNC: the sums of all replicas' differences from the anchor, each followed by
 * OUTER_UPDATE. */
void ech_replicas_plan_sync(ech_plan *plan);
/* Factors of a meeting's rows: 1, and 1 / replicas. */
double ech_meeting_one(const ech_config *config, int replicas);
double ech_meeting_mean(const ech_config *config, int replicas);
#define ECH_COPIES(to, from)                                                                       \
    {                                                                                              \
        ECH_MEETING_##to, ECH_MEETING_##from, ech_meeting_one, NULL                                \
    }
#define ECH_EXCHANGES ECH_COPIES(SUM, WEIGHTS), ECH_COPIES(WEIGHTS, ANCHOR), ECH_COPIES(ANCHOR, SUM)
#define ECH_MEETING(array)                                                                         \
    {                                                                                              \
        array, (int)(sizeof array / sizeof *array)                                                 \
    }
/* Meetings of all protocols. For weights: their difference from the anchor is summed; weights and
 * anchor are exchanged. For layer states: each replica's share of the mean is summed, and becomes
 * the states. */
extern const ech_meeting ech_meeting_difference, ech_meeting_exchange;
extern const ech_meeting ech_meeting_share, ech_meeting_take;
int64_t ech_replicas_meet_every(const ech_config *config);

/* Parameter servers that apply pushes (served.c): fields of a worker's role, of a server's role,
 * and of the protocol. */
#define ECH_PUSHING_WORKER                                                                         \
    .expect = ech_frame_count, .end = ech_push_end_worker, .turns = ech_serving_most
#define ECH_PUSHED_SERVER                                                                          \
    .begin_turn = ech_push_serve, .end = ech_push_end_server, .turns = ech_push_turns_of_server,   \
    .sleeps = ECH_STEP_SERVE
#define ECH_PUSHES                                                                                 \
    .span = "a span of pushes", .space = ECH_SPACE_DEVICE, .joining = ech_push_gathers,            \
    .alike = ECH_GROUP_EXPERT_DATA, ECH_SHARED_BY_SERVERS, ECH_NEVER_APART

/* Adds SERVE: a turn begins when a push has arrived. */
void ech_push_serve(ech_framing *f, int turn);
int ech_push_end_worker(ech_framing *f);
int ech_push_end_server(ech_framing *f);
int ech_push_turns_of_server(const ech_schedule *schedule, const ech_layout *layout);
ech_joining ech_push_gathers(const ech_bucket *bucket);

/* Ranks pull weights within a span. */
void ech_protocol_pulls(const ech_config *config, const ech_layout *layout, ech_schedule *schedule);
/* Functions for protocols without any of their own. */
ech_membership ech_protocol_each_owns(const ech_layout *layout, ech_membership of);
ech_membership ech_protocol_servers_own(const ech_layout *layout, ech_membership of);
void ech_protocol_shares_by_zero(const ech_plan *plan, ech_bucket *bucket, bool members);
void ech_protocol_shares_by_servers(const ech_plan *plan, ech_bucket *bucket, bool members);
ech_joining ech_protocol_gathers(const ech_bucket *bucket);
int64_t ech_protocol_never(const ech_config *config);
int ech_protocol_no_ranks(const ech_layout *layout);
int ech_protocol_one_rank(const ech_layout *layout);
#define ECH_SKIPS ", or set training.on_nonfinite=skip"

#endif
