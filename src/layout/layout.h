/* SPDX-License-Identifier: Apache-2.0
 *
 * The device mesh: a table from ranks to coordinates, and what each rank holds. No other code
 * computes coordinates. Nothing here communicates, and only functions that return a status can
 * fail. Resharding (a checkpoint resumed on another grid) follows from what ech_layout_held says of
 * both grids.
 *
 * The model's blocks are partitioned into p x v VIRTUAL STAGES, with p stages and v model chunks
 * per stage. The PLACEMENT, a row of placements.def that the schedule chooses, maps virtual stages
 * to stages.
 *
 * Each stage has its own number r of REPLICAS. The M micro-batches of a training step are numbered
 * q = 0 .. M-1 over all replicas; replica q mod r computes micro-batch q, forward and backward, as
 * its number k = floor(q / r) (Narayanan et al. 2019, 1F1B-RR). If every stage has the same number
 * of replicas, r is the data-parallel degree, and the ranks with one data coordinate are one
 * pipeline.
 *
 * A replica is c CONTEXT x t TENSOR ranks. Context ranks shard the tokens of its samples; tensor
 * ranks shard the layers' heads, feed-forward and vocabulary. Ranks are numbered by stage, then
 * replica, then context rank, then tensor rank: tensor ranks, which communicate most, are adjacent.
 *
 * SERVERS (parallel.strategy = parameter_server) follow all of these: each holds a shard of every
 * parameter with its optimizer states, but no blocks or micro-batches. The other ranks, one stage
 * of single-rank replicas, are WORKERS.
 *
 * EVALUATORS (parallel.evaluators) follow the servers; they are not part of the mesh, and rank
 * counts exclude them. Each validates checkpoints on a single-rank layout of its own. The CHIEF is
 * rank 0, the first worker: it initializes, begins and commits checkpoints, and assigns them to
 * evaluators.
 *
 * The EXPERTS of a layer are sharded over e adjacent ranks of the data x context axes, an EXPERT
 * GROUP: e of the c context ranks, or all of several replicas. This adds no ranks.
 */
#ifndef ECH_LAYOUT_LAYOUT_H
#define ECH_LAYOUT_LAYOUT_H

#include "comm/collective.h"
#include "config/config.h"
#include "config/strategy.h"
#include "layout/cluster.h"
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
/* The axes of the mesh over which groups of that kind run. If replicas diverge or are lock-free,
 * the axes of sums exclude the replicas' own axes. */
ech_mesh ech_layout_group_axes(ech_layout_group kind);
/* The inverse: the kind of group that runs over exactly these axes. There must be one in
 * groups.def. */
ech_layout_group ech_layout_group_over(ech_mesh axes);

typedef enum ech_placement {
#define X(name, stage, meaning) ECH_PLACEMENT_##name,
#include "layout/placements.def"
} ech_placement;

typedef struct ech_virtual_stage {
    int stage, chunk; /* model chunk `chunk` of stage `stage` */
} ech_virtual_stage;

typedef struct ech_coordinates {
    int stage; /* decides which model chunks it has */
    /* replica of its stage, which decides its micro-batches; servers follow the last replica */
    int data;
    int context; /* its shard of the samples' tokens */
    int tensor;  /* its shard of the layers */
} ech_coordinates;

/* Classes of ranks that are alike: the same blocks and number of micro-batches, partners of the
 * same classes, and as many of these on one machine and in one unit of each level of the cluster.
 * Their lists differ only in their peers, and in a simulation they do the same at the same time. */
typedef struct ech_classes {
    int n;      /* classes, in the order of their first ranks; 0: not found yet */
    int *of;    /* [world] the class of each rank */
    int *first; /* [n] its first rank, which represents it */
    int *ranks; /* [n] its number of ranks */
} ech_classes;

typedef struct ech_layout {
    int world;             /* ranks without evaluators */
    int evaluators;        /* ranks after these */
    int node;              /* ranks per machine (parallel.node_ranks) */
    int stages;            /* p */
    int chunks;            /* v: model chunks of every stage, and so of every rank */
    int context;           /* c: context ranks of every replica */
    int tensor;            /* t: tensor ranks of every replica */
    ech_sharding sharding; /* how context and tensor ranks shard layers */
    int *replicas;         /* [stages] r: the replicas of each stage */
    int *first_rank; /* [stages + 1]: stage i is ranks first_rank[i] .. first_rank[i + 1] - 1 */
    ech_virtual_stage *virtual_stage; /* [stages * chunks]: location of each virtual stage */
    int *virtual_of;                  /* the inverse: virtual_of[stage * chunks + chunk] */
    /* [stages * chunks + 1]: virtual stage s is blocks first_block[s] .. first_block[s + 1] - 1 */
    int *first_block;
    ech_coordinates *coordinates; /* [world] */
    /* all stages have equally many replicas, and all replicas equally many micro-batches */
    bool uniform;
    /* [world] seconds by which ranks are slowed down per training step (parallel.delay); NULL:
     * none */
    double *delay;
    ech_strategy_protocol_kind protocol; /* how gradients reach the weights (protocols.def) */
    ech_strategy_sums sums; /* the protocol's: the ranks over which gradients are summed */
    /* The protocol's: each update uses one replica's gradient, with its own tokens, norm and clip
     * factor. */
    bool alone;
    int servers; /* the last ranks, which hold variables and have no blocks; 0: there are none */
    int64_t micro_batch;   /* samples of a micro-batch */
    int64_t micro_batches; /* M: of a training step, over all replicas */
    /* The blocks that use parameter i: user[first_user[i]] .. user[first_user[i + 1] - 1],
     * ascending. */
    int *first_user, *user;
    ech_classes classes; /* ech_layout_find_classes */
} ech_layout;

