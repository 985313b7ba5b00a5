/* SPDX-License-Identifier: Apache-2.0
 *
 * GShard (Lepikhin et al. 2020, arXiv:2006.16668), algorithm 1. The two experts of the largest
 * probabilities are chosen, with gates divided by their sum; the second is sent if twice its gate
 * exceeds a uniform random number. Counters always increase, also for choices that are not sent.
 * The capacity is capacity_factor 2 S / E. The auxiliary loss is (1 / E) times the sum of (c / S) m
 * over the experts. Here c is the number of rows whose first choice is the expert, including
 * dropped ones, and m is its mean probability. At balance the loss is 1 / E^2. `ports`: as in
 * Lingvo, Mesh TensorFlow and fairseq, where choices that are not sent take no slot and the loss is
 * E^2 times larger.
 */
#ifndef ECH_KERNEL_GATE_GSHARD_H
#define ECH_KERNEL_GATE_GSHARD_H

#include "kernel/gate/row.h"

ECH_GATE_CODE void ech_gate_gshard_choose(ech_gate_row *row)
{
    const ech_gate *gate = row->gate;
    uint64_t element = (uint64_t)row->whole;
    uint32_t words[4];
    row->entropy = ech_gate_softmax(row->logits, gate->experts, row->share);
    ech_gate_top(row->logits, gate->experts, 2, row->choice);
    double first = row->share[row->choice[0]], second = row->share[row->choice[1]];
    row->gates[0] = first / (first + second);
    row->gates[1] = second / (first + second);
    if (!gate->draws) return;
    ECH_GATE_WORDS(row->key, element / 4, words);
    if (2 * row->gates[1] <= ech_random_unit(words[element % 4]))
        row->choice[1] = ech_gate_fate(gate, row->choice[1], ECH_GATE_KEPT_BACK);
}

ECH_GATE_CODE void ech_gate_gshard_differentiate(ech_gate_row *row)
{
    int32_t experts = (int32_t)row->gate->experts;
    int32_t one = row->choice[0], two = row->choice[1] % experts;
    double sum = row->share[one] + row->share[two];
    double mean = row->dgates[0] * row->gates[0] + row->dgates[1] * row->gates[1];
    row->dshare[one] += (row->dgates[0] - mean) / sum;
    row->dshare[two] += (row->dgates[1] - mean) / sum;
    ech_gate_softmax_backward(row->share, row->dshare, experts, row->dlogits);
}

ECH_GATE_CODE void ech_gate_gshard_losses(ech_gate_group *group)
{
    double experts = (double)group->gate->experts;
    ech_gate_products(group, group->first, group->gate->ports ? experts : 1 / experts);
}

#endif
