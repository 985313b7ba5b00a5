/* SPDX-License-Identifier: Apache-2.0
 *
 * FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT: the calls of a block's program, each with its tensors at
 * the plan's offsets.
 */
#include <string.h>

#include "exec/state.h"

typedef struct frame {
    ech_exec *exec;
    const ech_step *step;
    const ech_block *block;
    ech_phase phase;
    int call;  /* index in the program */
    int place; /* of the weights that the step sees */
    ech_rows rows;
} frame;

/* The tensor of a block's own value (`like`: whose geometry it has); *out is left as it is, absent, where the
 * list has no such value. */
static void set_tensor(const frame *f, int local, int like, ech_tensor *out)
{
    const ech_block_value *v = local < 0 ? NULL : &f->block->value.at[local];
    if (!v || !(v->purposes & 1u << f->exec->list->purpose)) return;
    int value = ech_list_value_of(f->exec->list, f->block, local, f->step->micro);
    void *data = ech_exec_touch(f->exec, value);
    ech_exec_view(f->exec, f->block, like, data, out);
}

static void take_ports(const frame *f, const int *ports, int n, unsigned mask, ech_tensor *out)
{
    for (int i = 0; i < n; i++)
        if (mask & 1u << i) set_tensor(f, ports[i], ports[i], &out[i]);
}

/* Inputs as B and W see them. */
static void take_again(const frame *f, const ech_node *node, unsigned mask, ech_tensor *out)
{
    for (int i = 0; i < node->ins; i++)
        if (mask & 1u << i)
            set_tensor(f, ech_block_again(f->block, node->in[i]), node->in[i], &out[i]);
}

/* Gradients have the geometry of the forward values they belong to. */
static void take_gradients(const frame *f, const int *ports, const int *like, int n,
                           ech_tensor *out)
{
    for (int i = 0; i < n; i++) set_tensor(f, ports[i], like[i], &out[i]);
}

static void take_params(const frame *f, const ech_node *node, bool again, ech_call *call)
{
    bool writes = !again && (f->phase == ECH_BACKWARD_WEIGHT ||
                             (f->phase == ECH_BACKWARD_INPUT && node->layer->finishes_in_b));
    int here = (int)(f->step - f->exec->list->step.at);
    const ech_writer *writers =
        &f->exec->list->first_writer[(size_t)f->step->turn * f->exec->plan->model->param.n];
    for (int i = 0; i < node->params; i++) {
        const ech_param_plan *p = &f->exec->plan->param[node->param[i]];
        ech_exec_set_param(f->exec, node->param[i], f->place, &call->param[i]);
        if (!writes) continue;
        ech_exec_touch(f->exec, f->exec->plan->bucket.at[p->bucket].value);
        ech_exec_set_gradient(f->exec, node->param[i], &call->dparam[i]);
        const ech_writer *first = &writers[node->param[i]];
        call->accumulate[i] = first->step != here || first->call != f->call;
    }
}

/* Global micro-batch q begins with sample q b. */
ech_rows ech_exec_rows(const ech_exec *exec, int micro)
{
    const ech_list *list = exec->list;
    const ech_plan *plan = exec->plan;
    ech_micro at = ech_micro_at(list->numbering, micro);
    int64_t q = ech_layout_global_micro(plan->layout, plan->rank, at.micro_batch);
    int64_t sample = q * list->extent.batch;
    ech_rows rows = ech_context_rows(&plan->model->ways, list->extent, sample,
                                     plan->layout->place[plan->rank].context);
    if (list->numbering.sequence_chunks > 1)
        rows.start[0] = at.sequence_chunk * list->extent.tokens;
    if (list->purpose == ECH_GENERATE) rows.start[0] = exec->position;
    return rows;
}

/* What is kept of gradients is the backward's. */
static unsigned kept_by_forward(const ech_block *block, const ech_node *node)
{
    unsigned mask = 0;
    for (int i = 0; i < node->keeps; i++)
        if (block->value.at[node->keep[i]].role == ECH_ROLE_ACTIVATION) mask |= 1u << i;
    return mask;
}

static ech_status exchange(void *context, const void *mine, size_t bytes, void *all)
{
    ech_group *group = context;
    return ech_group_all_gather(group, all, mine, 1, (int64_t)bytes * ech_group_size(group));
}

static void set_place(const frame *f, ech_call *call)
{
    ech_exec *exec = f->exec;
    const ech_layout *layout = exec->plan->layout;
    const ech_place *place = &layout->place[exec->plan->rank];
    call->ways = &exec->plan->model->ways;
    call->rows = call->shard = f->rows;
    call->tensor_index = place->tensor;
    call->tensor_size = layout->tensor;
    call->context_index = place->context;
    call->context_size = layout->context;
    call->shard.first = place->tensor * (call->extent.batch * call->extent.tokens / layout->tensor);
    if (layout->tensor > 1) call->exchange = exchange;
    call->exchange_context = exec->group[ECH_GROUP_VOCABULARY];
}

/* What is the same for all calls of a step. */
static void prepare_step(const frame *f, ech_call *call)
{
    ech_exec *exec = f->exec;
    memset(call, 0, sizeof *call);
    call->kernels = exec->plan->kernels;
    call->context = exec->context;
    call->extent = exec->list->extent;
    call->purpose = exec->list->purpose;
    call->seed = (uint64_t)exec->config->training.seed;
    call->step = (uint32_t)(exec->step + f->step->turn);
    call->layer = (uint32_t)f->block->index;
    set_place(f, call);
    double *row = ech_exec_row(exec, f->step->turn);
    call->loss_sums = &row[ECH_SCALAR_LOSS];
    call->loss_scale = &row[ECH_SCALAR_LOSS_SCALE];
}

