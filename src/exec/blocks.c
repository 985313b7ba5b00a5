/* SPDX-License-Identifier: Apache-2.0
 *
 * FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, RECOMPUTE: the calls of a block's program, each with
 * its tensors at the plan's offsets.
 */
#include <string.h>

#include "exec/state.h"
#include "schedule/operands.h"
#include "schedule/protocol/serving.h"
#include "schedule/states.h"

/* ---- views: shapes are computed once per list, since only addresses depend on the micro-batch
 * ---- */

/* Number of values of the rank's own blocks: the rows of value_of. */
static size_t count_locals(const ech_plan *plan, const ech_list *list)
{
    size_t n = 0;
    for (size_t b = 0; b < plan->model->block.n; b++)
        if (list->first_local[b] >= 0) n += plan->model->block.at[b]->value.n;
    return n;
}

static bool runs_blocks(const ech_list *list)
{
    for (size_t s = 0; s < list->step.n; s++)
        if (list->step.at[s].block >= 0) return true;
    return false;
}

static ech_view view_of(const ech_plan *plan, const ech_list *list, const ech_block *block,
                        int local)
{
    static char somewhere; /* a base without memory yet, to find where a view begins in it */
    ech_tensor at = ech_block_tensor(block, local, list->extent, plan->types, &somewhere);
    return (ech_view){.tensor = at, .skip = (char *)at.data - &somewhere};
}

static ech_view *make_views(ech_pool *pool, const ech_plan *plan, const ech_list *list)
{
    if (!runs_blocks(list)) return NULL;
    ech_view *views = ech_pool_alloc(pool, count_locals(plan, list) * sizeof *views);
    for (size_t b = 0; b < plan->model->block.n; b++) {
        const ech_block *block = plan->model->block.at[b];
        for (int i = 0; list->first_local[b] >= 0 && i < (int)block->value.n; i++)
            views[list->first_local[b] + i] = view_of(plan, list, block, i);
    }
    return views;
}

static ech_share share_of(const ech_exec *exec, int param)
{
    const ech_plan *plan = exec->plan;
    ech_held held =
        ech_layout_held(plan->layout, plan->model, plan->rank, param, ECH_HELD_GRADIENT, NULL);
    ech_share share = {.counts = held.counts};
    if (!held.boxes) return share;
    ech_shape one = ech_shape_of_one(&plan->model->param.at[param].shape);
    share.boxes = ech_shape_boxes(&one, plan->layout->sharding,
                                  ech_layout_shard_at(plan->layout, plan->rank), held.box);
    share.box = ech_pool_alloc(exec->pool, (size_t)share.boxes * sizeof *share.box);
    memcpy(share.box, held.box, (size_t)share.boxes * sizeof *share.box);
    return share;
}

void ech_views_create(ech_exec *exec)
{
    const ech_plan *plan = exec->plan;
    for (int l = 0; l < ECH_LIST_KINDS; l++)
        exec->view[l] = make_views(exec->pool, plan, &plan->list[l]);
    exec->param_view = ech_pool_alloc(exec->pool, plan->model->param.n * sizeof *exec->param_view);
    for (size_t i = 0; i < plan->model->param.n; i++) {
        const ech_shape *shape = &plan->model->param.at[i].shape;
        int64_t size[ECH_MAX_DIMS];
        ech_shape_resolve(shape, ech_extent_of_params(plan->layout->sharding), size);
        exec->param_view[i] =
            ech_tensor_view(NULL, ech_plan_param_dtype(plan, (int)i), shape->dims, size);
    }
    exec->share = ech_pool_alloc(exec->pool, plan->model->param.n * sizeof *exec->share);
    for (size_t i = 0; i < plan->model->param.n; i++) exec->share[i] = share_of(exec, (int)i);
    exec->state_view = ech_pool_alloc(exec->pool, plan->state.n * sizeof *exec->state_view);
    for (size_t i = 0; i < plan->state.n; i++) {
        const ech_plan_state *s = &plan->state.at[i];
        ech_dtype dtype = ech_plan_state_dtype(plan, &s->is);
        char *data = ech_exec_at(exec, &plan->persistent.at[s->value]);
        data += (size_t)s->first * ech_dtype_bytes(dtype);
        ech_tensor all = ech_exec_state_view(exec, &s->is, plan->layout->sharding, data);
        exec->state_view[i] = ech_exec_part(&all, s->from, s->elements, data);
    }
}

