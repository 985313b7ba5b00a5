/* SPDX-License-Identifier: Apache-2.0
 *
 * FLOPs and bytes of calls.
 */
#include "schedule/work.h"

#include <stdlib.h>

typedef struct counter {
    const ech_plan *plan;
    const ech_list *list;
    const ech_step *step;
    const ech_block *block;
    double bytes;
} counter;

static void count_value(void *context, int value, bool write)
{
    counter *c = context;
    (void)write;
    c->bytes += (double)ech_block_value_bytes(c->block, value, c->list->extent, c->plan->real);
}

static double bytes_of_param(const counter *c, int param)
{
    return (double)c->plan->param[param].elements * (double)ech_dtype_bytes(c->plan->real);
}

/* Of a table rows are read, at most as many as there are tokens. */
static double bytes_read(const counter *c, const ech_node *node, int param)
{
    double all = bytes_of_param(c, param);
    if (!node->layer->looks_up) return all;
    double rows =
        (double)ech_block_value_bytes(c->block, node->out[0], c->list->extent, c->plan->real);
    return rows < all ? rows : all;
}

/* The first writer writes all of a gradient; everyone else adds to what is there. */
static double bytes_of_gradient(const counter *c, const ech_node *node, int param, int call)
{
    const ech_writer *first =
        &c->list->first_writer[(size_t)c->step->turn * c->plan->model->param.n + (size_t)param];
    bool adds = &c->list->step.at[first->step] != c->step || first->call != call;
    if (adds) return 2 * bytes_read(c, node, param);
    return bytes_of_param(c, param) + (node->layer->looks_up ? 2 * bytes_read(c, node, param) : 0);
}

static void count_params(counter *c, const ech_node *node, ech_phase phase, int call)
{
    bool reads = phase != ECH_BACKWARD_WEIGHT;
    bool writes =
        phase == ECH_BACKWARD_WEIGHT || (phase == ECH_BACKWARD_INPUT && node->layer->finishes_in_b);
    for (int i = 0; i < node->params; i++) {
        if (reads) c->bytes += bytes_read(c, node, node->param[i]);
        if (writes) c->bytes += bytes_of_gradient(c, node, node->param[i], call);
    }
}

ech_work ech_call_work(const ech_plan *plan, const ech_list *list, const ech_step *step, int call)
{
    const ech_block *block = plan->model->block.at[step->block];
    const ech_block_call *of = &block->program[step->phase].at[call];
    counter c = {.plan = plan, .list = list, .step = step, .block = block};
    ech_work work = {0};
    ech_call_touches(block, of, step->phase, list->purpose, count_value, &c);
    if (of->node >= 0) {
        const ech_node *node = &block->node.at[of->node];
        ech_phase does = of->again ? ECH_FORWARD : step->phase;
        if (ech_layer_idles(node->layer, does, list->purpose)) return work;
        count_params(&c, node, does, call);
        work.flops = 2 * ech_call_multiplies(block, of, step->phase, list->extent);
    }
    work.bytes = c.bytes;
    return work;
}