/* What the step's call before has set. A tensor without data is absent; what else it says does not matter,
 * and clearing all of it takes as long as everything else that a call is prepared with. */
static void clear_ports(ech_call *call)
{
    const ech_node *node = call->node;
    if (!node) return;
    for (int i = 0; i < node->ins; i++)
        call->in[i].data = call->din[i].data = call->add[i].data = NULL;
    for (int i = 0; i < node->outs; i++) call->out[i].data = call->dout[i].data = NULL;
    for (int i = 0; i < node->keeps; i++) call->keep[i].data = NULL;
    for (int i = 0; i < node->params; i++) call->param[i].data = call->dparam[i].data = NULL;
    memset(call->accumulate, 0, sizeof call->accumulate);
}

static void prepare(const frame *f, const ech_block_call *c, ech_call *call)
{
    const ech_node *node = &f->block->node.at[c->node];
    clear_ports(call);
    call->node = node;
    take_params(f, node, c->again, call);
    if (f->phase == ECH_FORWARD || c->again) {
        take_ports(f, node->in, node->ins, ~0u, call->in);
        take_ports(f, node->out, node->outs, ~0u, call->out);
        take_ports(f, node->keep, node->keeps, kept_by_forward(f->block, node), call->keep);
        return;
    }
    const ech_reads *reads = f->phase == ECH_BACKWARD_INPUT ? &node->b : &node->w;
    take_again(f, node, reads->in, call->in);
    take_ports(f, node->out, node->outs, reads->out, call->out);
    take_ports(f, node->keep, node->keeps, reads->keep, call->keep);
    take_gradients(f, c->dout, node->out, node->outs, call->dout);
    take_gradients(f, c->din, node->in, node->ins, call->din);
    take_gradients(f, c->add, node->in, node->ins, call->add);
}

static void scan_call(const frame *f, const ech_block_call *c, const ech_call *call)
{
    const ech_node *node = &f->block->node.at[c->node];
    const ech_param *params = f->exec->plan->model->param.at;
    for (int i = 0; f->phase == ECH_FORWARD && i < node->outs; i++)
        ech_scan_tensor(f->exec, f->step, "output", f->block->value.at[node->out[i]].name,
                        &call->out[i]);
    for (int i = 0; i < node->ins; i++)
        ech_scan_tensor(f->exec, f->step, "gradient of", f->block->value.at[node->in[i]].name,
                        &call->din[i]);
    for (int i = 0; i < node->params; i++)
        ech_scan_tensor(f->exec, f->step, "gradient of", params[node->param[i]].name,
                        &call->dparam[i]);
}

/* Where two gradients of one value meet. */
static void run_sum(const frame *f, const ech_block_call *c)
{
    ech_tensor a = {0}, b = {0}, y = {0};
    set_tensor(f, c->add[0], c->add[0], &a);
    set_tensor(f, c->dout[0], c->dout[0], &b);
    set_tensor(f, c->din[0], c->din[0], &y);
    f->exec->plan->kernels->add(f->exec->context, &a, &b, &y);
    if (f->exec->scanning)
        ech_scan_tensor(f->exec, f->step, "sum", f->block->value.at[c->din[0]].name, &y);
}

static ech_status run_layer(const frame *f, const ech_block_call *c, ech_call *call)
{
    const ech_layer *layer = f->block->node.at[c->node].layer;
    ech_status status = ECH_OK;
    if (ech_layer_idles(layer, f->phase, f->exec->list->purpose)) return ECH_OK;
    prepare(f, c, call);
    call->status = &status;
    if (f->phase == ECH_FORWARD || c->again)
        layer->forward(call);
    else if (f->phase == ECH_BACKWARD_INPUT)
        layer->backward_input(call);
    else
        layer->backward_weight(call);
    if (f->exec->scanning && !c->again) scan_call(f, c, call);
    return status;
}

static ech_status run_block(ech_exec *exec, const ech_step *step)
{
    frame f = {.exec = exec,
               .step = step,
               .block = exec->plan->model->block.at[step->block],
               .phase = step->phase,
               .place = ech_exec_place(exec, step->version),
               .rows = ech_exec_rows(exec, step->micro)};
    ech_call call;
    prepare_step(&f, &call);
    for (int i = 0; i < step->calls; i++) {
        f.call = step->first_call + i;
        const ech_block_call *c = &f.block->program[step->phase].at[f.call];
        ech_ledger_advance(exec, step->tick + i);
        exec->context->scratch = step->scratch < 0 ? NULL : ech_exec_touch(exec, step->scratch);
        exec->context->scratch_bytes =
            step->scratch < 0
                ? 0
                : (size_t)ech_plan_value(exec->plan, exec->list, step->scratch)->bytes;
        if (c->node < 0)
            run_sum(&f, c);
        else
            ECH_TRY(run_layer(&f, c, &call));
        ech_exec_mark(exec, step->tick + i);
    }
    return ECH_OK;
}

ech_status ech_handle_FORWARD(ech_exec *exec, const ech_step *step)
{
    return run_block(exec, step);
}

ech_status ech_handle_BACKWARD_INPUT(ech_exec *exec, const ech_step *step)
{
    return run_block(exec, step);
}

ech_status ech_handle_BACKWARD_WEIGHT(ech_exec *exec, const ech_step *step)
{
    return run_block(exec, step);
}
