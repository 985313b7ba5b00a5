/* SPDX-License-Identifier: Apache-2.0
 *
 * What steps cost in rehearsals: one unit a block's phase, or seconds from a profile.
 */
#include "schedule/passes.h"
#include "schedule/simulate/rehearsal.h"

ech_costs ech_costs_of(const ech_config *config, const ech_profile *profile)
{
    if (!profile) return (ech_costs){.seconds = false};
    return (ech_costs){.seconds = true, .profile = profile, .rates = ech_rates_of(config, profile)};
}

/* Rounds of a tree over so many ranks. */
static int rounds(int members)
{
    int n = 0;
    while ((int64_t)1 << n < members) n++;
    return n;
}

static double bucket_bytes(const ech_plan *plan, const ech_step *step)
{
    return (double)plan->bucket.at[step->index].elements * (double)ech_dtype_bytes(plan->real);
}

/* Multiply-adds that take as long as touching one number in memory, about. */
static const double touch = 16;

static double elements(const ech_block *block, const int *values, int n, ech_extent extent)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        if (values[i] >= 0)
            sum += (double)ech_shape_count(&block->value.at[values[i]].shape, extent);
    return sum;
}

/* How long a call takes, in multiply-adds: products and attention by these, all else by what it touches. */
static double work_of(const ech_block *block, const ech_block_call *call, ech_phase phase,
                      ech_extent extent)
{
    if (ech_call_exchange(block, call, phase)) return 0;
    if (call->node < 0) return 3 * touch * elements(block, call->din, 1, extent);
    const ech_node *node = &block->node.at[call->node];
    double touched = elements(block, node->in, node->ins, extent) +
                     elements(block, node->out, node->outs, extent);
    return touch * touched + ech_call_multiplies(block, call, phase, extent);
}

/* The step's share of its block's phase: blocks are measured whole, on one rank. Where layers are cut,
 * or samples processed in pieces, a rank's steps are the smaller for it. */
static double share_of(const ech_plan *plan, const ech_step *step)
{
    const ech_block *block = plan->model->block.at[step->block];
    int calls = (int)block->program[step->phase].n;
    double all = 0, own = 0;
    for (int c = 0; c < calls && step->calls < calls; c++) {
        double work = work_of(block, &block->program[step->phase].at[c], step->phase,
                              plan->list[ECH_LIST_TRAIN].extent);
        all += work;
        if (c >= step->first_call && c < step->first_call + step->calls) own += work;
    }
    return (all > 0 ? own / all : 1) / ech_plan_ways(plan);
}

static double seconds_of(const ech_costs *costs, const ech_plan *plan, const ech_step *step,
                         ech_party party)
{
    const ech_rates *rates = &costs->rates;
    switch (step->kind) {
    case ECH_STEP_FORWARD:
    case ECH_STEP_BACKWARD_INPUT:
    case ECH_STEP_BACKWARD_WEIGHT:
        return costs->profile->block[step->block].seconds[step->phase] * share_of(plan, step);
    case ECH_STEP_COLLECTIVE:
        return rates->latency * rounds(party.members) +
               (double)step->bytes / ech_rates_between(rates, party.first, party.last);
    case ECH_STEP_SEND_ACT:
    case ECH_STEP_RECV_ACT:
    case ECH_STEP_SEND_GRAD:
    case ECH_STEP_RECV_GRAD:
        return ech_cost_message(rates, (double)step->bytes, party.first, party.last);
    case ECH_STEP_REDUCE: /* a few numbers, gathered and sent out again */
        return rates->latency * 2 * rounds(party.members);
    case ECH_STEP_REDUCE_GRADS:
        return ech_cost_reduction(rates, bucket_bytes(plan, step), party.members, party.first,
                                  party.last);
    case ECH_STEP_NORM:
        return ech_cost_norm(rates, bucket_bytes(plan, step));
    case ECH_STEP_STASH:
        return ech_cost_stash(rates, bucket_bytes(plan, step));
    case ECH_STEP_UPDATE:
        return ech_cost_update(rates, bucket_bytes(plan, step));
    case ECH_STEP_LOAD: /* and what else a step does once */
        return rates->other_seconds;
    default:
        return 0;
    }
}

/* Whether a phase of the block computes anything, besides what groups of ranks do. */
static bool computes(const ech_block *block, ech_phase phase)
{
    for (size_t c = 0; c < block->program[phase].n; c++)
        if (!ech_call_exchange(block, &block->program[phase].at[c], phase)) return true;
    return false;
}

/* Of a block's backward, which costs two units in all: a block that has only one of B and W (an embedding
 * has no input that wants a gradient) does everything in that one. */
static double unit_of(const ech_plan *plan, const ech_step *step)
{
    const ech_block *block = plan->model->block.at[step->block];
    switch (step->kind) {
    case ECH_STEP_FORWARD:
        return 1;
    case ECH_STEP_BACKWARD_INPUT:
        return computes(block, ECH_BACKWARD_WEIGHT) ? 1 : 2;
    case ECH_STEP_BACKWARD_WEIGHT:
        return computes(block, ECH_BACKWARD_INPUT) ? 1 : 2;
    default:
        return 0;
    }
}

double ech_cost_of(const ech_costs *costs, const ech_plan *plan, const ech_step *step,
                   ech_party party)
{
    if (costs->seconds) return seconds_of(costs, plan, step, party);
    bool works = step->kind == ECH_STEP_FORWARD || step->kind == ECH_STEP_BACKWARD_INPUT ||
                 step->kind == ECH_STEP_BACKWARD_WEIGHT;
    return works ? unit_of(plan, step) * share_of(plan, step) : 0;
}
