/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups of ranks, from the axes of the mesh that each runs over.
 */
#include "layout/groups.h"

#include <stdlib.h>

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

/* ---- coordinates ---- */

/* Coordinates [first, end) along an axis. */
typedef struct range {
    int first, end;
} range;

static range along(ech_mesh axes, ech_mesh axis, int own, int size)
{
    return axes & axis ? (range){0, size} : (range){own, own + 1};
}

/* With fewer key/value heads than tensor ranks, neighbours have the same ones: how many. */
static int ranks_alike(const ech_layout *layout)
{
    return layout->tensor / ech_axis_shards(ECH_AXIS_KV_HEADS, layout->cut);
}

/* The members of a rank's group at a stage: a range along each axis, the nearest last. */
typedef struct box {
    range data, context, key_value, query;
} box;

static box box_of(const ech_layout *layout, int rank, ech_mesh axes, int stage)
{
    const ech_coordinates *here = &layout->coordinates[rank];
    int alike = ranks_alike(layout);
    return (box){.data = along(axes, ECH_MESH_DATA, here->data, layout->replicas[stage]),
                 .context = along(axes, ECH_MESH_CONTEXT, here->context, layout->context),
                 .key_value =
                     along(axes, ECH_MESH_KEY_VALUE, here->tensor / alike, layout->tensor / alike),
                 .query = along(axes, ECH_MESH_QUERY, here->tensor % alike, alike)};
}

static int size_of(range r)
{
    return r.end - r.first;
}

static int ranks_in(const box *b)
{
    return size_of(b->data) * size_of(b->context) * size_of(b->key_value) * size_of(b->query);
}

/* Its ranks, ascending, to ranks[n] on. Returns how many there are then. */
static int add_ranks(const ech_layout *layout, int stage, const box *b, int *ranks, int n)
{
    int alike = ranks_alike(layout);
    for (int d = b->data.first; d < b->data.end; d++)
        for (int c = b->context.first; c < b->context.end; c++)
            for (int k = b->key_value.first; k < b->key_value.end; k++)
                for (int q = b->query.first; q < b->query.end; q++)
                    ranks[n++] = ech_layout_rank_at(layout, stage, d, c, k * alike + q);
    return n;
}

/* ---- stages ---- */

static bool is_tied(const ech_layout *layout, int param, int *first, int *last)
{
    if (layout->first_user[param + 1] - layout->first_user[param] < 2) return false;
    ech_layout_stages_of_param(layout, param, 0, first, last);
    return *first < *last;
}

/* Whether the stage is one of TIED. Parameters that several stages share are all shared by the same ones. */
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

int ech_layout_members(const ech_layout *layout, const ech_model *model, int rank,
                       ech_layout_group kind, int *ranks)
{
    ech_mesh axes = ech_layout_group_axes(kind);
    int n = 0;
    if (!has_stage(layout, model, rank, axes, layout->coordinates[rank].stage)) return 0;
    for (int s = 0; s < layout->stages; s++) {
        if (!has_stage(layout, model, rank, axes, s)) continue;
        box b = box_of(layout, rank, axes, s);
        n = ranks ? add_ranks(layout, s, &b, ranks, n) : n + ranks_in(&b);
    }
    return n;
}

int ech_layout_group_size(const ech_layout *layout, const ech_model *model, int rank,
                          ech_layout_group kind)
{
    return ech_layout_members(layout, model, rank, kind, NULL);
}

static int index_of(const ech_layout *layout, const ech_model *model, int rank,
                    ech_layout_group kind)
{
    ech_mesh axes = ech_layout_group_axes(kind);
    const ech_coordinates *here = &layout->coordinates[rank];
    int alike = ranks_alike(layout), index = 0;
    for (int s = 0; s < here->stage; s++) {
        box before = box_of(layout, rank, axes, s);
        if (has_stage(layout, model, rank, axes, s)) index += ranks_in(&before);
    }
    box own = box_of(layout, rank, axes, here->stage);
    int at = here->data - own.data.first;
    at = at * size_of(own.context) + here->context - own.context.first;
    at = at * size_of(own.key_value) + here->tensor / alike - own.key_value.first;
    return index + at * size_of(own.query) + here->tensor % alike - own.query.first;
}

ech_membership ech_layout_membership(const ech_layout *layout, const ech_model *model, int rank,
                                     ech_layout_group kind)
{
    int size = ech_layout_group_size(layout, model, rank, kind);
    return (ech_membership){size, size ? index_of(layout, model, rank, kind) : 0};
}

/* ---- gradients ---- */

ech_layout_group ech_layout_addends(const ech_layout *layout, const ech_model *model, int param)
{
    int first, last;
    ech_mesh axes = model->param.at[param].addends, tensor = axes & ECH_MESH_TENSOR;
    bool alone = tensor == ECH_MESH_QUERY ? ranks_alike(layout) == 1 : layout->tensor == 1;
    if (alone) axes &= ~tensor;
    return ech_layout_group_over(is_tied(layout, param, &first, &last) ? axes | ECH_MESH_TIED
                                                                       : axes);
}
