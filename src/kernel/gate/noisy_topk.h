/* SPDX-License-Identifier: Apache-2.0
 *
 * Noisy top-k gating (Shazeer et al. 2017, arXiv:1701.06538). Losses: importance, the squared
 * coefficient of variation of the experts' sums of gates; and load, the same for their sums of
 * loads (noisy.h), with the population variance.
 */
#ifndef ECH_KERNEL_GATE_NOISY_TOPK_H
#define ECH_KERNEL_GATE_NOISY_TOPK_H

#include "kernel/gate/noisy.h"

ECH_GATE_CODE void ech_gate_noisy_topk_choose(ech_gate_row *row)
{
    const ech_gate *gate = row->gate;
    ech_gate_add_noise(row);
    row->entropy = ech_gate_softmax(row->logits, gate->experts, row->room[2]);
    ech_gate_noisy_choose(row, 0, gate->experts, gate->chosen, row->choice, row->gates);
    for (int64_t e = 0; e < gate->experts; e++) row->share[e] = 0;
    for (int64_t j = 0; j < gate->chosen; j++) row->share[row->choice[j]] = row->gates[j];
}

ECH_GATE_CODE void ech_gate_noisy_topk_differentiate(ech_gate_row *row)
{
    const ech_gate *gate = row->gate;
    for (int64_t j = 0; j < gate->chosen; j++) row->dgates[j] += row->dshare[row->choice[j]];
    ech_gate_noisy_differentiate(row, 0, gate->experts, gate->chosen, row->choice, row->gates,
                                 row->dgates);
}

ECH_GATE_CODE void ech_gate_noisy_topk_losses(ech_gate_group *group)
{
    const ech_gate *gate = group->gate;
    group->importance =
        ech_gate_variation(group->share, gate->experts, gate->importance, group->dshare);
    group->load_loss = ech_gate_variation(group->load, gate->experts, gate->load, group->dload);
}

#endif
