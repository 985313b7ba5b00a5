/* SPDX-License-Identifier: Apache-2.0
 *
 * Noisy top-k gating (Shazeer et al. 2017, arXiv:1701.06538) over n logits of a row. With l and m
 * the logits of router and noise, H = l + normal softplus(m), and gates are the softmax of the k
 * largest H. The load of i is the probability that it is among them if its own noise is drawn
 * again: Phi((l - the k-th largest H of the others) / softplus(m)); 1 if all are chosen. Without
 * noise, which is drawn only in training, the load is 1 for chosen experts.
 */
#ifndef ECH_KERNEL_GATE_NOISY_H
#define ECH_KERNEL_GATE_NOISY_H

#include "kernel/gate/row.h"

ECH_GATE_CODE double ech_gate_softplus(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

/* Its derivative, from its value: sigmoid(x) = 1 - exp(-softplus(x)). */
ECH_GATE_CODE double ech_gate_softplus_slope(double softplus)
{
    return -expm1(-softplus);
}

ECH_GATE_CODE bool ech_gate_is_noisy(const ech_gate_row *row)
{
    return row->gate->draws && row->has_noise;
}

/* room[0] = H, room[1] = the normals; noise becomes its softplus. */
ECH_GATE_CODE void ech_gate_add_noise(ech_gate_row *row)
{
    int64_t L = ech_gate_logits(row->gate);
    bool noisy = ech_gate_is_noisy(row);
    double four[4];
    for (int64_t l = 0; l < L; l++) {
        uint64_t element = (uint64_t)(row->whole * L + l);
        if (noisy && (l == 0 || element % 4 == 0)) ech_gate_normals(row->key, element / 4, four);
        row->room[1][l] = noisy ? four[element % 4] : 0;
        row->room[0][l] = row->logits[l];
        if (!noisy) continue;
        row->noise[l] = ech_gate_softplus(row->noise[l]);
        row->room[0][l] += four[element % 4] * row->noise[l];
    }
}

/* The index whose H expert i must exceed to be chosen; `last` is the smallest chosen one, `next`
 * the largest not chosen. */
ECH_GATE_CODE int32_t ech_gate_rival(const double *H, int32_t last, int32_t next, int32_t i)
{
    bool chosen = H[i] > H[last] || (H[i] == H[last] && i <= last);
    return chosen ? next : last;
}

/* For logits [first, first + n): order = the k largest, gates = their softmax, and load. */
ECH_GATE_CODE void ech_gate_noisy_choose(ech_gate_row *row, int64_t first, int64_t n, int64_t k,
                                         int32_t *order, double *gates)
{
    const double *H = row->room[0] + first;
    double *load = row->load + first;
    ech_gate_top(H, n, k, order);
    for (int64_t j = 0; j < k; j++) gates[j] = H[order[j]];
    ech_gate_softmax(gates, k, gates);
    int32_t last = order[k - 1], next = k < n ? ech_gate_next(H, n, last) : -1;
    for (int32_t i = 0; i < n; i++) {
        int32_t rival = ech_gate_rival(H, last, next, i);
        double spread = ech_gate_is_noisy(row) ? row->noise[first + i] : 0;
        if (rival < 0 || spread == 0)
            load[i] = rival == next;
        else
            load[i] = 0.5 * erfc((H[rival] - row->logits[first + i]) / (spread * sqrt(2.0)));
    }
}

/* Computes the gradients of these logits and of their noise logits from dgates and dload. */
ECH_GATE_CODE void ech_gate_noisy_differentiate(ech_gate_row *row, int64_t first, int64_t n,
                                                int64_t k, const int32_t *order,
                                                const double *gates, const double *dgates)
{
    const double *H = row->room[0] + first, *l = row->logits + first, *spread = row->noise + first;
    double *dl = row->dlogits + first, *dm = row->dnoise + first, *dH = row->room[2], mean = 0;
    int32_t last = order[k - 1], next = k < n ? ech_gate_next(H, n, last) : -1;
    bool noisy = ech_gate_is_noisy(row);
    for (int64_t i = 0; i < n; i++) dH[i] = 0;
    for (int64_t j = 0; j < k; j++) mean += dgates[j] * gates[j];
    for (int64_t j = 0; j < k; j++) dH[order[j]] += gates[j] * (dgates[j] - mean);
    for (int32_t i = 0; noisy && next >= 0 && i < n; i++) {
        int32_t rival = ech_gate_rival(H, last, next, i);
        double z = (l[i] - H[rival]) / spread[i];
        double density = exp(-z * z / 2) / sqrt(6.28318530717958647692);
        if (density == 0) continue;
        double d = row->dload[first + i] * density / spread[i];
        dl[i] += d;
        dH[rival] -= d;
        dm[i] -= d * z * ech_gate_softplus_slope(spread[i]);
    }
    for (int64_t i = 0; i < n; i++) {
        dl[i] += dH[i];
        if (noisy) dm[i] += dH[i] * row->room[1][first + i] * ech_gate_softplus_slope(spread[i]);
    }
}

#endif