void ech_exec_view(const ech_exec *exec, const ech_block *block, int local, void *data,
                   ech_tensor *out)
{
    const ech_list *list = exec->list;
    const ech_view *view = &exec->view[list->kind][list->first_local[block->index] + local];
    *out = view->tensor;
    out->data = (char *)data + view->skip;
}

/* ---- common to all calls of a step ---- */

typedef struct frame {
    ech_exec *exec;
    const ech_step *step;
    const ech_block *block;
    ech_phase phase;
    int call; /* index in the program */
    ech_rows rows;
    void *scratch;
    size_t scratch_bytes;
    const ech_block_call *last; /* exec->call still has its tensors; NULL: none */
} frame;

/* Global micro-batch q begins with sample q b. */
ech_rows ech_exec_rows(const ech_exec *exec, int micro)
{
    const ech_list *list = exec->list;
    const ech_plan *plan = exec->plan;
    ech_micro at = ech_micro_at(list->numbering, micro);
    int64_t q = ech_layout_global_micro(plan->layout, plan->rank, at.micro_batch);
    int64_t sample = q * list->extent.batch;
    ech_rows rows = ech_context_rows(&plan->model->options, list->extent, sample,
                                     plan->layout->coordinates[plan->rank].context);
    if (list->numbering.sequence_chunks > 1)
        rows.start[0] = at.sequence_chunk * list->extent.tokens;
    if (list->purpose == ECH_GENERATE) rows.position = &ech_exec_row(exec, 0)->position;
    return rows;
}

static void set_place(const frame *f, ech_call *call)
{
    ech_exec *exec = f->exec;
    const ech_layout *layout = exec->plan->layout;
    const ech_coordinates *here = &layout->coordinates[exec->plan->rank];
    call->options = &exec->plan->model->options;
    call->rows = call->shard = f->rows;
    call->tensor_index = here->tensor;
    call->tensor_size = layout->tensor;
    call->context_index = here->context;
    call->context_size = layout->context;
    call->shard.first = here->tensor * (call->extent.batch * call->extent.tokens / layout->tensor);
}

/* Micro-batches are dealt to replicas in turn. With backup workers a commit sums the partials of an
 * update's pushes. */
static double state_share(const ech_exec *exec, const ech_step *step)
{
    const ech_plan *plan = exec->plan;
    int64_t own = ech_micro_at(exec->list->numbering, step->micro).micro_batch;
    int64_t q = ech_layout_global_micro(plan->layout, plan->rank, own);
    int summands = ech_serving_summands(plan->schedule, plan->layout);
    return q % exec->replicas == exec->replica ? (double)exec->replicas / summands : 0;
}

/* Prepares what is the same for all calls of a step. */
static void prepare_step(frame *f, ech_call *call)
{
    ech_exec *exec = f->exec;
    call->kernels = exec->plan->kernels;
    call->context = exec->context;
    call->extent = exec->list->extent;
    call->purpose = exec->list->purpose;
    call->seed = (uint64_t)exec->config->training.seed;
    call->layer = (uint32_t)f->block->index;
    set_place(f, call);
    if (f->step->scratch >= 0) {
        f->scratch = ech_exec_touch(exec, f->step->scratch);
        f->scratch_bytes = (size_t)ech_plan_value(exec->plan, exec->list, f->step->scratch)->bytes;
    }
    ech_scalar_row *row = ech_exec_row(exec, f->step->turn);
    call->step = &row->step;
    call->loss_sums = &row->loss; /* and loss_weight */
    call->hits = &row->hits;      /* and hits_of_5 */
    call->loss_factor = &row->loss_factor;
    call->group_factor = &row->group_factor;
    call->state_share = state_share(exec, f->step);
}

