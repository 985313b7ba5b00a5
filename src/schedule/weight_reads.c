/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads of weights, from the operands of blocks' calls.
 */
#include "schedule/weight_reads.h"

#include <stdlib.h>

void ech_weight_reads_begin(ech_weight_reads *reads, const ech_plan *plan, ech_purpose purpose)
{
    *reads = (ech_weight_reads){
        .plan = plan, .purpose = purpose, .at = ech_calloc(plan->bucket.n + 1, sizeof *reads->at)};
    for (int phase = 0; phase < ECH_PHASES; phase++)
        reads->of[phase] = ech_calloc(plan->model->block.n, sizeof *reads->of[phase]);
}

void ech_weight_reads_end(ech_weight_reads *reads)
{
    for (int phase = 0; phase < ECH_PHASES; phase++) {
        for (size_t b = 0; b < reads->plan->model->block.n; b++) {
            if (reads->of[phase][b]) free(reads->of[phase][b]->all.at);
            free(reads->of[phase][b]);
        }
        free(reads->of[phase]);
    }
    free(reads->at);
    free(reads->step.all.at);
}

static ech_read_list *find_reads(const ech_weight_reads *reads, int index, int phase)
{
    ech_read_list *found = ech_calloc(1, sizeof *found);
    const ech_block *block = reads->plan->model->block.at[index];
    for (int c = 0; c < (int)block->program[phase].n; c++) {
        const ech_block_call *call = &block->program[phase].at[c];
        for (const ech_operand *o = NULL; (o = ech_call_next(block, call, reads->purpose, o));)
            if (o->port == ECH_PORT_PARAM)
                ECH_PUSH(found->all, (ech_read){reads->plan->param[o->value].bucket, c, c});
    }
    return found;
}

const ech_read_list *ech_weight_reads_of(ech_weight_reads *reads, const ech_step *step)
{
    int phase = ech_step_kind_phase(step->kind);
    ech_read_list *out = &reads->step;
    out->all.n = 0;
    if (phase < 0) return out;
    ech_read_list **known = &reads->of[phase][step->block];
    if (!*known) *known = find_reads(reads, step->block, phase);
    for (size_t i = 0; i < (*known)->all.n; i++) {
        ech_read read = (*known)->all.at[i];
        if (read.first < step->first_call || read.first >= step->first_call + step->calls) continue;
        int *at = &reads->at[read.bucket];
        if (!*at) {
            ECH_PUSH(out->all, read);
            *at = (int)out->all.n;
        }
        out->all.at[*at - 1].last = read.first;
    }
    for (size_t i = 0; i < out->all.n; i++) reads->at[out->all.at[i].bucket] = 0;
    return out;
}
