/* SPDX-License-Identifier: Apache-2.0
 *
 * A slow second opinion on one rank's list of layers that are cut over ranks, without what the
 * checker is made of. It does every call of the list, in its order, on numbers that stand for
 * contents, and compares what each call meets with what it meets where programs run one after the
 * other. And it looks, through the graph of all waits, whether two steps that touch the same value
 * can run at the same time.
 */
#ifndef ECH_TESTS_SCHEDULE_DATAFLOW_H
#define ECH_TESTS_SCHEDULE_DATAFLOW_H

#include <stdlib.h>
#include <string.h>

#include "schedule/operands.h"
#include "schedule/passes.h"

typedef struct dataflow_touch {
    int step;
    int64_t value;
    bool write;
} dataflow_touch;

typedef struct dataflow {
    const ech_plan *plan;
    const ech_list *list;
    int64_t locals;    /* the most of a block */
    uint64_t *content; /* [block][local][micro] */
    uint64_t *met,
        *expected; /* [block][phase][call][micro]: what the call has met; 0: it was not done */
    int64_t calls; /* the most of a program */
    ECH_LIST(dataflow_touch) touch;
    int step; /* being done, or -1: nobody looks for races */
    uint64_t hash;
} dataflow;

static inline uint64_t dataflow_mix(uint64_t a, uint64_t b)
{
    uint64_t z = (a ^ (b * 0x9e3779b97f4a7c15u)) + 0x7f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) | 1;
}

static inline bool dataflow_here(const dataflow *d, int block)
{
    return block >= 0 && block < (int)d->plan->model->block.n &&
           ech_layout_has_block(d->plan->layout, d->plan->rank, block);
}

/* Which content a block's value is: of what crosses a boundary within the rank, the maker's. */
static inline int64_t dataflow_value(const dataflow *d, int block, int local, int micro)
{
    const ech_block *b = d->plan->model->block.at[block];
    local = ech_block_base(b, local);
    const ech_block_value *v = &b->value.at[local];
    for (size_t i = 0; i < b->input.n; i++)
        if (b->input.at[i] == local && dataflow_here(d, block - 1))
            return dataflow_value(d, block - 1, d->plan->model->block.at[block - 1]->output.at[i],
                                  micro);
    for (size_t i = 0; i < b->doutput.n; i++)
        if (b->doutput.at[i] == local && dataflow_here(d, block + 1))
            return dataflow_value(d, block + 1, d->plan->model->block.at[block + 1]->dinput.at[i],
                                  micro);
    if (v->cached) micro -= micro % d->list->numbering.sequence_chunks;
    return (block * d->locals + local) * d->list->micro_batches + micro;
}

static inline void dataflow_note(dataflow *d, int64_t value, bool write)
{
    dataflow_touch t = {d->step, value, write};
    if (d->step >= 0) ECH_PUSH(d->touch, t);
}

static inline uint64_t *dataflow_slot(const dataflow *d, uint64_t *of, int block, int phase,
                                      int call, int micro)
{
    int64_t program = (int64_t)block * ECH_PHASES + phase;
    return &of[(program * d->calls + call) * d->list->micro_batches + micro];
}

static inline void dataflow_call(dataflow *d, uint64_t *met, int block, ech_phase phase, int call,
                                 int micro)
{
    const ech_block *b = d->plan->model->block.at[block];
    const ech_block_call *c = &b->program[phase].at[call];
    uint64_t *slot = dataflow_slot(d, met, block, (int)phase, call, micro);
    d->hash = dataflow_mix((uint64_t)block * 64 + (uint64_t)phase, (uint64_t)call);
    for (const ech_operand *o = NULL; (o = ech_call_next(b, c, d->list->purpose, o));) {
        if (!ech_operand_is_value(o)) continue;
        int64_t value = dataflow_value(d, block, o->value, micro);
        dataflow_note(d, value, o->mode != ECH_READ);
        d->hash = dataflow_mix(d->hash, d->content[value]);
    }
    for (const ech_operand *o = NULL; (o = ech_call_next(b, c, d->list->purpose, o));)
        if (ech_operand_is_value(o) && o->mode != ECH_READ)
            d->content[dataflow_value(d, block, o->value, micro)] =
                dataflow_mix(d->hash, (uint64_t)o->value);
    *slot = dataflow_mix(*slot, d->hash); /* twice is something else than once */
}

/* ---- what comes from outside ---- */

static inline void dataflow_receive(dataflow *d, int block, bool forward, int micro, bool whole)
{
    const ech_block *b = d->plan->model->block.at[block];
    size_t n = forward ? b->input.n : b->doutput.n;
    const int *ports = forward ? b->input.at : b->doutput.at;
    for (size_t i = 0; i < n; i++) {
        int64_t value = dataflow_value(d, block, ports[i], micro);
        dataflow_note(d, value, true);
        d->content[value] = whole ? dataflow_mix(d->content[value], 7) : 5;
    }
}

static inline void dataflow_send(dataflow *d, int block, bool forward, int micro)
{
    const ech_block *b = d->plan->model->block.at[block];
    size_t n = forward ? b->output.n : b->dinput.n;
    const int *ports = forward ? b->output.at : b->dinput.at;
    for (size_t i = 0; i < n; i++)
        if (ports[i] >= 0) dataflow_note(d, dataflow_value(d, block, ports[i], micro), false);
}

