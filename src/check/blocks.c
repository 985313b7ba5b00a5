/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks F, B, W and R: each comes once, in the order in which activations and gradients flow
 * through the rank's own blocks and from one sequence chunk to the next.
 */
#include <stdlib.h>

#include "check/checker.h"
#include "schedule/segments.h"

static bool is_work(const ech_step *step)
{
    return ech_step_kind_phase(step->kind) >= 0 ||
           (step->kind == ECH_STEP_COLLECTIVE && step->calls > 0);
}

static struct ech_block_step *slot_of(const ech_block_steps *b, int chunk, int micro, int block,
                                      ech_phase phase)
{
    int position = b->base[chunk] + block - b->first[chunk];
    return &b->at[(position * b->micro_batches + micro) * ECH_PHASES + (int)phase];
}

int ech_block_step(const ech_block_steps *steps, int chunk, int micro, int block, ech_phase phase)
{
    return slot_of(steps, chunk, micro, block, phase)->last;
}

int ech_block_step_first(const ech_block_steps *steps, int chunk, int micro, int block,
                         ech_phase phase)
{
    return slot_of(steps, chunk, micro, block, phase)->first;
}

/* True if the step's calls fit its kind: a COLLECTIVE runs a group's collective, and compute steps
 * run none. */
static bool has_fitting_calls(const ech_plan *plan, const ech_list *list, const ech_step *step)
{
    ech_purpose purpose = list->purpose;
    const ech_block *block = plan->model->block.at[step->block];
    ech_calls all = ech_plan_calls(plan, list, step->block, step->phase);
    int end = step->first_call + step->calls;
    bool collective = step->kind == ECH_STEP_COLLECTIVE;
    if (step->first_call < all.first || step->calls < 1 || end > all.end ||
        (collective && step->calls > 1))
        return false;
    for (int c = step->first_call; c < end; c++) {
        const ech_block_call *call = &block->program[step->phase].at[c];
        if ((ech_call_exchange(block, call, step->phase, purpose) != NULL) != collective)
            return false;
    }
    return true;
}

/* True if the step of B or W only recomputes values of the forward, which needs no gradient. */
static bool only_recomputes(const ech_plan *plan, const ech_step *step)
{
    const ech_block *block = plan->model->block.at[step->block];
    bool only = step->phase != ECH_RECOMPUTE;
    for (int c = step->first_call; c < step->first_call + step->calls; c++)
        only &= block->program[step->phase].at[c].recompute;
    return only;
}

/* Number of calls of B that a W of the node at that position needs: the calls of the nodes after
 * it, which make its gradient. */
static int calls_behind(const ech_block *block, int position)
{
    int call = 0, n = (int)block->program[ECH_BACKWARD_INPUT].n, needed = 0;
    for (; call < n; call++) {
        const ech_block_call *c = &block->program[ECH_BACKWARD_INPUT].at[call];
        if (c->recompute || ech_call_exchange(block, c, ECH_BACKWARD_INPUT, ECH_TRAIN)) continue;
        if (c->node >= 0 && ech_call_position(block, c) <= position) break;
        needed = call + 1;
    }
    return needed;
}

/* Checks that the gradients that a step of W reads were made by the steps of B entered so far; the
 * gradient of the block's output comes from the next block. */
static ech_status check_gradients(const ech_plan *plan, const ech_list *list, int s,
                                  const ech_block_steps *b)
{
    const ech_step *step = &list->step.at[s];
    const ech_block *block = plan->model->block.at[step->block];
    int last = slot_of(b, step->chunk, step->micro, step->block, ECH_BACKWARD_INPUT)->last;
    int done = last < 0 ? 0 : list->step.at[last].first_call + list->step.at[last].calls;
    for (int c = step->first_call; c < step->first_call + step->calls; c++) {
        const ech_block_call *call = &block->program[ECH_BACKWARD_WEIGHT].at[c];
        if (call->recompute || calls_behind(block, ech_call_position(block, call)) <= done)
            continue;
        return ech_list_reject(plan, list, s, "begins before its gradient is there");
    }
    return ECH_OK;
}

