/* SPDX-License-Identifier: Apache-2.0
 *
 * From what a user wrote to whole numbers: depth, replicas, cuts, micro-batches.
 */
#include <math.h>
#include <string.h>

#include "layout/cut.h"
#include "layout/grid.h"
#include "layout/layout.h"
#include "layout/partition.h"
#include "optim/optim.h"

typedef struct resolver {
    ech_config *config;
    const ech_model *model;
    const ech_profile *profile;
    int world;
} resolver;

static ech_grid_problem problem_of(const resolver *r)
{
    return ech_grid_problem_of(r->config, (int64_t)r->model->block.n, r->world);
}

/* ---- stages and replicas ---- */

/* What may not stand beside a list of replicas. */
static ech_status check_listed(const ech_config *config, int listed)
{
    int64_t stages = config->parallel.pipeline, data = config->parallel.data;
    if (!listed) return ECH_OK;
    if (stages != ECH_AUTO && stages != listed)
        return ech_config_complain(config, "parallel.stage_replicas",
                                   "%s for %s (parallel.pipeline)", ECH_COUNT(listed, "number"),
                                   ECH_COUNT(stages, "stage"));
    if (data != ECH_AUTO && data != 1)
        return ech_config_complain(config, "parallel.data",
                                   "leave it out where parallel.stage_replicas says how many "
                                   "replicas each stage has");
    return ECH_OK;
}

