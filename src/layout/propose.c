/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds the partitioner's problem from a configuration, and keys from its answers.
 */
#include "layout/propose.h"

#include <math.h>
#include <stdlib.h>

#include "base/divisor.h"
#include "layout/delay.h"
#include "layout/grid.h"
#include "optim/optim.h"

typedef struct proposer {
    ech_config *config;
    const ech_model *model;
    const ech_profile *profile;
    const ech_partition_needs *needs;
    int world, chunks;
    int ranks; /* ranks that are one worker of the partitioner: they work on the same samples */
    ech_profile_block *block; /* [blocks] of a worker */
    double *delay;            /* [workers] seconds that a worker sleeps per step */
    ech_partition_problem problem;
} proposer;

/* ---- checks ---- */

static ech_status check_keys(const proposer *p)
{
    const ech_config *config = p->config;
    if (!p->profile)
        return ech_config_complain(
            config, "parallel.partition",
            "needs to know what blocks cost: run `echelon profile RUN.yaml` first, with this run's "
            "other keys and --ranks, and give its file as parallel.profile");
    if (p->profile->blocks != (int)p->model->block.n)
        return ech_config_complain(
            config, "parallel.profile",
            "has %d blocks and the model %zu; run `echelon profile` on this run file",
            p->profile->blocks, p->model->block.n);
    return ECH_OK;
}

/* The profile's costs are for one micro-batch size. */
static ech_status take_micro_batch(proposer *p)
{
    ech_config *config = p->config;
    if (config->training.micro_batch_size == ECH_AUTO)
        config->training.micro_batch_size = ech_profile_micro_batch(p->profile);
    if (config->training.micro_batch_size == ECH_AUTO)
        return ech_config_complain(config, "training.micro_batch_size",
                                   "needs to be given with parallel.partition = auto");
    int64_t samples = config->training.global_batch_size, b = config->training.micro_batch_size;
    int64_t data = config->parallel.data == ECH_AUTO ? 1 : config->parallel.data;
    if (samples % b)
        return ech_config_complain(config, "training.global_batch_size",
                                   "does not divide by micro_batch_size = %lld; %lld would",
                                   (long long)b,
                                   (long long)ech_nearest_multiple(samples, b * data));
    return ECH_OK;
}

static ech_status check_node(const proposer *p)
{
    int64_t ranks = p->config->parallel.node_ranks, each = p->ranks;
    if (ranks == ECH_AUTO || ranks > p->world) ranks = p->world;
    if (p->world % ranks)
        return ech_config_complain(p->config, "parallel.node_ranks", "does not divide %s",
                                   ECH_COUNT(p->world, "rank"));
    if (ranks % each)
        return ech_config_complain(
            p->config, "parallel.node_ranks",
            "does not divide by parallel.context x parallel.tensor = %lld "
            "ranks, which parallel.partition = auto keeps on one machine; "
            "%lld would",
            (long long)each,
            (long long)(each * ech_largest_divisor(p->world / each, ranks / each + 1)));
    return ECH_OK;
}

/* A given depth or data degree determines both: *stages of the pipeline; 0: none is given. */
static ech_status find_depth(const proposer *p, int64_t *stages)
{
    const ech_config *given = p->config;
    ech_grid_problem grid =
        ech_grid_problem_of(given, (int64_t)p->model->block.n, p->world, p->needs->filter);
    ECH_TRY(ech_grid_check(&grid, ech_grid_asked(&grid), ECH_GRID_REPLICA));
    int64_t workers = p->world / p->ranks, data = given->parallel.data;
    *stages = 0;
    if (given->parallel.pipeline == ECH_AUTO && data == ECH_AUTO) return ECH_OK;
    ECH_CLEANUP(ech_config_destroy_at) ech_config *config = ech_config_copy(given);
    ech_config_replace_list(&config->parallel.partition, ECH_PARTITION_EVEN, NULL, 0);
    if (config->parallel.pipeline == ECH_AUTO && workers % data == 0)
        config->parallel.pipeline = workers / data;
    ECH_TRY(ech_layout_resolve(config, p->model, p->world, p->needs->filter));
    *stages = config->parallel.pipeline;
    return ECH_OK;
}

