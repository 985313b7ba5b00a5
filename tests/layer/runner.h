/* SPDX-License-Identifier: Apache-2.0
 *
 * A block by itself, in fp64: every value in memory of its own, programs run by hand. So that
 * layers and ech_block_finish are tested without schedules and offsets.
 */
#ifndef ECH_TESTS_LAYER_RUNNER_H
#define ECH_TESTS_LAYER_RUNNER_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "layer/layers.h"

enum { RUNNER_PARAMS = 32, RUNNER_VALUES = 256, RUNNER_REPORT = 64 };

typedef struct runner {
    ech_pool *pool;
    ech_block *block;
    ech_extent extent;
    int params;
    ech_shape param_shape[RUNNER_PARAMS];
    double *param[RUNNER_PARAMS], *dparam[RUNNER_PARAMS];
    bool written[RUNNER_PARAMS], is_state[RUNNER_PARAMS];
    double *value[RUNNER_VALUES]; /* by base value */
    int calls[ECH_PHASES];
    double sums[ECH_LOSS_SUMS], hits[ECH_HITS], scale;
    double reported[RUNNER_REPORT], group_scale; /* of its one report; of balance groups' losses */
    const ech_kernels *kernels;
    ech_kernel_context *context;
    ech_purpose purpose;
    bool smoothed; /* the objective is the loss of training, which B computes */
} runner;

static inline double runner_draw(uint32_t stream, uint64_t i)
{
    double n[4];
    ech_random_normals((ech_random_key){.seed = 5, .stream = stream}, i / 4, n);
    return n[i % 4];
}

static inline runner runner_open(int64_t batch, int64_t tokens)
{
    runner r = {.extent = {.batch = batch, .tokens = tokens, .sequence = tokens},
                .kernels = ech_kernels_ref(ECH_F64),
                .purpose = ECH_TRAIN};
    r.pool = ech_pool_create();
    r.block = ech_block_create(r.pool, "block", 3, (ech_block_options){.loss_rows = 256});
    ECH_ASSERT(ech_kernel_context_create(1, &r.context) == ECH_OK);
    return r;
}

static inline int runner_param(runner *r, ech_shape shape)
{
    int64_t n = ech_shape_count(&shape, r->extent);
    int p = r->params++;
    r->param_shape[p] = shape;
    r->param[p] = ech_calloc((size_t)n, sizeof(double));
    r->dparam[p] = ech_calloc((size_t)n, sizeof(double));
    for (int64_t i = 0; i < n; i++)
        r->param[p][i] = 0.5 * runner_draw(100 + (uint32_t)p, (uint64_t)i);
    return p;
}

/* A layer state of n numbers: its gradient is the sum of partials. */
static inline int runner_state(runner *r, int64_t n)
{
    int p = runner_param(r, ech_shape_1d(ECH_AXIS_CHANNELS, n));
    r->is_state[p] = true;
    return p;
}

static inline int64_t runner_count(const runner *r, int value)
{
    return ech_shape_count(&r->block->value.at[value].shape, r->extent);
}

/* Documents of three tokens, whose borders lie elsewhere in each sample. */
static inline int32_t runner_start(int64_t sample, int64_t position)
{
    int64_t start = (position + sample) / 3 * 3 - sample;
    return (int32_t)(start > 0 ? start : 0);
}

/* Memory for everything; inputs are drawn, ids count up, weights alternate 1 and 0.5. */
static inline void runner_finish_values(runner *r)
{
    for (int v = 0; v < (int)r->block->value.n; v++) {
        const ech_block_value *value = &r->block->value.at[v];
        if (value->base >= 0) continue;
        int64_t n = runner_count(r, v);
        r->value[v] = ech_calloc((size_t)n, sizeof(double));
        for (int64_t i = 0; i < n; i++) {
            if (value->source == ECH_FROM_BLOCK)
                r->value[v][i] = runner_draw((uint32_t)v, (uint64_t)i);
            else if (value->slot == ECH_STARTS && value->source == ECH_FROM_BATCH)
                ((int32_t *)r->value[v])[i] =
                    runner_start(i / r->extent.tokens, i % r->extent.tokens);
            else if (value->type == ECH_TYPE_FIXED && value->dtype == ECH_I32)
                ((int32_t *)r->value[v])[i] = (int32_t)((7 * i + value->slot) % 5);
            else if (value->type == ECH_TYPE_FIXED)
                ((float *)r->value[v])[i] = i % 2 ? 0.5f : 1.0f;
        }
    }
    r->scale = 0.25;
    r->group_scale = 0.125;
}

static inline void runner_finish(runner *r)
{
    ech_param params[RUNNER_PARAMS] = {{0}};
    for (int p = 0; p < r->params; p++) params[p].shape = r->param_shape[p];
    for (int p = 0; p < r->params; p++)
        if (r->is_state[p]) params[p].commit = ech_layer_batch_norm_commit;
    ech_block_finish(r->block, params);
    runner_finish_values(r);
}

static inline void runner_close(runner *r)
{
    for (int v = 0; v < RUNNER_VALUES; v++) free(r->value[v]);
    for (int p = 0; p < r->params; p++) {
        free(r->param[p]);
        free(r->dparam[p]);
    }
    ech_kernel_context_destroy(r->context);
    ech_block_destroy(r->block);
    ech_pool_destroy(r->pool);
}

/* `value`: whose memory; `like`: whose geometry. */
static inline ech_tensor runner_tensor(const runner *r, int value, int like)
{
    return ech_block_tensor(r->block, like, r->extent, ech_types_of(ECH_F64), r->value[value]);
}

