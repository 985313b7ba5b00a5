/* SPDX-License-Identifier: Apache-2.0
 *
 * Building blocks of gates. Each gate's file has three functions, which the definition (ref/gate.c)
 * and the kernels for GPUs (cuda/gate.cu) call per row or per group, in fp64:
 *
 *     ech_gate_NAME_choose(row)           choices, gates, shares and loads of a row
 *     ech_gate_NAME_differentiate(row)    the row's gradients of logits and noise, after choose
 *     ech_gate_NAME_losses(group)         losses of a balance group and their slopes, from sums
 *                                         over its rows
 *
 * A BALANCE GROUP is a number of consecutive samples of the global batch, over whose rows the load
 * of experts is to be even (gate.h). L is the number of logits of a row: the number E of experts,
 * or with the hierarchical gate E and one for each group of experts.
 *
 * A SHARE is the quantity per expert that a loss sums over rows, and has a gradient: probabilities,
 * or gates. A LOAD is, for each logit, a smooth estimate of the number of rows that choose it. The
 * including file defines ECH_GATE_WORDS(key, quad, words), which is ech_random_words for its
 * device.
 */
#ifndef ECH_KERNEL_GATE_ROW_H
#define ECH_KERNEL_GATE_ROW_H

#include <math.h>
#include <stddef.h>

#include "kernel/kernel.h"

/* Under CUDA these functions are for the device only, like the random numbers there. Shared
 * functions are not inlined: a kernel with one copy for each gate would take twice as long to
 * compile. */
#ifdef __CUDACC__
#define ECH_GATE_CODE   static __device__ inline
#define ECH_GATE_CALLED static __device__ __noinline__
#else
#define ECH_GATE_CODE   static inline
#define ECH_GATE_CALLED static inline
#endif

/* State of one row; the arrays are in scratch and have these lengths. */
typedef struct ech_gate_row {
    const ech_gate *gate;
    ech_random_key key; /* with the step */
    int64_t whole;      /* the row's index among the whole tensor's rows */
    bool has_noise, has_bias;
    double *logits, *noise, *bias; /* L, L, E */
    int32_t *choice;               /* k, encoded by ech_gate_fate */
    double *gates;                 /* k */
    double *share, *load;          /* E, L; load is 0 before choose */
    double entropy;
    /* inputs of differentiate: k (0 where nothing was sent), E, L */
    double *dgates, *dshare, *dload;
    double *dlogits, *dnoise;        /* L; its results, 0 before */
    double *room[5];                 /* L: private to the gate */
} ech_gate_row;

/* The encoded result of a choice of expert e: e if sent; e + E if its capacity drops it; e + 2E if
 * a random draw keeps it back (second expert of GShard's gate); -1 for padding. */
enum { ECH_GATE_SENT, ECH_GATE_DROPPED, ECH_GATE_KEPT_BACK };

ECH_GATE_CODE int32_t ech_gate_fate(const ech_gate *gate, int32_t expert, int fate)
{
    return expert + (int32_t)(fate * gate->experts);
}

ECH_GATE_CODE void ech_gate_row_assign(ech_gate_row *row, const ech_gate *gate, double *room)
{
    int64_t L = ech_gate_logits(gate), K = gate->chosen;
    double **of_logits[] = {&row->logits,  &row->noise,   &row->bias,    &row->share,
                            &row->load,    &row->dload,   &row->dshare,  &row->dlogits,
                            &row->dnoise,  &row->room[0], &row->room[1], &row->room[2],
                            &row->room[3], &row->room[4]};
    row->gate = gate;
    row->key = gate->key;
    if (gate->step) row->key.step = (uint32_t)*gate->step;
    for (int i = 0; i < ECH_GATE_ROOM_L; i++, room += L) *of_logits[i] = room;
    row->gates = room;
    row->dgates = room + K;
    row->choice = (int32_t *)(void *)(room + 2 * K);
}

/* p = softmax of n numbers; returns its entropy. p may be the numbers. */
ECH_GATE_CALLED double ech_gate_softmax(const double *x, int64_t n, double *p)
{
    double max = x[0], sum = 0, mean = 0;
    for (int64_t i = 1; i < n; i++) max = x[i] > max ? x[i] : max;
    for (int64_t i = 0; i < n; i++) {
        double shifted = x[i] - max, e = exp(shifted);
        if (e > 0) mean += e * shifted;
        p[i] = e;
        sum += e;
    }
    for (int64_t i = 0; i < n; i++) p[i] /= sum;
    return log(sum) - mean / sum;
}

