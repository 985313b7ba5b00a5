/* SPDX-License-Identifier: Apache-2.0
 *
 * A bucket's way through a turn: which of the stages of bucket_stages.def it takes part in, and
 * what comes next. Private to src/schedule.
 */
#ifndef ECH_SCHEDULE_BUCKET_WAY_H
#define ECH_SCHEDULE_BUCKET_WAY_H

#include "optim/optim.h"
#include "schedule/steps.h"

typedef enum ech_bucket_stage {
#define X(name, ...) ECH_BUCKET_##name,
#include "schedule/bucket_stages.def"
#undef X
    ECH_BUCKET_STAGES
} ech_bucket_stage;

/* Points of a turn, in order. */
typedef enum ech_bucket_point {
    ECH_POINT_MICRO_BATCH, /* an instance of the bucket's gradients is complete */
    ECH_POINT_COMPLETE,    /* the last of them is */
    /* those of all buckets are: what compressed ones send next is made of what they have sent */
    ECH_POINT_FACTORS,
    ECH_POINT_NORMS,   /* then */
    ECH_POINT_LEAVES,  /* weights go to the host, where there is room */
    ECH_POINT_BRINGS,  /* what else the update needs there comes */
    ECH_POINT_UPDATES, /* the clip factor is there */
    ECH_POINT_ROOM     /* the compute lane waits for an update on the host */
} ech_bucket_point;

/* How often a stage comes in a turn: once for the bucket; once for each round of its optimizer's
 * statistics, together with its neighbours; or once for each of its pieces, of which the last goes
 * on through the stages that come once. */
typedef enum ech_bucket_repeats {
    ECH_REPEATS_ONCE,
    ECH_REPEATS_ROUND,
    ECH_REPEATS_PIECE
} ech_bucket_repeats;

/* Groups of a bucket's own, among those of groups.def. */
enum { ECH_BUCKET_ADDENDS = ECH_GROUPS, ECH_BUCKET_FACTORS };

/* A row of bucket_stages.def. */
typedef struct ech_bucket_row {
    ech_step_kind kind;
    ech_bucket_point point;
    int group;    /* ech_layout_group, or one of those */
    int version;  /* of the weights, from the newest on; -1: none */
    ech_bucket_repeats repeats;
} ech_bucket_row;
const ech_bucket_row *ech_bucket_row_of(ech_bucket_stage stage);

/* What decides in which stages a bucket takes part. */
typedef struct ech_bucket_way {
    uint64_t stages;   /* of the rank's role: a bit for each stage (ech_protocol_stages) */
    bool shared;       /* its addend group has other members */
    bool sharded;      /* and each member updates its own shard */
    bool each;         /* to which each micro-batch's gradients are added by themselves */
    bool gathered;     /* and of whose weights it keeps no more */
    bool stashes;      /* several versions of its weights are kept */
    bool compressed;   /* its gradients are sent as factors, or as selections of numbers */
    bool chosen;       /* as selections */
    bool factors_meet; /* factors, to which others add */
    bool commits;      /* its parameters are layer states, which have no norm */
    bool masters;      /* its weights are roundings of states */
    ech_space weights; /* where its weights are */
    ech_space states;  /* where its optimizer's states are; if not on the device the host updates */
    bool last;         /* of several pieces it is the last, or the bucket is not cut */
    int rounds;        /* of its optimizer's statistics */
    /* [rounds] members, and tensor ranks, fold what that round makes */
    bool folds_shards[ECH_MAX_ROUNDS], folds[ECH_MAX_ROUNDS];
} ech_bucket_way;

typedef struct ech_bucket_place {
    ech_bucket_stage stage; /* ECH_BUCKET_STAGES: the way has ended */
    int round;
} ech_bucket_place;
/* The place on the way after `at`, of a bucket or of its piece. */
ech_bucket_place ech_bucket_next(const ech_bucket_way *way, ech_bucket_place at);

#endif