/* All of the sample's rows: nothing is cut. */
static inline ech_rows runner_rows(const runner *r)
{
    int64_t T = r->extent.tokens;
    return (ech_rows){.first_sample = 4, .whole = T, .tokens = T, .split = T};
}

static inline void runner_operand(runner *r, const ech_operand *o, ech_call *call)
{
    ech_tensor *port = &call->port[o->port][o->index];
    if (ech_operand_is_value(o)) *port = runner_tensor(r, o->value, o->like);
    if (ech_operand_is_value(o)) return;
    const ech_shape *shape = &r->param_shape[o->value];
    *port = ech_tensor_view(r->param[o->value], ECH_F64, shape->dims, shape->size);
    if (o->port == ECH_PORT_DPARAM) {
        *port = ech_tensor_view(r->dparam[o->value], ECH_F64, shape->dims, shape->size);
        call->accumulate[o->index] = r->written[o->value];
        r->written[o->value] = true;
    }
}

static inline void runner_call(runner *r, ech_phase phase, const ech_block_call *c)
{
    const ech_node *node = c->node < 0 ? NULL : &r->block->node.at[c->node];
    ech_call call = {.node = node,
                     .kernels = r->kernels,
                     .context = r->context,
                     .extent = r->extent,
                     .purpose = r->purpose,
                     .seed = 11,
                     .step = &(const int64_t){2},
                     .layer = 3,
                     .rows = runner_rows(r),
                     .shard = runner_rows(r),
                     .loss_sums = r->sums,
                     .hits = r->hits,
                     .loss_factor = &r->scale,
                     .state_share = 1,
                     .group_factor = &r->group_scale};
    bool forward = phase == ECH_FORWARD || c->recompute;
    for (const ech_operand *o = NULL; (o = ech_call_next(r->block, c, r->purpose, o));)
        if (o->port != ECH_PORT_SCRATCH) runner_operand(r, o, &call);
    if (node && node->report >= 0 && forward && !c->recompute) call.reported = r->reported;
    if (!node) {
        r->kernels->add(r->context, &call.add[0], &call.dout[0], &call.din[0]);
        return;
    }
    ech_scratch_query query = {.block = r->block,
                               .node = node,
                               .kernels = r->kernels,
                               .threads = 1,
                               .extent = r->extent,
                               .phase = forward ? ECH_FORWARD : phase,
                               .purpose = r->purpose};
    r->context->scratch_bytes = node->layer->scratch ? node->layer->scratch(&query) : 0;
    r->context->scratch = aligned_alloc(64, (r->context->scratch_bytes + 127) / 64 * 64);
    if (forward)
        node->layer->forward(&call);
    else if (phase == ECH_BACKWARD_INPUT)
        node->layer->backward_input(&call);
    else
        node->layer->backward_weight(&call);
    free(r->context->scratch);
}

static inline void runner_run(runner *r, ech_phase phase)
{
    for (size_t i = 0; i < r->block->program[phase].n; i++) {
        const ech_block_call *c = &r->block->program[phase].at[i];
        if (!(c->purposes & 1u << r->purpose)) continue;
        runner_call(r, phase, c);
        r->calls[phase]++;
    }
}

/* The losses of balance groups, of the block's one gate; 0 without. */
static inline double runner_balance(const runner *r)
{
    if (r->block->report.n == 0) return 0;
    const double *sums = r->reported + r->block->report.at[0].numbers - ECH_GATE_SUMS;
    ECH_ASSERT(r->block->report.n == 1 && r->block->report.at[0].numbers <= RUNNER_REPORT);
    return sums[ECH_GATE_AUXILIARY] + sums[ECH_GATE_IMPORTANCE] + sums[ECH_GATE_LOAD];
}

/* Returns the function that B and W differentiate: sum of outputs x their gradients, plus scale x
 * loss, plus group_scale x groups' losses. */
static inline double runner_objective(runner *r)
{
    double sum = 0;
    r->purpose =
        ECH_EVALUATE; /* joined layers compute the loss in F; dropout needs TRAIN, see below */
    for (size_t i = 0; i < r->block->node.n; i++)
        if (strcmp(r->block->node.at[i].layer->name, "dropout") == 0 ||
            strcmp(r->block->node.at[i].layer->name, "expert_dropout") == 0 ||
            strcmp(r->block->node.at[i].layer->name, "batch_norm") == 0 ||
            strcmp(r->block->node.at[i].layer->name, "gate") == 0 ||
            strcmp(r->block->node.at[i].layer->name, "attention") == 0)
            r->purpose = ECH_TRAIN;
    if (r->smoothed) r->purpose = ECH_TRAIN;
    memset(r->sums, 0, sizeof r->sums);
    memset(r->reported, 0, sizeof r->reported);
    runner_run(r, ECH_FORWARD);
    if (r->smoothed) runner_run(r, ECH_BACKWARD_INPUT);
    r->purpose = ECH_TRAIN;
    for (size_t o = 0; o < r->block->output.n; o++) {
        const double *y = r->value[ech_block_base(r->block, r->block->output.at[o])];
        const double *dy = r->value[r->block->doutput.at[o]];
        for (int64_t i = 0; i < runner_count(r, r->block->output.at[o]); i++) sum += y[i] * dy[i];
    }
    return sum + r->scale * r->sums[ECH_LOSS_SUM] + r->group_scale * runner_balance(r);
}

/* A layer of experts with nothing between its parts. */
static inline int runner_experts(ech_block *block, int x, const ech_experts *is)
{
    ech_routed to = ech_layer_send_rows(block, x, is);
    return ech_layer_combine(block, ech_layer_experts(block, &to, is), &to);
}

#endif
