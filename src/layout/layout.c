/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of ranks, and what follows from it alone.
 */
#include "layout/layout.h"

#include <stdlib.h>

#include "layout/cut.h"

static int count_uses(const ech_model *model)
{
    int uses = 0;
    for (size_t b = 0; b < model->block.n; b++)
        for (size_t n = 0; n < model->block.at[b]->node.n; n++)
            uses += model->block.at[b]->node.at[n].params;
    return uses;
}

/* Whether some layer of the block uses the parameter. */
static bool uses(const ech_block *block, int param)
{
    for (size_t n = 0; n < block->node.n; n++)
        for (int i = 0; i < block->node.at[n].params; i++)
            if (block->node.at[n].param[i] == param) return true;
    return false;
}

/* Parameters belong to the block that declared them; blocks behind it may use them, too. */
static void find_users(ech_layout *layout, const ech_model *model)
{
    size_t params = model->param.n, blocks = model->block.n;
    bool *shared = ech_calloc(params + 1, sizeof *shared);
    for (size_t b = 0; b < blocks; b++)
        for (size_t n = 0; n < model->block.at[b]->node.n; n++) {
            const ech_node *node = &model->block.at[b]->node.at[n];
            for (int i = 0; i < node->params; i++)
                shared[node->param[i]] |= model->param.at[node->param[i]].block != (int)b;
        }
    layout->first_user = ech_calloc(params + 1, sizeof *layout->first_user);
    layout->user = ech_calloc((size_t)count_uses(model) + params + 1, sizeof *layout->user);
    int n = 0;
    for (size_t p = 0; p < params; p++) {
        layout->first_user[p] = n;
        int home = model->param.at[p].block;
        if (!shared[p]) layout->user[n++] = home;
        for (int b = 0; shared[p] && b < (int)blocks; b++)
            if (b == home || uses(model->block.at[b], (int)p)) layout->user[n++] = b;
    }
    layout->first_user[params] = n;
    free(shared);
}

static void fill_replicas(const ech_config *config, ech_layout *layout)
{
    int64_t list[ECH_CONFIG_LONGEST_LIST];
    int n = ech_config_list(config->parallel.stage_replicas, list, ECH_CONFIG_LONGEST_LIST);
    layout->uniform = true;
    for (int s = 0; s < layout->stages; s++) {
        layout->replicas[s] = n ? (int)list[s] : (int)config->parallel.data;
        layout->first_rank[s + 1] = layout->first_rank[s] + layout->replicas[s];
        layout->uniform &= layout->replicas[s] == layout->replicas[0] &&
                           layout->micro_batches % layout->replicas[s] == 0;
    }
}

ech_status ech_layout_create(const ech_config *config, const ech_model *model, int world,
                             ech_layout **out)
{
    ech_layout *layout = ech_calloc(1, sizeof *layout);
    size_t stages = (size_t)config->parallel.pipeline;
    layout->world = world;
    layout->stages = (int)stages;
    layout->chunks = (int)config->parallel.virtual_stages;
    layout->replicas = ech_calloc(stages, sizeof *layout->replicas);
    layout->first_rank = ech_calloc(stages + 1, sizeof *layout->first_rank);
    layout->cut = ech_calloc(stages * (size_t)layout->chunks + 1, sizeof *layout->cut);
    layout->micro_batch = config->training.micro_batch_size;
    layout->micro_batches = config->training.global_batch_size / layout->micro_batch;
    fill_replicas(config, layout);
    ECH_ASSERT(layout->first_rank[stages] == world);
    ech_cut_blocks(config, (int)model->block.n, layout->stages * layout->chunks, layout->cut);
    layout->place = ech_calloc((size_t)world, sizeof *layout->place);
    for (int s = 0; s < layout->stages; s++)
        for (int r = 0; r < layout->replicas[s]; r++)
            layout->place[layout->first_rank[s] + r] =
                (ech_place){.role = ECH_ROLE_WORKER, .stage = s, .data = r};
    find_users(layout, model);
    *out = layout;
    return ECH_OK;
}

void ech_layout_destroy(ech_layout *layout)
{
    if (!layout) return;
    free(layout->replicas);
    free(layout->first_rank);
    free(layout->cut);
    free(layout->place);
    free(layout->first_user);
    free(layout->user);
    free(layout);
}

/* ---- blocks ---- */

int ech_layout_virtual_stage(const ech_layout *layout, int rank, int chunk)
{
    return chunk * layout->stages + layout->place[rank].stage;
}

