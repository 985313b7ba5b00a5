/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks: building the graph, and the geometry of its values.
 */
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "layer/layer.h"

ech_block *ech_block_create(ech_pool *pool, const char *name, int index, ech_block_options options)
{
    ech_block *block = ech_calloc(1, sizeof *block);
    block->name = ech_pool_format(pool, "%s", name);
    block->index = index;
    block->pool = pool;
    block->options = options;
    return block;
}

const char *ech_kept_name(ech_kept kept)
{
    static const char *const names[ECH_KEPTS] = {
#define X(name, text, meaning) text,
#include "layer/kept.def"
#undef X
    };
    return names[kept];
}

void ech_block_destroy(ech_block *block)
{
    if (!block) return;
    free(block->value.at);
    free(block->node.at);
    for (int i = 0; i < ECH_PHASES; i++) free(block->program[i].at);
    free(block->operand.at);
    free(block->report.at);
    free(block->input.at);
    free(block->output.at);
    free(block->dinput.at);
    free(block->doutput.at);
    free(block->rinput.at);
    free(block->routput.at);
    free(block);
}

static int add_value(ech_block *block, ech_block_value value)
{
    value.recomputed = -1;
    ECH_PUSH(block->value, value);
    return (int)block->value.n - 1;
}

static int add_real(ech_block *block, const char *name, ech_shape shape,
                    ech_block_value_source source, ech_block_value_role role)
{
    return add_value(block, (ech_block_value){.name = name,
                                              .shape = shape,
                                              .source = source,
                                              .role = role,
                                              .type = ECH_TYPE_COMPUTE,
                                              .purposes = ~0u,
                                              .base = -1});
}

int ech_block_input(ech_block *block, const char *name, ech_shape shape)
{
    int value = add_real(block, name, shape, ECH_FROM_BLOCK, ECH_ROLE_ACTIVATION);
    block->value.at[value].type = block->options.stream;
    ECH_PUSH(block->input, value);
    return value;
}

int ech_block_scratch(ech_block *block, const char *name, ech_shape shape)
{
    return add_real(block, name, shape, ECH_FROM_NODE, ECH_ROLE_SCRATCH);
}

int ech_block_batch(ech_block *block, ech_slot slot)
{
    const ech_block_options *options = &block->options;
    return add_value(
        block, (ech_block_value){.name = ech_slot_name(slot),
                                 .shape = ech_slot_shape(options->samples, slot, options->image),
                                 .source = ECH_FROM_BATCH,
                                 .role = ECH_ROLE_BATCH,
                                 .type = ech_slot_type(slot),
                                 .dtype = ech_slot_dtype(slot),
                                 .slot = slot,
                                 .purposes = ech_slot_purposes(slot),
                                 .base = -1,
                                 .cached = ech_slot_is_whole(slot)});
}

int ech_block_starts(ech_block *block)
{
    if (!block->options.documents) return -1;
    for (size_t i = 0; i < block->value.n; i++) {
        const ech_block_value *value = &block->value.at[i];
        if (value->source == ECH_FROM_BATCH && value->slot == ECH_STARTS) return (int)i;
    }
    return ech_block_batch(block, ECH_STARTS);
}

void ech_block_output(ech_block *block, int value)
{
    ECH_PUSH(block->output, value);
}

int ech_block_view(ech_block *block, int value, int64_t first, ech_shape shape)
{
    ECH_ASSERT(block->value.at[value].base < 0);
    ech_block_value view = block->value.at[value];
    view.shape = shape;
    view.base = value;
    view.first = first;
    return add_value(block, view);
}

ech_node *ech_block_node(ech_block *block, const ech_layer *layer, const void *options,
                         size_t options_bytes)
{
    ech_node node = {.layer = layer,
                     .purposes = ~0u,
                     .position = (int)block->node.n,
                     .rows_of = -1,
                     .report = -1};
    if (options) {
        void *copy = ech_pool_alloc(block->pool, options_bytes);
        memcpy(copy, options, options_bytes);
        node.options = copy;
    }
    ECH_PUSH(block->node, node);
    return &block->node.at[block->node.n - 1];
}

int ech_block_add(ech_block *block, const ech_layer *layer, int x, int y, unsigned reads,
                  ech_shape out)
{
    ech_node *node = ech_block_node(block, layer, NULL, 0);
    ech_node_in(node, x);
    if (y >= 0) ech_node_in(node, y);
    node->b.in = reads;
    int made = ech_node_out(block, node, "out", out);
    block->value.at[made].type = block->value.at[x].type;
    return made;
}

void ech_block_report(ech_block *block, ech_node *node, const char *kind, const char *name,
                      int64_t numbers)
{
    ECH_ASSERT(node->report < 0 && (node->rows_of >= 0 || node->ins > 0));
    int of = node->rows_of >= 0 ? node->rows_of : node->in[0];
    const ech_shape *rows = &block->value.at[of].shape;
    ech_reported report = {
        .kind = kind, .name = ech_pool_format(block->pool, "%s", name), .numbers = numbers};
    for (int d = 0; d < rows->dims; d++) report.over |= ech_axis_mesh(rows->axis[d]);
    node->report = (int)block->report.n;
    ECH_PUSH(block->report, report);
}

void ech_node_in(ech_node *node, int value)
{
    ECH_ASSERT(node->ins < ECH_MAX_PORTS);
    node->in[node->ins++] = value;
}

unsigned ech_node_starts(ech_node *node, int starts)
{
    if (starts < 0) return 0;
    ech_node_in(node, starts);
    return 1u << (node->ins - 1);
}

