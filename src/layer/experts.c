/* SPDX-License-Identifier: Apache-2.0
 *
 * Experts. Rows are copied to a buffer in which the rows of one expert follow each other, and
 * experts process these by grouped products. Each row gets the sum of its experts' results,
 * weighted by its gates (Shazeer et al. 2017, arXiv:1701.06538; products over sorted rows: Gale et
 * al. 2022, arXiv:2211.15841). The tables of gate.c define the destinations of rows. Kernels
 * process only the rows in use, whatever the size of the buffer; the rest is undefined.
 *
 * Tensor ranks have a share of each expert's width, as of a feed-forward layer's. Without an expert
 * group all dispatch the same rows, and each row's sum over its experts is a partial sum, which is
 * completed like a row-parallel product's; so is the gradient of its gates. With sequence
 * parallelism routers work on row shards, and rows, gates and choices are gathered after them. Over
 * an expert group each tensor rank routes, sends and combines a row shard, so that no row is sent
 * twice; received rows are gathered before the products, and their partial sums are scattered after
 * them.
 */
#include <math.h>

#include "base/status.h"
#include "layer/experts.h"

/* ---- dispatch: rows to the buffer ---- */

static void dispatch_forward(const ech_call *call)
{
    ech_tensor x = ech_tensor_matrix(&call->in[0]), slot = ech_tensor_matrix(&call->in[1]);
    call->kernels->dispatch_forward(call->context, &x, &slot, &call->out[0]);
}

static void dispatch_backward(const ech_call *call)
{
    ech_tensor slot = ech_tensor_matrix(&call->in[1]), dx = ech_tensor_matrix(&call->din[0]);
    ech_tensor add = call->add[0];
    if (add.data) add = ech_tensor_matrix(&add);
    call->kernels->dispatch_backward(call->context, &call->dout[0], &slot, ech_optional(&add), &dx);
}

const ech_layer ech_layer_row_dispatch = {.name = "dispatch",
                                          .forward = dispatch_forward,
                                          .backward_input = dispatch_backward,
                                          .fuses_add = true};

/* True if tensor ranks make partial sums of the gradients of rows that all of them dispatch. */
static bool gradient_is_partial(const ech_block *block, const ech_routed *to)
{
    return !to->grouped && ech_block_gradient_is_partial(block, ECH_AXIS_FFN);
}

static int dispatch(ech_block *block, const ech_routed *to)
{
    ech_shape shape = ech_shape_2d(to->grouped ? ECH_AXIS_SLOTS : ECH_AXIS_RECEIVED, to->width,
                                   ECH_AXIS_MODEL, ech_columns(block, to->x));
    ech_node *node = ech_block_node(block, &ech_layer_row_dispatch, NULL, 0);
    ech_node_in(node, to->x);
    ech_node_in(node, to->slot);
    node->b.in = 1u << 1;
    node->partial_gradient = gradient_is_partial(block, to);
    return ech_node_out(block, node, "sent", shape);
}

/* Words of a choice's number (kernel/experts.h). */
enum { INDEX_WORDS = 2 };

/* The choices' numbers go the same way, in training only. */
static void index_forward(const ech_call *call)
{
    ech_tensor slot = ech_tensor_matrix(&call->in[0]);
    call->kernels->dispatch_index(call->context, &slot, ech_call_rows(call), &call->out[0]);
}

const ech_layer ech_layer_row_dispatch_index = {.name = "dispatch_index", .forward = index_forward};

static int dispatch_index(ech_block *block, const ech_routed *to)
{
    ech_shape shape = ech_shape_2d(to->grouped ? ECH_AXIS_SLOTS : ECH_AXIS_RECEIVED, to->width,
                                   ECH_AXIS_NONE, INDEX_WORDS);
    ech_node *node = ech_block_node(block, &ech_layer_row_dispatch_index, NULL, 0);
    ech_node_in(node, to->slot);
    node->purposes = 1u << ECH_TRAIN;
    int index = ech_node_out_table(block, node, "index", shape, ECH_TYPE_FIXED, ECH_I32);
    block->value.at[index].purposes = node->purposes;
    return index;
}

/* ---- combine: for each row, the sum over its experts ---- */

