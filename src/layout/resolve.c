/* SPDX-License-Identifier: Apache-2.0
 *
 * Resolves the "auto" keys of the parallel section: depth, replicas, partition, micro-batches.
 */
#include "base/divisor.h"
#include "base/text.h"
#include "config/strategy.h"
#include "layout/grid.h"

/* ---- stages and replicas ---- */

/* A list of replicas has an entry for every stage. */
static ech_status check_listed(const ech_config *config, int listed)
{
    int64_t stages = config->parallel.pipeline;
    if (!listed || stages == ECH_AUTO || stages == listed) return ECH_OK;
    return ech_config_complain(config, "parallel.stage_replicas", "%s for %s (parallel.pipeline)",
                               ECH_COUNT(listed, "number"), ECH_COUNT(stages, "stage"));
}

/* True if the requested grid works with `chunks` sequence chunks. */
static bool takes_chunks(const ech_grid_problem *asked, int64_t chunks)
{
    ech_config config = *asked->config;
    ech_grid_problem problem = *asked;
    ech_grid grid = ech_grid_fill(asked, ech_grid_asked(asked));
    config.memory.sequence_chunks = chunks;
    problem.config = &config;
    return ech_grid_is_offered(&problem, &grid);
}

/* All sequence chunks are equally long, whatever the grid. After an error the suggested number
 * replaces the requested one, so that the grid is checked with it. */
static ech_status check_chunks(ech_config *config, const ech_grid_problem *problem)
{
    int64_t tokens = config->data.sequence_length, n = config->memory.sequence_chunks;
    if (tokens % n == 0) return ECH_OK;
    int64_t largest = ech_largest_divisor(tokens, n), offered = largest;
    while (offered > 1 && !takes_chunks(problem, offered))
        offered = ech_largest_divisor(tokens, offered - 1);
    if (!takes_chunks(problem, offered)) offered = largest;
    ech_status status = ech_config_complain(
        config, "memory.sequence_chunks", "does not divide data.sequence_length = %lld; %lld would",
        (long long)tokens, (long long)offered);
    config->memory.sequence_chunks = offered;
    return status;
}

static ech_status resolve_grid(ech_config *config, const ech_grid_problem *problem)
{
    ECH_TRY(check_listed(config, problem->listed));
    ech_grid grid = ech_grid_asked(problem);
    ECH_TRY(ech_grid_check(problem, grid, ECH_GRID_WHOLE));
    grid = ech_grid_fill(problem, grid);
    config->parallel.pipeline = grid.pipeline;
    config->parallel.data = grid.data == ECH_GRID_LISTED ? 1 : grid.data;
    return ECH_OK;
}

/* ---- blocks of stages ---- */

/* Checks the list of layers of each virtual stage, except its length. The first block and the last
 * one are no layers. */
static ech_status check_partition(const ech_config *config, const ech_model *model)
{
    const ech_config_list *list = &config->parallel.partition;
    int64_t sum = 0, layers = (int64_t)model->block.n - 2;
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

/* Clusters have equally many ranks, and include all that train. */
static ech_status check_clusters(const ech_config *config, int world)
{
    int64_t ranks = config->parallel.cluster_ranks;
    if (!ech_strategy_is_ring(config) || world % ranks == 0) return ECH_OK;
    return ech_config_complain(
        config, "parallel.cluster_ranks", "does not divide %s; %lld would",
        ECH_COUNT(world, "rank"),
        (long long)ech_largest_divisor(world, ranks < world ? ranks : world));
}

/* world: ranks, without evaluators. */
static ech_status refuse_servers(const ech_config *config, int64_t servers, int world)
{
    int64_t evaluators = config->parallel.evaluators;
    ECH_FREED_TEXT beside = {0};
    if (evaluators > 0) ech_text_append(&beside, " beside %s", ECH_COUNT(evaluators, "evaluator"));
    return ech_config_complain(
        config, "parallel.servers", "%s of %s%s %s no worker; start more ranks%s",
        ECH_COUNT(servers, "server"), ECH_COUNT(world, "rank"), beside.at ? beside.at : "",
        servers == 1 ? "leaves" : "leave", world > 1 ? ", or use fewer" : "");
}

ech_status ech_layout_resolve(ech_config *config, const ech_model *model, int world,
                              const ech_layout_filter *filter)
{
    int64_t servers = ech_strategy_servers(config);
    if (servers >= world) return refuse_servers(config, servers, world);
    if (servers > (int64_t)model->param.n)
        return ech_config_complain(
            config, "parallel.servers", "%lld, and the model has %s to keep; use fewer",
            (long long)servers, ECH_COUNT((int64_t)model->param.n, "parameter tensor"));
    if (ech_strategy_backups(config) >= world - servers)
        return ech_config_complain(config, "parallel.backup_workers",
                                   "%d of %s leave no gradient to update by; use fewer, or start "
                                   "more ranks",
                                   ech_strategy_backups(config),
                                   ECH_COUNT(world - servers, "worker"));
    ech_grid_problem problem = ech_grid_problem_of(config, (int64_t)model->block.n, world, filter);
    ECH_ASSERT(config->parallel.partition.word != ECH_PARTITION_AUTO);
    ech_status status = check_chunks(config, &problem);
    ECH_ALSO(&status, check_partition(config, model));
    ECH_ALSO(&status, check_clusters(config, world));
    ECH_ALSO(&status, resolve_grid(config, &problem));
    ECH_TRY(status);
    ech_grid grid = ech_grid_asked(&problem);
    config->training.micro_batch_size = ech_grid_micro_batch(&problem, &grid);
    return ECH_OK;
}
