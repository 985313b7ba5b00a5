/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks over which a parameter's gradient is summed. The gradient is a sum over the axes that
 * the node's inputs and outputs have and the parameter lacks. If such an axis is sharded, each rank
 * has a partial sum: rows for gains and biases, heads for a norm inside of heads. The same holds
 * for a layer state's partials and the node that writes them.
 *
 * Ranks with the same key/value heads have different queries (if there are fewer such heads than
 * ranks). Each has only its queries' part of the gradient of these heads. So gradients of
 * parameters that make them are partial sums over these ranks, too, even if a parameter has the
 * axis (Ainslie et al. 2023, arXiv:2305.13245, with fewer heads than tensor ranks).
 */
#include "base/status.h"
#include "layer/program.h"

/* Ulysses' heads are those of tensor ranks, sharded once more. */
static bool has_heads(const ech_shape *shape, ech_axis axis)
{
    return ech_shape_has(shape, axis) ||
           (axis == ECH_AXIS_HEADS && ech_shape_has(shape, ECH_AXIS_CONTEXT_HEADS));
}

static ech_mesh addends_of(ech_axis axis, const ech_shape *param)
{
    if (axis == ECH_AXIS_CONTEXT_HEADS && ech_shape_has(param, ECH_AXIS_HEADS))
        return ECH_MESH_CONTEXT;
    ech_mesh mesh = ech_axis_mesh(axis);
    ech_mesh alike = mesh == ECH_MESH_KEY_VALUE ? ECH_MESH_QUERY : ECH_MESH_NONE;
    return ech_shape_has(param, axis) ? alike : alike | mesh;
}

/* The values whose axes count for the gradient of the node's parameter i: its outputs, and its
 * inputs unless the parameter is only added. So a row-parallel product, whose inputs are sharded
 * and whose outputs are whole, has its bias' gradient whole on each rank. Tables count in any case:
 * they say which rows an expert's bias is added to. Returns the number of values. */
static int find_taking_part(const ech_block *block, const ech_node *node, int i, int *value)
{
    bool added = node->added & 1u << i;
    int n = 0;
    for (int k = 0; k < node->outs; k++) value[n++] = node->out[k];
    for (int k = 0; k < node->ins; k++)
        if (!added || block->value.at[node->in[k]].role == ECH_ROLE_TABLE) value[n++] = node->in[k];
    if (node->rows_of >= 0) value[n++] = node->rows_of;
    return n;
}

/* A parameter sharded along an axis either works on values sharded along it, or is a lookup
 * table. */
static void check_axes(const ech_block *block, const ech_node *node, const ech_shape *param,
                       const int *value, int values)
{
    bool is_free = node->layer->looks_up || node->layer->shards_inside;
    for (int d = 0; d < param->dims && !is_free; d++) {
        bool found = !ech_block_is_sharded(block, param->axis[d]);
        for (int k = 0; k < values; k++)
            found |= has_heads(&block->value.at[value[k]].shape, param->axis[d]);
        ECH_ASSERT(found);
    }
}

static ech_mesh find_addends(const ech_block *block, const ech_node *node, int i,
                             const ech_shape *param)
{
    int value[2 * ECH_MAX_PORTS + 1], values = find_taking_part(block, node, i, value);
    ech_mesh addends = ECH_MESH_NONE;
    for (int k = 0; k < values; k++) {
        const ech_shape *shape = &block->value.at[value[k]].shape;
        for (int d = 0; d < shape->dims; d++) addends |= addends_of(shape->axis[d], param);
    }
    check_axes(block, node, param, value, values);
    /* Without tokens there is one context rank: the sum is over its group. */
    return addends == ECH_MESH_DATA ? ECH_MESH_REPLICAS : addends;
}

void ech_program_find_addends(const ech_block *block, ech_param *params)
{
    for (size_t n = 0; n < block->node.n; n++) {
        const ech_node *node = &block->node.at[n];
        for (int i = 0; i < node->params; i++) {
            ech_param *param = &params[node->param[i]];
            if (param->commit && !node->layer->writes_partials) continue;
            ech_mesh addends = find_addends(block, node, i, &param->shape);
            ECH_ASSERT(param->addends == ECH_MESH_NONE || param->addends == addends);
            param->addends = addends;
        }
    }
}
