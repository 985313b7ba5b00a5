/* SPDX-License-Identifier: Apache-2.0
 *
 * The device mesh: a table from ranks to coordinates, and what each rank holds. No other code
 * computes coordinates. Nothing here communicates, and only functions that return a status can
 * fail.
 *
 * The model's blocks are partitioned into p x v VIRTUAL STAGES, p the number of stages and v the
 * model chunks of each. The PLACEMENT, a row of placements.def that the schedule chooses, says
 * which stage has which virtual stages. Each stage has its own number r of REPLICAS. The M
 * micro-batches of a training step are numbered q = 0 .. M-1 over all replicas; replica q mod r
 * computes micro-batch q, forward and backward, as its number k = floor(q / r) (Narayanan et al.
 * 2019, 1F1B-RR). Where every stage has the same number of replicas, r is the data-parallel degree,
 * and the ranks with one data coordinate are one pipeline.
 *
 * A replica is c CONTEXT x t TENSOR ranks. The tokens of its samples are sharded over context
 * ranks; heads, feed-forward and vocabulary of the layers over tensor ranks. Ranks are numbered by
 * stage, then replica, then context rank, then tensor rank: tensor ranks, which communicate most,
 * are neighbours.
 *
 * SERVERS (parallel.strategy = parameter_server) are ranks behind all of these: each keeps a shard
 * of every parameter, with its optimizer states, and has neither blocks nor micro-batches. The
 * others, one stage of replicas of one rank each, are WORKERS.
 *
 * EVALUATORS (parallel.evaluators) are behind these, and are none of the mesh: numbers of ranks
 * here leave them out. Each validates checkpoints on a layout of its own, of one rank. The CHIEF is
 * rank 0, the first worker: it initializes, begins and commits checkpoints, and hands them to
 * evaluators.
 *
 * EXPERTS of a layer are sharded over e ranks of data x context that are as near as can be, an
 * EXPERT GROUP: e of c context ranks, or all of several replicas. That adds no ranks.
 */
#ifndef ECH_LAYOUT_LAYOUT_H
#define ECH_LAYOUT_LAYOUT_H

#include "comm/collective.h"
#include "config/config.h"
#include "config/strategy.h"
#include "model/model.h"

/* The most block runs in a rank's plan. A block run is one block's F, B and W for one sequence
 * chunk of a micro-batch. It takes some 16 KiB while the plan is made, 2 GiB in all: 96 layers on
 * one rank may have 1,300 micro-batches. */
enum { ECH_MOST_BLOCK_RUNS = 1 << 17 };

typedef enum __attribute__((packed)) ech_layout_group {
#define X(name, axes, text, meaning) ECH_GROUP_##name,
#include "layout/groups.def"
    ECH_GROUPS
} ech_layout_group;

const char *ech_layout_group_name(ech_layout_group kind);
/* The axes of the mesh that groups of that kind run over; where replicas are apart, or lock-free,
 * those of sums lack the replicas' own. */
ech_mesh ech_layout_group_axes(ech_layout_group kind);
/* The inverse: the kind of group that runs over exactly these axes. There must be one in
 * groups.def. */
ech_layout_group ech_layout_group_over(ech_mesh axes);

typedef enum ech_placement {
#define X(name, stage, meaning) ECH_PLACEMENT_##name,
#include "layout/placements.def"
} ech_placement;

typedef struct ech_virtual_stage {
    int stage, chunk; /* which model chunk of which stage */
} ech_virtual_stage;

typedef struct ech_coordinates {
    int stage;   /* which model chunks */
    int data;    /* replica of its stage: which micro-batches; of servers those behind the last */
    int context; /* which shard of the tokens of their samples */
    int tensor;  /* which shard of the layers */
} ech_coordinates;