/* Pieces of a sequence in time are as long, whatever the grid. */
static ech_status check_chunks(const ech_config *config)
{
    int64_t tokens = config->data.sequence_length, n = config->memory.sequence_chunks, below = n;
    if (tokens % n == 0) return ECH_OK;
    if (below > tokens) below = tokens;
    while (tokens % below) below--;
    return ech_config_complain(config, "memory.sequence_chunks",
                               "does not divide data.sequence_length = %lld; %lld would",
                               (long long)tokens, (long long)below);
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

static double bandwidth_of(const resolver *r, bool network)
{
    int64_t node = r->config->parallel.node_bandwidth;
    int64_t between = r->config->parallel.network_bandwidth;
    double inside = node == ECH_AUTO ? r->profile->bandwidth : (double)node;
    if (inside <= 0) inside = INFINITY; /* not measured: messages are free */
    return network && between != ECH_AUTO ? (double)between : inside;
}

/* What the partitioner found becomes what a user could have written. */
static void take_partition(resolver *r, const ech_partition *found, int chunks)
{
    ech_text cut = {0}, replicas = {0};
    ech_config *config = r->config;
    bool uniform = true;
    ech_cut_print(found->cut, found->stages, &cut);
    ech_config_replace_text(&config->parallel.partition, cut.at);
    for (int s = 0; s < found->stages; s++) {
        ech_text_append(&replicas, "%s%d", s ? ", " : "[", found->replicas[s]);
        uniform &= found->replicas[s] == found->replicas[0];
    }
    ech_text_append(&replicas, "]");
    config->parallel.pipeline = found->stages / chunks;
    if (uniform)
        config->parallel.data = found->replicas[0];
    else
        ech_config_replace_text(&config->parallel.stage_replicas, replicas.at);
    ech_text_free(&cut);
    ech_text_free(&replicas);
}

/* Of each byte of parameters: itself, its gradient, and the optimizer's states. */
static int bytes_kept(const ech_config *config)
{
    const char *names[ECH_MAX_STATES];
    return 2 + ech_optimizer_find(config->optimizer.name)->states(config, names);
}

/* Ranks that are one worker to the partitioner: they work on the same samples. */
static int64_t ranks_of_worker(const ech_config *config)
{
    return config->parallel.context * config->parallel.tensor;
}

/* A depth or data degree that is given fixes both. */
static ech_status fix_grid(resolver *r, bool *fixed)
{
    ech_config *config = r->config;
    *fixed = config->parallel.pipeline != ECH_AUTO || config->parallel.data != ECH_AUTO;
    if (!*fixed) return ECH_OK;
    int64_t workers = r->world / ranks_of_worker(config), data = config->parallel.data;
    if (config->parallel.pipeline == ECH_AUTO && workers % data == 0)
        config->parallel.pipeline = workers / data;
    return resolve_grid(r);
}

/* Workers on a machine, and between machines. */
static ech_status find_node(const resolver *r, int64_t *node)
{
    int64_t ranks = r->config->parallel.node_ranks, each = ranks_of_worker(r->config);
    if (ranks == ECH_AUTO || ranks > r->world) ranks = r->world;
    *node = ranks / each;
    if (r->world % ranks)
        return ech_config_complain(r->config, "parallel.node_ranks", "does not divide %s",
                                   ECH_COUNT(r->world, "rank"));
    if (ranks % each)
        return ech_config_complain(r->config, "parallel.node_ranks",
                                   "does not divide by parallel.context x parallel.tensor = %lld "
                                   "ranks, which parallel.partition = auto keeps on one machine; "
                                   "%lld would",
                                   (long long)each, (long long)ech_nearest_multiple(ranks, each));
    return ECH_OK;
}

static ech_status take_found(resolver *r, const ech_partition *found, int chunks)
{
    if (found->stages > ECH_CONFIG_LONGEST_LIST)
        return ech_config_complain(r->config, "parallel.partition",
                                   "finds %d stages, and a list holds at most %d; give "
                                   "parallel.pipeline",
                                   found->stages, ECH_CONFIG_LONGEST_LIST);
    take_partition(r, found, chunks);
    return ECH_OK;
}

static ech_status solve_partition(resolver *r)
{
    const ech_config *config = r->config;
    int chunks = (int)config->parallel.virtual_stages;
    bool fixed;
    int64_t node;
    ech_grid_problem grid = problem_of(r);
    ECH_TRY(ech_grid_check(&grid, ech_grid_asked(&grid), ECH_GRID_REPLICA));
    ECH_TRY(fix_grid(r, &fixed));
    ECH_TRY(find_node(r, &node));
    int64_t all = r->world / ranks_of_worker(config);
    bool flat = fixed || node == all;
    /* Chunks of a rank are cut as if they were workers of their own. */
    int workers[2] = {(int)(flat ? all : node) * chunks, (int)(all / node)};
    double bandwidth[2] = {bandwidth_of(r, flat && node < all), bandwidth_of(r, true)};
    ech_partition_problem problem = {
        .blocks = r->profile->blocks,
        .block = r->profile->block,
        .levels = flat ? 1 : 2,
        .workers = workers,
        .bandwidth = bandwidth,
        .stages = fixed ? (int)config->parallel.pipeline * chunks : 0,
        .uniform = fixed,
        /* What is left to itself is each machine's own, and the cut must be the same on all. The
         * profile is of one rank that has all of a layer, of which each tensor rank has a share. */
        .memory = ech_config_is_set(config, "memory.device_limit")
                      ? ech_saturating_product(config->memory.device_limit / chunks,
                                               config->parallel.tensor)
                      : 0,
        .states = bytes_kept(config),
    };
    ech_partition found;
    ECH_TRY(ech_partition_solve(&problem, &found));
    ech_status status = take_found(r, &found, chunks);
    ech_partition_free(&found);
    return status;
}

static ech_status resolve_auto(resolver *r)
{
    if (problem_of(r).listed)
        return ech_config_complain(r->config, "parallel.stage_replicas",
                                   "parallel.partition = auto chooses replicas, too: leave one of "
                                   "the two out");
    if (r->profile && r->profile->blocks != (int)r->model->block.n)
        return ech_config_complain(
            r->config, "parallel.profile",
            "has %d blocks and the model %zu; run `echelon profile` on this run file",
            r->profile->blocks, r->model->block.n);
    if (!r->profile)
        return ech_config_complain(
            r->config, "parallel.partition",
            "needs to know what blocks cost: run `echelon profile RUN.yaml` first, and give its "
            "file as parallel.profile");
    if (r->config->parallel.pipeline == ECH_AUTO && r->config->parallel.virtual_stages > 1)
        return ech_config_complain(r->config, "parallel.partition",
                                   "with parallel.virtual_stages also needs parallel.pipeline");
    return solve_partition(r);
}

/* The list of layers of each virtual stage; that it has as many entries is checked with the grid. */
static ech_status check_cut(const resolver *r)
{
    const ech_config *config = r->config;
    int64_t list[ECH_CONFIG_LONGEST_LIST], sum = 0, layers = config->model.num_hidden_layers;
    int n = ech_config_list(config->parallel.partition, list, ECH_CONFIG_LONGEST_LIST);
    for (int s = 0; s < n; s++) {
        sum += list[s];
        if (list[s] == 0 && s > 0 && s < n - 1)
            return ech_config_complain(config, "parallel.partition",
                                       "stage %d has no layer; only the first (embedding) and the "
                                       "last (head) may have none",
                                       s);
    }
    if (n > 0 && sum != layers)
        return ech_config_complain(config, "parallel.partition",
                                   "%s in all, and the model has %lld", ECH_COUNT(sum, "layer"),
                                   (long long)layers);
    return ECH_OK;
}

ech_status ech_layout_resolve(ech_config *config, const ech_model *model,
                              const ech_profile *profile, int world)
{
    resolver r = {.config = config, .model = model, .profile = profile, .world = world};
    ECH_TRY(check_chunks(config));
    if (strcmp(config->parallel.partition, "auto") == 0) ECH_TRY(resolve_auto(&r));
    ECH_TRY(resolve_grid(&r));
    ECH_TRY(check_cut(&r));
    ech_grid_problem problem = problem_of(&r);
    ech_grid grid = ech_grid_asked(&problem);
    config->training.micro_batch_size = ech_grid_micro_batch(&problem, &grid);
    return ECH_OK;
}
