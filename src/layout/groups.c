/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups of ranks, from the axes of the mesh over which each runs.
 */
#include "layout/layout.h"

#include <stdlib.h>

#include "base/memory.h"

static const struct {
    const char *text;
    ech_mesh axes;
} groups[ECH_GROUPS] = {
#define X(name, axes, text, meaning) [ECH_GROUP_##name] = {text, axes},
#include "layout/groups.def"
};

const char *ech_layout_group_name(ech_layout_group kind)
{
    return groups[kind].text;
}

ech_mesh ech_layout_group_axes(ech_layout_group kind)
{
    return groups[kind].axes;
}

ech_layout_group ech_layout_group_over(ech_mesh axes)
{
    int kind = 0;
    while (kind < ECH_GROUPS && groups[kind].axes != axes) kind++;
    ECH_ASSERT(kind < ECH_GROUPS);
    return (ech_layout_group)kind;
}

/* If replicas take steps of their own, each has its own groups for sums within a step. */
static ech_mesh axes_in(const ech_layout *layout, ech_layout_group kind)
{
    ech_mesh axes = ech_layout_group_axes(kind);
    bool sums = kind != ECH_GROUP_REPLICAS && ech_layout_sums_over(kind);
    ech_mesh summed = axes & ECH_MESH_DATA;
    return layout->sums == ECH_SUMS_REPLICA && sums ? axes ^ summed : axes;
}

/* ---- coordinates ---- */

ech_expert_span ech_layout_expert_span(const ech_layout *layout)
{
    int e = layout->sharding.expert > 1 ? layout->sharding.expert : 1, c = layout->context;
    return (ech_expert_span){.data = e > c ? e / c : 1, .context = e > c ? c : e};
}

ech_shard_at ech_layout_shard_at(const ech_layout *layout, int rank)
{
    const ech_coordinates *here = &layout->coordinates[rank];
    ech_expert_span in = ech_layout_expert_span(layout);
    return (ech_shard_at){.tensor = here->tensor,
                          .expert = here->data % in.data * in.context + here->context % in.context,
                          .replica = here->data * layout->context + here->context,
                          .expert_replica = here->data / in.data * (layout->context / in.context) +
                                            here->context / in.context};
}

/* With fewer key/value heads than tensor ranks: the number of adjacent ranks with the same
 * heads. */
static int ranks_alike(const ech_layout *layout)
{
    return layout->tensor / ech_axis_shards(ECH_AXIS_KV_HEADS, layout->sharding);
}

/* The members of a rank's group at a stage: `size` coordinates from `first` on along each axis, the
 * fastest axis last. The tensor coordinate is split in two: key/value heads, and the ranks with the
 * same heads. So are data and context: outside and inside an expert group. */
enum { AXES = 6 };
static const ech_mesh axis_of[AXES] = {ECH_MESH_DATA_OUTER,    ECH_MESH_DATA_INNER,
                                       ECH_MESH_CONTEXT_OUTER, ECH_MESH_CONTEXT_INNER,
                                       ECH_MESH_KEY_VALUE,     ECH_MESH_QUERY};
typedef struct box {
    int first[AXES], size[AXES];
    int index; /* of the rank itself among the members, at its own stage */
    int n;     /* number of members */
} box;

static box box_of(const ech_layout *layout, int rank, ech_mesh axes, int stage)
{
    const ech_coordinates *here = &layout->coordinates[rank];
    int alike = ranks_alike(layout);
    ech_expert_span in = ech_layout_expert_span(layout);
    const int own[AXES] = {here->data / in.data,       here->data % in.data,
                           here->context / in.context, here->context % in.context,
                           here->tensor / alike,       here->tensor % alike};
    box b = {.size = {layout->replicas[stage] / in.data, in.data, layout->context / in.context,
                      in.context, layout->tensor / alike, alike},
             .n = 1};
    for (int a = 0; a < AXES; a++) {
        if (!(axes & axis_of[a])) b.first[a] = own[a], b.size[a] = 1;
        b.index = b.index * b.size[a] + own[a] - b.first[a];
        b.n *= b.size[a];
    }
    return b;
}

