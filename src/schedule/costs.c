/* SPDX-License-Identifier: Apache-2.0
 *
 * What steps cost in rehearsals: one unit a block's phase, or seconds from a profile.
 */
#include "schedule/passes.h"
#include "schedule/rehearsal.h"

static double transfer(const ech_profile *profile, double bytes)
{
    return profile->bandwidth > 0 ? bytes / profile->bandwidth : 0;
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

static double seconds_of(const ech_profile *profile, const ech_plan *plan, const ech_step *step,
                         int members)
{
    double n = members;
    switch (step->kind) {
    case ECH_STEP_FORWARD:
    case ECH_STEP_BACKWARD_INPUT:
    case ECH_STEP_BACKWARD_WEIGHT:
        return profile->block[step->block].seconds[ech_step_phase(step)];
    case ECH_STEP_SEND_ACT:
    case ECH_STEP_RECV_ACT:
    case ECH_STEP_SEND_GRAD:
    case ECH_STEP_RECV_GRAD:
        return profile->latency + transfer(profile, (double)step->bytes);
    case ECH_STEP_REDUCE: /* a few numbers, gathered and sent out again */
        return profile->latency * 2 * rounds(members);
    case ECH_STEP_REDUCE_GRADS: /* every member sends and receives 2 (n - 1) / n of the bucket */
        return profile->latency + transfer(profile, bucket_bytes(plan, step) * 2 * (n - 1) / n);
    case ECH_STEP_NORM: /* reads once what the update reads and writes */
    case ECH_STEP_STASH:
        return profile->update_seconds * bucket_bytes(plan, step) / 3;
    case ECH_STEP_UPDATE:
        return profile->update_seconds * bucket_bytes(plan, step) * 2 / 3;
    default:
        return 0;
    }
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
        return block->program[ECH_BACKWARD_WEIGHT].n ? 1 : 2;
    case ECH_STEP_BACKWARD_WEIGHT:
        return block->program[ECH_BACKWARD_INPUT].n ? 1 : 2;
    default:
        return 0;
    }
}

double ech_cost_of(const ech_costs *costs, const ech_plan *plan, const ech_step *step, int members)
{
    if (costs->seconds) return seconds_of(costs->profile, plan, step, members);
    bool works = step->kind == ECH_STEP_FORWARD || step->kind == ECH_STEP_BACKWARD_INPUT ||
                 step->kind == ECH_STEP_BACKWARD_WEIGHT;
    return works ? unit_of(plan, step) : 0;
}
