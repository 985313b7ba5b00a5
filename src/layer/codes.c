/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers that encode a value after its last use in the forward and decode it for the backward
 * (Gist, Jain et al. 2018). A value's rows are encoded one by one, so a code has the value's shape
 * up to its last axis. A sample's image is one row. encode.c decides which values are encoded.
 *
 *     bits    (n + 7) / 8 bytes for a row of n: whether each element is above 0 (Binarize)
 *     sparse  non-zeros, one byte each for their columns, and where the run of at most 256 columns
 *             ends (SSDC). Elements whose bits are all zero are not stored, so -0 and NaN are. If
 *             there are more of them than the density has room for, the value is copied to the
 *             spill area.
 *     places  (n + 1) / 2 bytes for a row of n: numbers below 16, as max pools choose pixels
 *     narrow  numbers of 16, 10 (three in 4 bytes) or 8 bits (DPR)
 */
#include <math.h>

#include "kernel/codes.h"
#include "layer/layers.h"

typedef struct code_options {
    int bits; /* of a number */
} code_options;

/* ---- nodes ---- */

/* True for (B,H,W,C), whose samples alone are sharded. */
static bool is_image(const ech_shape *shape)
{
    return shape->dims == 4 && shape->axis[1] == ECH_AXIS_HEIGHT;
}

/* Numbers of this rank in a row of the value. */
static int64_t row_of(const ech_block *block, const ech_shape *shape)
{
    int last = shape->dims - 1;
    if (is_image(shape)) return shape->size[1] * shape->size[2] * shape->size[3];
    return ech_axis_local(shape->axis[last], shape->size[last], block->options.sharding);
}

/* The shape of a code with `units` units per row of the value. */
static ech_shape shape_of(const ech_shape *value, int64_t units)
{
    ech_shape shape = *value;
    if (is_image(value)) return ech_shape_2d(ECH_AXIS_BATCH, 0, ECH_AXIS_CODE, units);
    shape.axis[shape.dims - 1] = ECH_AXIS_CODE;
    shape.size[shape.dims - 1] = units;
    return shape;
}

static ech_node *add_node(ech_block *block, const ech_layer *layer, int value, int bits)
{
    code_options options = {bits};
    ech_node *node = ech_block_node(block, layer, &options, sizeof options);
    node->purposes = 1u << ECH_TRAIN;
    if (value >= 0) ech_node_in(node, value);
    return node;
}

/* Adds the node that decodes the last node's outputs, for B and W, which read views of the value as
 * views of the decoded one. */
static void add_decoder(ech_block *block, const ech_layer *layer, int value, int bits)
{
    ech_node encoder = block->node.at[block->node.n - 1];
    ech_node *node = add_node(block, layer, -1, bits);
    for (int i = 0; i < encoder.outs; i++) ech_node_in(node, encoder.out[i]);
    int decoded = ech_node_out_like(block, node, value);
    block->value.at[decoded].role = block->value.at[value].role;
    block->value.at[decoded].dtype = block->value.at[value].dtype;
    block->value.at[decoded].name =
        ech_pool_format(block->pool, "%s decoded", block->value.at[value].name);
    ech_block_set_recompute(block, value, decoded);
    for (size_t v = 0; v < block->value.n; v++) {
        ech_block_value view = block->value.at[v];
        if (view.base != value) continue;
        view.base = decoded;
        ECH_PUSH(block->value, view);
        ech_block_set_recompute(block, (int)v, (int)block->value.n - 1);
    }
}

void ech_block_encode_bits(ech_block *block, int value)
{
    ech_shape shape = block->value.at[value].shape;
    ech_node *node = add_node(block, &ech_layer_row_encode_bits, value, 1);
    ech_node_out_code(block, node, ECH_KEPT_BITS,
                      shape_of(&shape, ech_code_bytes(1, row_of(block, &shape))), ECH_TYPE_FIXED,
                      ECH_U8);
    add_decoder(block, &ech_layer_row_decode_bits, value, 1);
}

void ech_block_encode_sparse(ech_block *block, int value)
{
    ech_shape shape = block->value.at[value].shape;
    ech_type type = block->value.at[value].type;
    int64_t row = row_of(block, &shape), runs = ech_code_runs(row);
    int64_t room = (int64_t)ceil(block->options.encode_density * (double)row);
    ech_node *node = add_node(block, &ech_layer_row_encode_sparse, value, 0);
    ech_node_out_code(block, node, ECH_KEPT_SPARSE, shape_of(&shape, room), type, ECH_U8);
    ech_node_out_code(block, node, ECH_KEPT_SPARSE, shape_of(&shape, room), ECH_TYPE_FIXED, ECH_U8);
    ech_node_out_code(block, node, ECH_KEPT_SPARSE, shape_of(&shape, runs), ECH_TYPE_FIXED,
                      ECH_I32);
    int spill = ech_node_out_code(block, node, ECH_KEPT_STORED, shape, type, ECH_U8);
    block->value.at[spill].role = ECH_ROLE_SPILL;
    block->value.at[spill].name = block->value.at[value].name;
    ech_block_report(block, node, ECH_SPARSE_REPORT, block->value.at[value].name,
                     ECH_SPARSE_COUNTS);
    block->report.at[node->report].local = true;
    add_decoder(block, &ech_layer_row_decode_sparse, value, 0);
}

