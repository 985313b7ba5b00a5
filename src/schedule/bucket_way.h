/* SPDX-License-Identifier: Apache-2.0
 *
 * The path of a bucket through a turn: which stages of bucket_stages.def (gradient reduction,
 * clipping, update, weight gathering) apply to it, and which comes next. Private to src/schedule.
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
    ECH_POINT_COMPLETE,    /* the last instance is complete */
    /* the left factors of all buckets have been computed; right factors follow from them */
    ECH_POINT_FACTORS,
    ECH_POINT_NORMS,   /* gradients are summed: norms */
    ECH_POINT_LEAVES,  /* weights go to the host, which has room */
    ECH_POINT_BRINGS,  /* states and other inputs of the update come to the host */
    ECH_POINT_UPDATES, /* the clip factor is known */
    ECH_POINT_ROOM     /* the compute lane waits for an update on the host */
} ech_bucket_point;

/* The number of times that a stage occurs in a turn: once per bucket; once per round of the
 * optimizer's statistics, together with neighbouring ROUND stages; or once per piece. The rounds
 * are on the first piece's path, and cover the whole bucket. The last piece continues through the
 * stages that occur once. */
typedef enum ech_bucket_repeats {
    ECH_REPEATS_ONCE,
    ECH_REPEATS_ROUND,
    ECH_REPEATS_PIECE
} ech_bucket_repeats;

/* Groups that depend on the bucket, numbered after the groups of groups.def. */
enum { ECH_BUCKET_ADDENDS = ECH_GROUPS, ECH_BUCKET_FACTORS };

/* A row of bucket_stages.def. */
typedef struct ech_bucket_row {
    ech_step_kind kind;
    ech_bucket_point point;
    int group;   /* an ech_layout_group, or one of the two above */
    int version; /* weight version relative to the newest; -1: none */
    ech_bucket_repeats repeats;
} ech_bucket_row;
const ech_bucket_row *ech_bucket_row_of(ech_bucket_stage stage);

/* The properties of a bucket that select its stages. */
typedef struct ech_bucket_way {
    uint64_t stages;   /* stages of the rank's role, one bit each (ech_protocol_stages) */
    bool shared;       /* its addend group has other members */
    bool sharded;      /* ... and each member updates its own shard */
    bool each;         /* ... and gradients are scattered per micro-batch (ZeRO 2) */
    bool gathered;     /* ... and each member stores only its shard of the weights (ZeRO 3) */
    bool stashes;      /* several versions of the weights are stored */
    bool compressed;   /* gradients are sent as factors or as selections */
    bool chosen;       /* gradients are sent as selections */
    bool factors_meet; /* factors are summed with other ranks */
    bool commits;      /* its parameters are layer states, which have no norm */
    bool masters;      /* its weights are rounded copies of master weights */
    ech_space weights; /* where the weights are stored */
    /* where the optimizer's states are stored; off the device, the host updates */
    ech_space states;
    bool first, last; /* the first or last piece; both if the bucket is not cut */
    int rounds;       /* rounds of the optimizer's statistics */
    /* [rounds] the round's results are folded over members (folds_shards) and over tensor ranks
     * (folds) */
    bool folds_shards[ECH_MAX_ROUNDS], folds[ECH_MAX_ROUNDS];
} ech_bucket_way;

typedef struct ech_bucket_position {
    ech_bucket_stage stage; /* ECH_BUCKET_STAGES: the path has ended */
    int round;
} ech_bucket_position;
/* Returns the position after `at` on the path of a bucket or of a piece of it. */
ech_bucket_position ech_bucket_next(const ech_bucket_way *way, ech_bucket_position at);

#endif
