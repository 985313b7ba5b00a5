/* SPDX-License-Identifier: Apache-2.0
 *
 * Which experts a row goes to: the router's logits, the gate's choice among them (kernel/gate.h), and the route, which is
 * where each choice lies in a buffer of rows by expert. Logits and gates are wide in all runs, so that half a bit does not
 * decide (Fedus et al. 2021, arXiv:2101.03961, section 2.4, "selective precision").
 */
#include "base/status.h"
#include "layer/experts.h"

/* ---- router: logits of the experts ---- */

typedef struct router_options {
    int64_t in, out;
    double jitter;
} router_options;

static ech_dropout jitter_of(const ech_call *call)
{
    const router_options *options = call->node->options;
    return ech_call_dropout(call, options->jitter, call->node->site);
}

static void router_forward(const ech_call *call)
{
    ech_dropout jitter = jitter_of(call);
    ech_tensor x = ech_tensor_matrix(&call->in[0]), logits = ech_tensor_matrix(&call->out[0]);
    call->kernels->router_forward(call->context, &x, &call->param[0], &jitter, ech_call_rows(call),
                                  &logits);
}

static void router_backward(const ech_call *call)
{
    ech_dropout jitter = jitter_of(call);
    ech_tensor dlogits = ech_tensor_matrix(&call->dout[0]), dx = ech_tensor_matrix(&call->din[0]);
    ech_tensor add = call->add[0];
    if (add.data) add = ech_tensor_matrix(&add);
    call->kernels->router_backward_input(call->context, &dlogits, &call->param[0], &jitter,
                                         ech_call_rows(call), ech_optional(&add), &dx);
}

static void router_backward_weight(const ech_call *call)
{
    ech_dropout jitter = jitter_of(call);
    ech_tensor x = ech_tensor_matrix(&call->in[0]), dlogits = ech_tensor_matrix(&call->dout[0]);
    call->kernels->router_backward_weight(call->context, &dlogits, &x, &jitter, ech_call_rows(call),
                                          call->accumulate[0], &call->dparam[0]);
}

/* Numbers of a rank's tensor a row. */
static int64_t rows_of(const ech_block *block, int value, ech_extent extent)
{
    return ech_shape_count(&block->value.at[value].shape, extent) / ech_columns(block, value);
}

static size_t router_scratch(const ech_scratch_query *query)
{
    static const ech_op ops[ECH_PHASES] = {
        [ECH_FORWARD] = ECH_OP_router_forward,
        [ECH_BACKWARD_INPUT] = ECH_OP_router_backward_input,
        [ECH_BACKWARD_WEIGHT] = ECH_OP_router_backward_weight,
    };
    const router_options *o = query->node->options;
    int64_t S = rows_of(query->block, query->node->in[0], query->extent);
    return ech_kernel_scratch(query->kernels, ops[query->phase], query->threads,
                              (int64_t[]){S, o->out, o->in});
}

static double router_multiplies(const ech_block *block, const ech_node *node, ech_extent extent,
                                ech_phase phase)
{
    const router_options *o = node->options;
    (void)phase;
    return (double)rows_of(block, node->in[0], extent) * (double)o->in * (double)o->out;
}

const ech_layer ech_layer_row_router = {.name = "router",
                                        .forward = router_forward,
                                        .backward_input = router_backward,
                                        .backward_weight = router_backward_weight,
                                        .scratch = router_scratch,
                                        .multiplies = router_multiplies,
                                        .fuses_add = true};

static int router(ech_block *block, int x, int weight, int64_t E, double jitter)
{
    router_options options = {ech_columns(block, x), E, jitter};
    ech_node *node = ech_block_node(block, &ech_layer_row_router, &options, sizeof options);
    ech_node_in(node, x);
    ech_node_param(node, weight);
    node->b.param = 1;
    node->w.in = 1;
    if (jitter > 0) node->site = ECH_SITE_DROPOUT + (uint32_t)block->sites++;
    int out = ech_node_out(block, node, "logits", ech_shape_beside(block, x, ECH_AXIS_CHOICES, E));
    block->value.at[out].type = ECH_TYPE_WIDE;
    return out;
}

/* ---- gate: the choice ---- */

/* The gate of this call: of this list's purpose, and as rows lie over ranks. */
static ech_gate gate_of(const ech_call *call)
{
    ech_gate gate = *(const ech_gate *)call->node->options;
    const ech_sharding *sharding = &call->extent.sharding;
    gate.draws = call->purpose == ECH_TRAIN;
    gate.key = (ech_random_key){.seed = call->seed,
                                .stream = ech_random_stream(call->layer, call->node->site)};
    gate.step = call->step;
    gate.context = sharding->context > 1 ? sharding->context : 1;
    gate.tensor = sharding->sequence ? sharding->tensor : 1;
    return gate;
}