/* ---- contents ---- */

static inline void dataflow_step(dataflow *d, int s)
{
    const ech_step *step = &d->list->step.at[s];
    bool forward = step->phase == ECH_FORWARD;
    d->step = s;
    if (step->kind == ECH_STEP_RECV_ACT || step->kind == ECH_STEP_RECV_GRAD)
        dataflow_receive(d, step->block, step->kind == ECH_STEP_RECV_ACT, step->micro, false);
    if (step->kind == ECH_STEP_SEND_ACT || step->kind == ECH_STEP_SEND_GRAD)
        dataflow_send(d, step->block, step->kind == ECH_STEP_SEND_ACT, step->micro);
    if (step->kind == ECH_STEP_COLLECTIVE && !step->calls)
        dataflow_receive(d, step->block, forward, step->micro, true);
    for (int c = 0; c < step->calls; c++)
        dataflow_call(d, d->met, step->block, step->phase, step->first_call + c, step->micro);
}

/* F of all micro-batches, then B from the last on, then W: all programs from beginning to end. */
static inline void dataflow_expect(dataflow *d)
{
    int blocks = (int)d->plan->model->block.n, m = d->list->micro_batches;
    bool pieces = ech_plan_shards_messages(d->plan);
    d->step = -1;
    for (int phase = 0; phase < ECH_PHASES; phase++)
        for (int i = 0; i < m; i++)
            for (int k = 0; k < blocks; k++) {
                bool forward = phase == ECH_FORWARD;
                int block = forward ? k : blocks - 1 - k, micro = forward ? i : m - 1 - i;
                int from = forward ? block - 1 : block + 1;
                if (!dataflow_here(d, block)) continue;
                if (phase != ECH_BACKWARD_WEIGHT && !dataflow_here(d, from))
                    for (int whole = 0; whole <= pieces; whole++)
                        dataflow_receive(d, block, forward, micro, whole);
                int calls = ech_program_calls(d->plan->model->block.at[block], (ech_phase)phase,
                                              d->list->purpose);
                for (int c = 0; c < calls; c++)
                    dataflow_call(d, d->expected, block, (ech_phase)phase, c, micro);
            }
}

/* ---- races ---- */

/* ended[i]: step i has ended when s begins, whatever the times; begun[i] likewise. */
static inline void dataflow_know(const ech_list *list, int s, bool *begun, bool *ended)
{
    const ech_step *step = &list->step.at[s];
    if (begun[s]) return;
    begun[s] = true;
    int before = s - 1;
    while (before >= 0 && list->step.at[before].lane != step->lane) before--;
    if (before >= 0) {
        if (step->lane != ECH_LANE_SEND && step->lane != ECH_LANE_RECEIVE) ended[before] = true;
        dataflow_know(list, before, begun, ended);
    }
    for (int i = 0; i < step->afters; i++) {
        int after = list->after.at[step->first_after + i];
        ended[after] = true;
        dataflow_know(list, after, begun, ended);
    }
}

static inline bool dataflow_races(const dataflow *d)
{
    size_t n = d->list->step.n, first = 0;
    bool *begun = ech_calloc(n, sizeof *begun), *ended = ech_calloc(n, sizeof *ended);
    bool races = false;
    while (first < d->touch.n && !races) {
        int s = d->touch.at[first].step;
        size_t end = first;
        while (end < d->touch.n && d->touch.at[end].step == s) end++;
        memset(begun, 0, n);
        memset(ended, 0, n);
        dataflow_know(d->list, s, begun, ended);
        for (size_t i = first; i < end; i++)
            for (size_t k = 0; k < first; k++) {
                const dataflow_touch *a = &d->touch.at[k], *b = &d->touch.at[i];
                races |= a->value == b->value && (a->write || b->write) && !ended[a->step];
            }
        first = end;
    }
    free(begun);
    free(ended);
    return races;
}

/* ---- both ---- */

/* Whether each call is done once, meets what it should, and no two steps can be in each other's
 * way. */
static inline bool dataflow_is_sound(const ech_plan *plan, const ech_list *list)
{
    dataflow d = {.plan = plan, .list = list};
    size_t blocks = plan->model->block.n, micro = (size_t)list->micro_batches;
    for (size_t b = 0; b < blocks; b++) {
        const ech_block *block = plan->model->block.at[b];
        if ((int64_t)block->value.n > d.locals) d.locals = (int64_t)block->value.n;
        for (int phase = 0; phase < ECH_PHASES; phase++)
            if ((int64_t)block->program[phase].n > d.calls)
                d.calls = (int64_t)block->program[phase].n;
    }
    size_t values = blocks * (size_t)d.locals * micro;
    size_t calls = blocks * ECH_PHASES * (size_t)d.calls * micro;
    d.content = ech_calloc(values, sizeof *d.content);
    d.met = ech_calloc(calls, sizeof *d.met);
    d.expected = ech_calloc(calls, sizeof *d.expected);
    dataflow_expect(&d);
    memset(d.content, 0, values * sizeof *d.content);
    for (int s = 0; s < (int)list->step.n; s++) dataflow_step(&d, s);
    bool sound = memcmp(d.met, d.expected, calls * sizeof *d.met) == 0 && !dataflow_races(&d);
    free(d.content);
    free(d.met);
    free(d.expected);
    free(d.touch.at);
    return sound;
}

#endif