typedef struct ech_layout {
    int world;             /* ranks, without evaluators */
    int evaluators;        /* ranks behind these */
    int node;              /* ranks of a machine (parallel.node_ranks) */
    int stages;            /* p */
    int chunks;            /* v: model chunks of every stage, so of every rank */
    int context;           /* c: context ranks of every replica */
    int tensor;            /* t: tensor ranks of every replica */
    ech_sharding sharding; /* how these two shard layers */
    int *replicas;         /* [stages] r: the replicas of each stage */
    int *first_rank; /* [stages + 1]: stage i is ranks first_rank[i] .. first_rank[i + 1] - 1 */
    ech_virtual_stage *virtual_stage; /* [stages * chunks]: where each virtual stage is */
    int *virtual_of;                  /* the inverse: virtual_of[stage * chunks + chunk] */
    /* [stages * chunks + 1]: virtual stage s is blocks first_block[s] .. first_block[s + 1] - 1 */
    int *first_block;
    ech_coordinates *coordinates; /* [world] */
    bool uniform; /* stages have equally many replicas, and replicas equally many micro-batches */
    /* [world] seconds by which ranks are slowed in each training step (parallel.delay); NULL:
     * none is */
    double *delay;
    ech_strategy_protocol_kind protocol; /* how gradients reach the weights (protocols.def) */
    ech_strategy_sums sums;              /* the protocol's: over whom gradients are summed */
    /* The protocol's: an update is by one replica's gradient, of its own tokens, with its own norm
     * and clip factor. */
    bool alone;
    int backups; /* workers that servers do not wait for in a training step */
    /* Of successive ranks, equally many in each, which share weights in a window. 1: all ranks
     * share them, or nobody does. */
    int clusters;
    int token_turns; /* between two visits of the token to a cluster (parallel.token_updates) */
    int servers;   /* the last ranks, which keep variables and have no blocks; 0: there are none */
    int64_t micro_batch;   /* samples of a micro-batch */
    int64_t micro_batches; /* M: of a training step, over all replicas */
    /* Which blocks use parameter i: user[first_user[i]] .. user[first_user[i + 1] - 1],
     * ascending. */
    int *first_user, *user;
} ech_layout;

/* What a schedule must know of a device mesh to accept it. */
typedef struct ech_layout_shape {
    int stages, chunks; /* chunks: model chunks of a stage */
    int micro_batches;  /* of a rank in a training step; the fewest of any rank */
    bool divides; /* every stage's replicas have equally many micro-batches in a training step */
} ech_layout_shape;

/* Which meshes the schedule accepts (ech_schedule_accepts): errors suggest no other mesh. */
typedef struct ech_layout_filter {
    bool (*accepts)(void *context, const ech_layout_shape *shape);
    void *context;
} ech_layout_filter;

/* Fills parallel.pipeline, parallel.data and training.micro_batch_size where they are "auto", for
 * `world` ranks. The caller has filled parallel.partition (ech_simulate_choice) and
 * parallel.virtual_stages (ech_schedule_fill_chunks). Errors: degrees whose product is not `world`,
 * batches that do not divide, more stages than blocks. They suggest meshes that work and that
 * `filter` accepts; NULL: accepts all. */
ech_status ech_layout_resolve(ech_config *config, const ech_model *model, int world,
                              const ech_layout_filter *filter);
/* Makes the layout of a resolved configuration; the caller destroys it. Errors: all parameters and
 * states, or all activations, would be more than 2^60 bytes; a rank has more than
 * ECH_MOST_BLOCK_RUNS; parallel.delay is not RANK:SECONDS of ranks that exist, each once, or longer
 * than others wait. */
ech_status ech_layout_create(const ech_config *config, const ech_model *model,
                             ech_placement placement, int world, ech_layout **out);
void ech_layout_destroy(ech_layout *layout); /* accepts NULL */

/* How many neighbours of each coordinate are in one expert group; their product is e. */
typedef struct ech_expert_span {
    int data, context;
} ech_expert_span;
ech_expert_span ech_layout_expert_span(const ech_layout *layout);
/* Which shards of parameters the rank has. */
ech_shard_at ech_layout_shard_at(const ech_layout *layout, int rank);

/* ---- virtual stages ---- */

