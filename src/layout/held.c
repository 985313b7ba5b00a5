/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's part of a parameter: the boxes of its shard, and which of the ranks with the same boxes
 * count and write them.
 */
#include <stdlib.h>
#include <string.h>

#include "layout/layout.h"

ech_held ech_layout_held(const ech_layout *layout, const ech_model *model, int rank, int param,
                         ech_held_kind kind, const ech_shape *state)
{
    int first, last;
    ech_held held = {0};
    const ech_coordinates *here = &layout->coordinates[rank];
    const ech_shape *of = &model->param.at[param].shape;
    const ech_shape *shape = kind == ECH_HELD_STATE ? state : of;
    if (!ech_layout_stages_of_param(layout, param, here->stage, &first, &last)) return held;
    ech_shard_at at = ech_layout_shard_at(layout, rank);
    held.boxes = ech_shape_boxes(shape, layout->sharding, at, held.box);

    int copies = ech_shape_copies(shape, layout->sharding), index = here->tensor % copies;
    ech_expert_span in = ech_layout_expert_span(layout);
    if (!ech_shape_has(of, ECH_AXIS_EXPERTS)) in = (ech_expert_span){1, 1}; /* all have copies */
    int context = layout->context / in.context;
    int replica = here->data / in.data * context + here->context / in.context;
    int replicas = layout->replicas[here->stage] / in.data * context;
    /* For a state without the experts' axis, the first of them. */
    if (in.data * in.context > 1 && !ech_shape_has(shape, ECH_AXIS_EXPERTS))
        index += at.expert * layout->tensor;
    /* As many of the first ranks with a state's boxes as share a parameter's boxes, so that each
     * has its turn. They are all in one addend group, or no two of them are. */
    int sharers = ech_shape_copies(of, layout->sharding);
    ech_mesh addends = ech_layout_group_axes(ech_layout_addends(layout, model, param));
    held.is_first = index == 0 && replica == 0;
    held.counts = index < (addends & ECH_MESH_TENSOR ? sharers : 1);
    int sharer = replica * sharers + here->tensor % sharers;
    int writer = param % (replicas * sharers);
    held.writes =
        kind != ECH_HELD_GRADIENT && here->stage == first && sharer == writer && index < sharers;
    if (ech_shape_replicas(shape) >= 0) /* each has another */
        held.writes = here->stage == first && index == 0;
    return held;
}

/* The first and the last member, since ranks with the same boxes are adjacent. */
bool ech_layout_is_alike(const ech_layout *layout, const ech_model *model, int rank,
                         ech_layout_group group, int param, ech_held_kind kind,
                         const ech_shape *state)
{
    ECH_FREED int *member = ech_calloc((size_t)layout->world, sizeof *member);
    int n = ech_layout_members(layout, model, rank, group, member);
    ech_held a = ech_layout_held(layout, model, member[0], param, kind, state);
    ech_held b = ech_layout_held(layout, model, member[n - 1], param, kind, state);
    return a.boxes == b.boxes && memcmp(a.box, b.box, (size_t)a.boxes * sizeof *a.box) == 0;
}