/* ---- the problem ---- */

static double bytes_of(const ech_shape *shape, ech_dtype dtype)
{
    return (double)ech_shape_whole(shape) * (double)ech_dtype_bytes(dtype);
}

/* Per byte of weights on the device: bytes of gradients, and of optimizer states. */
static void find_states(const proposer *p, double *of_gradients, double *of_states)
{
    double params = 0, gradients = 0, states = 0;
    bool here = p->config->memory.offload_optimizer == ECH_OFFLOAD_NONE;
    ech_types types = ech_model_types(p->config);
    for (size_t i = 0; i < p->model->param.n; i++) {
        const ech_param *param = &p->model->param.at[i];
        ech_optimizer_needs needs = ech_optimizer_needs_of(p->config, param);
        bool wide = param->type != ECH_TYPE_COMPUTE;
        params += bytes_of(&param->shape, wide ? types.wide : types.compute);
        gradients += bytes_of(&param->shape, wide ? types.wide : types.gradient);
        for (int s = 0; s < needs.states && here; s++)
            states += bytes_of(&needs.state[s].shape,
                               ech_type_dtype(needs.state[s].type, needs.state[s].fixed, types));
    }
    *of_gradients = gradients / params;
    *of_states = states / params;
}

/* The profile is of one rank with whole layers, and with whatever R may recompute. */
static void shard_blocks(const proposer *p)
{
    int tensor = (int)p->config->parallel.tensor;
    const ech_block_options options = {.recompute = (int)p->config->memory.recompute,
                                       .invert = p->config->memory.invert == 1};
    bool again = options.invert || options.recompute != ECH_RECOMPUTE_NONE;
    for (int b = 0; b < p->profile->blocks; b++) {
        ech_profile_block *block = &p->block[b];
        *block = p->profile->block[b];
        for (int phase = 0; phase < ECH_PROFILE_PHASES; phase++) {
            bool runs = phase < ECH_RECOMPUTE ||
                        (again && phase == ech_profile_phase(ECH_RECOMPUTE, &options));
            block->seconds[phase] = runs ? block->seconds[phase] / p->ranks : 0;
        }
        block->activation_bytes /= p->ranks;
        block->boundary_bytes /= p->ranks;
        block->param_bytes /= tensor;
    }
}

/* Bytes of the first block's parameters that the last block uses, too. */
static double tied_bytes(const proposer *p)
{
    const ech_block *last = p->model->block.at[p->model->block.n - 1];
    double all = 0, tied = 0;
    for (size_t i = 0; i < p->model->param.n; i++) {
        if (p->model->param.at[i].block != 0) continue;
        double elements = (double)ech_shape_whole(&p->model->param.at[i].shape);
        all += elements;
        if (ech_block_uses(last, (int)i)) tied += elements;
    }
    return all > 0 ? tied / all * (double)p->block[0].param_bytes : 0;
}

/* Bytes of gradients sent per byte of parameters. */
static double wire_of(const ech_config *config)
{
    ech_types types = ech_model_types(config);
    ech_dtype wire = ech_layout_wire(config, types.gradient);
    return (double)ech_dtype_bytes(wire) / (double)ech_dtype_bytes(types.compute);
}

/* A worker sleeps as long as its slowest rank; the model chunks of a rank share its sleep. With
 * chunks every virtual stage has equally many workers. */
static ech_status find_delays(const proposer *p, int stages)
{
    ech_layout layout = {.world = p->world};
    int all = p->world / p->ranks, each = p->chunks > 1 ? all / stages : all;
    ech_status filled = ech_layout_fill_delays(p->config, &layout);
    ECH_FREED double *delay = layout.delay;
    ECH_TRY(filled);
    for (int w = 0; w < all * p->chunks; w++) {
        int stage = p->chunks > 1 ? ech_placement_stage(p->needs->placement, w / each, stages) : 0;
        int first = (stage * each + w % each) * p->ranks;
        for (int rank = first; rank < first + p->ranks; rank++)
            p->delay[w] = fmax(p->delay[w], ech_layout_delay(&layout, rank) / p->chunks);
    }
    return ECH_OK;
}

