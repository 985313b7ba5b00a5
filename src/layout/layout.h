/* SPDX-License-Identifier: Apache-2.0
 *
 * Who is where and owns what: a table, rank -> role and coordinates. Nobody else computes
 * coordinates; all ask here.
 *
 * The model's blocks are cut into p x v VIRTUAL STAGES, p the depth of the pipeline and v the chunks
 * of a rank. Which stage has which is the PLACEMENT, a row of placements.def that the schedule asks for.
 * Each stage has its own number r of REPLICAS; the M micro-batches of a step
 * are numbered q = 0 .. M-1 over all of them, and micro-batch q is replica q mod r's, its
 * k = q / r-th, for forward and backward (Narayanan et al. 2019, 1F1B-RR). With as many replicas
 * everywhere, r is the data-parallel degree, and ranks of one replica number are one pipeline.
 *
 * A replica is a grid of c CONTEXT x t TENSOR ranks: context ranks share the tokens of its samples,
 * tensor ranks the layers' heads, feed-forward and vocabulary. Ranks are numbered stage by stage,
 * replica by replica, context rank by context rank; tensor ranks, which talk most, are neighbours.
 */
#ifndef ECH_LAYOUT_LAYOUT_H
#define ECH_LAYOUT_LAYOUT_H

#include "config/config.h"
#include "model/model.h"

/* A rank's plan lists every run of a block, in some 16 KiB: with so many it takes 2 GiB while it is made. 96 layers
 * on one rank may have 1,300 micro-batches. */
enum { ECH_MOST_BLOCK_RUNS = 1 << 17 };

typedef enum ech_role { ECH_ROLE_WORKER } ech_role;

typedef enum ech_layout_group {
#define X(name, axes, text, meaning) ECH_GROUP_##name,
#include "layout/groups.def"
#undef X
    ECH_GROUPS
} ech_layout_group;

const char *ech_layout_group_name(ech_layout_group kind);
/* The axes of the mesh that the group runs over, and the first group over just these; there must be one. */
ech_mesh ech_layout_group_axes(ech_layout_group kind);
ech_layout_group ech_layout_group_over(ech_mesh axes);

typedef enum ech_placement {
#define X(name, stage, meaning) ECH_PLACEMENT_##name,
#include "layout/placements.def"
#undef X
} ech_placement;

typedef struct ech_virtual_stage {
    int stage, chunk;
} ech_virtual_stage;

typedef struct ech_coordinates {
    ech_role role;
    int stage;   /* which column of the pipeline */
    int data;    /* which replica of its stage: which share of the samples */
    int context; /* which share of their tokens */
    int tensor;  /* which share of the layers */
} ech_coordinates;

typedef struct ech_layout {
    int world;
    int stages;                       /* p */
    int chunks;                       /* v, of every rank */
    int context;                      /* c, of every replica */
    int tensor;                       /* t, of every replica */
    ech_cut cut;                      /* what those two do to layers */
    int *replicas;                    /* [stages] r */
    int *first_rank;                  /* [stages + 1] */
    ech_virtual_stage *virtual_stage; /* [stages * chunks]: where each is */
    int *virtual_of; /* [stages * chunks]: of chunk c of stage s at s * chunks + c */
    /* [stages * chunks + 1]: virtual stage s is blocks first_block[s] .. first_block[s + 1] - 1 */
    int *first_block;
    ech_coordinates *coordinates; /* [world] */
    bool uniform;          /* every stage has as many replicas, and they as many micro-batches */
    int64_t micro_batch;   /* samples b */
    int64_t micro_batches; /* M, of a step, over all replicas */
    /* Which blocks use parameter i: user[first_user[i]] .. user[first_user[i + 1] - 1], ascending. */
    int *first_user, *user;
} ech_layout;

/* What a schedule must know of a grid to take it. */
typedef struct ech_layout_shape {
    int stages, chunks;
    int micro_batches; /* of a rank and step; the fewest of any rank */
    bool divides;      /* a step's micro-batches divide by the replicas of every stage */
} ech_layout_shape;

/* Rules of a room below: a grid that they do not take is not offered. */
typedef struct ech_layout_filter {
    bool (*accepts)(void *context, const ech_layout_shape *shape);
    void *context;
} ech_layout_filter;

/* Fills the parallel keys that are "auto" and training.micro_batch_size, for `world` ranks; of
 * parallel.partition something has been chosen. Errors: degrees that do not multiply to the ranks, batches
 * that do not divide, more stages than blocks. Errors offer what works and what `filter` takes; NULL: it takes
 * all. */
ech_status ech_layout_resolve(ech_config *config, const ech_model *model, int world,
                              const ech_layout_filter *filter);
