/* SPDX-License-Identifier: Apache-2.0
 *
 * From what a user wrote to whole numbers: depth, replicas, cuts, micro-batches.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "layout/cut.h"
#include "layout/layout.h"
#include "layout/partition.h"
#include "optim/optim.h"

typedef struct resolver {
    ech_config *config;
    const ech_model *model;
    const ech_profile *profile;
    int world;
    int64_t replicas[ECH_CONFIG_LONGEST_LIST];
    int listed;          /* entries of parallel.stage_replicas; 0: not given */
    int64_t most, least; /* replicas of any stage */
} resolver;

/* The multiple of `step` (above 0) nearest to n. */
static int64_t nearest_multiple(int64_t n, int64_t step)
{
    int64_t below = n / step * step;
    if (below == 0) return step;
    return n - below <= below + step - n ? below : below + step;
}

/* ---- stages and replicas ---- */

static ech_status resolve_listed(resolver *r)
{
    ech_config *config = r->config;
    int64_t sum = 0;
    for (int s = 0; s < r->listed; s++) sum += r->replicas[s];
    if (config->parallel.pipeline == ECH_AUTO) config->parallel.pipeline = r->listed;
    if (config->parallel.pipeline != r->listed)
        return ech_config_complain(config, "parallel.stage_replicas",
                                   "%d numbers for %lld stages (parallel.pipeline)", r->listed,
                                   (long long)config->parallel.pipeline);
    if (config->parallel.data == ECH_AUTO) config->parallel.data = 1;
    if (config->parallel.data != 1)
        return ech_config_complain(config, "parallel.data",
                                   "leave it out where parallel.stage_replicas says how many "
                                   "replicas each stage has");
    if (sum != r->world)
        return ech_config_complain(config, "parallel.stage_replicas",
                                   "needs %lld ranks, and %d were started; use --ranks %lld",
                                   (long long)sum, r->world, (long long)sum);
    return ECH_OK;
}

