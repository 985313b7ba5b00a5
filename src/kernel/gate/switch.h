/* SPDX-License-Identifier: Apache-2.0
 *
 * Switch Transformer (Fedus et al. 2021, arXiv:2101.03961): the expert of the largest logit,
 * weighted by its probability. The auxiliary loss is alpha E times the sum of f P: f the fraction
 * of rows that choose an expert, before any is dropped, P its mean probability. It is alpha at
 * balance, and may be less if f and P are not correlated.
 */
#ifndef ECH_KERNEL_GATE_SWITCH_H
#define ECH_KERNEL_GATE_SWITCH_H

#include "kernel/gate/row.h"

ECH_GATE_CODE void ech_gate_switch_choose(ech_gate_row *row)
{
    row->entropy = ech_gate_softmax(row->logits, row->gate->experts, row->share);
    ech_gate_top(row->logits, row->gate->experts, 1, row->choice);
    row->gates[0] = row->share[row->choice[0]];
}

ECH_GATE_CODE void ech_gate_switch_differentiate(ech_gate_row *row)
{
    row->dshare[row->choice[0]] += row->dgates[0];
    ech_gate_softmax_backward(row->share, row->dshare, row->gate->experts, row->dlogits);
}

ECH_GATE_CODE void ech_gate_switch_losses(ech_gate_group *group)
{
    ech_gate_products(group, group->first, (double)group->gate->experts);
}

#endif