void ech_block_encode_places(ech_block *block, int value)
{
    ech_shape shape = block->value.at[value].shape;
    ech_node *node = add_node(block, &ech_layer_row_encode_places, value, 4);
    ech_node_out_code(block, node, ECH_KEPT_PLACES,
                      shape_of(&shape, ech_code_bytes(4, row_of(block, &shape))), ECH_TYPE_FIXED,
                      ECH_U8);
    add_decoder(block, &ech_layer_row_decode_places, value, 4);
}

void ech_block_encode_narrow(ech_block *block, int value, int bits)
{
    ech_shape shape = block->value.at[value].shape;
    ech_node *node = add_node(block, &ech_layer_row_encode_narrow, value, bits);
    ech_node_out_code(block, node, ECH_KEPT_NARROW,
                      shape_of(&shape, ech_code_bytes(bits, row_of(block, &shape))), ECH_TYPE_FIXED,
                      ECH_U8);
    add_decoder(block, &ech_layer_row_decode_narrow, value, bits);
}

/* ---- running ---- */

static int bits_of(const ech_call *call)
{
    return ((const code_options *)call->node->options)->bits;
}

/* The value by the rows of its code: (B,H,W,C) -> (B, H W C), others (rows, numbers). */
static ech_tensor rows_of(const ech_tensor *x, const ech_tensor *code)
{
    if (x->dims != 4 || code->dims != 2) return ech_tensor_matrix(x);
    return ech_tensor_2d(x->data, x->dtype, x->shape[0], x->shape[1] * x->shape[2] * x->shape[3]);
}

static void encode_bits(const ech_call *call)
{
    ech_tensor x = rows_of(&call->in[0], &call->out[0]), code = ech_tensor_matrix(&call->out[0]);
    call->kernels->encode_bits(call->context, &x, &code);
}

static void decode_bits(const ech_call *call)
{
    ech_tensor x = rows_of(&call->out[0], &call->in[0]), code = ech_tensor_matrix(&call->in[0]);
    call->kernels->decode_bits(call->context, &code, &x);
}

static void encode_sparse(const ech_call *call)
{
    ech_tensor x = rows_of(&call->in[0], &call->out[0]), values = ech_tensor_matrix(&call->out[0]);
    ech_tensor columns = ech_tensor_matrix(&call->out[1]), ends = ech_tensor_matrix(&call->out[2]);
    ech_tensor spill = rows_of(&call->out[3], &call->out[0]);
    ech_tensor counted = ech_tensor_1d(call->reported, ECH_F64, ECH_SPARSE_COUNTS);
    call->kernels->encode_sparse(call->context, &x, &values, &columns, &ends, &spill,
                                 ech_optional(&counted));
}

static void decode_sparse(const ech_call *call)
{
    ech_tensor values = ech_tensor_matrix(&call->in[0]), columns = ech_tensor_matrix(&call->in[1]);
    ech_tensor ends = ech_tensor_matrix(&call->in[2]), spill = rows_of(&call->in[3], &call->in[0]);
    ech_tensor x = rows_of(&call->out[0], &call->in[0]);
    call->kernels->decode_sparse(call->context, &values, &columns, &ends, &spill, &x);
}

static void encode_places(const ech_call *call)
{
    ech_tensor x = rows_of(&call->in[0], &call->out[0]), code = ech_tensor_matrix(&call->out[0]);
    call->kernels->encode_places(call->context, &x, &code);
}

static void decode_places(const ech_call *call)
{
    ech_tensor x = rows_of(&call->out[0], &call->in[0]), code = ech_tensor_matrix(&call->in[0]);
    call->kernels->decode_places(call->context, &code, &x);
}

static void encode_narrow(const ech_call *call)
{
    ech_tensor x = rows_of(&call->in[0], &call->out[0]), code = ech_tensor_matrix(&call->out[0]);
    call->kernels->encode_narrow(call->context, &x, bits_of(call), &code);
}

static void decode_narrow(const ech_call *call)
{
    ech_tensor x = rows_of(&call->out[0], &call->in[0]), code = ech_tensor_matrix(&call->in[0]);
    call->kernels->decode_narrow(call->context, &code, bits_of(call), &x);
}

#define ENCODER(code)                                                                              \
    {                                                                                              \
        .name = "encode_" #code, .forward = encode_##code, .encodes = true                         \
    }
#define DECODER(code)                                                                              \
    {                                                                                              \
        .name = "decode_" #code, .forward = decode_##code                                          \
    }

const ech_layer ech_layer_row_encode_bits = ENCODER(bits);
const ech_layer ech_layer_row_decode_bits = DECODER(bits);
const ech_layer ech_layer_row_encode_sparse = ENCODER(sparse);
const ech_layer ech_layer_row_decode_sparse = DECODER(sparse);
const ech_layer ech_layer_row_encode_places = ENCODER(places);
const ech_layer ech_layer_row_decode_places = DECODER(places);
const ech_layer ech_layer_row_encode_narrow = ENCODER(narrow);
const ech_layer ech_layer_row_decode_narrow = DECODER(narrow);
