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
    int call; /* index in the program */
} frame;

/* The tensor of a block's own value (`like`: whose geometry it has); absent where the list has no
 * such value. */
static ech_tensor tensor_of(const frame *f, int local, int like)
{
    const ech_block_value *v = local < 0 ? NULL : &f->block->value.at[local];
    if (!v || !(v->purposes & 1u << f->exec->list->purpose)) return (ech_tensor){0};
    int value = ech_list_value_of(f->exec->list, f->block, local, f->step->micro);
    void *data = ech_exec_touch(f->exec, value);
    return ech_block_tensor(f->block, like, f->exec->list->extent, f->exec->plan->real, data);
}

static void take_ports(const frame *f, const int *ports, int n, unsigned mask, ech_tensor *out)
{
    for (int i = 0; i < n; i++)
        if (mask & 1u << i) out[i] = tensor_of(f, ports[i], ports[i]);
}

/* Gradients have the geometry of the forward values they belong to. */
static void take_gradients(const frame *f, const int *ports, const int *like, int n,
                           ech_tensor *out)
{
    for (int i = 0; i < n; i++) out[i] = tensor_of(f, ports[i], like[i]);
}

static void take_params(const frame *f, const ech_node *node, ech_call *call)
{
    bool writes = f->phase == ECH_BACKWARD_WEIGHT ||
                  (f->phase == ECH_BACKWARD_INPUT && node->layer->finishes_in_b);
    int here = (int)(f->step - f->exec->list->step.at);
    const ech_writer *writers =
        &f->exec->list->first_writer[(size_t)f->step->turn * f->exec->plan->model->param.n];
    for (int i = 0; i < node->params; i++) {
        const ech_param_plan *p = &f->exec->plan->param[node->param[i]];
        call->param[i] = ech_exec_param_at(f->exec, node->param[i], f->step->version);
        if (!writes) continue;
        ech_exec_touch(f->exec, f->exec->plan->bucket.at[p->bucket].value);
        call->dparam[i] = ech_exec_gradient_of(f->exec, node->param[i]);
        const ech_writer *first = &writers[node->param[i]];
        call->accumulate[i] = first->step != here || first->call != f->call;
    }
}

/* The index of the micro-batch's first sample in the global batch: global micro-batch q begins with
 * sample q·b. */
static int64_t first_sample(const frame *f)
{
    const ech_list *list = f->exec->list;
    int k = f->step->micro % (list->micro_batches / list->turns);
    return ech_layout_global_micro(f->exec->plan->layout, f->exec->plan->rank, k) *
           list->extent.batch;
}

static void prepare(const frame *f, const ech_block_call *c, ech_call *call)
{
    const ech_node *node = &f->block->node.at[c->node];
    ech_exec *exec = f->exec;
    memset(call, 0, sizeof *call);
    call->node = node;
    call->kernels = exec->plan->kernels;
    call->context = exec->context;
    call->extent = exec->list->extent;
    call->purpose = exec->list->purpose;
    call->seed = (uint64_t)exec->config->training.seed;
    call->step = (uint32_t)(exec->step + f->step->turn);
    call->layer = (uint32_t)f->block->index;
    call->first_sample = first_sample(f);
    call->position = exec->position;
    double *row = ech_exec_row(exec, f->step->turn);
    call->loss_sums = &row[ECH_SCALAR_LOSS];
    call->loss_scale = &row[ECH_SCALAR_LOSS_SCALE];
    take_params(f, node, call);
    if (f->phase == ECH_FORWARD) {
        take_ports(f, node->in, node->ins, ~0u, call->in);
        take_ports(f, node->out, node->outs, ~0u, call->out);
        take_ports(f, node->keep, node->keeps, ~0u, call->keep);
        return;
    }
    const ech_reads *reads = f->phase == ECH_BACKWARD_INPUT ? &node->b : &node->w;
    take_ports(f, node->in, node->ins, reads->in, call->in);
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
    ech_tensor a = tensor_of(f, c->add[0], c->add[0]), b = tensor_of(f, c->dout[0], c->dout[0]);
    ech_tensor y = tensor_of(f, c->din[0], c->din[0]);
    f->exec->plan->kernels->add(f->exec->context, &a, &b, &y);
    if (f->exec->scanning)
        ech_scan_tensor(f->exec, f->step, "sum", f->block->value.at[c->din[0]].name, &y);
}

static void run_layer(const frame *f, const ech_block_call *c)
{
    const ech_layer *layer = f->block->node.at[c->node].layer;
    ech_call call;
    if (layer->joined && f->phase == ECH_FORWARD && f->exec->list->purpose == ECH_TRAIN) return;
    prepare(f, c, &call);
    if (f->phase == ECH_FORWARD)
        layer->forward(&call);
    else if (f->phase == ECH_BACKWARD_INPUT)
        layer->backward_input(&call);
    else
        layer->backward_weight(&call);
    if (f->exec->scanning) scan_call(f, c, &call);
}

static ech_status run_block(ech_exec *exec, const ech_step *step, ech_phase phase)
{
    frame f = {.exec = exec,
               .step = step,
               .block = exec->plan->model->block.at[step->block],
               .phase = phase};
    for (f.call = 0; f.call < (int)f.block->program[phase].n; f.call++) {
        const ech_block_call *c = &f.block->program[phase].at[f.call];
        ech_ledger_advance(exec, step->tick + f.call);
        exec->context->scratch = step->scratch < 0 ? NULL : ech_exec_touch(exec, step->scratch);
        exec->context->scratch_bytes =
            step->scratch < 0
                ? 0
                : (size_t)ech_plan_value(exec->plan, exec->list, step->scratch)->bytes;
        if (c->node < 0)
            run_sum(&f, c);
        else
            run_layer(&f, c);
    }
    return ECH_OK;
}

ech_status ech_handle_FORWARD(ech_exec *exec, const ech_step *step)
{
    return run_block(exec, step, ECH_FORWARD);
}

ech_status ech_handle_BACKWARD_INPUT(ech_exec *exec, const ech_step *step)
{
    return run_block(exec, step, ECH_BACKWARD_INPUT);
}

ech_status ech_handle_BACKWARD_WEIGHT(ech_exec *exec, const ech_step *step)
{
    return run_block(exec, step, ECH_BACKWARD_WEIGHT);
}
