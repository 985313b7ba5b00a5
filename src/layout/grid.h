/* SPDX-License-Identifier: Apache-2.0
 *
 * Grids: the degrees of a device mesh, pipeline x data x context x tensor ranks (Narayanan et al.
 * 2021, arXiv:2104.04473). Decides whether a model can be trained on a grid, and suggests near
 * grids that work. Private to src/layout. Nothing here communicates.
 */
#ifndef ECH_LAYOUT_GRID_H
#define ECH_LAYOUT_GRID_H

#include "layout/layout.h"

typedef struct ech_grid {
    int64_t pipeline;
    /* The data degree. ECH_AUTO: unknown yet (ech_grid_fill); ECH_GRID_LISTED: each stage has its
     * own number of replicas, in parallel.stage_replicas. */
    int64_t data;
    int64_t context, tensor;
} ech_grid;
enum { ECH_GRID_LISTED = 0 };

/* What a grid must fit. The configuration's model section is resolved. */
typedef struct ech_grid_problem {
    const ech_config *config;
    int64_t blocks, world;    /* of the model; ranks without servers and evaluators */
    int64_t servers;          /* number of servers in addition */
    int64_t evaluators;       /* number of evaluators in addition */
    int listed;               /* entries of parallel.stage_replicas; 0: the key is not given */
    int64_t sum, most, least; /* sum, largest and smallest of these entries */
    const ech_layout_filter *filter; /* the schedule's; NULL: accepts all */
} ech_grid_problem;

/* world: all ranks except evaluators; more than the number of servers. */
ech_grid_problem ech_grid_problem_of(const ech_config *config, int64_t blocks, int64_t world,
                                     const ech_layout_filter *filter);
/* Number of ranks to start, including servers and evaluators, if `world` others are started. */
int64_t ech_grid_ranks(const ech_grid_problem *problem, int64_t world);
/* The configured grid; one stage if parallel.pipeline is "auto". */
ech_grid ech_grid_asked(const ech_grid_problem *problem);
/* Replaces a data degree of ECH_AUTO by world / (pipeline x context x tensor). If that is not an
 * integer, the degree stays ECH_AUTO, which a rule of ECH_GRID_WHOLE refuses. */
ech_grid ech_grid_fill(const ech_grid_problem *problem, ech_grid grid);
/* Samples of a micro-batch: training.micro_batch_size; if that is "auto", all samples of a replica
 * in a training step (for unequal replicas, the most that divide the batch and give each replica a
 * micro-batch). */
int64_t ech_grid_micro_batch(const ech_grid_problem *problem, const ech_grid *grid);

/* Which rules of grid_rules.def are checked: those about context and tensor ranks, or all. */
typedef enum ech_grid_scope { ECH_GRID_REPLICA, ECH_GRID_WHOLE } ech_grid_scope;

/* Why a grid does not work. */
typedef struct ech_grid_refusal {
    const char *key; /* set: the key to blame; static */
    ech_text *why;   /* the caller's; the reason is appended */
} ech_grid_refusal;

/* True if a filled grid breaks no rule. Otherwise fills `refusal` (optional). */
bool ech_grid_works(const ech_grid_problem *problem, const ech_grid *grid, ech_grid_scope scope,
                    ech_grid_refusal *refusal);
/* True if an error may suggest a filled grid: it breaks no rule, and the filter accepts it. */
bool ech_grid_is_offered(const ech_grid_problem *problem, const ech_grid *grid);
/* Returns ECH_EUSAGE, logged, if the filled grid breaks a rule; the error suggests the nearest
 * grids that work. */
ech_status ech_grid_check(const ech_grid_problem *problem, ech_grid grid, ech_grid_scope scope);

/* Appends "; grids that work on 8 ranks: pipeline 1 x data 4 x context 1 x tensor 2, ...", at most
 * four, the nearest first. Rank counts include servers and evaluators ("on 13 ranks, 1 of them a
 * server"). If no grid works on that many ranks, suggests grids on the nearest number of ranks that
 * has one; if there is none, appends nothing. The distance from `wanted` is the product over all
 * degrees of larger / smaller, squared for the pipeline; a data degree that is not given does not
 * count. Among equally near grids, fewer stages come first, then fewer context ranks, then fewer
 * tensor ranks. */
void ech_grid_print_nearest(const ech_grid_problem *problem, ech_grid wanted, ech_text *out);

/* The training.global_batch_size nearest to the configured one for which the grid may be suggested;
 * 0: none among the 512 nearest valid multiples. */
int64_t ech_grid_nearest_batch(const ech_grid_problem *problem, const ech_grid *grid);

/* The multiple of `step` that is nearest to n, but at least `step` itself. */
int64_t ech_nearest_multiple(int64_t n, int64_t step);
/* a x b, or INT64_MAX on overflow. Degrees are at most 1e6 each. */
int64_t ech_saturating_product(int64_t a, int64_t b);

#endif