static void combine_forward(const ech_call *call)
{
    ech_tensor gates = ech_tensor_matrix(&call->in[0]), slot = ech_tensor_matrix(&call->in[1]);
    ech_tensor out = ech_tensor_matrix(&call->out[0]);
    call->kernels->combine_forward(call->context, &call->in[2], &gates, &slot, &out);
}

static void combine_backward(const ech_call *call)
{
    ech_tensor gates = ech_tensor_matrix(&call->in[0]), slot = ech_tensor_matrix(&call->in[1]);
    ech_tensor dout = ech_tensor_matrix(&call->dout[0]), dgates = ech_tensor_matrix(&call->din[0]);
    call->kernels->combine_backward(call->context, &dout, &call->in[2], &gates, &slot,
                                    &call->din[2], &dgates);
}

const ech_layer ech_layer_row_combine = {.name = "combine",
                                         .forward = combine_forward,
                                         .backward_input = combine_backward,
                                         .overwrites = 1u << 2};

/* Without an expert group it is a partial sum if experts' width is sharded. */
static int combine(ech_block *block, int y, const ech_routed *to)
{
    int gates = to->grouped ? to->gates : ech_block_whole(block, to->gates, true);
    ech_node *node = ech_block_node(block, &ech_layer_row_combine, NULL, 0);
    ech_node_in(node, gates);
    ech_node_in(node, to->slot);
    ech_node_in(node, y);
    node->b.in = 7;
    node->partial_gradient = gradient_is_partial(block, to);
    return ech_node_out(block, node, "out", block->value.at[to->x].shape);
}

/* ---- the products of experts ---- */

typedef struct expert_options {
    ech_axis in_axis, out_axis;
    int64_t in, out; /* unsharded */
    int64_t splits, experts;
    bool partial_sum; /* the inner axis is sharded: one rank adds the bias */
    double expected; /* expected rows in use, as a fraction of the buffer */
} expert_options;

/* The bias comes first, so that the sum is rounded once. */
static void product_forward(const ech_call *call)
{
    const expert_options *o = call->node->options;
    ech_tensor x = ech_tensor_matrix(&call->in[0]), y = ech_tensor_matrix(&call->out[0]);
    bool adds = call->param[1].data && (!o->partial_sum || call->tensor_index == 0);
    if (adds) call->kernels->grouped_bias(call->context, &call->param[1], &call->in[1], &y);
    call->kernels->grouped_matmul(call->context, &x, &call->param[0], true, &call->in[1], adds, &y);
}

/* The addend was written to the gradient by another reader of the same rows. */
static void product_backward(const ech_call *call)
{
    bool adds = call->add[0].data != NULL;
    ECH_ASSERT(!adds || call->add[0].data == call->din[0].data);
    ech_tensor dy = ech_tensor_matrix(&call->dout[0]), dx = ech_tensor_matrix(&call->din[0]);
    call->kernels->grouped_matmul(call->context, &dy, &call->param[0], false, &call->in[1], adds,
                                  &dx);
}

static void product_backward_weight(const ech_call *call)
{
    ech_tensor dy = ech_tensor_matrix(&call->dout[0]), x = ech_tensor_matrix(&call->in[0]);
    if (call->dparam[0].data)
        call->kernels->grouped_matmul_weight(call->context, &dy, &x, &call->in[1],
                                             call->accumulate[0], &call->dparam[0]);
    if (call->dparam[1].data)
        call->kernels->grouped_bias_backward(call->context, &dy, &call->in[1], call->accumulate[1],
                                             &call->dparam[1]);
}

static int64_t product_rows(const ech_block *block, const ech_node *node, ech_extent extent)
{
    ech_shape rows = ech_shape_of_rows(&block->value.at[node->in[0]].shape);
    return ech_shape_count(&rows, extent);
}