static void gate_forward(const ech_call *call)
{
    ech_gate gate = gate_of(call);
    ech_tensor logits = ech_tensor_matrix(&call->in[0]), gates = ech_tensor_matrix(&call->out[0]);
    ech_tensor choice = ech_tensor_matrix(&call->out[1]);
    ech_tensor partial =
        ech_tensor_1d(call->reported, ECH_F64, ech_gate_partial(gate.experts));
    call->kernels->gate_forward(call->context, &gate, &logits, NULL, NULL, NULL, NULL,
                                ech_optional(&call->in[1]), ech_call_rows(call), &gates, &choice,
                                NULL, ech_optional(&partial));
}

static void gate_backward(const ech_call *call)
{
    ech_gate gate = gate_of(call);
    ech_tensor logits = ech_tensor_matrix(&call->in[0]), dgates = ech_tensor_matrix(&call->dout[0]);
    ech_tensor choice = ech_tensor_matrix(&call->out[1]), dlogits = ech_tensor_matrix(&call->din[0]);
    call->kernels->gate_backward(call->context, &gate, &logits, NULL, NULL,
                                 ech_optional(&call->in[1]), ech_call_rows(call), &choice, NULL,
                                 &dgates, NULL, &dlogits, NULL);
}

static size_t gate_scratch(const ech_scratch_query *query)
{
    const ech_gate *gate = query->node->options;
    int64_t S = rows_of(query->block, query->node->in[0], query->extent);
    int64_t L = ech_gate_logits(gate), k = gate->chosen;
    if (query->phase == ECH_FORWARD)
        return ech_kernel_scratch(query->kernels, ECH_OP_gate_forward, query->threads,
                                  (int64_t[]){S, L, k, 0});
    return ech_kernel_scratch(query->kernels, ECH_OP_gate_backward, query->threads,
                              (int64_t[]){S, L, k});
}

const ech_layer ech_layer_row_gate = {.name = "gate",
                                      .forward = gate_forward,
                                      .backward_input = gate_backward,
                                      .scratch = gate_scratch};

/* Returns the table of choices. */
static int gate(ech_block *block, int logits, const ech_gate *is, int *gates)
{
    int lengths = ech_block_batch(block, ECH_LENGTHS);
    ech_shape shape = ech_shape_beside(block, logits, ECH_AXIS_CHOICES, is->chosen);
    ech_node *node = ech_block_node(block, &ech_layer_row_gate, is, sizeof *is);
    ech_node_in(node, logits);
    ech_node_in(node, lengths);
    node->b = (ech_reads){.in = 3, .out = 2};
    ech_block_report(block, node, ECH_GATE_REPORT, block->name, ech_gate_partial(is->experts));
    *gates = ech_node_out(block, node, "gates", shape);
    block->value.at[*gates].type = ECH_TYPE_WIDE;
    return ech_node_out_table(block, node, "choice", shape, ECH_TYPE_FIXED, ECH_I32);
}

/* ---- route: places in the buffer ---- */

typedef struct route_options {
    ech_shape places; /* of the buffer */
    int64_t pieces;
} route_options;

static void route_forward(const ech_call *call)
{
    const route_options *options = call->node->options;
    ech_tensor choice = ech_tensor_matrix(&call->in[0]), slot = ech_tensor_matrix(&call->out[0]);
    int64_t bound = ech_shape_count(&options->places, call->extent) / options->pieces;
    call->kernels->route(call->context, &choice, bound, &slot, &call->out[1]);
}

const ech_layer ech_layer_row_route = {.name = "route", .forward = route_forward};

ech_routed ech_block_route(ech_block *block, int x, const ech_experts *experts)
{
    const ech_gate *is = &experts->gate;
    int e = block->options.sharding.expert > 1 ? block->options.sharding.expert : 1;
    ech_routed to = {.axis = e > 1 ? ECH_AXIS_SLOTS : ECH_AXIS_RECEIVED, .width = e * is->chosen};
    int logits = router(block, x, experts->router, is->experts, experts->jitter);
    int choice = gate(block, logits, is, &to.gates);
    to.x = ech_block_whole(block, x, false);
    choice = ech_block_whole_table(block, choice);
    route_options options = {ech_shape_1d(to.axis, to.width), e};
    ech_shape counts = ech_shape_2d(ECH_AXIS_NONE, e, ECH_AXIS_EXPERTS, is->experts);
    ech_node *node = ech_block_node(block, &ech_layer_row_route, &options, sizeof options);
    ech_node_in(node, choice);
    to.slot = ech_node_out_table(block, node, "slot", block->value.at[choice].shape,
                                 ECH_TYPE_FIXED, ECH_I32);
    to.counts =
        ech_node_out_table(block, node, "counts", counts, ECH_TYPE_FIXED, ECH_I32);
    return to;
}
