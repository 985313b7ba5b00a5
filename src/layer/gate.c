/* SPDX-License-Identifier: Apache-2.0
 *
 * Routing of rows to experts: the router's logits, the gate's choice (kernel/gate.h), and the
 * route, which assigns each choice a slot in a buffer of rows by expert. Logits and gates are wide
 * in all runs, so that half a bit does not decide (Fedus et al. 2021, arXiv:2101.03961, section
 * 2.4, "selective precision"). For gates with noise a second product of the router scales it
 * (Shazeer et al. 2017, arXiv:1701.06538), in training only.
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
    if (call->param[1].data)
        call->kernels->add_bias(call->context, &logits, &call->param[1], &logits);
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
    if (call->dparam[0].data)
        call->kernels->router_backward_weight(call->context, &dlogits, &x, &jitter,
                                              ech_call_rows(call), call->accumulate[0],
                                              &call->dparam[0]);
    if (call->dparam[1].data)
        call->kernels->bias_backward(call->context, &dlogits, call->accumulate[1],
                                     &call->dparam[1]);
}

/* Rows of a rank's tensor. */
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
    size_t own = ech_kernel_scratch(query->kernels, ops[query->phase], query->threads,
                                    (int64_t[]){S, o->out, o->in});
    if (query->phase != ECH_BACKWARD_WEIGHT || query->node->params < 2) return own;
    size_t bias = ech_kernel_scratch(query->kernels, ECH_OP_bias_backward, query->threads,
                                     (int64_t[]){S, o->out});
    return bias > own ? bias : own;
}

static ech_products router_products(const ech_block *block, const ech_node *node, ech_extent extent,
                                    ech_phase phase)
{
    const router_options *o = node->options;
    (void)phase;
    return (ech_products){(double)rows_of(block, node->in[0], extent), (double)o->out,
                          (double)o->in, 1};
}

const ech_layer ech_layer_row_router = {.name = "router",
                                        .forward = router_forward,
                                        .backward_input = router_backward,
                                        .backward_weight = router_backward_weight,
                                        .scratch = router_scratch,
                                        .products = router_products,
                                        .fuses_add = true};

/* x (S,C) -> (S,out), in lists of `purposes`. bias: -1: none. */
static int router(ech_block *block, int x, int weight, int bias, int64_t out, double jitter,
                  unsigned purposes)
{
    router_options options = {ech_columns(block, x), out, jitter};
    ech_node *node = ech_block_node(block, &ech_layer_row_router, &options, sizeof options);
    ech_node_in(node, x);
    ech_node_weights(node, weight, bias);
    node->w.in = 1;
    node->purposes = purposes;
    if (jitter > 0) node->site = ECH_SITE_DROPOUT + (uint32_t)block->sites++;
    int logits =
        ech_node_out(block, node, "logits", ech_shape_beside(block, x, ECH_AXIS_CHOICES, out));
    block->value.at[logits].type = ECH_TYPE_WIDE;
    block->value.at[logits].purposes = purposes;
    return logits;
}

/* ---- rows of what shared experts make, each by a logit of its own ---- */

static void shared_forward(const ech_call *call)
{
    ech_tensor logits = ech_tensor_matrix(&call->in[0]), x = ech_tensor_matrix(&call->in[1]);
    ech_tensor y = ech_tensor_matrix(&call->out[0]);
    call->kernels->row_gate_forward(call->context, &x, &logits, &y);
}

static void shared_backward(const ech_call *call)
{
    ech_tensor logits = ech_tensor_matrix(&call->in[0]), x = ech_tensor_matrix(&call->in[1]);
    ech_tensor dy = ech_tensor_matrix(&call->dout[0]), dx = ech_tensor_matrix(&call->din[1]);
    ech_tensor dlogits = ech_tensor_matrix(&call->din[0]);
    call->kernels->row_gate_backward(call->context, &dy, &x, &logits, &dx, &dlogits);
}

const ech_layer ech_layer_row_shared_gate = {
    .name = "shared_gate", .forward = shared_forward, .backward_input = shared_backward};

int ech_layer_shared_gate(ech_block *block, int x, int weight, int y)
{
    int logits = router(block, x, weight, -1, 1, 0, ~0u);
    ech_node *node = ech_block_node(block, &ech_layer_row_shared_gate, NULL, 0);
    ech_node_in(node, logits);
    ech_node_in(node, y);
    node->b.in = 3;
    return ech_node_out_like(block, node, y);
}

/* ---- gate: the choice ---- */

/* Fixed ports of its node; others are in its options. */
enum { LOGITS, LENGTHS, GATES = 0, CHOICE, STATISTICS };