static size_t product_scratch(const ech_scratch_query *query)
{
    const expert_options *o = query->node->options;
    int64_t R = product_rows(query->block, query->node, query->extent);
    int64_t in = ech_axis_local(o->in_axis, o->in, query->extent.sharding);
    int64_t out = ech_axis_local(o->out_axis, o->out, query->extent.sharding);
    bool forward = query->phase == ECH_FORWARD;
    int64_t dims[] = {R, forward ? out : in, forward ? in : out, o->splits, o->experts, forward};
    int64_t weight[] = {R, out, in, o->splits, o->experts};
    if (query->phase == ECH_BACKWARD_WEIGHT)
        return ech_kernel_scratch(query->kernels, ECH_OP_grouped_matmul_weight, query->threads,
                                  weight);
    return ech_kernel_scratch(query->kernels, ECH_OP_grouped_matmul, query->threads, dims);
}

static ech_products products(const ech_block *block, const ech_node *node, ech_extent extent,
                             ech_phase phase)
{
    const expert_options *o = node->options;
    double matrices = (double)(o->experts > 0 ? o->experts : 1);
    double rows = o->expected * (double)product_rows(block, node, extent) / matrices;
    double in = (double)ech_axis_local(o->in_axis, o->in, extent.sharding);
    double out = (double)ech_axis_local(o->out_axis, o->out, extent.sharding);
    if (phase == ECH_BACKWARD_WEIGHT) return (ech_products){out, in, rows, matrices};
    bool forward = phase == ECH_FORWARD;
    return (ech_products){rows, forward ? out : in, forward ? in : out, matrices};
}

const ech_layer ech_layer_row_expert_linear = {.name = "expert_linear",
                                               .forward = product_forward,
                                               .backward_input = product_backward,
                                               .backward_weight = product_backward_weight,
                                               .scratch = product_scratch,
                                               .products = products,
                                               .fuses_add = true};

static void product_backward_both(const ech_call *call)
{
    product_backward_weight(call);
    product_backward(call);
}

static size_t product_scratch_both(const ech_scratch_query *query)
{
    ech_scratch_query weight = *query;
    size_t input = product_scratch(query), most = input;
    weight.phase = ECH_BACKWARD_WEIGHT;
    if (query->phase == ECH_BACKWARD_INPUT) most = product_scratch(&weight);
    return most > input ? most : input;
}

const ech_layer ech_layer_row_expert_linear_both = {.name = "expert_linear_both",
                                                    .forward = product_forward,
                                                    .backward_input = product_backward_both,
                                                    .scratch = product_scratch_both,
                                                    .products = products,
                                                    .fuses_add = true,
                                                    .finishes_in_b = true};

/* Input of experts: rows by expert, with a table of their numbers. */
typedef struct rows_by_expert {
    int rows, counts;
    int index;       /* the numbers of the rows' choices; -1: nothing is dropped */
    uint32_t site;   /* of the dropout */
    double expected; /* expected rows in use, as a fraction of the buffer */
    bool again;      /* in a round: W is done in B */
} rows_by_expert;

/* rows (R,in) -> (R,out); weight (experts, out, in), bias (experts, out), -1: none. */
static int product(ech_block *block, const rows_by_expert *of, int rows, int weight, int bias,
                   ech_axis axis, int64_t out)
{
    const ech_shape *in = &block->value.at[rows].shape;
    const ech_shape *table = &block->value.at[of->counts].shape;
    const ech_layer *layer =
        of->again ? &ech_layer_row_expert_linear_both : &ech_layer_row_expert_linear;
    expert_options options = {
        .in_axis = in->axis[in->dims - 1],
        .out_axis = axis,
        .in = ech_columns(block, rows),
        .out = out,
        .splits = table->size[0],
        .experts = ech_axis_local(table->axis[1], table->size[1], block->options.sharding),
        .partial_sum = ech_block_is_sharded(block, in->axis[in->dims - 1]),
        .expected = of->expected};
    ech_shape shape = ech_shape_beside(block, rows, axis, out);
    ech_node *node = ech_block_node(block, layer, &options, sizeof options);
    ech_node_in(node, rows);
    ech_node_in(node, of->counts);
    ech_node_weights(node, weight, bias);
    node->b = (ech_reads){.in = of->again ? 3 : 1u << 1, .param = 1};
    node->w.in = of->again ? 0 : 3;
    return ech_node_out(block, node, "out", shape);
}

/* ---- activations between the products ---- */