/* The model chunks of a rank are partitioned as if each were a worker. If one rank has the first
 * and the last virtual stage, it holds tied parameters once, and the memory of a single virtual
 * stage has no limit: only the plan is checked against memory.device_limit. */
static void pose(proposer *p, int64_t stages)
{
    const ech_config *config = p->config;
    bool joined =
        stages > 1 && ech_placement_joins_ends(p->needs->placement, (int)stages, p->chunks);
    bool limited = ech_config_is_set(config, "memory.device_limit") && !joined;
    ech_rates rates = ech_rates_of(config, p->profile);
    if (rates.node > p->world) rates.node = p->world;
    rates.node = rates.node / p->ranks * p->chunks;
    shard_blocks(p);
    p->problem = (ech_partition_problem){
        .blocks = p->profile->blocks,
        .block = p->block,
        .delay = p->delay,
        .workers = p->world / p->ranks * p->chunks,
        .rates = rates,
        .copies = (int)config->parallel.context,
        .wire = wire_of(config),
        .tied_bytes = p->profile->blocks > 1 && !joined ? tied_bytes(p) : 0,
        .micro_batches = config->training.global_batch_size / config->training.micro_batch_size,
        .turns = p->needs->turns,
        .stages = (int)stages * p->chunks,
        .divides = p->needs->divides,
        /* "auto" is each machine's own memory, and the partition must be the same on all. */
        .memory = limited ? config->memory.device_limit / p->chunks : 0,
        .keeps_all = p->needs->keeps_all,
        .zero = (int)config->parallel.zero,
        .zero_keep = config->parallel.zero_keep == 1,
        .versions = p->needs->versions};
    find_states(p, &p->problem.gradients, &p->problem.states);
}

/* ---- proposals ---- */

static void propose_found(const proposer *p, const ech_partition *found, ech_proposals *out)
{
    int64_t layers[ECH_CONFIG_LONGEST_LIST], replicas[ECH_CONFIG_LONGEST_LIST];
    bool uniform = true;
    if (found->stages > ECH_CONFIG_LONGEST_LIST) return;
    for (int s = 0, last = found->stages - 1; s <= last; s++) {
        /* without embedding and head */
        layers[s] = found->first_block[s + 1] - found->first_block[s] - (s == 0) - (s == last);
        replicas[s] = found->replicas[s];
        uniform &= found->replicas[s] == found->replicas[0];
    }
    /* The replicas of a list may have unequal numbers of micro-batches. */
    if (p->problem.micro_batches % found->replicas[0]) uniform = false;
    ech_proposal proposal = {.pipeline = found->stages / p->chunks,
                             .data = uniform ? found->replicas[0] : ECH_AUTO,
                             .seconds = found->seconds};
    ech_config_replace_list(&proposal.partition, -1, layers, found->stages);
    ech_config_replace_list(&proposal.replicas, ECH_REPLICAS_AUTO, replicas,
                            uniform ? 0 : found->stages);
    ECH_PUSH(*out, proposal);
}

static void propose_even(const proposer *p, int stages, ech_proposals *out)
{
    size_t n = (size_t)stages * (size_t)p->chunks;
    int64_t data = p->world / p->ranks / stages;
    ECH_FREED int *first_block = ech_calloc(n + 1, sizeof *first_block);
    ECH_FREED int *replicas = ech_calloc(n, sizeof *replicas);
    ECH_CLEANUP(ech_config_destroy_at) ech_config *config = ech_config_copy(p->config);
    ech_config_replace_list(&config->parallel.partition, ECH_PARTITION_EVEN, NULL, 0);
    int64_t T = config->data.sequence_length;
    int64_t chunks = config->memory.sequence_chunks * config->parallel.context;
    ech_extent extent = {.batch = config->training.micro_batch_size,
                         .tokens = T / chunks,
                         .sequence = T,
                         .sharding = ech_model_sharding(config)};
    ech_partition_blocks(config, p->model, extent, (int)n, first_block);
    for (size_t s = 0; s < n; s++) replicas[s] = (int)data;
    double seconds = ech_partition_seconds(&p->problem, (int)n, first_block, replicas);
    ech_proposal proposal = {.partition = {.word = ECH_PARTITION_EVEN},
                             .replicas = {.word = ECH_REPLICAS_AUTO},
                             .pipeline = stages,
                             .data = data,
                             .seconds = seconds};
    ECH_PUSH(*out, proposal);
}

