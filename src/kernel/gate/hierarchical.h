/* SPDX-License-Identifier: Apache-2.0
 *
 * Noisy top-k gating in two levels (Shazeer et al. 2017, arXiv:1701.06538, appendix B). The first
 * logits are the groups', followed by the logits of each group's experts. A gate is the group's
 * gate times the expert's gate within the group. Importance sums gates; the load of expert j of
 * group i is the group's load times the mean of j's load over the rows that chose i.
 */
#ifndef ECH_KERNEL_GATE_HIERARCHICAL_H
#define ECH_KERNEL_GATE_HIERARCHICAL_H

#include "kernel/gate/noisy.h"

/* Returns the offset of a group's logits. After choose, room[3] has the chosen groups' gates, then
 * their numbers; room[4] has the gates of experts within these groups. */
ECH_GATE_CODE int64_t ech_gate_hierarchical_first(const ech_gate *gate, int64_t of)
{
    return gate->groups + of * (gate->experts / gate->groups);
}

ECH_GATE_CODE void ech_gate_hierarchical_choose(ech_gate_row *row)
{
    const ech_gate *gate = row->gate;
    int64_t n = gate->experts / gate->groups, groups = gate->groups_chosen;
    int64_t k = gate->chosen / groups;
    double *number = row->room[3] + groups;
    ech_gate_add_noise(row);
    row->entropy = ech_gate_softmax(row->logits, gate->groups, row->room[4]);
    for (int64_t i = 0; i < gate->groups; i++)
        row->entropy +=
            row->room[4][i] *
            ech_gate_softmax(row->logits + ech_gate_hierarchical_first(gate, i), n, row->room[2]);
    ech_gate_noisy_choose(row, 0, gate->groups, groups, row->choice, row->room[3]);
    for (int64_t j = 0; j < groups; j++) number[j] = row->choice[j];
    for (int64_t e = 0; e < gate->experts; e++) row->share[e] = 0;
    for (int64_t j = 0; j < groups; j++) {
        int64_t of = (int64_t)number[j];
        int32_t *choice = row->choice + j * k;
        double *gates = row->room[4] + j * k;
        ech_gate_noisy_choose(row, ech_gate_hierarchical_first(gate, of), n, k, choice, gates);
        for (int64_t i = 0; i < k; i++) {
            choice[i] += (int32_t)(of * n);
            row->gates[j * k + i] = row->room[3][j] * gates[i];
            row->share[choice[i]] = row->gates[j * k + i];
        }
    }
}

ECH_GATE_CODE void ech_gate_hierarchical_differentiate(ech_gate_row *row)
{
    const ech_gate *gate = row->gate;
    int64_t n = gate->experts / gate->groups, groups = gate->groups_chosen;
    int64_t k = gate->chosen / groups;
    const double *number = row->room[3] + groups;
    double *dgroup = row->load; /* no longer needed */
    for (int64_t j = 0; j < groups; j++) {
        int64_t of = (int64_t)number[j];
        int32_t *choice = row->choice + j * k;
        double *gates = row->room[4] + j * k, *dgates = row->dgates + j * k;
        dgroup[j] = 0;
        for (int64_t i = 0; i < k; i++) {
            double d = dgates[i] + row->dshare[choice[i]];
            dgroup[j] += d * gates[i];
            dgates[i] = d * row->room[3][j];
            choice[i] -= (int32_t)(of * n);
        }
        ech_gate_noisy_differentiate(row, ech_gate_hierarchical_first(gate, of), n, k, choice,
                                     gates, dgates);
    }
    for (int64_t j = 0; j < groups; j++) row->choice[j] = (int32_t)number[j];
    ech_gate_noisy_differentiate(row, 0, gate->groups, groups, row->choice, row->room[3], dgroup);
}

/* The number of rows that chose group `of`. An expert's load is a mean over these rows; 0 without
 * rows. */
ECH_GATE_CODE double ech_gate_hierarchical_rows(const ech_gate_group *group, int64_t of)
{
    const ech_gate *gate = group->gate;
    int64_t n = gate->experts / gate->groups;
    double rows = 0;
    for (int64_t i = 0; i < n; i++) rows += group->chosen[of * n + i];
    return rows / (double)(gate->chosen / gate->groups_chosen);
}

ECH_GATE_CODE void ech_gate_hierarchical_losses(ech_gate_group *group)
{
    const ech_gate *gate = group->gate;
    int64_t n = gate->experts / gate->groups;
    const double *load = group->load;
    double *slopes = group->dload, count = (double)gate->experts, mean = 0, variance = 0;
    group->importance =
        ech_gate_variation(group->share, gate->experts, gate->importance, group->dshare);
    /* Until the last loop, an expert's slope has its load. */
    for (int64_t i = 0; i < gate->groups; i++) {
        double rows = ech_gate_hierarchical_rows(group, i);
        for (int64_t at = gate->groups + i * n; at < gate->groups + (i + 1) * n; at++) {
            slopes[at] = rows > 0 ? load[i] * load[at] / rows : 0;
            mean += slopes[at] / count;
        }
    }
    for (int64_t at = gate->groups; at < gate->groups + gate->experts; at++)
        variance += (slopes[at] - mean) * (slopes[at] - mean) / count;
    if (mean > 0) group->load_loss = gate->load * variance / (mean * mean);
    for (int64_t i = 0; i < gate->groups; i++) {
        double rows = ech_gate_hierarchical_rows(group, i);
        for (int64_t at = gate->groups + i * n; at < gate->groups + (i + 1) * n; at++) {
            double slope = 0;
            if (rows > 0 && mean > 0)
                slope = gate->load * 2 / (count * mean * mean) *
                        (slopes[at] - mean - variance / mean) / rows;
            slopes[i] += slope * load[at];
            slopes[at] = slope * load[i];
        }
    }
}

#endif