#define LAYERS_1(NAME)                                                                             \
    static void NAME##_forward(const ech_call *call)                                               \
    {                                                                                              \
        ech_tensor x = ech_tensor_matrix(&call->in[0]), y = ech_tensor_matrix(&call->out[0]);      \
        call->kernels->grouped_##NAME##_forward(call->context, &x, &call->in[1], &y);              \
    }                                                                                              \
    static void NAME##_backward(const ech_call *call)                                              \
    {                                                                                              \
        ech_tensor dy = ech_tensor_matrix(&call->dout[0]), x = ech_tensor_matrix(&call->in[0]);    \
        ech_tensor dx = ech_tensor_matrix(&call->din[0]);                                          \
        call->kernels->grouped_##NAME##_backward(call->context, &dy, &x, &call->in[1], &dx);       \
    }                                                                                              \
    const ech_layer ech_layer_row_expert_##NAME = {.name = "expert_" #NAME,                        \
                                                   .forward = NAME##_forward,                      \
                                                   .backward_input = NAME##_backward,              \
                                                   .overwrites = 1,                                \
                                                   .cheap = true};

#define LAYERS_2(NAME)                                                                             \
    static void NAME##_forward(const ech_call *call)                                               \
    {                                                                                              \
        ech_tensor gate = ech_tensor_matrix(&call->in[0]), up = ech_tensor_matrix(&call->in[1]);   \
        ech_tensor y = ech_tensor_matrix(&call->out[0]);                                           \
        call->kernels->grouped_##NAME##_forward(call->context, &gate, &up, &call->in[2], &y);      \
    }                                                                                              \
    static void NAME##_backward(const ech_call *call)                                              \
    {                                                                                              \
        ech_tensor gate = ech_tensor_matrix(&call->in[0]), up = ech_tensor_matrix(&call->in[1]);   \
        ech_tensor dy = ech_tensor_matrix(&call->dout[0]), dup = ech_tensor_matrix(&call->din[1]); \
        ech_tensor dgate = ech_tensor_matrix(&call->din[0]);                                       \
        call->kernels->grouped_##NAME##_backward(call->context, &dy, &gate, &up, &call->in[2],     \
                                                 &dgate, &dup);                                    \
    }                                                                                              \
    const ech_layer ech_layer_row_expert_##NAME = {.name = "expert_" #NAME,                        \
                                                   .forward = NAME##_forward,                      \
                                                   .backward_input = NAME##_backward,              \
                                                   .overwrites = 3,                                \
                                                   .cheap = true};

#define LAYERS(NAME, name, operands, ...) LAYERS_##operands(name)
ECH_ACTIVATIONS(LAYERS)

/* gate: -1 of an activation of one operand, up. */
static int activate(ech_block *block, ech_activation activation, int gate, int up, int counts)
{
#define ROW(NAME, name, ...) [ECH_ACTIVATION_##NAME] = &ech_layer_row_expert_##name,
    static const ech_layer *const rows[] = {ECH_ACTIVATIONS(ROW)};
    ech_node *node = ech_block_node(block, rows[activation], NULL, 0);
    if (gate >= 0) ech_node_in(node, gate);
    ech_node_in(node, up);
    ech_node_in(node, counts);
    node->b.in = (1u << node->ins) - 1;
    return ech_node_out_like(block, node, up);
}

/* Dropout (Fedus et al. 2021, arXiv:2101.03961, section 2.4): a mask of the choice and of the
 * column of the whole width. So it is independent of the layout: of the row's position, and of the
 * rank's columns. */
typedef struct dropout_options {
    double p;
    int64_t width; /* unsharded */
} dropout_options;

static void drop(const ech_call *call, const ech_tensor *from, const ech_tensor *to)
{
    const dropout_options *options = call->node->options;
    ech_dropout dropout = ech_call_dropout(call, options->p, call->node->site);
    ech_tensor x = ech_tensor_matrix(from), y = ech_tensor_matrix(to), index = call->in[1];
    if (index.data) index = ech_tensor_matrix(&index);
    call->kernels->grouped_dropout(call->context, &x, &dropout, ech_optional(&index),
                                   call->tensor_index * x.shape[1], options->width, &call->in[2],
                                   &y);
}

static void dropout_forward(const ech_call *call)
{
    drop(call, &call->in[0], &call->out[0]);
}