/* The ranks of the members, ascending. */
static void list_ranks(const ech_layout *layout, int stage, const box *b, int *ranks)
{
    ech_expert_span in = ech_layout_expert_span(layout);
    for (int m = 0; m < b->n; m++) {
        int at[AXES], rest = m;
        for (int a = AXES - 1; a >= 0; rest /= b->size[a--])
            at[a] = b->first[a] + rest % b->size[a];
        ranks[m] =
            ech_layout_rank_at(layout, stage, at[0] * in.data + at[1], at[2] * in.context + at[3],
                               at[4] * ranks_alike(layout) + at[5]);
    }
}

/* ---- stages ---- */

static bool is_tied(const ech_layout *layout, int param, int *first, int *last)
{
    if (layout->first_user[param + 1] - layout->first_user[param] < 2) return false;
    ech_layout_stages_of_param(layout, param, 0, first, last);
    return *first < *last;
}

/* True if the stage is in TIED. All parameters that several stages share are shared by the same
 * stages. */
static bool is_tied_stage(const ech_layout *layout, const ech_model *model, int stage)
{
    for (int p = 0; p < (int)model->param.n; p++) {
        int first, last;
        if (is_tied(layout, p, &first, &last) &&
            ech_layout_stages_of_param(layout, p, stage, &first, &last))
            return true;
    }
    return false;
}

static bool has_stage(const ech_layout *layout, const ech_model *model, int rank, ech_mesh axes,
                      int stage)
{
    if (axes & ECH_MESH_TIED) return is_tied_stage(layout, model, stage);
    return axes & ECH_MESH_STAGE || stage == layout->coordinates[rank].stage;
}

static bool spans_stages(ech_mesh axes)
{
    return axes & (ECH_MESH_TIED | ECH_MESH_STAGE);
}

/* A server is in one such group with each worker: this is the one with the first. */
static int pushed_members(const ech_layout *layout, int rank, int *ranks)
{
    if (layout->sums != ECH_SUMS_SERVERS) return 0;
    if (ranks) ranks[0] = ech_layout_pattern(layout, rank);
    for (int i = 0; ranks && i < layout->servers; i++)
        ranks[1 + i] = ech_layout_workers(layout) + i;
    return 1 + layout->servers;
}

/* Servers alone: the same without the worker. */
static int server_members(const ech_layout *layout, int rank, int *ranks)
{
    bool sums = layout->sums == ECH_SUMS_SERVERS && !layout->alone;
    if (!sums || !ech_layout_serves(layout, rank)) return 0;
    for (int i = 0; ranks && i < layout->servers; i++) ranks[i] = ech_layout_workers(layout) + i;
    return layout->servers;
}

int ech_layout_members(const ech_layout *layout, const ech_model *model, int rank,
                       ech_layout_group kind, int *ranks)
{
    ech_mesh axes = axes_in(layout, kind);
    int n = 0;
    bool of_replicas = kind == ECH_GROUP_REPLICA || kind == ECH_GROUP_REPLICAS;
    if (of_replicas && layout->sums != ECH_SUMS_REPLICA)
        return 0; /* stages may have unequal numbers of them */
    int servers = axes & ECH_MESH_SERVER ? layout->servers : 0;
    if (kind == ECH_GROUP_SERVED && !servers) return 0;
    if (kind == ECH_GROUP_PUSHED) return pushed_members(layout, rank, ranks);
    if (kind == ECH_GROUP_SERVERS) return server_members(layout, rank, ranks);
    if (ech_layout_serves(layout, rank) && !servers) return 0;
    int own = layout->coordinates[rank].stage, all = spans_stages(axes);
    if (!has_stage(layout, model, rank, axes, own)) return 0;
    for (int s = all ? 0 : own; s < (all ? layout->stages : own + 1); s++) {
        if (!has_stage(layout, model, rank, axes, s)) continue;
        box b = box_of(layout, rank, axes, s);
        if (ranks) list_ranks(layout, s, &b, ranks + n);
        n += b.n;
    }
    for (int i = 0; i < servers; i++, n++)
        if (ranks) ranks[n] = layout->world - servers + i;
    return n;
}