typedef struct gate_options {
    ech_gate gate;
    int noise, all, all_noise; /* ports, -1: none; a list of another purpose has no value there */
} gate_options;

/* Lists in which it uses balance groups: sampling predicts next tokens of whole texts, so it drops
 * no row. And lists in which it draws noise. */
static const unsigned grouped = 1u << ECH_TRAIN | 1u << ECH_EVALUATE, noisy = 1u << ECH_TRAIN;

/* Ranks that have rows of the same samples; tensor ranks only if rows are sharded over them. */
static int64_t context_ranks(const ech_sharding *sharding)
{
    return sharding->context > 1 ? sharding->context : 1;
}

static int64_t tensor_ranks(const ech_sharding *sharding)
{
    bool sharded = sharding->sequence || sharding->expert > 1;
    return sharded && sharding->tensor > 1 ? sharding->tensor : 1;
}

int64_t ech_gate_members(const ech_sharding *sharding)
{
    return context_ranks(sharding) * tensor_ranks(sharding);
}

/* The gate of this call, for this list's purpose and the distribution of rows over ranks. */
static ech_gate gate_of(const ech_call *call)
{
    ech_gate gate = ((const gate_options *)call->node->options)->gate;
    const ech_sharding *sharding = &call->extent.sharding;
    gate.draws = call->purpose == ECH_TRAIN;
    gate.key = (ech_random_key){.seed = call->seed,
                                .stream = ech_random_stream(call->layer, call->node->site)};
    gate.step = call->step;
    gate.context = context_ranks(sharding);
    gate.tensor = tensor_ranks(sharding);
    gate.zigzag = gate.context > 1 && !call->options->ulysses;
    gate.member = gate.context > 1 ? call->context_index * gate.tensor : 0;
    if (gate.tensor > 1) gate.member += call->tensor_index;
    if (!(grouped & 1u << call->purpose))
        gate.capacity_factor = gate.auxiliary = gate.importance = gate.load = 0;
    return gate;
}

/* One row per group of the micro-batch; NULL if there are none. */
static const ech_tensor *statistics_of(const ech_call *call, const ech_gate *gate, ech_tensor *out)
{
    if (!ech_gate_looks_at_groups(gate)) return NULL;
    *out = ech_tensor_2d(call->out[STATISTICS].data, ECH_F64, call->extent.batch / gate->samples,
                         ech_gate_statistics(gate));
    return out;
}

/* A port's rows; NULL if there are none. */
static const ech_tensor *matrix_of(const ech_tensor *ports, int port, ech_tensor *out)
{
    if (port < 0 || !ports[port].data) return NULL;
    *out = ech_tensor_matrix(&ports[port]);
    return out;
}

static void gate_forward(const ech_call *call)
{
    const gate_options *at = call->node->options;
    ech_gate gate = gate_of(call);
    ech_tensor own, others, others_noise, logits = ech_tensor_matrix(&call->in[LOGITS]), statistics;
    ech_tensor gates = ech_tensor_matrix(&call->out[GATES]);
    ech_tensor choice = ech_tensor_matrix(&call->out[CHOICE]);
    ech_tensor partial = ech_tensor_1d(call->reported, ECH_F64, ech_gate_partial(gate.experts));
    const ech_tensor *groups = statistics_of(call, &gate, &statistics);
    const ech_tensor *noise = matrix_of(call->in, at->noise, &own);
    const ech_tensor *all = matrix_of(call->in, at->all, &others);
    const ech_tensor *all_noise = matrix_of(call->in, at->all_noise, &others_noise);
    if (!all) all = &logits;
    if (!all_noise) all_noise = noise;
    call->kernels->gate_forward(call->context, &gate, &logits, noise, groups ? all : NULL,
                                groups ? all_noise : NULL, ech_optional(&call->param[0]),
                                ech_optional(&call->in[LENGTHS]), ech_call_rows(call), &gates,
                                &choice, groups, ech_optional(&partial));
}

static void gate_backward(const ech_call *call)
{
    const gate_options *at = call->node->options;
    ech_gate gate = gate_of(call);
    ech_tensor own, down, logits = ech_tensor_matrix(&call->in[LOGITS]), statistics;
    ech_tensor dgates = ech_tensor_matrix(&call->dout[GATES]);
    ech_tensor choice = ech_tensor_matrix(&call->out[CHOICE]);
    ech_tensor dlogits = ech_tensor_matrix(&call->din[LOGITS]);
    ech_tensor factor = ech_tensor_view(call->group_factor, ECH_F64, 0, NULL);
    const ech_tensor *groups = statistics_of(call, &gate, &statistics);
    const ech_tensor *noise = matrix_of(call->in, at->noise, &own);
    const ech_tensor *dnoise = matrix_of(call->din, at->noise, &down);
    call->kernels->gate_backward(call->context, &gate, &logits, noise,
                                 ech_optional(&call->param[0]), ech_optional(&call->in[LENGTHS]),
                                 ech_call_rows(call), &choice, groups, &dgates,
                                 groups ? &factor : NULL, &dlogits, dnoise);
}

