/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of ranks on the device mesh, and what follows from it alone.
 */
#include "layout/layout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/strategy.h"
#include "layout/delay.h"
#include "layout/partition.h"
#include "optim/optim.h"

/* Parameters belong to the block that declared them; later blocks may use them, too. */
static void find_users(ech_layout *layout, const ech_model *model)
{
    size_t params = model->param.n, blocks = model->block.n;
    ECH_LIST(int) user = {0};
    ECH_FREED bool *shared = ech_calloc(params + 1, sizeof *shared);
    for (size_t b = 0; b < blocks; b++)
        for (size_t n = 0; n < model->block.at[b]->node.n; n++) {
            const ech_node *node = &model->block.at[b]->node.at[n];
            for (int i = 0; i < node->params; i++)
                shared[node->param[i]] |= model->param.at[node->param[i]].block != (int)b;
        }
    layout->first_user = ech_calloc(params + 1, sizeof *layout->first_user);
    for (size_t p = 0; p < params; p++) {
        layout->first_user[p] = (int)user.n;
        int home = model->param.at[p].block;
        if (!shared[p]) ECH_PUSH(user, home);
        for (int b = 0; shared[p] && b < (int)blocks; b++)
            if (b == home || ech_block_uses(model->block.at[b], (int)p)) ECH_PUSH(user, b);
    }
    layout->first_user[params] = (int)user.n;
    layout->user = user.at;
}

static void fill_replicas(const ech_config *config, ech_layout *layout)
{
    const ech_config_list *list = &config->parallel.stage_replicas;
    layout->uniform = true;
    for (int s = 0; s < layout->stages; s++) {
        layout->replicas[s] = list->n ? (int)list->at[s] : (int)config->parallel.data;
        layout->first_rank[s + 1] =
            layout->first_rank[s] + layout->replicas[s] * layout->context * layout->tensor;
        layout->uniform &= layout->replicas[s] == layout->replicas[0] &&
                           layout->micro_batches % layout->replicas[s] == 0;
    }
}

/* In the order of ranks: the last coordinate varies fastest. */
static void fill_coordinates(ech_layout *layout)
{
    int rank = 0;
    layout->coordinates = ech_calloc((size_t)layout->world, sizeof *layout->coordinates);
    for (int s = 0; s < layout->stages; s++)
        for (int d = 0; d < layout->replicas[s]; d++)
            for (int c = 0; c < layout->context; c++)
                for (int t = 0; t < layout->tensor; t++)
                    layout->coordinates[rank++] =
                        (ech_coordinates){.stage = s, .data = d, .context = c, .tensor = t};
    for (int i = 0; i < layout->servers; i++)
        layout->coordinates[rank++] = (ech_coordinates){.data = layout->replicas[0] + i};
}

static void place_virtual_stages(ech_layout *layout, ech_placement placement)
{
    int n = ech_layout_virtual_stages(layout);
    ECH_FREED int *stage = ech_calloc((size_t)n, sizeof *stage);
    for (int s = 0; s < n; s++) stage[s] = ech_placement_stage(placement, s, layout->stages);
    ech_layout_assign(layout, stage);
}

static double bytes_of(const ech_shape *shape, ech_extent extent)
{
    int64_t sizes[ECH_MAX_DIMS];
    double bytes = sizeof(double);
    ech_shape_resolve(shape, extent, sizes);
    for (int d = 0; d < shape->dims; d++) bytes *= (double)sizes[d];
    return bytes;
}

/* Bytes in fp64 of the values that a rank of stage `s` computes in a step. */
static double bytes_of_stage(const ech_config *config, const ech_model *model,
                             const ech_layout *layout, int s)
{
    ech_extent extent = ech_layout_extent(layout, config, model);
    int rank = layout->first_rank[s];
    double values = 0;
    for (int c = 0, first, end; c < layout->chunks; c++) {
        ech_layout_blocks(layout, rank, c, &first, &end);
        for (int b = first; b < end; b++)
            for (size_t v = 0; v < model->block.at[b]->value.n; v++)
                values += bytes_of(&model->block.at[b]->value.at[v].shape, extent);
    }
    return values * (double)ech_layout_micro_batches(layout, rank) *
           (double)config->memory.sequence_chunks;
}

/* Keys are within their bounds, but their products may exceed 64 bits. Refuses parameters if a rank
 * with the whole model would hold or send 2^60 bytes; so later counts of bytes cannot overflow. */
static ech_status check_parameter_bytes(const ech_config *config, const ech_model *model,
                                        const ech_layout *layout)
{
    double ranks = (double)layout->context * layout->tensor, params = 0;
    for (size_t i = 0; i < model->param.n; i++)
        params += bytes_of(&model->param.at[i].shape, ech_extent_of_params(layout->sharding));
    if (params * ranks * (2 * (1 + ECH_MAX_STATES) + layout->stages) <= 0x1p60) return ECH_OK;
    return ech_config_complain(config, "model.architecture",
                               "with these sizes, %s of %.3g numbers and their states need more "
                               "bytes than any machine has; use smaller sizes",
                               ECH_COUNT((int64_t)model->param.n, "parameter tensor"), params / 8);
}

