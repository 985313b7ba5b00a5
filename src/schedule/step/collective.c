/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives of tensor or context ranks, of an expert group, or of replicas (batch norm), inside
 * of a block: COLLECTIVE.
 * Scalars that ranks fold: REDUCE.
 */
#include "schedule/step/step.h"

/* An all-to-all between heads and tokens packs both buffers shard by shard. */
static size_t exchange_scratch(const ech_exchange *does, ech_dtype dtype, int64_t elements,
                               ech_lineup of)
{
    size_t packed = 2 * (size_t)elements * ech_dtype_bytes(dtype);
    bool packs = does->kind == ECH_COLLECTIVE_ALL_TO_ALL && does->distance != 0;
    return packs ? packed : ech_collective_scratch(does->kind, dtype, elements, of);
}

static void touch(ech_accessor *a)
{
    const ech_block *block = a->plan->model->block.at[a->step->block];
    if (!a->step->calls) {
        ech_message_touch(a);
        return;
    }
    const ech_block_call *call = &block->program[a->step->phase].at[a->step->first_call];
    int64_t elements = ech_step_exchange_elements(block, call, a->list->extent);
    ech_dtype dtype = ech_step_exchange_dtype(block, call, a->plan->types);
    int members =
        ech_layout_group_size(a->plan->layout, a->plan->model, a->plan->rank, a->step->group);
    ech_access_call(a, a->step->first_call);
    const ech_exchange *does = ech_call_exchange(block, call, a->step->phase, a->list->purpose);
    ech_access_scratch(a,
                       exchange_scratch(does, dtype, elements, ech_plan_among(a->plan, members)));
}

static void print(const ech_step *step, ech_text *out)
{
    static const char letters[ECH_PHASES + 1] = "FBWR";
    ech_text_append(out, " %c%d.%d/%d", letters[step->phase], step->chunk, step->micro,
                    step->block);
    if (step->calls)
        ech_step_print_calls(step, out);
    else
        ech_text_append(out, "[received]");
    ech_text_append(out, " %s over %s", ech_collective_name(step->collective),
                    ech_layout_group_name(step->group));
}

static ech_work work(const ech_step_query *q)
{
    return (ech_work){.bytes = (double)q->step->bytes};
}

static double seconds(const ech_step_query *q)
{
    return ech_step_latency(q) + (double)q->step->bytes / ech_step_bandwidth(q);
}

static int64_t messages_of(const ech_traffic_count *c, const ech_step *step, ech_dtype dtype,
                           int64_t elements)
{
    const ech_membership *m = &c->of[step->group];
    ech_lineup of = ech_plan_among(c->plan, m->size);
    return ech_collective_traffic(step->collective, dtype, elements, of, m->index).messages;
}

/* Message shards from another stage: one collective per tensor. */
static ech_flow whole_flow(const ech_traffic_count *c, const ech_step *step, const ech_block *block)
{
    const int *ports;
    size_t n = ech_step_ports(step, block, &ports);
    ech_flow flow = {0};
    for (size_t i = 0; i < n; i++) {
        if (ports[i] < 0) continue;
        const ech_shape *shape = &block->value.at[ports[i]].shape;
        flow.calls++;
        flow.messages +=
            messages_of(c, step, ech_block_value_dtype(block, ports[i], c->plan->types),
                        ech_shape_count(shape, c->list->extent));
    }
    return flow;
}

/* The most elements of one split of an exchange of rows: as many as the packed buffer has, or fewer
 * if the slices of all its rounds have no room for these. */
static int64_t split_elements(const ech_traffic_count *c, const ech_block *block,
                              const ech_node *node, int64_t packed, int members)
{
    const ech_exchange *does = &node->layer->exchange;
    if (does->kind != ECH_COLLECTIVE_EXCHANGE_ROWS) return packed;
    int slices = does->distance > 0 ? node->out[0] : node->in[0];
    int64_t split = ech_shape_count(&block->value.at[slices].shape, c->list->extent) / members;
    split *= ech_node_round(node).of;
    return split < packed ? split : packed;
}

