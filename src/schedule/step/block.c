/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of a block's program: FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, RECOMPUTE.
 */
#include "schedule/step/step.h"

static void touch(ech_accessor *a)
{
    size_t scratch = 0;
    for (int c = 0; c < a->step->calls; c++) {
        a->tick = a->step->tick + c;
        size_t bytes = ech_access_call(a, a->step->first_call + c);
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

/* ---- what it costs ---- */

/* Multiply-adds that take as long as touching one number in memory, about. */
static const double touching = 16;

static double elements(const ech_block *block, const int *values, int n, ech_extent extent)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        if (values[i] >= 0)
            sum += (double)ech_shape_count(&block->value.at[values[i]].shape, extent);
    return sum;
}

/* How long a call takes, in multiply-adds: products and attention by these, all else by what it touches. */
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

/* The step's fraction of its block's phase: blocks are measured whole, on one rank. Where layers are sharded, or
 * samples processed in sequence chunks, a rank's steps are the smaller for it. */
static double fraction_of(const ech_plan *plan, const ech_step *step)
{
    const ech_block *block = plan->model->block.at[step->block];
    ech_calls calls = ech_plan_calls(plan, &plan->list[ECH_LIST_TRAIN], step->block, step->phase);
    double all = 0, own = 0;
    for (int c = calls.first; c < calls.end && step->calls < calls.end - calls.first; c++) {
        double work = effort_of(block, &block->program[step->phase].at[c], step->phase,
                                plan->list[ECH_LIST_TRAIN].extent);
        all += work;
        if (c >= step->first_call && c < step->first_call + step->calls) own += work;
    }
    return (all > 0 ? own / all : 1) / ech_plan_ways(plan);
}

static double effort_of_phase(const ech_plan *plan, int index, ech_phase phase)
{
    const ech_list *list = &plan->list[ECH_LIST_TRAIN];
    const ech_block *block = plan->model->block.at[index];
    ech_calls calls = ech_plan_calls(plan, list, index, phase);
    double sum = 0;
    for (int c = calls.first; c < calls.end; c++)
        sum += effort_of(block, &block->program[phase].at[c], phase, list->extent);
    return sum;
}

/* What R takes, over what F takes. */
static double recomputed_fraction(const ech_plan *plan, int index)
{
    double forward = effort_of_phase(plan, index, ECH_FORWARD);
    return forward > 0 ? effort_of_phase(plan, index, ECH_RECOMPUTE) / forward : 1;
}

static double seconds(const ech_step_query *q)
{
    bool again = q->step->phase == ECH_RECOMPUTE;
    const double *measured = q->costs->profile->block[q->step->block].seconds;
    double all = again ? measured[ECH_FORWARD] * recomputed_fraction(q->plan, q->step->block)
                       : measured[q->step->phase];
    return all * fraction_of(q->plan, q->step);
}

/* Whether a phase of the block computes anything, besides what groups of ranks do. */
static bool computes(const ech_block *block, ech_phase phase)
{
    for (size_t c = 0; c < block->program[phase].n; c++)
        if (!ech_call_exchange(block, &block->program[phase].at[c], phase, ECH_TRAIN)) return true;
    return false;
}

/* Of a block's backward, which costs two units in all: a block that has only one of B and W (an embedding
 * has no input that wants a gradient) does everything in that one. */
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
