/* SPDX-License-Identifier: Apache-2.0
 *
 * FLOPs and bytes of calls.
 */
#include "schedule/work.h"
#include "schedule/operands.h"
#include "schedule/states.h"

#include <stdlib.h>

typedef struct counter {
    const ech_plan *plan;
    const ech_list *list;
    const ech_step *step;
    const ech_block *block;
    const ech_node *node;
    int call;
    bool adds; /* to gradients that earlier micro-batches have written */
} counter;

/* Of a view only its own part of the base. */
static double bytes_of_value(const counter *c, int value)
{
    return (double)ech_shape_count(&c->block->value.at[value].shape, c->list->extent) *
           (double)ech_dtype_bytes(ech_block_value_dtype(c->block, value, c->plan->types));
}

static double bytes_of_param(const counter *c, int param)
{
    return (double)ech_plan_param_bytes(c->plan, param);
}

/* Rows of a table are read, at most one per token. */
static double bytes_read(const counter *c, int param)
{
    double all = bytes_of_param(c, param);
    if (!c->node->layer->looks_up) return all;
    double rows = bytes_of_value(c, c->node->out[0]);
    return rows < all ? rows : all;
}

/* The first writer writes all of a gradient; all others add to it. */
static double bytes_of_gradient(const counter *c, int param)
{
    if (c->adds || !ech_list_writes_first(c->plan, c->list, c->step, c->call, param))
        return 2 * bytes_read(c, param);
    return bytes_of_param(c, param) + (c->node->layer->looks_up ? 2 * bytes_read(c, param) : 0);
}

static double bytes_of_operand(const counter *c, const ech_operand *operand)
{
    switch (operand->port) {
    case ECH_PORT_PARAM:
        return bytes_read(c, operand->value);
    case ECH_PORT_DPARAM:
        return bytes_of_gradient(c, operand->value);
    case ECH_PORT_SCRATCH:
        return 0;
    default:
        return bytes_of_value(c, operand->value);
    }
}

static ech_work count(const ech_plan *plan, const ech_list *list, const ech_step *step, int call,
                      bool adds)
{
    const ech_block *block = plan->model->block.at[step->block];
    const ech_block_call *of = &block->program[step->phase].at[call];
    counter c = {
        .plan = plan, .list = list, .step = step, .block = block, .call = call, .adds = adds};
    ech_work work = {0};
    if (!(of->purposes & 1u << list->purpose)) return work;
    if (of->node >= 0) c.node = &block->node.at[of->node];
    for (const ech_operand *o = NULL; (o = ech_call_next(block, of, list->purpose, o));)
        work.bytes += bytes_of_operand(&c, o);
    work.flops = 2 * ech_call_multiplies(block, of, step->phase, list->extent);
    return work;
}

ech_work ech_work_of_call(const ech_plan *plan, const ech_list *list, const ech_step *step,
                          int call)
{
    return count(plan, list, step, call, false);
}

ech_work ech_work_of_later_call(const ech_plan *plan, const ech_list *list, const ech_step *step,
                                int call)
{
    return count(plan, list, step, call, true);
}