/* The properties of a device mesh that decide whether a schedule accepts it. */
typedef struct ech_layout_shape {
    int stages, chunks; /* chunks: model chunks of a stage */
    int micro_batches;  /* of a rank in a training step; the fewest of any rank */
    bool divides; /* every stage's replicas have equally many micro-batches in a training step */
} ech_layout_shape;

/* The meshes that the schedule accepts (ech_schedule_accepts): errors suggest no other mesh. */
typedef struct ech_layout_filter {
    bool (*accepts)(void *context, const ech_layout_shape *shape);
    void *context;
} ech_layout_filter;

/* Sets parallel.pipeline, parallel.data and training.micro_batch_size where they are "auto", for
 * `world` ranks. The caller has already set parallel.partition (ech_simulate_choice) and
 * parallel.virtual_stages (ech_schedule_fill_chunks). Errors: degrees whose product is not `world`,
 * batches that do not divide, more stages than blocks. Errors suggest meshes that work and that
 * `filter` accepts; NULL: accepts all. */
ech_status ech_layout_resolve(ech_config *config, const ech_model *model, int world,
                              const ech_layout_filter *filter);
/* Makes the layout of a resolved configuration; the caller destroys it. Errors: all parameters and
 * states, or all activations, would exceed 2^60 bytes; a rank exceeds ECH_MOST_BLOCK_RUNS;
 * parallel.delay is not RANK:SECONDS of existing ranks, each once, or longer than the time others
 * wait. */
ech_status ech_layout_create(const ech_config *config, const ech_model *model,
                             ech_placement placement, int world, ech_layout **out);
void ech_layout_destroy(ech_layout *layout); /* accepts NULL */
ECH_DESTROY_AT(ech_layout, ech_layout_destroy)

/* Finds the classes of ranks, as the costs of the cluster need them; NULL: there is none. Each rank
 * is a class of its own if stages have unequal replicas, replicas take steps of their own, there
 * are servers, or `uneven`: ranks of a stage move optimizer states of different sizes. */
void ech_layout_find_classes(ech_layout *layout, const ech_model *model, const ech_cluster *cluster,
                             bool uneven);
void ech_layout_free_classes(ech_layout *layout);
/* The index of a rank's plan among n plans: of all ranks, or of one rank of each class. */
static inline int ech_layout_plan_of(const ech_layout *layout, int n, int rank)
{
    return n == layout->world ? rank : layout->classes.of[rank];
}

/* Adjacent ranks along each axis in one expert group; their product is e. */
typedef struct ech_expert_span {
    int data, context;
} ech_expert_span;
ech_expert_span ech_layout_expert_span(const ech_layout *layout);
/* The rank's shards of parameters. */
ech_shard_at ech_layout_shard_at(const ech_layout *layout, int rank);

/* ---- virtual stages ---- */

/* Moves virtual stage s to stage[s], away from its placement. `stage` must contain each stage v
 * times; the model chunks of a stage are numbered in the order of s. Call it before the layout is
 * used. */
void ech_layout_assign(ech_layout *layout, const int *stage);
/* The stage of virtual stage s in a pipeline of p stages. */
int ech_placement_stage(ech_placement placement, int s, int p);
/* True if the model's first and last blocks are on one stage. */
bool ech_placement_joins_ends(ech_placement placement, int stages, int chunks);
int ech_layout_virtual_stages(const ech_layout *layout); /* p x v */
/* The virtual stage of a rank's model chunk. */
int ech_layout_virtual_stage(const ech_layout *layout, int rank, int chunk);
/* The virtual stage after or before a rank's model chunk; -1: none. It may be on the rank
 * itself. */
int ech_layout_neighbour(const ech_layout *layout, int rank, int chunk, bool after);

/* ---- roles ---- */