/* The most that the rounds after the first exchange counts for the first such round; B, which
 * recomputes them, sends it again. Slices that tensor ranks gather may be full in each round, in
 * as many segments as there are counts. */
static ech_flow call_flow(const ech_traffic_count *c, const ech_step *step, const ech_block *block)
{
    const ech_block_call *call = &block->program[step->phase].at[step->first_call];
    const ech_exchange *does = ech_call_exchange(block, call, step->phase, c->list->purpose);
    ech_dtype dtype = ech_step_exchange_dtype(block, call, c->plan->types);
    int64_t elements = ech_step_exchange_elements(block, call, c->list->extent);
    const ech_membership *m = &c->of[step->group];
    elements = ech_step_sent_elements(does, elements, *m);
    const ech_node *node = &block->node.at[call->node];
    int64_t split = split_elements(c, block, node, elements, m->size);
    bool rest = ech_step_exchanges_rest(block, call);
    bool second = call->recompute && node->round == 1;
    bool back = does->distance < 0;
    int64_t most = ech_collective_most(step->collective, dtype, back ? split : elements,
                                       ech_plan_among(c->plan, m->size), m->index, back);
    if (ech_node_goes_by_counts(node) && step->collective != ECH_COLLECTIVE_EXCHANGE_ROWS)
        return (ech_flow){.calls = 1, .messages = -1, .more = most - step->bytes};
    return (ech_flow){.calls = 1,
                      .messages = rest ? 0 : messages_of(c, step, dtype, elements),
                      .more = rest && !second ? 0 : most - step->bytes};
}

static void count(ech_traffic_count *c, const ech_step *step)
{
    const ech_block *block = c->plan->model->block.at[step->block];
    ech_mesh axes = ech_layout_group_axes(step->group);
    ech_traffic_axis along = axes & ECH_MESH_TENSOR      ? ECH_TRAFFIC_TENSOR
                             : axes == ECH_MESH_CONTEXT  ? ECH_TRAFFIC_CONTEXT
                             : axes == ECH_MESH_REPLICAS ? ECH_TRAFFIC_NORM
                                                         : ECH_TRAFFIC_EXPERT;
    ech_flow flow = step->calls ? call_flow(c, step, block) : whole_flow(c, step, block);
    flow.bytes = step->bytes;
    ech_traffic_add(&c->traffic[along], step->collective, step->group, flow);
}

const ech_step_methods ech_collective_methods = {touch, print, work, seconds, count};

/* ---- REDUCE ---- */

/* Member 0 gathers all members' numbers. The others have the same memory, since ranks of a stage
 * have equal plans. */
static void touch_scalars(ech_accessor *a)
{
    size_t members = (size_t)ech_layout_group_size(a->plan->layout, a->plan->model, a->plan->rank,
                                                   a->step->group);
    ech_access_value(a, a->plan->scalars, true);
    ech_access_scratch(a, members * (size_t)a->step->count * sizeof(double));
}

static void print_scalars(const ech_step *step, ech_text *out)
{
    const char *first = ech_scalar_name(step->index);
    const char *last = ech_scalar_name(step->index + step->count - 1);
    ech_text_append(out, " %s", first);
    if (last != first) ech_text_append(out, "..%s", last);
    ech_text_append(out, " %s over %s", step->maximum ? "maximum" : "sum",
                    ech_layout_group_name(step->group));
}

/* A few numbers, gathered and sent out again. */
static double scalars_seconds(const ech_step_query *q)
{
    return 2 * ech_step_latency(q);
}

/* Traffic excludes scalars. */
const ech_step_methods ech_scalars_methods = {
    .touch = touch_scalars, .print = print_scalars, .seconds = scalars_seconds};
