/* SPDX-License-Identifier: Apache-2.0
 *
 * Fills the "auto" keys of the parallel section with numbers: depth, replicas, partition, micro-batches.
 */
#include <string.h>

#include "base/divisor.h"
#include "layout/grid.h"
#include "layout/layout.h"

typedef struct resolver {
    ech_config *config;
    const ech_model *model;
    int world;
    const ech_layout_filter *filter;
} resolver;

static ech_grid_problem problem_of(const resolver *r)
{
    return ech_grid_problem_of(r->config, (int64_t)r->model->block.n, r->world, r->filter);
}

/* ---- stages and replicas ---- */

/* A list of replicas has an entry for every stage. */
static ech_status check_listed(const ech_config *config, int listed)
{
    int64_t stages = config->parallel.pipeline;
    if (!listed || stages == ECH_AUTO || stages == listed) return ECH_OK;
    return ech_config_complain(config, "parallel.stage_replicas", "%s for %s (parallel.pipeline)",
                               ECH_COUNT(listed, "number"), ECH_COUNT(stages, "stage"));
}

/* Whether the grid that is asked for works with so many sequence chunks. */
static bool takes_chunks(const resolver *r, int64_t chunks)
{
    ech_config config = *r->config;
    ech_grid_problem problem = problem_of(r);
    ech_grid grid = ech_grid_fill(&problem, ech_grid_asked(&problem));
    config.memory.sequence_chunks = chunks;
    problem.config = &config;
    return ech_grid_is_offered(&problem, &grid);
}

/* Pieces of a sequence in time are as long, whatever the grid. What is offered stands in for what was asked,
 * so that the grid is held against that. */
static ech_status check_chunks(const resolver *r)
{
    ech_config *config = r->config;
    int64_t tokens = config->data.sequence_length, n = config->memory.sequence_chunks;
    if (tokens % n == 0) return ECH_OK;
    int64_t largest = ech_largest_divisor(tokens, n), offered = largest;
    while (offered > 1 && !takes_chunks(r, offered))
        offered = ech_largest_divisor(tokens, offered - 1);
    if (!takes_chunks(r, offered)) offered = largest;
    ech_status status = ech_config_complain(
        config, "memory.sequence_chunks", "does not divide data.sequence_length = %lld; %lld would",
        (long long)tokens, (long long)offered);
    config->memory.sequence_chunks = offered;
    return status;
}

static ech_status resolve_grid(resolver *r)
{
    ech_config *config = r->config;
    ech_grid_problem problem = problem_of(r);
    ECH_TRY(check_listed(config, problem.listed));
    ech_grid grid = ech_grid_asked(&problem);
    ECH_TRY(ech_grid_check(&problem, grid, ECH_GRID_WHOLE));
    grid = ech_grid_fill(&problem, grid);
    config->parallel.pipeline = grid.pipeline;
    config->parallel.data = grid.data == ECH_GRID_LISTED ? 1 : grid.data;
    return ECH_OK;
}

/* ---- which blocks a stage has ---- */

/* The list of layers of each virtual stage, apart from whether it has as many entries. */
static ech_status check_cut(const resolver *r)
{
    const ech_config *config = r->config;
    const ech_config_list *list = &config->parallel.partition;
    int64_t sum = 0, layers = config->model.num_hidden_layers;
    for (int s = 0; s < list->n; s++) {
        sum += list->at[s];
        if (list->at[s] == 0 && s > 0 && s < list->n - 1)
            return ech_config_complain(config, "parallel.partition",
                                       "stage %d has no layer; only the first (embedding) and the "
                                       "last (head) may have none",
                                       s);
    }
    if (list->n > 0 && sum != layers)
        return ech_config_complain(config, "parallel.partition",
                                   "%s in all, and the model has %lld", ECH_COUNT(sum, "layer"),
                                   (long long)layers);
    return ECH_OK;
}

ech_status ech_layout_resolve(ech_config *config, const ech_model *model, int world,
                              const ech_layout_filter *filter)
{
    resolver r = {.config = config, .model = model, .world = world, .filter = filter};
    ECH_ASSERT(config->parallel.partition.word != ECH_PARTITION_AUTO);
    ech_status status = check_chunks(&r);
    ECH_ALSO(&status, check_cut(&r));
    ECH_ALSO(&status, resolve_grid(&r));
    ECH_TRY(status);
    ech_grid_problem problem = problem_of(&r);
    ech_grid grid = ech_grid_asked(&problem);
    config->training.micro_batch_size = ech_grid_micro_batch(&problem, &grid);
    return ECH_OK;
}
