/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of the checker that looks at F, B and W: each once, in the order in which activations and
 * gradients flow through the rank's own blocks.
 */
#include <stdlib.h>

#include "schedule/check.h"

static bool is_work(const ech_step *step)
{
    return ech_step_kind_phase(step->kind) >= 0;
}

static int *slot_of(const ech_block_steps *b, int chunk, int micro, int block, ech_phase phase)
{
    int place = b->base[chunk] + block - b->first[chunk];
    return &b->at[(place * b->micro_batches + micro) * ECH_PHASES + (int)phase];
}

int ech_block_step(const ech_block_steps *steps, int chunk, int micro, int block, ech_phase phase)
{
    return *slot_of(steps, chunk, micro, block, phase);
}

static ech_status enter(const ech_plan *plan, const ech_list *list, int s, ech_block_steps *b)
{
    const ech_step *step = &list->step.at[s];
    if (step->chunk < 0 || step->chunk >= b->chunks || step->block < b->first[step->chunk] ||
        step->block >= b->end[step->chunk])
        return ech_list_reject(plan, list, s, "is of a block that this chunk does not have");
    if (step->micro < 0 || step->micro >= b->micro_batches)
        return ech_list_reject(plan, list, s, "is of a micro-batch that this rank does not have");
    if (step->turn != step->micro / ech_list_micro_of_turn(list))
        return ech_list_reject(plan, list, s, "is counted to turn %d", step->turn);
    int *slot = slot_of(b, step->chunk, step->micro, step->block, ech_step_phase(step));
    if (*slot >= 0) return ech_list_reject(plan, list, s, "does again what step %d did", *slot);
    *slot = s;
    return ECH_OK;
}

ech_status ech_block_steps_create(const ech_plan *plan, const ech_list *list, ech_block_steps *out)
{
    size_t chunks = (size_t)plan->layout->chunks, n = 0;
    ech_block_steps b = {.chunks = (int)chunks, .micro_batches = list->micro_batches};
    b.first = ech_calloc(chunks, sizeof *b.first);
    b.end = ech_calloc(chunks, sizeof *b.end);
    b.base = ech_calloc(chunks, sizeof *b.base);
    for (size_t c = 0; c < chunks; c++) {
        ech_layout_blocks(plan->layout, plan->rank, (int)c, &b.first[c], &b.end[c]);
        b.base[c] = (int)n;
        n += (size_t)(b.end[c] - b.first[c]);
    }
    n *= (size_t)list->micro_batches * ECH_PHASES;
    b.at = ech_calloc(n, sizeof *b.at);
    for (size_t i = 0; i < n; i++) b.at[i] = -1;
    for (int s = 0; s < (int)list->step.n; s++) {
        ech_status status = is_work(&list->step.at[s]) ? enter(plan, list, s, &b) : ECH_OK;
        if (status == ECH_OK) continue;
        ech_block_steps_free(&b);
        return status;
    }
    *out = b;
    return ECH_OK;
}

void ech_block_steps_free(ech_block_steps *steps)
{
    free(steps->first);
    free(steps->end);
    free(steps->base);
    free(steps->at);
    *steps = (ech_block_steps){0};
}

/* ---- order ---- */

typedef struct flow {
    const ech_plan *plan;
    const ech_list *list;
    const ech_block_steps *blocks;
    int chunk, micro;
} flow;

static int at(const flow *f, int block, ech_phase phase)
{
    return ech_block_step(f->blocks, f->chunk, f->micro, block, phase);
}

static ech_status check_complete(const flow *f, int block)
{
    static const char letters[ECH_PHASES + 1] = "FBW";
    const ech_list *list = f->list;
    for (int phase = 0; phase < ECH_PHASES; phase++) {
        bool wanted = f->plan->model->block.at[block]->program[phase].n > 0 &&
                      (phase == ECH_FORWARD || ech_list_trains(list));
        int step = at(f, block, (ech_phase)phase);
        if (step < 0 && wanted)
            return ech_list_reject(f->plan, list, (int)list->step.n - 1,
                                   "ends a list without %c%d.%d/%d", letters[phase], f->chunk,
                                   f->micro, block);
        if (step >= 0 && !wanted)
            return ech_list_reject(f->plan, list, step, "has nothing to do in this list");
    }
    return ECH_OK;
}

/* `step` reads what `source` makes; either may be -1: it is not here. */
static ech_status check_behind(const flow *f, int step, int source, const char *what)
{
    if (step < 0 || source < 0 || source < step) return ECH_OK;
    return ech_list_reject(f->plan, f->list, step, "begins before its %s is there (step %d)", what,
                           source);
}

/* With one stage the neighbouring chunk is on the same rank. */
static int neighbour(const flow *f, int chunk, ech_phase phase)
{
    if (f->plan->layout->stages > 1 || chunk < 0 || chunk >= f->blocks->chunks) return -1;
    int block = phase == ECH_FORWARD ? f->blocks->end[chunk] - 1 : f->blocks->first[chunk];
    return ech_block_step(f->blocks, chunk, f->micro, block, phase);
}

static ech_status check_chunk(const flow *f)
{
    int first = f->blocks->first[f->chunk], end = f->blocks->end[f->chunk];
    int before = neighbour(f, f->chunk - 1, ECH_FORWARD);
    int behind = neighbour(f, f->chunk + 1, ECH_BACKWARD_INPUT);
    for (int b = first; b < end; b++) {
        ECH_TRY(check_complete(f, b));
        int step = at(f, b, ECH_FORWARD);
        ECH_TRY(check_behind(f, step, before, "input"));
        before = step;
    }
    for (int b = end - 1; b >= first; b--) {
        int input = at(f, b, ECH_BACKWARD_INPUT), weight = at(f, b, ECH_BACKWARD_WEIGHT);
        ECH_TRY(check_behind(f, input, at(f, b, ECH_FORWARD), "forward"));
        ECH_TRY(check_behind(f, input, behind, "gradient"));
        ECH_TRY(check_behind(f, weight, at(f, b, ECH_FORWARD), "forward"));
        ECH_TRY(check_behind(f, weight, input >= 0 ? input : behind, "gradient"));
        behind = input;
    }
    return ECH_OK;
}

ech_status ech_check_blocks(const ech_plan *plan, const ech_list *list,
                            const ech_block_steps *blocks)
{
    flow f = {.plan = plan, .list = list, .blocks = blocks};
    for (f.chunk = 0; f.chunk < blocks->chunks; f.chunk++)
        for (f.micro = 0; f.micro < list->micro_batches; f.micro++) ECH_TRY(check_chunk(&f));
    return ECH_OK;
}