/* Moves virtual stage s to stage[s], from where the placement puts it. `stage` must have each stage
 * v times; the model chunks of a stage are numbered in the order of s. Call it before anything else
 * reads the layout. */
void ech_layout_assign(ech_layout *layout, const int *stage);
/* The stage of virtual stage s in a pipeline of p stages. */
int ech_placement_stage(ech_placement placement, int s, int p);
/* Whether the model's first and last blocks are on one stage. */
bool ech_placement_joins_ends(ech_placement placement, int stages, int chunks);
int ech_layout_virtual_stages(const ech_layout *layout); /* how many: p x v */
/* The virtual stage that is a rank's model chunk. */
int ech_layout_virtual_stage(const ech_layout *layout, int rank, int chunk);
/* The virtual stage after a rank's model chunk, or before it; -1: none. It may be on the rank
 * itself. */
int ech_layout_neighbour(const ech_layout *layout, int rank, int chunk, bool after);

/* ---- roles ---- */

/* Consecutive ranks. */
typedef struct ech_ranks {
    int first, n;
} ech_ranks;
/* The ranks of workers, servers and evaluators, in this order. n is 0 for a role that no rank
 * has. */
typedef struct ech_roles {
    ech_ranks train, serve, evaluate;
} ech_roles;
ech_roles ech_layout_roles(const ech_layout *layout);
int ech_layout_ranks(const ech_layout *layout); /* all that start: the ranks of all roles */
/* Whether the rank is a server. */
bool ech_layout_serves(const ech_layout *layout, int rank);
/* Whether it is an evaluator. No other function here takes such a rank. */
bool ech_layout_evaluates(const ech_layout *layout, int rank);
int ech_layout_workers(const ech_layout *layout); /* the ranks that compute: the first ones */
/* Pushes that make an update. */
int ech_layout_summands(const ech_layout *layout);
/* The worker whose order of micro-batches a rank's lists follow: itself, or of servers the
 * first. */
int ech_layout_pattern(const ech_layout *layout, int rank);
/* The number of a rank's cluster, and the rank that has the token where a cluster has it: its
 * first. Behind the last cluster comes the first one. */
int ech_layout_cluster(const ech_layout *layout, int rank);
int ech_layout_leader(const ech_layout *layout, int cluster);

/* Seconds that the rank sleeps in each training step. */
double ech_layout_delay(const ech_layout *layout, int rank);

/* ---- blocks ---- */

/* The blocks of a rank's model chunk: *first .. *end - 1. */
void ech_layout_blocks(const ech_layout *layout, int rank, int chunk, int *first, int *end);
bool ech_layout_has_block(const ech_layout *layout, int rank, int block);
/* Whether the rank holds the parameter: one of its blocks uses it. */
bool ech_layout_holds(const ech_layout *layout, int rank, int param);
/* Whether the stage holds it. *first and *last: the first and the last stage that do, always
 * set. */
bool ech_layout_stages_of_param(const ech_layout *layout, int param, int stage, int *first,
                                int *last);

/* ---- what a rank has of a parameter ---- */

/* The tensors of a parameter. */
typedef enum ech_held_kind {
    ECH_HELD_WEIGHTS,
    ECH_HELD_GRADIENT, /* summed over the ranks of ech_layout_addends */
    ECH_HELD_STATE     /* an optimizer's, whose shape may be another */
} ech_held_kind;

/* What a rank has of such a tensor. Several ranks may have the same boxes, of which one writes
 * them. In sums over all ranks, such as the gradient norm, the members of one addend group count
 * them: each its shard (ech_bucket.shard). */
typedef struct ech_held {
    bool counts;   /* it is one of these members */
    bool is_first; /* of its stage's ranks that have the same boxes */
    bool writes;   /* into checkpoints, not of gradients; they take turns, parameter by parameter */
    int boxes;     /* 0: the rank does not hold the parameter, or has only padding of it */
    int others;    /* of these the first so many others write, too: they do, and it does not */
    ech_box box[ECH_MOST_BOXES];
} ech_held;