void ech_layout_blocks(const ech_layout *layout, int rank, int chunk, int *first, int *end)
{
    int stage = ech_layout_virtual_stage(layout, rank, chunk);
    *first = layout->cut[stage];
    *end = layout->cut[stage + 1];
}

/* The stage (of the pipeline, not virtual) that has the block. */
static int stage_of_block(const ech_layout *layout, int block)
{
    int low = 0, high = layout->stages * layout->chunks - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (layout->cut[middle] <= block)
            low = middle;
        else
            high = middle - 1;
    }
    return low % layout->stages;
}

bool ech_layout_has_block(const ech_layout *layout, int rank, int block)
{
    return stage_of_block(layout, block) == layout->place[rank].stage;
}

/* Whether a stage holds the parameter, and the first and last stage that do. */
static bool stages_of_param(const ech_layout *layout, int param, int stage, int *first, int *last)
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
    return stages_of_param(layout, param, layout->place[rank].stage, &first, &last);
}

bool ech_layout_counts(const ech_layout *layout, int rank, int param)
{
    int first, last;
    const ech_place *place = &layout->place[rank];
    stages_of_param(layout, param, place->stage, &first, &last);
    return place->data == 0 && place->stage == first;
}

/* ---- micro-batches ---- */

int ech_layout_micro_batches(const ech_layout *layout, int rank)
{
    int r = layout->replicas[layout->place[rank].stage];
    return (int)((layout->micro_batches - layout->place[rank].data + r - 1) / r);
}

int64_t ech_layout_global_micro(const ech_layout *layout, int rank, int64_t k)
{
    return k * layout->replicas[layout->place[rank].stage] + layout->place[rank].data;
}

int ech_layout_rank_of(const ech_layout *layout, int virtual_stage, int64_t q)
{
    int stage = virtual_stage % layout->stages;
    return layout->first_rank[stage] + (int)(q % layout->replicas[stage]);
}

/* ---- groups ---- */

static const char *const group_names[ECH_GROUPS] = {
#define X(name, text, meaning) [ECH_GROUP_##name] = text,
#include "layout/groups.def"
#undef X
};

const char *ech_group_kind_name(ech_group_kind kind)
{
    return group_names[kind];
}

/* stage[s]: whether it belongs to the group of TIED. Parameters that several stages share are all
 * shared by the same stages. */
static void find_tied(const ech_layout *layout, const ech_model *model, bool *stage)
{
    for (int s = 0; s < layout->stages; s++) stage[s] = false;
    for (int p = 0; p < (int)model->param.n; p++) {
        int first, last;
        if (layout->first_user[p + 1] - layout->first_user[p] < 2) continue;
        stages_of_param(layout, p, 0, &first, &last);
        for (int s = first; s <= last && first < last; s++) {
            int any_first, any_last;
            stage[s] |= stages_of_param(layout, p, s, &any_first, &any_last);
        }
    }
}

int ech_layout_members(const ech_layout *layout, const ech_model *model, int rank,
                       ech_group_kind kind, int *ranks)
{
    int own = layout->place[rank].stage, n = 0;
    bool *in = ech_calloc((size_t)layout->stages, sizeof *in);
    if (kind == ECH_GROUP_TIED)
        find_tied(layout, model, in);
    else
        for (int s = 0; s < layout->stages; s++) in[s] = kind == ECH_GROUP_WORLD || s == own;
    for (int s = 0; s < layout->stages && in[own]; s++)
        for (int r = 0; in[s] && r < layout->replicas[s]; r++)
            ranks[n++] = layout->first_rank[s] + r;
    free(in);
    return n;
}

int ech_layout_group_size(const ech_layout *layout, const ech_model *model, int rank,
                          ech_group_kind kind)
{
    if (kind == ECH_GROUP_WORLD) return layout->world;
    if (kind == ECH_GROUP_DATA) return layout->replicas[layout->place[rank].stage];
    int *ranks = ech_calloc((size_t)layout->world, sizeof *ranks);
    int n = ech_layout_members(layout, model, rank, kind, ranks);
    free(ranks);
    return n;
}

ech_group_kind ech_layout_addends(const ech_layout *layout, int param)
{
    int first, last;
    if (layout->first_user[param + 1] - layout->first_user[param] < 2) return ECH_GROUP_DATA;
    stages_of_param(layout, param, 0, &first, &last);
    return first < last ? ECH_GROUP_TIED : ECH_GROUP_DATA;
}

int ech_layout_writer(const ech_layout *layout, int param)
{
    int first, last;
    stages_of_param(layout, param, 0, &first, &last);
    return layout->first_rank[first] + param % layout->replicas[first]; /* they share the writing */
}
