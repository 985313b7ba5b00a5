/* SPDX-License-Identifier: Apache-2.0
 *
 * Load balancing without a loss (Wang et al. 2024, arXiv:2408.15664; DeepSeek-AI 2024,
 * arXiv:2412.19437). Scores are sigmoids. The experts with the k largest sums of score and bias are
 * chosen; their gates are their scores, divided by their sum if `normalized`, times `scale`. With
 * `groups` equal groups of experts, only the groups_chosen groups with the largest sums of their
 * two best experts take part. The auxiliary loss is per group of rows: the sum of f P, where f = E
 * / (k rows) times the rows that chose the expert, and P is the mean of the scores divided by their
 * row's sum. At balance it equals the coefficient.
 */
#ifndef ECH_KERNEL_GATE_BIAS_H
#define ECH_KERNEL_GATE_BIAS_H

#include "kernel/gate/row.h"

/* Sets room[1] of the experts outside the best groups to -infinity. */
ECH_GATE_CODE void ech_gate_bias_limit(ech_gate_row *row)
{
    const ech_gate *gate = row->gate;
    int64_t n = gate->experts / gate->groups;
    double *sum = row->room[2], *taken = row->room[3];
    int32_t best = -1;
    for (int64_t i = 0; i < gate->groups; i++) {
        const double *of = row->room[1] + i * n;
        int32_t one = ech_gate_next(of, n, -1), two = n > 1 ? ech_gate_next(of, n, one) : -1;
        sum[i] = of[one] + (two < 0 ? 0 : of[two]);
        taken[i] = 0;
    }
    for (int64_t j = 0; j < gate->groups_chosen; j++) {
        best = ech_gate_next(sum, gate->groups, best);
        taken[best] = 1;
    }
    for (int64_t e = 0; e < gate->experts; e++)
        if (taken[e / n] == 0) row->room[1][e] = -INFINITY;
}

/* room[0]: scores; room[1]: the sums that are compared. */
ECH_GATE_CODE void ech_gate_bias_choose(ech_gate_row *row)
{
    const ech_gate *gate = row->gate;
    double all = 0, sum = 0;
    for (int64_t e = 0; e < gate->experts; e++) {
        row->room[0][e] = 1 / (1 + exp(-row->logits[e]));
        row->room[1][e] = row->room[0][e] + (row->has_bias ? row->bias[e] : 0);
        all += row->room[0][e];
    }
    if (gate->groups > 1) ech_gate_bias_limit(row);
    ech_gate_top(row->room[1], gate->experts, gate->chosen, row->choice);
    row->entropy = 0;
    for (int64_t e = 0; e < gate->experts; e++) {
        double share = row->room[0][e] / all;
        row->share[e] = share;
        if (share > 0) row->entropy -= share * log(share);
    }
    for (int64_t j = 0; j < gate->chosen; j++) sum += row->room[0][row->choice[j]];
    for (int64_t j = 0; j < gate->chosen; j++)
        row->gates[j] = gate->scale * row->room[0][row->choice[j]] / (gate->normalized ? sum : 1);
}

ECH_GATE_CODE void ech_gate_bias_differentiate(ech_gate_row *row)
{
    const ech_gate *gate = row->gate;
    double all = 0, sum = 0, mean = 0, mean_share = 0;
    for (int64_t e = 0; e < gate->experts; e++) {
        all += row->room[0][e];
        mean_share += row->dshare[e] * row->share[e];
    }
    for (int64_t e = 0; e < gate->experts; e++)
        row->dlogits[e] = (row->dshare[e] - mean_share) / all;
    for (int64_t j = 0; j < gate->chosen && gate->normalized; j++) {
        sum += row->room[0][row->choice[j]];
        mean += row->dgates[j] * row->gates[j];
    }
    if (!gate->normalized) sum = 1;
    for (int64_t j = 0; j < gate->chosen; j++)
        row->dlogits[row->choice[j]] += (gate->scale * row->dgates[j] - mean) / sum;
    for (int64_t e = 0; e < gate->experts; e++)
        row->dlogits[e] *= row->room[0][e] * (1 - row->room[0][e]);
}

ECH_GATE_CODE void ech_gate_bias_losses(ech_gate_group *group)
{
    ech_gate_products(group, group->chosen,
                      (double)group->gate->experts / (double)group->gate->chosen);
}

/* The bias after a step: experts that fewer rows than the mean chose become easier to choose, and
 * vice versa. */
ECH_GATE_CODE double ech_gate_bias_moved(double bias, double load, double mean, double rate)
{
    return bias + rate * ((mean > load) - (mean < load));
}

#endif