/* From a resolved configuration. Errors: more bytes than any machine has, more runs of blocks than a plan holds. */
ech_status ech_layout_create(const ech_config *config, const ech_model *model,
                             ech_placement placement, int world, ech_layout **out);
void ech_layout_destroy(ech_layout *layout); /* accepts NULL */

/* ---- virtual stages ---- */

/* Virtual stage s is on stage[s], instead of where the placement says; each stage has v of them. */
void ech_layout_assign(ech_layout *layout, const int *stage);
/* Whether the model's first and last blocks are on one stage, of however many. */
bool ech_placement_joins_ends(ech_placement placement, int stages, int chunks);
/* How many there are: p x v. */
int ech_layout_virtual_stages(const ech_layout *layout);
/* The virtual stage of a rank's chunk. */
int ech_layout_virtual_stage(const ech_layout *layout, int rank, int chunk);
/* The virtual stage after a rank's chunk, or before it; -1: none. It may be the rank's own. */
int ech_layout_neighbour(const ech_layout *layout, int rank, int chunk, bool after);

/* ---- blocks ---- */

/* The blocks of a rank's chunk: *first .. *end - 1. */
void ech_layout_blocks(const ech_layout *layout, int rank, int chunk, int *first, int *end);
/* Whether the rank has the block. */
bool ech_layout_has_block(const ech_layout *layout, int rank, int block);
/* Whether the rank keeps the parameter: one of its blocks uses it. */
bool ech_layout_holds(const ech_layout *layout, int rank, int param);
/* Whether it is this rank that counts its slice of the parameter in sums over distinct parameters, as
 * the norm: replica 0, context rank 0 of the first stage that holds it, and of tensor ranks with the
 * same slice the first. */
bool ech_layout_counts(const ech_layout *layout, const ech_model *model, int rank, int param);
/* Whether of the tensor ranks with the same slice of the parameter this is the first. */
bool ech_layout_is_first(const ech_layout *layout, const ech_model *model, int rank, int param);
/* Whether it is this rank that writes its slice of the parameter and of its states into checkpoints.
 * Ranks with the same slice share the parameters out. */
bool ech_layout_writes(const ech_layout *layout, const ech_model *model, int rank, int param);

/* ---- work ---- */

/* Of a micro-batch, or of a piece of one, on one rank. */
ech_extent ech_layout_extent(const ech_layout *layout, const ech_config *config,
                             const ech_model *model);
/* How uneven the stages are: the most multiply-adds of a rank over the mean of all ranks, its micro-batches
 * shared out over the replicas of its stage; 1: even. *stage: the first that has most. */
double ech_layout_imbalance(const ech_layout *layout, const ech_model *model, ech_extent extent,
                            int *stage);

/* ---- micro-batches ---- */

/* Runs of blocks in a step of the rank that has most of them, of every piece of a sequence. */
int64_t ech_layout_block_runs(const ech_layout *layout, const ech_config *config);
/* The rank's own micro-batches of a step. */
int ech_layout_micro_batches(const ech_layout *layout, int rank);
/* The global number q of the rank's k-th micro-batch. */
int64_t ech_layout_global_micro(const ech_layout *layout, int rank, int64_t k);
/* Which of a rank's own a global micro-batch of its is: the other way around. */
int64_t ech_layout_own_micro(const ech_layout *layout, int rank, int64_t q);
/* The rank that does virtual stage s of micro-batch q and has `rank`'s context and tensor coordinates. */
int ech_layout_rank_of(const ech_layout *layout, int virtual_stage, int64_t q, int rank);
/* How `micro_batches` are dealt out to replicas, for who has no layout: how many are a replica's, and the global
 * number of its k-th. */
int64_t ech_replica_micro_batches(int64_t micro_batches, int replicas, int replica);
int64_t ech_replica_global_micro(int replicas, int replica, int64_t k);
/* The rank at these coordinates. */
int ech_layout_rank_at(const ech_layout *layout, int stage, int data, int context, int tensor);

/* ---- groups ---- */

/* The members of `rank`'s group of that kind, ascending, into ranks[world]. Returns how many; 0: the
 * rank is in no such group. ranks NULL: they are only counted. */
int ech_layout_members(const ech_layout *layout, const ech_model *model, int rank,
                       ech_layout_group kind, int *ranks);
int ech_layout_group_size(const ech_layout *layout, const ech_model *model, int rank,
                          ech_layout_group kind);
/* How many members its group has, and which of them the rank is. */
typedef struct ech_membership {
    int size, index;
} ech_membership;
ech_membership ech_layout_membership(const ech_layout *layout, const ech_model *model, int rank,
                                     ech_layout_group kind);
/* The ranks whose gradients of a parameter are added up: along its addends, without axes along which there
 * is but one rank, and over all stages that hold it. */
ech_layout_group ech_layout_addends(const ech_layout *layout, const ech_model *model, int param);

#endif