/* Consecutive ranks. */
typedef struct ech_ranks {
    int first, n;
} ech_ranks;
/* The ranks of workers, servers and evaluators, in this order. n is 0 for a role without ranks. */
typedef struct ech_roles {
    ech_ranks train, serve, evaluate;
} ech_roles;
ech_roles ech_layout_roles(const ech_layout *layout);
int ech_layout_ranks(const ech_layout *layout); /* all ranks to start, of all roles */
/* True if the rank is a server. */
bool ech_layout_serves(const ech_layout *layout, int rank);
/* True if the rank is an evaluator. No other function here accepts such a rank. */
bool ech_layout_evaluates(const ech_layout *layout, int rank);
int ech_layout_workers(const ech_layout *layout); /* the ranks that compute; they are the first */
/* The worker whose order of micro-batches a rank's lists follow: itself, or for a server the first
 * worker. */
int ech_layout_pattern(const ech_layout *layout, int rank);

/* Seconds that the rank sleeps in each training step. */
double ech_layout_delay(const ech_layout *layout, int rank);

/* ---- blocks ---- */

/* The blocks of a rank's model chunk: *first .. *end - 1. */
void ech_layout_blocks(const ech_layout *layout, int rank, int chunk, int *first, int *end);
bool ech_layout_has_block(const ech_layout *layout, int rank, int block);
/* True if the rank holds the parameter: one of its blocks uses it. */
bool ech_layout_holds(const ech_layout *layout, int rank, int param);
/* True if the stage holds the parameter. *first and *last: the first and the last stage that do,
 * always set. */
bool ech_layout_stages_of_param(const ech_layout *layout, int param, int stage, int *first,
                                int *last);

/* ---- shards of a parameter ---- */

/* The tensors of a parameter. */
typedef enum ech_held_kind {
    ECH_HELD_WEIGHTS,
    ECH_HELD_GRADIENT, /* summed over the ranks of ech_layout_addends */
    ECH_HELD_STATE     /* an optimizer state, whose shape may differ */
} ech_held_kind;

/* The part of such a tensor that a rank has. If several ranks have the same boxes, one of them
 * writes each. Totals over all ranks, such as the gradient norm, count each member of an addend
 * group for its own shard (ech_bucket.shard). */
typedef struct ech_held {
    bool counts;   /* it is one of these members */
    bool is_first; /* the first of its stage's ranks with the same boxes */
    /* it writes them into checkpoints (never gradients); ranks alternate by parameter */
    bool writes;
    int boxes;  /* 0: the rank does not hold the parameter, or only padding of it */
    /* the number of these, from the first, that are also held, and written, by other ranks */
    int others;
    ech_box box[ECH_MOST_BOXES];
} ech_held;

/* What `rank` has of a tensor of the parameter. All code that saves, loads, imports, reshards,
 * fills, hashes, sums or compares a tensor uses it. `state`: the shape of an ECH_HELD_STATE;
 * otherwise NULL. */
ech_held ech_layout_held(const ech_layout *layout, const ech_model *model, int rank, int param,
                         ech_held_kind kind, const ech_shape *state);
/* True if all members of the rank's group have the same boxes of it. */
bool ech_layout_is_alike(const ech_layout *layout, const ech_model *model, int rank,
                         ech_layout_group group, int param, ech_held_kind kind,
                         const ech_shape *state);

/* ---- work ---- */

/* The extent on one rank of a micro-batch, or of a sequence chunk. */
ech_extent ech_layout_extent(const ech_layout *layout, const ech_config *config,
                             const ech_model *model);
/* The multiply-adds of the busiest rank in a training step, divided by the mean over all ranks; 1:
 * balanced. *stage: the first stage with the busiest ranks. */
double ech_layout_imbalance(const ech_layout *layout, const ech_model *model, ech_extent extent,
                            int *stage);

/* ---- micro-batches ---- */

/* Block runs (ECH_MOST_BLOCK_RUNS) per training step of the rank that has most. */
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

/* The type in which gradients stored as `kept` are summed over groups: precision.reduce if that is
 * narrower. */
ech_dtype ech_layout_wire(const ech_config *config, ech_dtype kept);

/* Writes the members of `rank`'s group of that kind into ranks[world], ascending; ranks NULL: only
 * counts them. Returns their number; 0: the rank is in no such group. `model` decides which stages
 * are tied. */
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
/* True if gradients are summed over groups of that kind: over replicas of a stage, or of tied
 * stages. */
bool ech_layout_sums_over(ech_layout_group kind);
/* The machines of a rank's group: sets *first, which the caller frees, and returns a lineup that
 * refers to it. *first is NULL if the group is not divided, or there is none. */
ech_lineup ech_layout_lineup(const ech_layout *layout, const ech_model *model, int rank,
                             ech_layout_group kind, int **first);
/* The kind of group over which a parameter's gradient is summed: its addends (ech_param.addends),
 * and all stages that hold it. The group may have one member. */
ech_layout_group ech_layout_addends(const ech_layout *layout, const ech_model *model, int param);

#endif