/* ---- a call ---- */

/* Clears the tensors of the previous call. A tensor without data counts as absent, so only data is
 * cleared; clearing everything would take as long as all other preparations of a call. */
static void clear_ports(const frame *f, ech_call *call)
{
    if (!f->last) return;
    const ech_operand *o = f->block->operand.at + f->last->first_operand;
    for (const ech_operand *end = o + f->last->operands; o < end; o++)
        if (o->port < ECH_TENSOR_PORTS) call->port[o->port][o->index].data = NULL;
}

static void take_gradient(const frame *f, const ech_operand *o, ech_call *call)
{
    const ech_plan *plan = f->exec->plan;
    int value = ech_list_gradients(plan, f->exec->list, f->step, plan->param[o->value].bucket);
    ech_exec_set_gradient(f->exec, o->value, ech_exec_touch(f->exec, value),
                          &call->dparam[o->index]);
    call->accumulate[o->index] =
        !ech_list_writes_first(plan, f->exec->list, f->step, f->call, o->value);
    if (!call->accumulate[o->index]) /* its memory belonged to another value before */
        ech_exec_clear_padding(f->exec, o->value, &call->dparam[o->index]);
}

static void take_param(const frame *f, const ech_operand *o, ech_call *call)
{
    const ech_plan *plan = f->exec->plan;
    int bucket = plan->param[o->value].bucket;
    int value = ech_list_weights(plan, f->exec->list, f->step, bucket);
    const ech_bucket *of = &plan->bucket.at[bucket];
    int version = f->step->version; /* distance in slots from the plan's weights to the current */
    int moved = ech_exec_weight_slot(f->exec, of, version) - ech_bucket_slot(of, version);
    ech_ledger_expect(f->exec, f->step, value);
    ech_exec_set_weights(f->exec, o->value, ech_exec_touch(f->exec, value + moved),
                         &call->param[o->index]);
}

static void take_value(const frame *f, const ech_operand *o, ech_call *call)
{
    int value = ech_list_operand(f->exec->plan, f->exec->list, f->step, o->value);
    void *data = ech_exec_touch(f->exec, value);
    ech_exec_view(f->exec, f->block, o->like, data, &call->port[o->port][o->index]);
}

/* Lets a call that looks up rows use the turn's row list: ids become places in it. */
static void use_rows(const frame *f, ech_call *call)
{
    const ech_list *list = f->exec->list;
    int index = ech_list_rows_of(f->exec->plan, list, f->step, f->call);
    if (index < 0) return;
    const ech_bucket *bucket = &f->exec->plan->bucket.at[index];
    ech_micro at = ech_micro_at(list->numbering, f->step->micro);
    int64_t part = at.micro_batch * list->numbering.sequence_chunks + at.sequence_chunk;
    int32_t *places = ech_exec_places_listed(f->exec, bucket, f->step->turn);
    call->in[0].data = places + part * list->extent.batch * list->extent.tokens;
    ech_exec_see_listed(bucket, &call->param[0]);
    ech_exec_see_listed(bucket, &call->dparam[0]);
}

static void prepare(frame *f, const ech_block_call *c, ech_call *call)
{
    ech_exec *exec = f->exec;
    clear_ports(f, call);
    f->last = c;
    call->node = c->node < 0 ? NULL : &f->block->node.at[c->node];
    exec->context->scratch = NULL;
    exec->context->scratch_bytes = 0;
    const ech_operand *o = f->block->operand.at + c->first_operand, *end = o + c->operands;
    for (unsigned purpose = 1u << exec->list->purpose; o < end; o++) {
        if (!(o->purposes & purpose)) continue;
        if (ech_operand_is_value(o)) {
            take_value(f, o, call);
        } else if (o->port == ECH_PORT_PARAM) {
            take_param(f, o, call);
        } else if (o->port == ECH_PORT_DPARAM) {
            take_gradient(f, o, call);
        } else {
            exec->context->scratch = f->scratch;
            exec->context->scratch_bytes = f->scratch_bytes;
        }
    }
    use_rows(f, call);
}