/* Compute steps run their calls in order and each once; collectives of W, and calls that recompute
 * their inputs, may begin earlier. If the total equals the program's number of calls, each is done
 * once. */
static ech_status enter(const ech_plan *plan, const ech_list *list, int s, ech_block_steps *b)
{
    const ech_step *step = &list->step.at[s];
    if (step->chunk < 0 || step->chunk >= b->chunks || step->block < b->first[step->chunk] ||
        step->block >= b->end[step->chunk])
        return ech_list_reject(plan, list, s, "is of a block that this chunk does not have");
    if (step->micro < 0 || step->micro >= b->micro_batches)
        return ech_list_reject(plan, list, s, "is of a micro-batch that this rank does not have");
    if (step->turn != ech_micro_at(list->numbering, step->micro).turn)
        return ech_list_reject(plan, list, s, "is counted to turn %d", step->turn);
    int phase = ech_step_kind_phase(step->kind);
    if (phase >= 0 && phase != (int)step->phase)
        return ech_list_reject(plan, list, s, "is of phase %d", (int)step->phase);
    if (!has_fitting_calls(plan, list, step))
        return ech_list_reject(plan, list, s, "does calls %d to %d, which are none for it",
                               step->first_call, step->first_call + step->calls - 1);
    struct ech_block_step *slot = slot_of(b, step->chunk, step->micro, step->block, step->phase);
    slot->calls += step->calls;
    if (step->kind == ECH_STEP_COLLECTIVE || only_recomputes(plan, step)) return ECH_OK;
    if (slot->last >= 0) {
        const ech_step *before = &list->step.at[slot->last];
        if (before->first_call + before->calls > step->first_call)
            return ech_list_reject(plan, list, s, "does again what step %d did", slot->last);
    }
    if (slot->first < 0) slot->first = s;
    slot->last = s;
    return phase == ECH_BACKWARD_WEIGHT ? check_gradients(plan, list, s, b) : ECH_OK;
}

ech_status ech_block_steps_create(const ech_plan *plan, const ech_list *list, ech_block_steps *out)
{
    size_t chunks = (size_t)plan->layout->chunks, n = 0;
    ECH_CLEANUP(ech_block_steps_free)
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
    for (size_t i = 0; i < n; i++) b.at[i] = (struct ech_block_step){.first = -1, .last = -1};
    for (int s = 0; s < (int)list->step.n; s++)
        if (is_work(&list->step.at[s])) ECH_TRY(enter(plan, list, s, &b));
    *out = b;
    b = (ech_block_steps){0};
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
    static const char letters[ECH_PHASES + 1] = "FBWR";
    const ech_list *list = f->list;
    for (int phase = 0; phase < ECH_PHASES; phase++) {
        ech_calls all = ech_plan_calls(f->plan, list, block, (ech_phase)phase);
        int calls = all.end - all.first;
        bool wanted = calls > 0 && (phase == ECH_FORWARD || ech_list_trains(list));
        int step = at(f, block, (ech_phase)phase);
        int done = slot_of(f->blocks, f->chunk, f->micro, block, (ech_phase)phase)->calls;
        if (step >= 0 && !wanted)
            return ech_list_reject(f->plan, list, step, "has nothing to do in this list");
        if (!wanted || done == calls) continue;
        if (step < 0) /* nothing, or an incomplete program of collectives only */
            return ech_list_reject(f->plan, list, (int)list->step.n - 1,
                                   "ends a list without %c%d.%d/%d", letters[phase], f->chunk,
                                   f->micro, block);
        return ech_list_reject(f->plan, list, step,
                               "belongs to a program with %d calls; %d are done", calls, done);
    }
    return ECH_OK;
}

/* `step` reads the results of `source`; either may be -1: it is not here. */
static ech_status check_after(const flow *f, int step, int source, const char *what)
{
    if (step < 0 || source < 0 || source < step) return ECH_OK;
    return ECH_REJECT(f, step, "begins before its %s is there (step %d)", what, source);
}

/* The step that the chunk's first step in that direction needs, if the neighbouring virtual stage
 * is on the same rank. */