/* The same for the values of any stage's rank, in the most steps of a list. The rank may send them
 * to each context and tensor rank. */
static ech_status check_value_bytes(const ech_config *config, const ech_model *model,
                                    const ech_layout *layout)
{
    const double turns = 64, ranks = (double)layout->context * layout->tensor;
    double most = 0;
    for (int s = 0; s < layout->stages; s++)
        most = fmax(most, bytes_of_stage(config, model, layout, s));
    if (most * ranks * turns <= 0x1p60) return ECH_OK;
    return ech_config_complain(
        config, "training.micro_batch_size",
        "of %s in each of %s, %s each, makes more bytes of activations than any machine has; "
        "use a smaller one, fewer samples a step, or a shorter data.sequence_length",
        ECH_COUNT(layout->micro_batch, "sample"), ECH_COUNT(layout->micro_batches, "micro-batch"),
        ECH_COUNT(config->data.sequence_length, "token"));
}

/* Sparse codes count a value's non-zeros in 32 bits. */
static ech_status check_sparse_codes(const ech_config *config, const ech_model *model,
                                     const ech_layout *layout)
{
    ech_extent extent = ech_layout_extent(layout, config, model);
    for (size_t b = 0; b < model->block.n; b++)
        for (size_t v = 0; v < model->block.at[b]->value.n; v++) {
            const ech_block_value *value = &model->block.at[b]->value.at[v];
            if (value->role != ECH_ROLE_SPILL) continue;
            int64_t numbers = ech_shape_count(&value->shape, extent);
            if (numbers <= INT32_MAX) continue;
            return ech_config_complain(
                config, "memory.encode",
                "the value %s of block %s has %lld numbers in a micro-batch of %lld samples, and a "
                "sparse code counts at most %d; use a smaller training.micro_batch_size, or "
                "memory.encode = none",
                value->name, model->block.at[b]->name, (long long)numbers,
                (long long)layout->micro_batch, INT32_MAX);
        }
    return ECH_OK;
}

int64_t ech_layout_block_runs(const ech_layout *layout, const ech_config *config)
{
    int64_t most = 0;
    for (int s = 0; s < layout->stages; s++) {
        int64_t blocks = 0, micro = ech_layout_micro_batches(layout, layout->first_rank[s]);
        for (int c = 0, first, end; c < layout->chunks; c++, blocks += end - first)
            ech_layout_blocks(layout, layout->first_rank[s], c, &first, &end);
        if (blocks * micro > most) most = blocks * micro;
    }
    return most * config->memory.sequence_chunks;
}

/* For unequal stages; for equal ones it is a rule of grids. */
static ech_status check_runs(const ech_config *config, const ech_layout *layout)
{
    int64_t runs = ech_layout_block_runs(layout, config);
    if (runs <= ECH_MOST_BLOCK_RUNS) return ECH_OK;
    return ech_config_complain(
        config, "parallel.partition",
        "makes %lld runs of blocks a step on one rank, more than the %d that "
        "a plan can hold; use a more even one, or a larger "
        "training.micro_batch_size",
        (long long)runs, ECH_MOST_BLOCK_RUNS);
}

/* Tensor ranks add up the gradients of what they share among their own replicas. If machines cut
 * the tensor ranks unevenly, hierarchical sums have another order for each, and other last bits. */
static ech_status check_machines(const ech_config *config, const ech_layout *layout)
{
    int node = layout->node, tensor = layout->tensor;
    bool even = node == layout->world || node % tensor == 0 || tensor % node == 0;
    if (even || strcmp(ech_config_name(config, "parallel.reduction"), "hierarchical") != 0)
        return ECH_OK;
    return ech_config_complain(
        config, "parallel.node_ranks",
        "is no multiple of parallel.tensor = %d: a hierarchical reduction would add up what tensor "
        "ranks share in another order on each; use %d, or parallel.reduction = direct, ring or "
        "torus",
        tensor, node < tensor ? tensor : node / tensor * tensor);
}