static void dropout_backward(const ech_call *call)
{
    drop(call, &call->dout[0], &call->din[0]);
}

const ech_layer ech_layer_row_expert_dropout = {.name = "expert_dropout",
                                                .forward = dropout_forward,
                                                .backward_input = dropout_backward,
                                                .cheap = true};

/* All rounds of a layer draw from one site's stream. */
static int dropout(ech_block *block, const rows_by_expert *of, int x, const ech_experts *experts)
{
    dropout_options options = {experts->dropout, experts->width};
    if (of->index < 0) return x;
    ech_node *node = ech_block_node(block, &ech_layer_row_expert_dropout, &options, sizeof options);
    ech_node_in(node, x);
    ech_node_in(node, of->index);
    ech_node_in(node, of->counts);
    node->b.in = 6;
    node->site = of->site;
    return ech_node_out_like(block, node, x);
}

/* ---- over an expert group ---- */

static int gather_counts(ech_block *block, int counts)
{
    int t = block->options.sharding.tensor;
    if (t < 2) return counts;
    const ech_block_value table = block->value.at[counts];
    ech_shape shape = table.shape;
    shape.size[0] *= t;
    ech_node *node = ech_block_node(block, &ech_layer_row_gather_table, NULL, 0);
    ech_node_in(node, counts);
    return ech_node_out_table(block, node, "all", shape, table.type, table.dtype);
}

/* down (dropped (silu(gate x) up x)), or down (dropped (relu(up x))) and so on, of rows by
 * expert. */
static int work(ech_block *block, const rows_by_expert *of, const ech_experts *experts)
{
    int64_t C = ech_columns(block, of->rows), F = experts->width;
    const ech_experts *e = experts;
    int gate = -1;
    if (ech_activation_operands(e->activation) > 1)
        gate = product(block, of, of->rows, e->gate_proj, e->biased ? e->gate_bias : -1,
                       ECH_AXIS_FFN, F);
    int up = product(block, of, of->rows, e->up, e->biased ? e->up_bias : -1, ECH_AXIS_FFN, F);
    int y = activate(block, experts->activation, gate, up, of->counts);
    y = dropout(block, of, y, experts);
    return product(block, of, y, e->down, e->biased ? e->down_bias : -1, ECH_AXIS_MODEL, C);
}

/* ---- rounds: slices of the rows that each rank of an expert group sends ---- */

/* The most rows that a rank sends to one rank of its group, in units of ECH_SLICE_UNIT per row of
 * its row shard. An expert of a balance group accepts no more than its capacity, and all rows that
 * it accepts may be on one member of the group's mesh. */
static int64_t most_sent(const ech_block *block, const ech_experts *experts)
{
    const ech_sharding *sharding = &block->options.sharding;
    int64_t local = experts->gate.experts / sharding->expert, chosen = experts->gate.chosen;
    double most = (double)(chosen < local ? chosen : local), factor = experts->gate.capacity_factor;
    double accepted = factor * (double)(chosen * ech_gate_members(sharding)) / sharding->expert;
    if (factor > 0 && accepted < most) most = accepted;
    return (int64_t)ceil(most * ECH_SLICE_UNIT);
}

/* The slices' size in the same units: for the most rows; or with a bound, the bound times a rank's
 * balanced share. */
static int64_t slice_size(const ech_block *block, const ech_experts *experts)
{
    double most = (double)most_sent(block, experts), size = most;
    double whole = (double)(experts->gate.chosen * ECH_SLICE_UNIT);
    if (experts->bound > 0) size = ceil(experts->bound * whole / block->options.sharding.expert);
    return (int64_t)(size < most ? size : most);
}

typedef struct slice_options {
    ech_shape places; /* of a slice */
    int64_t round;
} slice_options;

static void slice_forward(const ech_call *call)
{
    const slice_options *options = call->node->options;
    int64_t rows = ech_shape_count(&options->places, call->extent);
    call->kernels->slice_counts(call->context, &call->in[0], options->round * rows, rows,
                                &call->out[0]);
}

const ech_layer ech_layer_row_slice_counts = {.name = "slice_counts", .forward = slice_forward};

