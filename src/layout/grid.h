/* SPDX-License-Identifier: Apache-2.0
 *
 * Device meshes, pipeline x data x context x tensor ranks (Narayanan et al. 2021, arXiv:2104.04473), here called
 * grids: whether a model can be trained on one, and if not, which grids near it work. Private to this room.
 */
#ifndef ECH_LAYOUT_GRID_H
#define ECH_LAYOUT_GRID_H

#include "layout/layout.h"

typedef struct ech_grid {
    int64_t pipeline;
    /* The data degree. ECH_AUTO: what the number of ranks leaves; ECH_GRID_LISTED: each stage has its own, in
     * parallel.stage_replicas. */
    int64_t data;
    int64_t context, tensor;
} ech_grid;
enum { ECH_GRID_LISTED = 0 };

/* What a grid must fit. The configuration's model section is resolved. */
typedef struct ech_grid_problem {
    const ech_config *config;
    int64_t blocks, world;
    int listed;                      /* entries of parallel.stage_replicas; 0: not given */
    int64_t sum, most, least;        /* of these entries */
    const ech_layout_filter *filter; /* NULL: accepts all */
} ech_grid_problem;

ech_grid_problem ech_grid_problem_of(const ech_config *config, int64_t blocks, int64_t world,
                                     const ech_layout_filter *filter);
/* The grid that the configuration asks for; one stage where parallel.pipeline is "auto". */
ech_grid ech_grid_asked(const ech_grid_problem *problem);
/* The grid with its data degree, world / (pipeline x context x tensor) where ECH_AUTO; where that is no whole
 * number the degree stays ECH_AUTO. */
ech_grid ech_grid_fill(const ech_grid_problem *problem, ech_grid grid);
/* Samples of a micro-batch: training.micro_batch_size, or where that is "auto" all samples of a data rank. */
int64_t ech_grid_micro_batch(const ech_grid_problem *problem, const ech_grid *grid);

/* Which rules of grid_rules.def are checked: those on context x tensor ranks alone, or all. */
typedef enum ech_grid_scope { ECH_GRID_REPLICA, ECH_GRID_WHOLE } ech_grid_scope;

/* Why a grid does not work. */
typedef struct ech_grid_refusal {
    const char *key;
    ech_text *why;
} ech_grid_refusal;

/* Whether a filled grid breaks no rule. `refusal` (optional): the rule's key and reason if it breaks one. */
bool ech_grid_works(const ech_grid_problem *problem, const ech_grid *grid, ech_grid_scope scope,
                    ech_grid_refusal *refusal);
/* Whether an error may suggest a filled grid: it breaks no rule, and the filter accepts it. */
bool ech_grid_is_offered(const ech_grid_problem *problem, const ech_grid *grid);
/* ech_grid_works as one error, with the nearest grids that do work. */
ech_status ech_grid_check(const ech_grid_problem *problem, ech_grid grid, ech_grid_scope scope);

/* Appends "; grids that work on 8 ranks: pipeline 1 x data 4 x context 1 x tensor 2, ...", the nearest first.
 * If no grid of these ranks works, those of the nearest number of ranks for which one does; if none is found,
 * nothing. Distance: the product of the ratios of degrees, the pipeline's squared. Of equally near grids, fewer
 * stages come first, then fewer context ranks, then fewer tensor ranks. A data degree of ECH_AUTO does not count. */
void ech_grid_print_nearest(const ech_grid_problem *problem, ech_grid wanted, ech_text *out);

/* The training.global_batch_size nearest to the configured one with which the grid may be suggested; 0: none near. */
int64_t ech_grid_nearest_batch(const ech_grid_problem *problem, const ech_grid *grid);

int64_t ech_nearest_multiple(int64_t n, int64_t step); /* of `step`, above 0 */
/* a x b, or a bound above any number of ranks where it is larger: degrees are up to 1e6 each. */
int64_t ech_saturating_product(int64_t a, int64_t b);

#endif