static size_t gate_scratch(const ech_scratch_query *query)
{
    const ech_gate *gate = &((const gate_options *)query->node->options)->gate;
    const ech_sharding *sharding = &query->extent.sharding;
    bool groups = ech_gate_looks_at_groups(gate) && grouped & 1u << query->purpose;
    int64_t S = rows_of(query->block, query->node->in[LOGITS], query->extent);
    int64_t L = ech_gate_logits(gate), k = gate->chosen;
    int64_t N = groups ? S * ech_gate_members(sharding) : S;
    if (query->phase == ECH_FORWARD)
        return ech_kernel_scratch(
            query->kernels, ECH_OP_gate_forward, query->threads,
            (int64_t[]){N, L, k, groups ? query->extent.batch / gate->samples : 0});
    return ech_kernel_scratch(query->kernels, ECH_OP_gate_backward, query->threads,
                              (int64_t[]){S, L, k});
}

const ech_layer ech_layer_row_gate = {.name = "gate",
                                      .forward = gate_forward,
                                      .backward_input = gate_backward,
                                      .scratch = gate_scratch};

/* Adds a table of x's rows of all ranks of a group, one after the other; `shape`: of these. In
 * lists of `purposes`. */
static int gather_rows(ech_block *block, const ech_layer *layer, int x, ech_shape shape,
                       unsigned purposes)
{
    ech_node *node = ech_block_node(block, layer, NULL, 0);
    ech_node_in(node, x);
    node->purposes = purposes;
    int all = ech_node_out_table(block, node, "all", shape, ECH_TYPE_WIDE, ECH_F64);
    block->value.at[all].purposes = purposes;
    return all;
}

/* The logits of all ranks that have rows of the same samples, context coordinate first; -1: the
 * rank has all rows itself. */
static int gather_members(ech_block *block, int logits, unsigned purposes)
{
    const ech_sharding *sharding = &block->options.sharding;
    int64_t L = ech_columns(block, logits);
    int all = -1;
    if (tensor_ranks(sharding) > 1)
        all = gather_rows(block, &ech_layer_row_gather_table, logits,
                          ech_shape_rows(ECH_AXIS_CHOICES, L), purposes);
    if (context_ranks(sharding) > 1)
        all = gather_rows(block, &ech_layer_row_gather_context, all < 0 ? logits : all,
                          (ech_shape){.dims = 3,
                                      .axis = {ECH_AXIS_BATCH, ECH_AXIS_SEQUENCE, ECH_AXIS_CHOICES},
                                      .size = {0, 0, L}},
                          purposes);
    return all;
}

/* Adds what B needs of each balance group: one row per sample; groups use the first ones. */
static void add_statistics(ech_block *block, ech_node *node, const ech_gate *is)
{
    ech_shape shape =
        ech_shape_2d(ECH_AXIS_BATCH, 0, ECH_AXIS_CHOICES, ech_gate_statistics(is));
    int statistics =
        ech_node_out_table(block, node, "statistics", shape, ECH_TYPE_FIXED, ECH_F64);
    block->value.at[statistics].purposes = grouped;
    node->b.out |= 1u << STATISTICS;
}

/* The port of the value in a node that is not made yet. */
static int next_port(int *ports, int value)
{
    return value < 0 ? -1 : (*ports)++;
}

/* Gates whose choices depend on random numbers. */
static bool draws(const ech_gate *is)
{
    return is->kind == ECH_GATE_gshard || ech_gate_has_noise(is->kind);
}