void ech_node_out_in_place(ech_node *node, int value)
{
    ECH_ASSERT(node->outs < ECH_MAX_PORTS);
    node->out[node->outs++] = value;
}

/* Adds an activation that the block's last node makes. */
static int add_made(ech_block *block, const ech_node *node, const char *name, ech_shape shape)
{
    name = ech_pool_format(block->pool, "%s%zu.%s", node->layer->name, block->node.n - 1, name);
    return add_real(block, name, shape, ECH_FROM_NODE, ECH_ROLE_ACTIVATION);
}

int ech_node_out(ech_block *block, ech_node *node, const char *name, ech_shape shape)
{
    ECH_ASSERT(node->outs < ECH_MAX_PORTS);
    return node->out[node->outs++] = add_made(block, node, name, shape);
}

int ech_node_out_like(ech_block *block, ech_node *node, int value)
{
    int out = ech_node_out(block, node, "out", block->value.at[value].shape);
    block->value.at[out].type = block->value.at[value].type;
    return out;
}

int ech_node_out_table(ech_block *block, ech_node *node, const char *name, ech_shape shape,
                       ech_type type, ech_dtype fixed)
{
    int out = ech_node_out(block, node, name, shape);
    ech_block_value *table = &block->value.at[out];
    ECH_ASSERT(type != ECH_TYPE_COMPUTE);
    table->role = ECH_ROLE_TABLE;
    table->type = type;
    table->dtype = fixed;
    return out;
}

int ech_node_out_code(ech_block *block, ech_node *node, ech_kept kept, ech_shape shape,
                      ech_type type, ech_dtype fixed)
{
    int out = ech_node_out(block, node, "code", shape);
    ech_block_value *code = &block->value.at[out];
    code->role = ECH_ROLE_TABLE;
    code->type = type;
    code->dtype = fixed;
    code->kept = kept;
    code->purposes = 1u << ECH_TRAIN;
    return out;
}

int ech_node_keep(ech_block *block, ech_node *node, const char *name, ech_shape shape)
{
    ECH_ASSERT(node->keeps < ECH_MAX_PORTS);
    return node->keep[node->keeps++] = add_made(block, node, name, shape);
}

int ech_node_keep_wide(ech_block *block, ech_node *node, const char *name, ech_shape shape)
{
    int kept = ech_node_keep(block, node, name, shape);
    block->value.at[kept].type = ECH_TYPE_WIDE;
    return kept;
}

void ech_node_param(ech_node *node, int param)
{
    ECH_ASSERT(node->params < ECH_MAX_PORTS);
    node->param[node->params++] = param;
}

void ech_node_weights(ech_node *node, int weight, int bias)
{
    ech_node_param(node, weight);
    if (bias >= 0) ech_node_param(node, bias);
    node->added = 1u << 1;
    node->b.param = 1;
}

int ech_block_base(const ech_block *block, int value)
{
    int base = block->value.at[value].base;
    return base < 0 ? value : base;
}

ech_dtype ech_block_value_dtype(const ech_block *block, int value, ech_types types)
{
    const ech_block_value *v = &block->value.at[value];
    return ech_type_dtype(v->type, v->dtype, types);
}

size_t ech_block_value_bytes(const ech_block *block, int value, ech_extent extent, ech_types types)
{
    int base = ech_block_base(block, value);
    return (size_t)ech_shape_count(&block->value.at[base].shape, extent) *
           ech_dtype_bytes(ech_block_value_dtype(block, base, types));
}

/* Where a view's columns begin in the rank's shard of the base: parts of an axis are sharded
 * alike. */
static int64_t local_first(const ech_block_value *view, const ech_shape *base, ech_extent extent)
{
    int last = base->dims - 1;
    int64_t size = base->size[last];
    return size > 0 ? view->first * ech_axis_local(base->axis[last], size, extent.sharding) / size
                    : 0;
}

ech_tensor ech_block_tensor(const ech_block *block, int value, ech_extent extent, ech_types types,
                            void *data)
{
    const ech_block_value *v = &block->value.at[value];
    ech_dtype dtype = ech_block_value_dtype(block, value, types);
    int64_t sizes[ECH_MAX_DIMS];
    ech_shape_resolve(&v->shape, extent, sizes);
    ech_tensor tensor = ech_tensor_view(data, dtype, v->shape.dims, sizes);
    if (v->base < 0 || !data) return tensor;

    /* A view of rows: dimensions up to TOKENS step by the base's row width. */
    const ech_shape *whole = &block->value.at[v->base].shape;
    int64_t base_sizes[ECH_MAX_DIMS], width = 1;
    ech_shape_resolve(whole, extent, base_sizes);
    for (int i = 2; i < whole->dims; i++) width *= base_sizes[i];
    tensor.data = (char *)data + (size_t)local_first(v, whole, extent) * ech_dtype_bytes(dtype);
    tensor.stride[1] = width;
    tensor.stride[0] = width * base_sizes[1];
    return tensor;
}

bool ech_block_is_sharded(const ech_block *block, ech_axis axis)
{
    return ech_axis_shards(axis, block->options.sharding) > 1 ||
           (axis == ECH_AXIS_KV_HEADS && block->options.sharding.tensor > 1);
}

ech_shape ech_block_stream(const ech_block *block, int64_t C)
{
    if (!block->options.sharding.sequence) return ech_shape_rows(ECH_AXIS_MODEL, C);
    return ech_shape_2d(ECH_AXIS_ROWS, 0, ECH_AXIS_MODEL, C);
}
