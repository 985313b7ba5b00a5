/* SPDX-License-Identifier: Apache-2.0
 *
 * Grids of ranks, pipeline x data x context x tensor (Narayanan et al. 2021, arXiv:2104.04473): which of
 * them a model can be trained on, and which are nearest to one that cannot be. Private to this room.
 */
#ifndef ECH_LAYOUT_GRID_H
#define ECH_LAYOUT_GRID_H

#include "layout/layout.h"

typedef struct ech_grid {
    int64_t pipeline;
    /* ECH_AUTO: as many as there are ranks for; ECH_GRID_LISTED: parallel.stage_replicas says it. */
    int64_t data;
    int64_t context, tensor;
} ech_grid;
enum { ECH_GRID_LISTED = 0 };

/* What a grid must fit. The configuration's model section is resolved. */
typedef struct ech_grid_problem {
    const ech_config *config;
    int64_t blocks, world;
    int listed;                    /* entries of parallel.stage_replicas; 0: not given */
    int64_t sum, most, least;      /* of them */
    const ech_layout_filter *filter; /* NULL: none is asked */
} ech_grid_problem;

ech_grid_problem ech_grid_problem_of(const ech_config *config, int64_t blocks, int64_t world,
                                     const ech_layout_filter *filter);
/* What the configuration asks for: one stage where it does not say how many. */
ech_grid ech_grid_asked(const ech_grid_problem *problem);
/* The same with its data degree, if there is one for these ranks; otherwise still ECH_AUTO. */
ech_grid ech_grid_fill(const ech_grid_problem *problem, ech_grid grid);
/* Samples of a micro-batch: as given, or all of a data rank's. */
int64_t ech_grid_micro_batch(const ech_grid_problem *problem, const ech_grid *grid);
/* Ranks of a grid whose data degree is known. */
int64_t ech_grid_ranks(const ech_grid_problem *problem, const ech_grid *grid);

/* Which rules of grid_rules.def: those of context x tensor ranks alone, or all. */
typedef enum ech_grid_scope { ECH_GRID_REPLICA, ECH_GRID_WHOLE } ech_grid_scope;

/* Why a grid does not work. */
typedef struct ech_grid_refusal {
    const char *key;
    ech_text why;
} ech_grid_refusal;

/* Whether a filled grid works. `refusal`: filled if it does not; NULL: nobody asks why. */
bool ech_grid_works(const ech_grid_problem *problem, const ech_grid *grid, ech_grid_scope scope,
                    ech_grid_refusal *refusal);
/* Whether a filled grid may be offered: it works, and the filter takes it. */
bool ech_grid_is_offered(const ech_grid_problem *problem, const ech_grid *grid);
/* ech_grid_works as one error, with the nearest grids that do work. */
ech_status ech_grid_check(const ech_grid_problem *problem, ech_grid grid, ech_grid_scope scope);

/* "; grids that work on 8 ranks: pipeline 1 x data 4 x context 1 x tensor 2, ...", of all grids of so
 * many ranks the nearest first; where none works, of the nearest number of ranks with which one does;
 * nothing if none is found. Near: the product of the ratios of degrees, the pipeline's squared, is
 * small; of those as near, fewer stages, then fewer context ranks, then fewer tensor ranks come first.
 * A data degree that was left open is as near as any. */
void ech_grid_print_nearest(const ech_grid_problem *problem, ech_grid wanted, ech_text *out);

/* The samples of a step nearest to the asked ones with which the grid may be offered; 0: none is near. */
int64_t ech_grid_nearest_batch(const ech_grid_problem *problem, const ech_grid *grid);

int64_t ech_nearest_multiple(int64_t n, int64_t step); /* of `step`, above 0 */
/* Degrees are up to 1e6 each; what is larger than any number of ranks need not be told apart. */
int64_t ech_saturating_product(int64_t a, int64_t b);

#endif