/* Computes the table of a round's slices from the table of whole splits. */
static int slice_counts(ech_block *block, int counts, int64_t size, ech_round round)
{
    if (round.of == 1) return counts;
    slice_options options = {ech_shape_1d(ECH_AXIS_SLICE, size), round.at};
    const ech_shape shape = block->value.at[counts].shape;
    ech_node *node = ech_block_node(block, &ech_layer_row_slice_counts, &options, sizeof options);
    ech_node_in(node, counts);
    return ech_node_out_table(block, node, "slice", shape, ECH_TYPE_FIXED, ECH_I32);
}

/* Sends packed rows, or their choices' numbers, to the ranks of their experts, in slices. */
static int receive(ech_block *block, const ech_routed *to, int packed, int64_t size,
                   ech_round round)
{
    if (packed < 0) return -1;
    const ech_shape *from = &block->value.at[packed].shape;
    ech_shape slices = {.dims = 3,
                        .axis = {ECH_AXIS_NONE, ECH_AXIS_SLICE, from->axis[1]},
                        .size = {block->options.sharding.expert, size, from->size[1]}};
    int tables[] = {to->counts, to->arriving};
    return ech_block_exchange_rows(block, packed, tables, slices, round);
}

static ech_round first_round(const ech_block *block, const ech_experts *experts, int64_t size)
{
    return (ech_round){0, (int)((most_sent(block, experts) + size - 1) / size)};
}

static int work_in_group(ech_block *block, const ech_routed *to, const ech_experts *experts)
{
    int64_t size = slice_size(block, experts);
    double whole = (double)(to->width * ECH_SLICE_UNIT);
    ech_shape packed = block->value.at[to->rows].shape;
    int tables[] = {to->counts, to->arriving}, back = -1;
    int all = gather_counts(block, to->arriving);
    for (ech_round round = first_round(block, experts, size); round.at < round.of; round.at++) {
        rows_by_expert of = {.counts = slice_counts(block, all, size, round),
                             .index = to->received_index,
                             .site = to->site,
                             .again = round.at > 0};
        if (!of.again) of.expected = whole / (double)(size * block->options.sharding.expert);
        if (of.again) ech_block_begin_round(block);
        int received = to->received;
        if (of.again) received = receive(block, to, to->rows, size, round);
        if (of.again) of.index = receive(block, to, to->index, size, round);
        of.rows = ech_block_gather_rows(block, received, all, round, of.expected);
        if (of.index >= 0)
            of.index = ech_block_gather_rows(block, of.index, all, round, of.expected);
        int y = work(block, &of, experts);
        y = ech_block_scatter_rows(block, y, all, round, of.expected);
        back = ech_block_return_rows(block, y, tables, packed, back, round);
        if (of.again) ech_block_end_round(block, round.at + 1 == round.of ? to->rows : -1);
    }
    return back;
}

/* ---- the layer ---- */

ech_routed ech_layer_send_rows(ech_block *block, int x, const ech_experts *experts)
{
    ech_routed to = ech_block_route(block, x, experts);
    to.rows = dispatch(block, &to);
    to.index = to.received_index = -1;
    if (experts->dropout > 0) {
        to.index = dispatch_index(block, &to);
        to.site = ECH_SITE_DROPOUT + (uint32_t)block->sites++;
    }
    if (!to.grouped) return to;
    int64_t size = slice_size(block, experts);
    to.arriving = ech_block_exchange_counts(block, to.counts);
    to.received = receive(block, &to, to.rows, size, first_round(block, experts, size));
    to.received_index = receive(block, &to, to.index, size, first_round(block, experts, size));
    return to;
}

int ech_layer_experts(ech_block *block, const ech_routed *to, const ech_experts *experts)
{
    rows_by_expert own = {.rows = to->rows,
                          .counts = to->counts,
                          .index = to->index,
                          .site = to->site,
                          .expected = 1};
    return to->grouped ? work_in_group(block, to, experts) : work(block, &own, experts);
}

int ech_layer_combine(ech_block *block, int y, const ech_routed *to)
{
    y = combine(block, y, to);
    return to->grouped ? ech_block_all_rows(block, y) : ech_block_sum(block, y);
}
