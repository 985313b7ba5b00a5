/* SPDX-License-Identifier: Apache-2.0
 *
 * All experts, weighted by the softmax of their logits: k = E.
 */
#ifndef ECH_KERNEL_GATE_DENSE_H
#define ECH_KERNEL_GATE_DENSE_H

#include "kernel/gate/row.h"

ECH_GATE_CODE void ech_gate_dense_choose(ech_gate_row *row)
{
    row->entropy = ech_gate_softmax(row->logits, row->gate->experts, row->share);
    for (int32_t e = 0; e < row->gate->experts; e++) {
        row->choice[e] = e;
        row->gates[e] = row->share[e];
    }
}

ECH_GATE_CODE void ech_gate_dense_differentiate(ech_gate_row *row)
{
    ech_gate_softmax_backward(row->share, row->dgates, row->gate->experts, row->dlogits);
}

/* All experts have all rows: there is nothing to balance. */
ECH_GATE_CODE void ech_gate_dense_losses(ech_gate_group *group)
{
    (void)group;
}

#endif