/* noise: like logits, for gates that have it; otherwise -1. Returns the table of choices. */
static int gate(ech_block *block, int logits, int noise, const ech_experts *experts, int *gates)
{
    const ech_gate *is = &experts->gate;
    bool groups = ech_gate_looks_at_groups(is);
    int lengths = ech_block_batch(block, ECH_LENGTHS), ports = LENGTHS + 1;
    int all = groups ? gather_members(block, logits, grouped) : -1;
    int all_noise = groups && noise >= 0 ? gather_members(block, noise, noisy) : -1;
    gate_options options = {.gate = *is, .noise = next_port(&ports, noise)};
    options.all = next_port(&ports, all);
    options.all_noise = next_port(&ports, all_noise);
    ech_shape shape = ech_shape_beside(block, logits, ECH_AXIS_CHOICES, is->chosen);
    ech_node *node = ech_block_node(block, &ech_layer_row_gate, &options, sizeof options);
    ech_node_in(node, logits);
    ech_node_in(node, lengths);
    if (noise >= 0) ech_node_in(node, noise);
    if (all >= 0) ech_node_in(node, all);
    if (all_noise >= 0) ech_node_in(node, all_noise);
    if (draws(is)) node->site = ECH_SITE_DROPOUT + (uint32_t)block->sites++;
    node->b = (ech_reads){.in = 1u << LOGITS | 1u << LENGTHS, .out = 1u << CHOICE};
    if (noise >= 0) node->b.in |= 1u << options.noise;
    if (is->kind == ECH_GATE_bias) {
        ech_node_param(node, experts->bias);
        node->b.param = 1;
    }
    ech_block_report(block, node, ECH_GATE_REPORT, block->name, ech_gate_partial(is->experts));
    *gates = ech_node_out(block, node, "gates", shape);
    block->value.at[*gates].type = ECH_TYPE_WIDE;
    int choice = ech_node_out_table(block, node, "choice", shape, ECH_TYPE_FIXED, ECH_I32);
    if (groups) add_statistics(block, node, is);
    return choice;
}

/* ---- the bias that balances experts: counts of choices in a step ---- */

static void load_forward(const ech_call *call)
{
    ech_tensor choice = ech_tensor_matrix(&call->in[0]);
    call->kernels->gate_load(call->context, &choice, call->accumulate[0], &call->dparam[0]);
}

const ech_layer ech_layer_row_gate_load = {
    .name = "gate_load", .forward = load_forward, .writes_partials = true};

void ech_gate_balance(const ech_commit *commit)
{
    commit->kernels->gate_balance(commit->context, commit->sum, commit->of->commit_rate,
                                  commit->update, commit->state);
}

static void count(ech_block *block, int choice, int bias)
{
    ech_node *node = ech_block_node(block, &ech_layer_row_gate_load, NULL, 0);
    ech_node_in(node, choice);
    ech_node_param(node, bias);
    node->purposes = 1u << ECH_TRAIN;
}

/* ---- route: slots in the buffer ---- */

/* Rows for one rank come before rows for the next, as their experts do: one split. */
static void route_forward(const ech_call *call)
{
    ech_tensor choice = ech_tensor_matrix(&call->in[0]), slot = ech_tensor_matrix(&call->out[0]);
    const ech_tensor *table = &call->out[1];
    ech_tensor counts = ech_tensor_2d(table->data, table->dtype, 1, ech_tensor_count(table));
    call->kernels->route(call->context, &choice, ech_tensor_count(&choice), &slot, &counts);
}

const ech_layer ech_layer_row_route = {.name = "route", .forward = route_forward};

ech_routed ech_block_route(ech_block *block, int x, const ech_experts *experts)
{
    const ech_gate *is = &experts->gate;
    int e = block->options.sharding.expert > 1 ? block->options.sharding.expert : 1;
    ech_routed to = {.grouped = e > 1, .width = is->chosen};
    to.x = x = to.grouped ? ech_block_own_rows(block, x) : x;
    int64_t L = ech_gate_logits(is);
    int bias = experts->biased ? experts->router_bias : -1, noise = -1;
    int logits = router(block, x, experts->router, bias, L, experts->jitter, ~0u);
    if (ech_gate_has_noise(is->kind)) noise = router(block, x, experts->noise, -1, L, 0, noisy);
    int choice = gate(block, logits, noise, experts, &to.gates);
    if (is->kind == ECH_GATE_bias) count(block, choice, experts->bias);
    if (!to.grouped) {
        to.x = ech_block_whole(block, x, false);
        choice = ech_block_whole_table(block, choice);
    }
    ech_shape counts = ech_shape_2d(ECH_AXIS_NONE, e, ECH_AXIS_EXPERTS, is->experts);
    ech_node *node = ech_block_node(block, &ech_layer_row_route, NULL, 0);
    ech_node_in(node, choice);
    to.slot = ech_node_out_table(block, node, "slot", block->value.at[choice].shape,
                                 ECH_TYPE_FIXED, ECH_I32);
    to.counts =
        ech_node_out_table(block, node, "counts", counts, ECH_TYPE_FIXED, ECH_I32);
    return to;
}