ech_status ech_layout_create(const ech_config *config, const ech_model *model,
                             ech_placement placement, int world, ech_layout **out)
{
    ECH_CLEANUP(ech_layout_destroy_at) ech_layout *layout = ech_calloc(1, sizeof *layout);
    size_t stages = (size_t)config->parallel.pipeline;
    int64_t node = config->parallel.node_ranks;
    layout->world = world;
    layout->evaluators = (int)config->parallel.evaluators;
    layout->node = node == ECH_AUTO || node > world ? world : (int)node;
    layout->stages = (int)stages;
    layout->chunks = (int)config->parallel.virtual_stages;
    layout->context = (int)config->parallel.context;
    layout->tensor = (int)config->parallel.tensor;
    layout->sharding = ech_model_sharding(config);
    layout->servers = ech_strategy_servers(config);
    layout->protocol = ech_strategy_protocol(config);
    layout->sums = ech_strategy_sums_over(config);
    layout->alone = ech_strategy_updates_alone(config);
    layout->replicas = ech_calloc(stages, sizeof *layout->replicas);
    layout->first_rank = ech_calloc(stages + 1, sizeof *layout->first_rank);
    layout->first_block =
        ech_calloc(stages * (size_t)layout->chunks + 1, sizeof *layout->first_block);
    layout->micro_batch = config->training.micro_batch_size;
    layout->micro_batches = config->training.global_batch_size / layout->micro_batch;
    fill_replicas(config, layout);
    ECH_ASSERT(layout->first_rank[stages] + layout->servers == world);
    ECH_TRY(check_parameter_bytes(config, model, layout));
    ech_partition_blocks(config, model, ech_layout_extent(layout, config, model),
                         layout->stages * layout->chunks, layout->first_block);
    fill_coordinates(layout);
    place_virtual_stages(layout, placement);
    find_users(layout, model);
    ECH_TRY(check_value_bytes(config, model, layout));
    ECH_TRY(check_sparse_codes(config, model, layout));
    ECH_TRY(check_machines(config, layout));
    ECH_TRY(check_runs(config, layout));
    ECH_TRY(ech_layout_fill_delays(config, layout));
    *out = layout;
    layout = NULL;
    return ECH_OK;
}

void ech_layout_destroy(ech_layout *layout)
{
    if (!layout) return;
    free(layout->replicas);
    free(layout->first_rank);
    free(layout->virtual_stage);
    free(layout->virtual_of);
    free(layout->first_block);
    free(layout->coordinates);
    free(layout->delay);
    free(layout->first_user);
    free(layout->user);
    ech_layout_free_classes(layout);
    free(layout);
}

/* ---- roles ---- */

ech_roles ech_layout_roles(const ech_layout *layout)
{
    int workers = ech_layout_workers(layout);
    return (ech_roles){.train = {0, workers},
                       .serve = {workers, layout->servers},
                       .evaluate = {layout->world, layout->evaluators}};
}

int ech_layout_ranks(const ech_layout *layout)
{
    return layout->world + layout->evaluators;
}

bool ech_layout_serves(const ech_layout *layout, int rank)
{
    return rank >= layout->world - layout->servers;
}

bool ech_layout_evaluates(const ech_layout *layout, int rank)
{
    return rank >= layout->world;
}

int ech_layout_workers(const ech_layout *layout)
{
    return layout->world - layout->servers;
}

int ech_layout_pattern(const ech_layout *layout, int rank)
{
    return ech_layout_serves(layout, rank) ? 0 : rank;
}

/* ---- blocks ---- */

void ech_layout_blocks(const ech_layout *layout, int rank, int chunk, int *first, int *end)
{
    int stage = ech_layout_virtual_stage(layout, rank, chunk);
    *first = layout->first_block[stage];
    *end = layout->first_block[stage + 1];
}

/* The stage (of the pipeline, not virtual) that has the block. */
static int stage_of_block(const ech_layout *layout, int block)
{
    int low = 0, high = ech_layout_virtual_stages(layout) - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (layout->first_block[middle] <= block)
            low = middle;
        else
            high = middle - 1;
    }
    return layout->virtual_stage[low].stage;
}

bool ech_layout_has_block(const ech_layout *layout, int rank, int block)
{
    if (ech_layout_serves(layout, rank)) return false;
    return stage_of_block(layout, block) == layout->coordinates[rank].stage;
}

bool ech_layout_stages_of_param(const ech_layout *layout, int param, int stage, int *first,
                                int *last)
{
    bool holds = false;
    *first = layout->stages;
    *last = -1;
    for (int i = layout->first_user[param]; i < layout->first_user[param + 1]; i++) {
        int s = stage_of_block(layout, layout->user[i]);
        holds |= s == stage;
        if (s < *first) *first = s;
        if (s > *last) *last = s;
    }
    return holds;
}

bool ech_layout_holds(const ech_layout *layout, int rank, int param)
{
    int first, last;
    return ech_layout_stages_of_param(layout, param, layout->coordinates[rank].stage, &first,
                                      &last);
}

/* ---- work ---- */

ech_extent ech_layout_extent(const ech_layout *layout, const ech_config *config,
                             const ech_model *model)
{
    int64_t T = config->data.sequence_length;
    int chunks = model->options.sequence_chunks > 1 ? model->options.sequence_chunks : 1;
    return (ech_extent){.batch = layout->micro_batch,
                        .tokens = T / layout->context / chunks,
                        .sequence = T,
                        .sharding = layout->sharding};
}

double ech_layout_imbalance(const ech_layout *layout, const ech_model *model, ech_extent extent,
                            int *stage)
{
    ECH_FREED double *work = ech_calloc((size_t)layout->stages, sizeof *work);
    double all = 0, ranks = 0;
    for (int b = 0; b < (int)model->block.n; b++)
        work[stage_of_block(layout, b)] += ech_block_multiplies(model->block.at[b], extent);
    *stage = 0;
    for (int s = 0; s < layout->stages; s++) {
        all += work[s];
        ranks += layout->replicas[s];
        work[s] /= layout->replicas[s];
        if (work[s] > work[*stage]) *stage = s;
    }
    return all > 0 ? work[*stage] * ranks / all : 1;
}
