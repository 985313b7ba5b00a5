/* SPDX-License-Identifier: Apache-2.0
 *
 * Grids: the degrees of a device mesh, pipeline x data x context x tensor ranks (Narayanan et al.
 * 2021, arXiv:2104.04473). Says whether a model can be trained on a grid, and if not, which grids
 * near it work. Private to src/layout. Nothing here communicates.
 */
#ifndef ECH_LAYOUT_GRID_H
#define ECH_LAYOUT_GRID_H

#include "layout/layout.h"

typedef struct ech_grid {
    int64_t pipeline;
    /* The data degree. ECH_AUTO: not known yet (ech_grid_fill); ECH_GRID_LISTED: each stage has its
     * own number of replicas, in parallel.stage_replicas. */
    int64_t data;
    int64_t context, tensor;
} ech_grid;
enum { ECH_GRID_LISTED = 0 };

/* What a grid must fit. The configuration's model section is resolved. */
typedef struct ech_grid_problem {
    const ech_config *config;
    int64_t blocks, world;    /* of the model; number of ranks, without servers and evaluators */
    int64_t servers;          /* of which there are so many besides */
    int64_t evaluators;       /* likewise */
    int listed;               /* entries of parallel.stage_replicas; 0: the key is not given */
    int64_t sum, most, least; /* sum, largest and smallest of these entries */
    const ech_layout_filter *filter; /* the schedule's; NULL: accepts all */
} ech_grid_problem;

/* world: all ranks but evaluators; there are more of them than servers. */
ech_grid_problem ech_grid_problem_of(const ech_config *config, int64_t blocks, int64_t world,
                                     const ech_layout_filter *filter);
/* All ranks that start, servers and evaluators among them, where `world` others do. */
int64_t ech_grid_ranks(const ech_grid_problem *problem, int64_t world);
/* The grid that the configuration asks for; one stage where parallel.pipeline is "auto". */
ech_grid ech_grid_asked(const ech_grid_problem *problem);
/* The grid with a data degree of ECH_AUTO replaced by world / (pipeline x context x tensor). If
 * that is no integer, the degree stays ECH_AUTO, which a rule of ECH_GRID_WHOLE refuses. */
ech_grid ech_grid_fill(const ech_grid_problem *problem, ech_grid grid);
/* Samples of a micro-batch: training.micro_batch_size; if that is "auto", all samples of a replica
 * in a training step (of unequal replicas: the most that divide the batch and give each replica a
 * micro-batch). */
int64_t ech_grid_micro_batch(const ech_grid_problem *problem, const ech_grid *grid);

/* Which rules of grid_rules.def are checked: only those about context and tensor ranks, or all. */
typedef enum ech_grid_scope { ECH_GRID_REPLICA, ECH_GRID_WHOLE } ech_grid_scope;

/* Why a grid does not work. */
typedef struct ech_grid_refusal {
    const char *key; /* set: the key to blame; static */
    ech_text *why;   /* the caller's; the reason is appended */
} ech_grid_refusal;

/* Whether a filled grid breaks no rule. `refusal` (optional) is filled if it breaks one. */
bool ech_grid_works(const ech_grid_problem *problem, const ech_grid *grid, ech_grid_scope scope,
                    ech_grid_refusal *refusal);
/* Whether an error may suggest a filled grid: it breaks no rule, and the filter accepts it. */
bool ech_grid_is_offered(const ech_grid_problem *problem, const ech_grid *grid);
/* ECH_EUSAGE, logged, if the grid, once filled, breaks a rule; the error suggests the nearest grids
 * that work. */
ech_status ech_grid_check(const ech_grid_problem *problem, ech_grid grid, ech_grid_scope scope);

/* Appends "; grids that work on 8 ranks: pipeline 1 x data 4 x context 1 x tensor 2, ...", at most
 * four, the nearest first. Numbers of ranks include servers and evaluators ("on 13 ranks, 1 of them
 * a server"). If none works on that many ranks, appends those of the nearest number of ranks on
 * which one does; if none is found, nothing. Distance from `wanted`: the product over all degrees
 * of larger / smaller, the pipeline's squared; a data degree that is not given does not count. Of
 * equally near grids, fewer stages come first, then fewer context ranks, then fewer tensor
 * ranks. */
void ech_grid_print_nearest(const ech_grid_problem *problem, ech_grid wanted, ech_text *out);

/* The training.global_batch_size nearest to the configured one with which the grid may be
 * suggested; 0: none of the 512 nearest multiples of what must divide it. */
int64_t ech_grid_nearest_batch(const ech_grid_problem *problem, const ech_grid *grid);

/* The multiple of `step` that is nearest to n, but at least `step` itself. */
int64_t ech_nearest_multiple(int64_t n, int64_t step);
/* a x b, or INT64_MAX where the product overflows: degrees are up to 1e6 each. */
int64_t ech_saturating_product(int64_t a, int64_t b);

#endif