/* What `rank` has of a tensor of the parameter: who saves, loads, imports, fills, hashes, sums up
 * or compares it asks here. `state`: the shape of an ECH_HELD_STATE; of others NULL. */
ech_held ech_layout_held(const ech_layout *layout, const ech_model *model, int rank, int param,
                         ech_held_kind kind, const ech_shape *state);
/* Whether all members of the rank's group have the same boxes of it. */
bool ech_layout_is_alike(const ech_layout *layout, const ech_model *model, int rank,
                         ech_layout_group group, int param, ech_held_kind kind,
                         const ech_shape *state);

/* ---- work ---- */

/* The extent of a micro-batch, or of a sequence chunk of one, on one rank. */
ech_extent ech_layout_extent(const ech_layout *layout, const ech_config *config,
                             const ech_model *model);
/* The multiply-adds of the busiest rank in a training step, divided by the mean over all ranks; 1:
 * balanced. *stage: the first stage with the busiest ranks. */
double ech_layout_imbalance(const ech_layout *layout, const ech_model *model, ech_extent extent,
                            int *stage);

/* ---- micro-batches ---- */

/* Block runs (ECH_MOST_BLOCK_RUNS) in a training step of the rank that has most. */
int64_t ech_layout_block_runs(const ech_layout *layout, const ech_config *config);
/* The number of the rank's own micro-batches in a training step. */
int ech_layout_micro_batches(const ech_layout *layout, int rank);
/* The global number q of the rank's k-th micro-batch. */
int64_t ech_layout_global_micro(const ech_layout *layout, int rank, int64_t k);
/* The inverse: the rank's own number k of its global micro-batch q. */
int64_t ech_layout_own_micro(const ech_layout *layout, int rank, int64_t q);
/* Without a layout: how many of `micro_batches` a replica computes, and the global number of its
 * k-th. */
int64_t ech_replica_micro_batches(int64_t micro_batches, int replicas, int replica);
int64_t ech_replica_global_micro(int replicas, int replica, int64_t k);
/* The rank that computes the virtual stage for micro-batch q and has the context and tensor
 * coordinates of `rank`. */
int ech_layout_rank_of(const ech_layout *layout, int virtual_stage, int64_t q, int rank);
int ech_layout_rank_at(const ech_layout *layout, int stage, int data, int context, int tensor);

/* ---- groups ---- */

/* The type in which gradients that are kept as `kept` are summed over groups: precision.reduce if
 * that is narrower. */
ech_dtype ech_layout_wire(const ech_config *config, ech_dtype kept);

/* Writes the members of `rank`'s group of that kind, ascending, into ranks[world]; ranks NULL: only
 * counts them. Returns how many; 0: the rank is in no such group. `model` says which stages are
 * tied. */
int ech_layout_members(const ech_layout *layout, const ech_model *model, int rank,
                       ech_layout_group kind, int *ranks);
int ech_layout_group_size(const ech_layout *layout, const ech_model *model, int rank,
                          ech_layout_group kind);
/* The number of members of a rank's group, and the rank's index among them. */
typedef struct ech_membership {
    int size, index;
} ech_membership;
ech_membership ech_layout_membership(const ech_layout *layout, const ech_model *model, int rank,
                                     ech_layout_group kind);
/* Whether gradients are summed over groups of that kind: over replicas of a stage, or of tied
 * ones. */
bool ech_layout_sums_over(ech_layout_group kind);
/* The machines of a rank's group: fills *first, which the caller frees, and returns a lineup that
 * reads it. A group that is not divided, or is none, has no machines: *first is NULL. */
ech_lineup ech_layout_lineup(const ech_layout *layout, const ech_model *model, int rank,
                             ech_layout_group kind, int **first);
/* The kind of group over which a parameter's gradient is summed: along its addends
 * (ech_param.addends), and over all stages that hold it. The group may have one member. */
ech_layout_group ech_layout_addends(const ech_layout *layout, const ech_model *model, int param);

#endif