/* Lists come before words. */
static int compare_lists(const ech_config_list *x, const ech_config_list *y)
{
    for (int i = 0; i < x->n && i < y->n; i++)
        if (x->at[i] != y->at[i]) return x->at[i] < y->at[i] ? -1 : 1;
    return y->n - x->n;
}

static int by_seconds(const void *a, const void *b)
{
    const ech_proposal *x = a, *y = b;
    if (x->seconds < y->seconds || x->seconds > y->seconds) return x->seconds < y->seconds ? -1 : 1;
    if (x->pipeline != y->pipeline) return x->pipeline < y->pipeline ? -1 : 1;
    int order = compare_lists(&x->replicas, &y->replicas);
    return order ? order : compare_lists(&x->partition, &y->partition);
}

static ech_status solve(proposer *p, int64_t stages, ech_proposals *out)
{
    ECH_CLEANUP(ech_partitions_free) ech_partitions found = {0};
    ECH_FREED ech_profile_block *block = ech_calloc((size_t)p->profile->blocks, sizeof *block);
    int workers = p->world / p->ranks, first = stages ? (int)stages : 1;
    int last = stages ? (int)stages : workers;
    ECH_FREED double *delay = ech_calloc((size_t)(workers * p->chunks), sizeof *delay);
    p->block = block;
    p->delay = delay;
    ECH_TRY(find_delays(p, (int)stages));
    pose(p, stages);
    ECH_TRY(ech_partition_search(&p->problem, &found));
    for (size_t i = 0; i < found.n; i++) propose_found(p, &found.at[i], out);
    for (int s = first; s <= last && s * p->chunks <= p->problem.blocks; s++)
        if (workers % s == 0) propose_even(p, s, out);
    qsort(out->at, out->n, sizeof *out->at, by_seconds);
    return ECH_OK;
}

ech_status ech_layout_propose(ech_config *config, const ech_model *model,
                              const ech_profile *profile, const ech_partition_needs *needs,
                              int world, ech_proposals *out)
{
    proposer p = {
        .config = config,
        .model = model,
        .profile = profile,
        .needs = needs,
        .world = world,
        .chunks = (int)config->parallel.virtual_stages,
        .ranks = (int)ech_saturating_product(config->parallel.context, config->parallel.tensor)};
    int64_t stages;
    ECH_TRY(check_keys(&p));
    ECH_TRY(take_micro_batch(&p));
    ECH_TRY(find_depth(&p, &stages));
    ECH_TRY(check_node(&p));
    return solve(&p, stages, out);
}

void ech_layout_take(ech_config *config, const ech_proposal *proposal)
{
    const ech_config_list *layers = &proposal->partition, *replicas = &proposal->replicas;
    ech_config_replace_list(&config->parallel.partition, layers->word, layers->at, layers->n);
    ech_config_replace_list(&config->parallel.stage_replicas, replicas->word, replicas->at,
                            replicas->n);
    config->parallel.pipeline = proposal->pipeline;
    config->parallel.data = proposal->data;
}

void ech_proposals_free(ech_proposals *proposals)
{
    for (size_t i = 0; i < proposals->n; i++) {
        free(proposals->at[i].partition.at);
        free(proposals->at[i].replicas.at);
    }
    free(proposals->at);
    *proposals = (ech_proposals){0};
}