int ech_layout_group_size(const ech_layout *layout, const ech_model *model, int rank,
                          ech_layout_group kind)
{
    return ech_layout_members(layout, model, rank, kind, NULL);
}

ech_membership ech_layout_membership(const ech_layout *layout, const ech_model *model, int rank,
                                     ech_layout_group kind)
{
    ech_mesh axes = axes_in(layout, kind);
    int size = ech_layout_group_size(layout, model, rank, kind), index = 0;
    if (size == 0) return (ech_membership){0};
    int server = ech_layout_serves(layout, rank) ? rank - ech_layout_workers(layout) : -1;
    if (kind == ECH_GROUP_PUSHED) return (ech_membership){size, 1 + server};
    if (kind == ECH_GROUP_SERVERS) return (ech_membership){size, server};
    int own = layout->coordinates[rank].stage;
    for (int s = spans_stages(axes) ? 0 : own; s <= own; s++) {
        if (!has_stage(layout, model, rank, axes, s)) continue;
        box b = box_of(layout, rank, axes, s);
        index += s < own ? b.n : b.index;
    }
    return (ech_membership){size, index};
}

/* ---- gradients ---- */

bool ech_layout_sums_over(ech_layout_group kind)
{
    ech_mesh axes = ech_layout_group_axes(kind);
    return axes & (ECH_MESH_DATA_OUTER | ECH_MESH_SERVER) && !(axes & ECH_MESH_STAGE);
}

ech_lineup ech_layout_lineup(const ech_layout *layout, const ech_model *model, int rank,
                             ech_layout_group kind, int **first)
{
    ech_lineup of = {.size = ech_layout_group_size(layout, model, rank, kind)};
    bool stores = kind == ECH_GROUP_SERVED || kind == ECH_GROUP_PUSHED;
    if (stores && of.size) of.stores = layout->servers;
    *first = NULL;
    if (of.size < 2 || layout->node >= layout->world) return of;
    ECH_FREED int *ranks = ech_calloc((size_t)of.size, sizeof *ranks);
    ech_layout_members(layout, model, rank, kind, ranks);
    *first = ech_calloc((size_t)of.size + 1, sizeof **first);
    of.machines = ech_lineup_divide(ranks, of.size, layout->node, *first);
    of.first = *first;
    return of;
}

ech_layout_group ech_layout_addends(const ech_layout *layout, const ech_model *model, int param)
{
    int first, last;
    ech_mesh axes = model->param.at[param].addends, tensor = axes & ECH_MESH_TENSOR;
    bool alone = tensor == ECH_MESH_QUERY ? ranks_alike(layout) == 1 : layout->tensor == 1;
    if (alone) axes &= ~tensor;
    if (layout->sharding.expert < 2 && axes & ECH_MESH_EXPERT_DATA) axes |= ECH_MESH_EXPERT;
    if (layout->servers) axes |= ECH_MESH_SERVER;
    if (layout->sums == ECH_SUMS_SERVERS)
        axes = ECH_MESH_SERVER; /* a worker's gradient is its own */
    return ech_layout_group_over(is_tied(layout, param, &first, &last) ? axes | ECH_MESH_TIED
                                                                       : axes);
}

ech_dtype ech_layout_wire(const ech_config *config, ech_dtype kept)
{
    ech_dtype wire;
    bool named = ech_dtype_from_name(ech_config_name(config, "precision.reduce"), &wire);
    return named && ech_dtype_bytes(wire) < ech_dtype_bytes(kept) ? wire : kept;
}