static int neighbour(const flow *f, ech_phase phase)
{
    const ech_layout *layout = f->plan->layout;
    int s = ech_layout_neighbour(layout, f->plan->rank, f->chunk, phase != ECH_FORWARD);
    if (s < 0 || layout->virtual_stage[s].stage != layout->coordinates[f->plan->rank].stage)
        return -1;
    int chunk = layout->virtual_stage[s].chunk;
    int block = phase == ECH_FORWARD ? f->blocks->end[chunk] - 1 : f->blocks->first[chunk];
    return ech_block_step(f->blocks, chunk, f->micro, block, phase);
}

static int begin_of(const flow *f, int block, ech_phase phase)
{
    return ech_block_step_first(f->blocks, f->chunk, f->micro, block, phase);
}

/* Parts of a W may come before parts of its B (check_gradients). */
static ech_status check_chunk(const flow *f)
{
    int first = f->blocks->first[f->chunk], end = f->blocks->end[f->chunk];
    int before = neighbour(f, ECH_FORWARD);
    int after = neighbour(f, ECH_BACKWARD_INPUT);
    for (int b = first; b < end; b++) {
        ECH_TRY(check_complete(f, b));
        ECH_TRY(check_after(f, begin_of(f, b, ECH_FORWARD), before, "input"));
        before = at(f, b, ECH_FORWARD);
    }
    for (int b = end - 1; b >= first; b--) {
        int input = begin_of(f, b, ECH_BACKWARD_INPUT);
        int weight = begin_of(f, b, ECH_BACKWARD_WEIGHT), again = begin_of(f, b, ECH_RECOMPUTE);
        ECH_TRY(check_after(f, again, at(f, b, ECH_FORWARD), "forward"));
        bool inverts = f->plan->model->block.at[b]->options.invert;
        if (again >= 0 && ech_plan_continues_segment(f->plan, inverts ? b + 1 : b))
            ECH_TRY(check_after(f, again, at(f, inverts ? b + 1 : b - 1, ECH_RECOMPUTE), "input"));
        ECH_TRY(check_after(f, input, at(f, b, ECH_RECOMPUTE), "recomputation"));
        ECH_TRY(check_after(f, weight, at(f, b, ECH_RECOMPUTE), "recomputation"));
        ECH_TRY(check_after(f, input, at(f, b, ECH_FORWARD), "forward"));
        ECH_TRY(check_after(f, input, after, "gradient"));
        ECH_TRY(check_after(f, weight, at(f, b, ECH_FORWARD), "forward"));
        ECH_TRY(check_after(f, weight, after, "gradient"));
        after = at(f, b, ECH_BACKWARD_INPUT);
    }
    return ECH_OK;
}

/* Sequence chunks read the keys and values of earlier chunks, and their backwards add to these
 * gradients. */
static ech_status check_sequence_chunks(const flow *f)
{
    flow before = *f;
    if (ech_micro_at(f->list->numbering, f->micro).sequence_chunk == 0) return ECH_OK;
    before.micro--;
    for (int b = f->blocks->first[f->chunk]; b < f->blocks->end[f->chunk]; b++) {
        ECH_TRY(check_after(f, begin_of(f, b, ECH_FORWARD), at(&before, b, ECH_FORWARD),
                            "sequence chunk before"));
        ECH_TRY(check_after(f, begin_of(&before, b, ECH_BACKWARD_INPUT),
                            at(f, b, ECH_BACKWARD_INPUT), "sequence chunk after"));
    }
    return ECH_OK;
}

ech_status ech_check_blocks(const ech_plan *plan, const ech_list *list,
                            const ech_block_steps *blocks)
{
    flow f = {.plan = plan, .list = list, .blocks = blocks};
    for (f.chunk = 0; f.chunk < blocks->chunks; f.chunk++)
        for (f.micro = 0; f.micro < list->micro_batches; f.micro++) {
            ECH_TRY(check_chunk(&f));
            ECH_TRY(check_sequence_chunks(&f));
        }
    return ECH_OK;
}
