/* SPDX-License-Identifier: Apache-2.0
 *
 * The rectangular grid.
 */
#include "layout/layout.h"

#include <stdlib.h>

static const char *const group_names[ECH_GROUPS] = {
#define X(name, text, meaning) [ECH_GROUP_##name] = text,
#include "layout/groups.def"
#undef X
};

const char *ech_group_kind_name(ech_group_kind kind)
{
    return group_names[kind];
}

/* The multiple of `step` (above 0) nearest to n. */
static int64_t nearest_multiple(int64_t n, int64_t step)
{
    int64_t below = n / step * step;
    if (below == 0) return step;
    return n - below <= below + step - n ? below : below + step;
}

/* A plan lists every run of a block in a step: above this it no longer fits into memory. */
enum { ECH_MOST_BLOCK_RUNS = 1 << 18 };

ech_status ech_layout_resolve(ech_config *config, int world)
{
    int64_t G = config->training.global_batch_size;
    if (config->parallel.data == ECH_AUTO) config->parallel.data = world;
    int64_t data = config->parallel.data;
    if (data != world)
        return ech_config_complain(config, "parallel.data",
                                   "needs %lld ranks, and %d were started; use --ranks %lld, or "
                                   "leave parallel.data out",
                                   (long long)data, world, (long long)data);
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
    int64_t micro = G / (b * data), layers = config->model.num_hidden_layers;
    if (micro > ECH_MOST_BLOCK_RUNS / layers)
        return ech_config_complain(config, "training.global_batch_size",
                                   "%lld micro-batches of %lld layers are more than a plan's %d "
                                   "block runs; use a larger training.micro_batch_size or more "
                                   "ranks",
                                   (long long)micro, (long long)layers, ECH_MOST_BLOCK_RUNS);
    return ECH_OK;
}

ech_status ech_layout_create(const ech_config *config, const ech_model *model, int world,
                             ech_layout **out)
{
    ECH_ASSERT(config->parallel.data == world);
    ech_layout *layout = ech_calloc(1, sizeof *layout);
    layout->world = world;
    layout->data = world;
    layout->stages = 1;
    layout->micro_batch = config->training.micro_batch_size;
    layout->micro_batches = config->training.global_batch_size / (layout->micro_batch * world);
    layout->place = ech_calloc((size_t)world, sizeof *layout->place);
    for (int rank = 0; rank < world; rank++)
        layout->place[rank] = (ech_place){
            .role = ECH_ROLE_WORKER, .data = rank, .first_block = 0, .blocks = (int)model->block.n};
    *out = layout;
    return ECH_OK;
}

void ech_layout_destroy(ech_layout *layout)
{
    if (!layout) return;
    free(layout->place);
    free(layout);
}

int ech_layout_members(const ech_layout *layout, int rank, ech_group_kind kind, int *ranks)
{
    int n = 0;
    for (int other = 0; other < layout->world; other++)
        if (kind == ECH_GROUP_WORLD || layout->place[other].stage == layout->place[rank].stage)
            ranks[n++] = other;
    return n;
}

int ech_layout_group_size(const ech_layout *layout, int rank, ech_group_kind kind)
{
    int n = 0;
    for (int other = 0; other < layout->world; other++)
        n += kind == ECH_GROUP_WORLD || layout->place[other].stage == layout->place[rank].stage;
    return n;
}

ech_group_kind ech_layout_addends(const ech_layout *layout, const ech_model *model, int param)
{
    (void)layout, (void)model, (void)param;
    return ECH_GROUP_DATA;
}

int ech_layout_writer(const ech_layout *layout, const ech_model *model, int param)
{
    (void)model;
    return param % layout->data; /* every data rank holds all of it: share the writing */
}
