/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank sends in a run of its train list, counted from the steps alone: each line here says what a
 * handler of exec does.
 */
#include <stdlib.h>

#include "schedule/passes.h"

static const struct {
    const char *text, *what;
} axes[ECH_TRAFFIC_AXES] = {
#define X(name, text, what) {text, what},
#include "schedule/traffic.def"
#undef X
};

const char *ech_traffic_axis_name(ech_traffic_axis axis)
{
    return axes[axis].text;
}

/* A rank's group, and its place in it. */
typedef struct membership {
    int size, index;
} membership;

typedef struct counting {
    const ech_plan *plan;
    const ech_list *list;
    membership of[ECH_GROUPS];
    ech_traffic *traffic;
} counting;

static void find_groups(counting *c)
{
    const ech_plan *plan = c->plan;
    int *ranks = ech_calloc((size_t)plan->layout->world, sizeof *ranks);
    for (int kind = 0; kind < ECH_GROUPS; kind++) {
        membership *m = &c->of[kind];
        m->size =
            ech_layout_members(plan->layout, plan->model, plan->rank, (ech_group_kind)kind, ranks);
        while (m->index < m->size && ranks[m->index] != plan->rank) m->index++;
    }
    free(ranks);
}

static void add_call(ech_traffic *traffic, ech_collective kind, ech_group_kind group, int64_t calls)
{
    traffic->calls[kind] += calls;
    traffic->groups[group] += calls;
}

/* ---- inside of blocks ---- */

static int64_t messages_of(const counting *c, const ech_step *step, int64_t elements)
{
    const membership *m = &c->of[step->group];
    return ech_collective_messages(step->collective, c->plan->real, elements, m->size, m->index);
}

/* What came from another stage in pieces: a collective a tensor. */
static void count_whole(counting *c, const ech_step *step, ech_traffic *traffic)
{
    const ech_block *block = c->plan->model->block.at[step->block];
    const int *ports;
    size_t n = ech_step_ports(step, block, &ports);
    for (size_t i = 0; i < n; i++) {
        if (ports[i] < 0) continue;
        const ech_shape *shape = &block->value.at[ports[i]].shape;
        traffic->messages += messages_of(c, step, ech_shape_count(shape, c->list->extent));
        add_call(traffic, step->collective, step->group, 1);
    }
}

static void count_collective(counting *c, const ech_step *step)
{
    const ech_block *block = c->plan->model->block.at[step->block];
    ech_traffic *traffic =
        &c->traffic[step->group == ECH_GROUP_CONTEXT ? ECH_TRAFFIC_CONTEXT : ECH_TRAFFIC_TENSOR];
    traffic->bytes += step->bytes;
    if (step->calls == 0) {
        count_whole(c, step, traffic);
        return;
    }
    const ech_block_call *call = &block->program[step->phase].at[step->first_call];
    traffic->messages += messages_of(c, step, ech_exchange_elements(block, call, c->list->extent));
    add_call(traffic, step->collective, step->group, 1);
}

/* Layers that exchange something in their own loop: in training in F, or where all is done in B there. */
static void count_exchanges(counting *c, const ech_step *step)
{
    const ech_block *block = c->plan->model->block.at[step->block];
    ech_traffic *traffic = &c->traffic[ECH_TRAFFIC_VOCABULARY];
    ech_phase phase = ech_step_phase(step);
    for (int i = step->first_call; i < step->first_call + step->calls; i++) {
        const ech_block_call *call = &block->program[phase].at[i];
        if (call->node < 0 || call->again) continue;
        const ech_node *node = &block->node.at[call->node];
        int64_t bytes = 0;
        if (!node->layer->exchanges ||
            phase != (node->layer->joined ? ECH_BACKWARD_INPUT : ECH_FORWARD))
            continue;
        int calls = node->layer->exchanges(block, node, c->list->extent, c->plan->real, &bytes);
        traffic->bytes += bytes;
        traffic->messages += (int64_t)calls * (c->of[ECH_GROUP_VOCABULARY].size - 1);
        add_call(traffic, ECH_COLLECTIVE_ALL_GATHER, ECH_GROUP_VOCABULARY, calls);
    }
}

/* ---- between blocks ---- */

static void count_message(counting *c, const ech_step *step)
{
    ech_traffic *traffic = &c->traffic[ECH_TRAFFIC_PIPELINE];
    const int *ports;
    size_t n = ech_step_ports(step, c->plan->model->block.at[step->block], &ports);
    for (size_t i = 0; i < n; i++) traffic->messages += ports[i] >= 0;
    traffic->bytes += step->bytes;
    traffic->calls[ECH_COLLECTIVE_NONE]++;
}

static void count_reduction(counting *c, const ech_step *step)
{
    ech_traffic *traffic = &c->traffic[ECH_TRAFFIC_DATA];
    const membership *m = &c->of[step->group];
    int64_t n = c->plan->bucket.at[step->index].elements;
    traffic->bytes += ech_reduction_bytes(c->plan->reduction, c->plan->real, n, m->size, m->index);
    if (c->plan->reduction != ECH_REDUCTION_DIRECT)
        traffic->messages = -1;
    else
        traffic->messages +=
            ech_collective_messages(ECH_COLLECTIVE_ALL_REDUCE, c->plan->real, n, m->size, m->index);
    add_call(traffic, ECH_COLLECTIVE_ALL_REDUCE, step->group, 1);
}

void ech_plan_traffic(const ech_plan *plan, ech_traffic traffic[ECH_TRAFFIC_AXES])
{
    counting c = {.plan = plan, .list = &plan->list[ECH_LIST_TRAIN], .traffic = traffic};
    for (int axis = 0; axis < ECH_TRAFFIC_AXES; axis++) traffic[axis] = (ech_traffic){0};
    find_groups(&c);
    for (size_t s = 0; s < c.list->step.n; s++) {
        const ech_step *step = &c.list->step.at[s];
        if (step->kind == ECH_STEP_COLLECTIVE)
            count_collective(&c, step);
        else if (step->kind == ECH_STEP_REDUCE_GRADS)
            count_reduction(&c, step);
        else if (ech_step_sends(step))
            count_message(&c, step);
        else if (ech_step_kind_phase(step->kind) >= 0)
            count_exchanges(&c, step);
    }
}
