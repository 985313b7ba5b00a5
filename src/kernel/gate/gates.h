/* SPDX-License-Identifier: Apache-2.0
 *
 * All gates by kind, and the code that they share: positions of rows, and capacities of experts.
 */
#ifndef ECH_KERNEL_GATE_GATES_H
#define ECH_KERNEL_GATE_GATES_H

#include "kernel/gate/bias.h"
#include "kernel/gate/dense.h"
#include "kernel/gate/gshard.h"
#include "kernel/gate/hierarchical.h"
#include "kernel/gate/noisy_topk.h"
#include "kernel/gate/switch.h"
#include "kernel/gate/topk.h"

ECH_GATE_CODE void ech_gate_choose(ech_gate_row *row)
{
    switch (row->gate->kind) {
#define X(name, meaning)                                                                           \
    case ECH_GATE_##name:                                                                          \
        ech_gate_##name##_choose(row);                                                             \
        break;
#include "kernel/gates.def"
    case ECH_GATES:
        break;
    }
}

ECH_GATE_CODE void ech_gate_differentiate(ech_gate_row *row)
{
    switch (row->gate->kind) {
#define X(name, meaning)                                                                           \
    case ECH_GATE_##name:                                                                          \
        ech_gate_##name##_differentiate(row);                                                      \
        break;
#include "kernel/gates.def"
    case ECH_GATES:
        break;
    }
}

ECH_GATE_CODE void ech_gate_losses(ech_gate_group *group)
{
    if (group->rows == 0) return;
    switch (group->gate->kind) {
#define X(name, meaning)                                                                           \
    case ECH_GATE_##name:                                                                          \
        ech_gate_##name##_losses(group);                                                           \
        break;
#include "kernel/gates.def"
    case ECH_GATES:
        break;
    }
}

/* The index of a row among all members' rows (S each), from a sample of the view and a position in
 * it. */
ECH_GATE_CODE int64_t ech_gate_row_index(const ech_gate *gate, const ech_rows *rows, int64_t S,
                                         int64_t sample, int64_t position)
{
    int64_t t;
    int64_t index = ech_rows_context_of(position, rows->tokens, gate->context, gate->zigzag, &t);
    int64_t row = sample * rows->tokens + t;
    return (index * gate->tensor + row / S) * S + row % S;
}

/* Rows of a sample that are not padding. */
ECH_GATE_CODE int64_t ech_gate_length(const int32_t *lengths, const ech_rows *rows, int64_t sample)
{
    return lengths ? lengths[sample] : rows->whole;
}

/* Handles a choice of `expert` in its turn: drops it if the expert is at its capacity. A choice
 * that is kept back takes a slot, or none if the gate says so. */
ECH_GATE_CODE void ech_gate_take(const ech_gate *gate, double capacity, int32_t expert,
                                 int32_t *choice, double *taken)
{
    bool sent = *choice == expert;
    if (sent && *taken >= capacity) *choice = ech_gate_fate(gate, expert, ECH_GATE_DROPPED);
    if (sent || !gate->ports) ++*taken;
}

#endif