static ech_status resolve_grid(resolver *r)
{
    ech_config *config = r->config;
    if (config->parallel.pipeline == ECH_AUTO) config->parallel.pipeline = 1;
    int64_t stages = config->parallel.pipeline;
    if (config->parallel.data == ECH_AUTO) {
        if (r->world % stages)
            return ech_config_complain(
                config, "parallel.pipeline", "%lld stages do not divide %d ranks; use --ranks %lld",
                (long long)stages, r->world, (long long)nearest_multiple(r->world, stages));
        config->parallel.data = r->world / stages;
    }
    int64_t data = config->parallel.data;
    if (stages * data == r->world) return ECH_OK;
    if (stages == 1)
        return ech_config_complain(config, "parallel.data",
                                   "needs %lld ranks, and %d were started; use --ranks %lld, or "
                                   "leave parallel.data out",
                                   (long long)data, r->world, (long long)data);
    return ech_config_complain(config, "parallel.pipeline",
                               "%lld stages x parallel.data = %lld need %lld ranks, and %d were "
                               "started; use --ranks %lld, or leave parallel.data out",
                               (long long)stages, (long long)data, (long long)(stages * data),
                               r->world, (long long)(stages * data));
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

/* A depth or data degree that is given fixes both. */
static ech_status fix_grid(resolver *r, bool *fixed)
{
    ech_config *config = r->config;
    *fixed = config->parallel.pipeline != ECH_AUTO || config->parallel.data != ECH_AUTO;
    if (!*fixed) return ECH_OK;
    if (config->parallel.pipeline == ECH_AUTO && r->world % config->parallel.data == 0)
        config->parallel.pipeline = r->world / config->parallel.data;
    return resolve_grid(r);
}

/* Ranks on a machine, and between machines. */
static ech_status find_node(const resolver *r, int64_t *node)
{
    *node = r->config->parallel.node_ranks;
    if (*node == ECH_AUTO || *node > r->world) *node = r->world;
    if (r->world % *node == 0) return ECH_OK;
    return ech_config_complain(r->config, "parallel.node_ranks", "does not divide %d ranks",
                               r->world);
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
    ECH_TRY(fix_grid(r, &fixed));
    ECH_TRY(find_node(r, &node));
    bool flat = fixed || node == r->world;
    /* Chunks of a rank are cut as if they were workers of their own. */
    int workers[2] = {(int)(flat ? r->world : node) * chunks, (int)(r->world / node)};
    double bandwidth[2] = {bandwidth_of(r, flat && node < r->world), bandwidth_of(r, true)};
    ech_partition_problem problem = {
        .blocks = r->profile->blocks,
        .block = r->profile->block,
        .levels = flat ? 1 : 2,
        .workers = workers,
        .bandwidth = bandwidth,
        .stages = fixed ? (int)config->parallel.pipeline * chunks : 0,
        .uniform = fixed,
        /* What is left to itself is each machine's own, and the cut must be the same on all. */
        .memory = ech_config_is_set(config, "memory.device_limit")
                      ? config->memory.device_limit / chunks
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
    if (r->listed)
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

static ech_status check_cut(const resolver *r)
{
    const ech_config *config = r->config;
    int64_t list[ECH_CONFIG_LONGEST_LIST], sum = 0;
    int64_t v = config->parallel.virtual_stages, stages = config->parallel.pipeline * v;
    int64_t blocks = (int64_t)r->model->block.n, layers = config->model.num_hidden_layers;
    int n = ech_config_list(config->parallel.partition, list, ECH_CONFIG_LONGEST_LIST);
    if (stages > blocks)
        return ech_config_complain(
            config, v > 1 ? "parallel.virtual_stages" : "parallel.pipeline",
            "%lld stages for %lld blocks (embedding, %lld layers, head): at most %lld %s",
            (long long)stages, (long long)blocks, (long long)layers,
            (long long)(v > 1 ? blocks / config->parallel.pipeline : blocks),
            v > 1 ? "virtual stages" : "stages");
    if (n == 0) return ECH_OK;
    if (n != stages)
        return ech_config_complain(config, "parallel.partition",
                                   "%d numbers for %lld stages%s: one each", n, (long long)stages,
                                   v > 1 ? " (pipeline x virtual_stages)" : "");
    for (int s = 0; s < n; s++) {
        sum += list[s];
        if (list[s] == 0 && s > 0 && s < n - 1)
            return ech_config_complain(config, "parallel.partition",
                                       "stage %d has no layer; only the first (embedding) and the "
                                       "last (head) may have none",
                                       s);
    }
    if (sum != layers)
        return ech_config_complain(config, "parallel.partition",
                                   "%lld layers in all, and the model has %lld", (long long)sum,
                                   (long long)layers);
    return ECH_OK;
}

/* ---- micro-batches ---- */

static void find_replicas(resolver *r)
{
    r->listed =
        ech_config_list(r->config->parallel.stage_replicas, r->replicas, ECH_CONFIG_LONGEST_LIST);
    r->most = r->least = r->listed ? r->replicas[0] : r->config->parallel.data;
    for (int s = 0; s < r->listed; s++) {
        if (r->replicas[s] > r->most) r->most = r->replicas[s];
        if (r->replicas[s] < r->least) r->least = r->replicas[s];
    }
}

static ech_status resolve_uniform_batch(ech_config *config)
{
    int64_t G = config->training.global_batch_size, data = config->parallel.data;
    if (G % data)
        return ech_config_complain(config, "training.global_batch_size",
                                   "does not divide by parallel.data = %lld; %lld would",
                                   (long long)data, (long long)nearest_multiple(G, data));
    if (config->training.micro_batch_size == ECH_AUTO) config->training.micro_batch_size = G / data;
    int64_t b = config->training.micro_batch_size;
    if (G % (b * data))
        return ech_config_complain(config, "training.global_batch_size",
                                   "does not divide by micro_batch_size x data = %lld x %lld; "
                                   "%lld would",
                                   (long long)b, (long long)data,
                                   (long long)nearest_multiple(G, b * data));
    return ECH_OK;
}

/* Loads of replicas may differ by one micro-batch; everyone needs at least one. */
static ech_status resolve_listed_batch(const resolver *r)
{
    ech_config *config = r->config;
    int64_t G = config->training.global_batch_size;
    int64_t *b = &config->training.micro_batch_size;
    if (*b == ECH_AUTO)
        for (*b = G / r->most > 0 ? G / r->most : 1; G % *b; --*b) continue;
    if (G % *b)
        return ech_config_complain(config, "training.global_batch_size",
                                   "does not divide by micro_batch_size = %lld; %lld would",
                                   (long long)*b, (long long)nearest_multiple(G, *b));
    if (G / *b < r->most)
        return ech_config_complain(config, "training.global_batch_size",
                                   "makes %lld micro-batches of %lld samples for a stage of %lld "
                                   "replicas; at least %lld are needed",
                                   (long long)(G / *b), (long long)*b, (long long)r->most,
                                   (long long)r->most);
    return ECH_OK;
}

static ech_status resolve_batch(const resolver *r)
{
    ech_config *config = r->config;
    if (r->listed)
        ECH_TRY(resolve_listed_batch(r));
    else
        ECH_TRY(resolve_uniform_batch(config));
    int64_t micro = config->training.global_batch_size / config->training.micro_batch_size;
    int64_t each = (micro + r->least - 1) / r->least, layers = config->model.num_hidden_layers;
    int64_t own = (layers + config->parallel.pipeline - 1) / config->parallel.pipeline;
    if (each > ECH_MOST_BLOCK_RUNS / own)
        return ech_config_complain(config, "training.global_batch_size",
                                   "%lld micro-batches of %lld layers are more than a plan's %d "
                                   "block runs; use a larger training.micro_batch_size or more "
                                   "ranks",
                                   (long long)each, (long long)own, ECH_MOST_BLOCK_RUNS);
    return ECH_OK;
}

ech_status ech_layout_resolve(ech_config *config, const ech_model *model,
                              const ech_profile *profile, int world)
{
    resolver r = {.config = config, .model = model, .profile = profile, .world = world};
    find_replicas(&r);
    if (strcmp(config->parallel.partition, "auto") == 0) ECH_TRY(resolve_auto(&r));
    find_replicas(&r);
    ECH_TRY(r.listed ? resolve_listed(&r) : resolve_grid(&r));
    find_replicas(&r);
    ECH_TRY(check_cut(&r));
    return resolve_batch(&r);
}