static void scan_call(const frame *f, const ech_block_call *c, const ech_call *call)
{
    const ech_block_value *values = f->block->value.at;
    const ech_param *params = f->exec->plan->model->param.at;
    bool is_listed = ech_list_rows_of(f->exec->plan, f->exec->list, f->step, f->call) >= 0;
    for (const ech_operand *o = NULL;
         (o = ech_call_next(f->block, c, f->exec->list->purpose, o));) {
        if (o->mode == ECH_READ) continue;
        if (o->port == ECH_PORT_OUT)
            ech_scan_tensor(f->exec, f->step, "output", values[o->like].name, &call->out[o->index]);
        if (o->port == ECH_PORT_DIN)
            ech_scan_tensor(f->exec, f->step, c->node < 0 ? "sum" : "gradient of",
                            values[o->like].name, &call->din[o->index]);
        if (o->port == ECH_PORT_DPARAM)
            ech_scan_tensor(f->exec, f->step,
                            is_listed ? "gradient of the batch's rows of" : "gradient of",
                            params[o->value].name, &call->dparam[o->index]);
    }
}

/* Where the node's report is in the turn's row, if the call is a forward, or encodes what R
 * recomputes, and this rank reports it. */
static double *report_of(const frame *f, const ech_node *node)
{
    const ech_plan *plan = f->exec->plan;
    double *at = &ech_exec_row(f->exec, f->step->turn)->squares[plan->model->param.n];
    if (!node || node->report < 0) return NULL;
    if (f->phase != ECH_FORWARD && !node->layer->encodes) return NULL;
    const ech_reported *of = &f->block->report.at[node->report];
    bool counts = of->over & ECH_MESH_TENSOR || plan->layout->coordinates[plan->rank].tensor == 0;
    if (!counts || f->exec->list->purpose != ECH_TRAIN) return NULL;
    at += f->block->first_report;
    for (int i = 0; i < node->report; i++) at += f->block->report.at[i].numbers;
    return at;
}

/* A call without node sums two gradients of one value. */
static void run_call(frame *f, const ech_block_call *c, ech_call *call)
{
    if (!(c->purposes & 1u << f->exec->list->purpose)) return;
    prepare(f, c, call);
    call->reported = report_of(f, call->node);
    if (!call->node)
        call->kernels->add(call->context, &call->add[0], &call->dout[0], &call->din[0]);
    else if (f->phase == ECH_FORWARD || c->recompute)
        call->node->layer->forward(call);
    else if (f->phase == ECH_BACKWARD_INPUT)
        call->node->layer->backward_input(call);
    else
        call->node->layer->backward_weight(call);
    if (f->exec->scanning && !c->recompute) scan_call(f, c, call);
}

/* ---- a step ---- */

static ech_status run_block(ech_exec *exec, const ech_step *step)
{
    frame f = {.exec = exec,
               .step = step,
               .block = exec->plan->model->block.at[step->block],
               .phase = step->phase,
               .rows = ech_exec_rows(exec, step->micro)};
    ech_call *call = &exec->call;
    prepare_step(&f, call);
    bool computes = !ech_exec_is_void(exec, step->turn);
    for (int i = 0; i < step->calls; i++) {
        f.call = step->first_call + i;
        ech_ledger_advance(exec, step->tick + i);
        if (computes) run_call(&f, &f.block->program[step->phase].at[f.call], call);
        ech_exec_mark(exec, step->tick + i);
    }
    clear_ports(&f, call);
    return ECH_OK;
}

ECH_HANDLE_BY(FORWARD, run_block)
ECH_HANDLE_BY(BACKWARD_INPUT, run_block)
ECH_HANDLE_BY(BACKWARD_WEIGHT, run_block)
ECH_HANDLE_BY(RECOMPUTE, run_block)