/* dx += p (dp - sum of dp p). */
ECH_GATE_CALLED void ech_gate_softmax_backward(const double *p, const double *dp, int64_t n,
                                               double *dx)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += dp[i] * p[i];
    for (int64_t i = 0; i < n; i++) dx[i] += p[i] * (dp[i] - sum);
}

/* The standard normals of elements 4 quad to 4 quad + 3, by the Box-Muller transform as in
 * base/random.h. */
ECH_GATE_CALLED void ech_gate_normals(ech_random_key key, uint64_t quad, double *normals)
{
    const double turn = 6.28318530717958647692;
    uint32_t words[4];
    ECH_GATE_WORDS(key, quad, words);
    for (int i = 0; i < 4; i += 2) {
        double r = sqrt(-2 * log(ech_random_unit(words[i])));
        double angle = turn * ech_random_unit(words[i + 1]);
        normals[i] = r * cos(angle);
        normals[i + 1] = r * sin(angle);
    }
}

/* For comparisons of logits a NaN counts as -infinity, so that experts with numbers are chosen. The
 * softmax over the row makes their gates NaN, which the step then reports. */
ECH_GATE_CODE double ech_gate_comparable(double x)
{
    return x == x ? x : -INFINITY;
}

/* The next of n numbers in descending order; of equal ones the lower index comes first. last: the
 * previous one; -1: none. */
ECH_GATE_CALLED int32_t ech_gate_next(const double *x, int64_t n, int32_t last)
{
    double before = last < 0 ? 0 : ech_gate_comparable(x[last]), largest = 0;
    int32_t best = -1;
    for (int32_t i = 0; i < n; i++) {
        double value = ech_gate_comparable(x[i]);
        if (last >= 0 && (value > before || (value == before && i <= last))) continue;
        if (best >= 0 && value <= largest) continue;
        best = i;
        largest = value;
    }
    return best;
}

/* The k largest of n numbers. */
ECH_GATE_CALLED void ech_gate_top(const double *x, int64_t n, int64_t k, int32_t *order)
{
    for (int64_t j = 0; j < k; j++) order[j] = ech_gate_next(x, n, j > 0 ? order[j - 1] : -1);
}

/* ---- balance groups ---- */

typedef struct ech_gate_group {
    const ech_gate *gate;
    double rows;                  /* without padding */
    /* E: rows whose first choice is the expert; rows with any choice of the expert */
    const double *first, *chosen;
    const double *share, *load;   /* E, L: sums over the rows */
    double *dshare, *dload;       /* results: slopes of the losses by these; 0 before */
    double auxiliary, importance, load_loss;
} ech_gate_group;

/* The coefficient times the squared coefficient of variation of n numbers, with the population
 * variance; adds its derivative by each number to slopes. */
ECH_GATE_CALLED double ech_gate_variation(const double *x, int64_t n, double coefficient,
                                          double *slopes)
{
    double mean = 0, variance = 0, count = (double)n;
    for (int64_t i = 0; i < n; i++) mean += x[i] / count;
    for (int64_t i = 0; i < n; i++) variance += (x[i] - mean) * (x[i] - mean) / count;
    if (mean == 0) return 0;
    for (int64_t i = 0; i < n; i++)
        slopes[i] += coefficient * 2 / (count * mean * mean) * (x[i] - mean - variance / mean);
    return coefficient * variance / (mean * mean);
}

/* The auxiliary coefficient times `factor` times the sum over experts of (chosen / rows) (share /
 * rows); no gradient through the counts. */
ECH_GATE_CODE void ech_gate_products(ech_gate_group *group, const double *chosen, double factor)
{
    double scale = group->gate->auxiliary * factor / (group->rows * group->rows);
    for (int64_t e = 0; e < group->gate->experts; e++) {
        group->auxiliary += scale * chosen[e] * group->share[e];
        group->dshare[e] += scale * chosen[e];
    }
}

#endif
