/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of a block's program: FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, RECOMPUTE.
 */
#include "schedule/step/step.h"
#include "schedule/segments.h"

static void touch(ech_accessor *a)
{
    size_t scratch = 0;
    ech_access_reads(a);
    for (int c = 0; c < a->step->calls; c++) {
        a->tick = a->step->tick + c;
        size_t bytes = ech_access_call(a, a->step->first_call + c);
        ech_access_rows_of(a, a->step->first_call + c);
        if (bytes > scratch) scratch = bytes;
    }
    ech_access_scratch(a, scratch);
}

void ech_step_print_calls(const ech_step *step, ech_text *out)
{
    ech_text_append(out, "[%d", step->first_call);
    if (step->calls > 1) ech_text_append(out, "-%d", step->first_call + step->calls - 1);
    ech_text_append(out, "]");
}

static void print(const ech_step *step, ech_text *out)
{
    ech_text_append(out, "%d.%d/%d", step->chunk, step->micro, step->block);
    if (step->is_part) ech_step_print_calls(step, out);
}

static ech_work work(const ech_step_query *q)
{
    ech_work sum = {0};
    for (int i = 0; i < q->step->calls; i++) {
        ech_work one = ech_work_of_call(q->plan, q->list, q->step, q->step->first_call + i);
        sum.flops += one.flops;
        sum.bytes += one.bytes;
    }
    return sum;
}

/* ---- cost ---- */

/* Multiply-adds that take about as long as touching one number in memory. */
static const double touching = 16;

static double elements(const ech_block *block, const int *values, int n, ech_extent extent)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        if (values[i] >= 0)
            sum += (double)ech_shape_count(&block->value.at[values[i]].shape, extent);
    return sum;
}

/* Time of a call in multiply-adds: products and attention by their count, all others by the numbers
 * that they touch. */
static double effort_of(const ech_block *block, const ech_block_call *call, ech_phase phase,
                        ech_extent extent)
{
    bool idles = !(call->purposes & 1u << ECH_TRAIN);
    if (idles || ech_call_exchange(block, call, phase, ECH_TRAIN)) return 0;
    if (call->node < 0) return 3 * touching * elements(block, call->din, 1, extent);
    const ech_node *node = &block->node.at[call->node];
    double touched = elements(block, node->in, node->ins, extent) +
                     elements(block, node->out, node->outs, extent);
    return touching * touched + ech_call_multiplies(block, call, phase, extent);
}

/* The step's fraction of its block's phase. Blocks are measured whole, on one rank; with sharded
 * layers or sequence chunks a rank's steps are smaller. Rounded fractions of the parts of a phase
 * have exactly the sum of the whole, so that parts of stages take equally long. */
static double fraction_of(const ech_plan *plan, const ech_step *step)
{
    const ech_block *block = plan->model->block.at[step->block];
    ech_calls calls = ech_plan_calls(plan, &plan->list[ECH_LIST_TRAIN], step->block, step->phase);
    double all = 0, before = 0, own = 0, ways = ech_plan_ways(plan);
    for (int c = calls.first; c < calls.end && step->calls < calls.end - calls.first; c++) {
        double work = effort_of(block, &block->program[step->phase].at[c], step->phase,
                                plan->list[ECH_LIST_TRAIN].extent);
        all += work;
        if (c < step->first_call)
            before += work;
        else if (c < step->first_call + step->calls)
            own += work;
    }
    if (!(all > 0)) return ech_costs_round(1 / ways);
    return ech_costs_round((before + own) / (all * ways)) - ech_costs_round(before / (all * ways));
}

double ech_costs_recomputed(const ech_plan *plan, int index)
{
    const ech_list *list = &plan->list[ECH_LIST_TRAIN];
    const ech_block *block = plan->model->block.at[index];
    int end = ech_plan_calls(plan, list, index, ECH_RECOMPUTE).end;
    double all = 0, needed = 0;
    for (int c = 0; c < end; c++) {
        const ech_block_call *call = &block->program[ECH_RECOMPUTE].at[c];
        double work = effort_of(block, call, ECH_RECOMPUTE, list->extent);
        all += work;
        if (c < block->needed) needed += work;
    }
    return needed > 0 ? all / needed : 1;
}

static double seconds(const ech_step_query *q)
{
    const ech_step *step = q->step;
    int phase = ech_profile_phase(step->phase, &q->plan->model->options);
    double again = step->phase == ECH_RECOMPUTE ? ech_costs_recomputed(q->plan, step->block) : 1;
    return q->costs->profile->block[step->block].seconds[phase] * again *
           fraction_of(q->plan, step);
}

static double seconds_of_call(const ech_step_query *q, int c, bool only_products)
{
    const ech_block *block = q->plan->model->block.at[q->step->block];
    const ech_block_call *call = &block->program[q->step->phase].at[c];
    const ech_cluster *cluster = q->costs->cluster;
    if (!(call->purposes & 1u << q->list->purpose)) return 0;
    if (ech_call_exchange(block, call, q->step->phase, q->list->purpose)) return 0;
    double bytes = ech_work_of_later_call(q->plan, q->list, q->step, c).bytes;
    ech_products products = ech_call_products(block, call, q->step->phase, q->list->extent);
    if (products.count > 0)
        return ech_cluster_products(cluster, &products, q->plan->types.compute,
                                    block->node.at[call->node].layer->core, bytes);
    return only_products ? 0 : ech_cluster_kernel(cluster, bytes);
}

/* The end of the calls that the step is charged for. The last R of a block may be charged for calls
 * that the list leaves out because nothing reads their results. */
static int end_of_charge(const ech_step_query *q)
{
    const ech_step *step = q->step;
    int end = step->first_call + step->calls;
    if (step->phase != ECH_RECOMPUTE || q->costs->cluster->recompute_outputs <= 0) return end;
    if (end < ech_plan_calls(q->plan, q->list, step->block, step->phase).end) return end;
    return ech_program_calls(q->plan->model->block.at[step->block], step->phase, q->list->purpose);
}

double ech_block_seconds(const ech_step_query *q, bool products)
{
    double sum = 0;
    for (int c = q->step->first_call, end = end_of_charge(q); c < end; c++)
        sum += seconds_of_call(q, c, products);
    return sum;
}

/* True if a phase of the block computes anything, apart from collectives. */
static bool computes(const ech_block *block, ech_phase phase)
{
    for (size_t c = 0; c < block->program[phase].n; c++)
        if (!ech_call_exchange(block, &block->program[phase].at[c], phase, ECH_TRAIN)) return true;
    return false;
}

/* Units of a block's backward, which costs two units in all. A block with only one of B and W (an
 * embedding has no input with a gradient) does everything in that one. */
static double units_of(const ech_block *block, ech_phase phase)
{
    if (phase == ECH_FORWARD || phase == ECH_RECOMPUTE) return 1;
    bool input = phase == ECH_BACKWARD_INPUT;
    return computes(block, input ? ECH_BACKWARD_WEIGHT : ECH_BACKWARD_INPUT) ? 1 : 2;
}

double ech_block_units(const ech_plan *plan, const ech_step *step)
{
    return units_of(plan->model->block.at[step->block], step->phase) * fraction_of(plan, step);
}

const ech_step_methods ech_block_methods = {
    .touch = touch, .print = print, .work = work, .seconds = seconds};
