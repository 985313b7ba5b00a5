/* SPDX-License-Identifier: Apache-2.0
 *
 * The k experts of the largest logits, weighted by their probabilities, which are divided by their
 * sum if `normalized` (Jiang et al. 2024, "Mixtral of Experts"). The auxiliary loss is the one of
 * Switch Transformers over all k choices, as in Hugging Face's load_balancing_loss_func: k times
 * the coefficient at balance.
 */
#ifndef ECH_KERNEL_GATE_TOPK_H
#define ECH_KERNEL_GATE_TOPK_H

#include "kernel/gate/row.h"

ECH_GATE_CODE void ech_gate_topk_choose(ech_gate_row *row)
{
    const ech_gate *gate = row->gate;
    double sum = 0;
    row->entropy = ech_gate_softmax(row->logits, gate->experts, row->share);
    ech_gate_top(row->logits, gate->experts, gate->chosen, row->choice);
    for (int64_t j = 0; j < gate->chosen; j++) sum += row->share[row->choice[j]];
    for (int64_t j = 0; j < gate->chosen; j++)
        row->gates[j] = row->share[row->choice[j]] / (gate->normalized ? sum : 1);
}

ECH_GATE_CODE void ech_gate_topk_differentiate(ech_gate_row *row)
{
    const ech_gate *gate = row->gate;
    double sum = 0, mean = 0;
    for (int64_t j = 0; j < gate->chosen && gate->normalized; j++) {
        sum += row->share[row->choice[j]];
        mean += row->dgates[j] * row->gates[j];
    }
    if (!gate->normalized) sum = 1;
    for (int64_t j = 0; j < gate->chosen; j++)
        row->dshare[row->choice[j]] += (row->dgates[j] - mean) / sum;
    ech_gate_softmax_backward(row->share, row->dshare, gate->experts, row->dlogits);
}

ECH_GATE_CODE void ech_gate_topk_losses(ech_gate_group *group)
{
    ech_gate_products(group, group->chosen, (double)group->gate->experts);
}

#endif
