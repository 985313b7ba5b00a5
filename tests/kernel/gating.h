/* SPDX-License-Identifier: Apache-2.0
 *
 * A gate over the rows of a micro-batch, which members share as context and tensor ranks do: their
 * results are put together in the order of samples and positions.
 */
#ifndef ECH_TESTS_KERNEL_GATING_H
#define ECH_TESTS_KERNEL_GATING_H

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kernel/kernel.h"
#include "kernel/values.h"

enum { GATING_ROWS = 4096, GATING_EXPERTS = 16, GATING_LOGITS = 32 };

typedef struct gating {
    ech_gate gate;
    int64_t samples, T, first_sample;  /* of the micro-batch */
    bool noisy, padded, biased, alone; /* alone: without `all` */
    double factor;
    ech_dtype dtype;
    /* (rows, L), (rows, k), ... in the order of samples and positions, in fp64 */
    double logits[GATING_ROWS * GATING_LOGITS], noise[GATING_ROWS * GATING_LOGITS];
    double bias[GATING_EXPERTS];
    int32_t lengths[GATING_ROWS];
    double gates[GATING_ROWS * GATING_EXPERTS], weights[GATING_ROWS * GATING_EXPERTS];
    /* weights (rows, E): what gates are multiplied with in the sum that is differentiated */
    int32_t choice[GATING_ROWS * GATING_EXPERTS];
    double dlogits[GATING_ROWS * GATING_LOGITS], dnoise[GATING_ROWS * GATING_LOGITS];
    double statistics[GATING_ROWS * 3 * GATING_EXPERTS]; /* (groups, width), of member 0 */
    double partial[2 * GATING_EXPERTS + ECH_GATE_SUMS];  /* sum over the members */
} gating;

static inline int64_t gating_rows(const gating *g)
{
    return g->samples * g->T;
}

static inline gating *gating_make(ech_gate gate, int64_t samples, int64_t T)
{
    gating *g = ech_calloc(1, sizeof *g);
    if (gate.samples == 0) gate.samples = 1;
    if (gate.context == 0) gate.context = 1;
    if (gate.tensor == 0) gate.tensor = 1;
    g->gate = gate;
    g->samples = samples;
    g->T = T;
    g->factor = 1;
    g->dtype = ECH_F64;
    for (int64_t i = 0; i < GATING_ROWS * GATING_LOGITS; i++) {
        g->logits[i] = value_at(1, i, -2, 2);
        g->noise[i] = value_at(2, i, -2, 1);
    }
    for (int64_t i = 0; i < GATING_ROWS * GATING_EXPERTS; i++)
        g->weights[i] = value_at(3, i, -1, 1);
    for (int64_t e = 0; e < GATING_EXPERTS; e++) g->bias[e] = value_at(4, e, -0.3, 0.3);
    for (int64_t b = 0; b < samples; b++)
        g->lengths[b] = (int32_t)(b % 3 == 0 ? T : b % 3 == 1 ? T - T / 3 : 0);
    return g;
}

/* A member's tensor (rows, width) of the type, and of int32 where of NULL. */
static inline ech_tensor gating_room(ech_dtype dtype, int64_t rows, int64_t width)
{
    ech_tensor x = ech_tensor_2d(NULL, dtype, rows, width);
    x.data = ech_calloc((size_t)(rows * width) + 1, sizeof(double));
    return x;
}

static inline void gating_put(const ech_tensor *x, int64_t row, const double *from)
{
    size_t bytes = ech_dtype_bytes(x->dtype), width = (size_t)x->shape[1];
    ech_convert(from, ECH_F64, (char *)x->data + (size_t)row * width * bytes, x->dtype,
                (int64_t)width);
}

static inline void gating_get(const ech_tensor *x, int64_t row, double *to)
{
    size_t bytes = ech_dtype_bytes(x->dtype), width = (size_t)x->shape[1];
    ech_convert((char *)x->data + (size_t)row * width * bytes, x->dtype, to, ECH_F64,
                (int64_t)width);
}

/* Rows of member m: the index among the micro-batch's of its row r. */
static inline ech_rows gating_member(const gating *g, int64_t m, int64_t S)
{
    ech_rows rows = ech_rows_context(g->first_sample, g->T, g->T / g->gate.context, g->gate.context,
                                     m / g->gate.tensor, g->gate.zigzag);
    rows.first = m % g->gate.tensor * S;
    return rows;
}

static inline int64_t gating_index(const gating *g, const ech_rows *rows, int64_t r)
{
    return ech_row_whole(rows, r) - g->first_sample * g->T;
}

/* One member's forward and, if asked for, backward. */
static inline void gating_one(gating *g, const ech_kernels *kernels, ech_kernel_context *context,
                              int64_t m, const ech_tensor *all, const ech_tensor *all_noise,
                              bool backward)
{
    ech_gate gate = g->gate;
    int64_t members = gate.context * gate.tensor, N = gating_rows(g), S = N / members;
    int64_t L = ech_gate_logits(&gate), K = gate.chosen, groups = g->samples / gate.samples;
    ech_rows rows = gating_member(g, m, S);
    ech_dtype wide = ech_dtype_wide(g->dtype);
    ech_tensor logits = ech_tensor_rows(all, m * S, S),
               noise = ech_tensor_rows(all_noise, m * S, S);
    ech_tensor dlogits = gating_room(wide, S, L), dnoise = gating_room(wide, S, L);
    ech_tensor gates = gating_room(wide, S, K), dgates = gating_room(wide, S, K);
    ech_tensor choice = gating_room(ECH_I32, S, K);
    ech_tensor statistics = gating_room(ECH_F64, groups, ech_gate_statistics(&gate));
    double sums[2 * GATING_EXPERTS + ECH_GATE_SUMS] = {0}, dgate[GATING_EXPERTS];
    ech_tensor partial = ech_tensor_1d(sums, ECH_F64, ech_gate_partial(gate.experts));
    ech_tensor bias = gating_room(wide, 1, gate.experts);
    ech_tensor flat = ech_tensor_1d(bias.data, wide, gate.experts);
    ech_tensor lengths = ech_tensor_1d(g->lengths, ECH_I32, g->samples);
    ech_tensor factor = ech_tensor_view(&g->factor, ECH_F64, 0, NULL);
    gate.member = m;
    gating_put(&bias, 0, g->bias);
    kernels->gate_forward(context, &gate, &logits, g->noisy ? &noise : NULL, g->alone ? NULL : all,
                          g->noisy && !g->alone ? all_noise : NULL, g->biased ? &flat : NULL,
                          g->padded ? &lengths : NULL, &rows, &gates, &choice,
                          g->alone ? NULL : &statistics, &partial);
    for (int64_t r = 0; r < S; r++) {
        int64_t i = gating_index(g, &rows, r);
        gating_get(&gates, r, g->gates + i * K);
        memcpy(g->choice + i * K, (int32_t *)choice.data + r * K, (size_t)K * sizeof(int32_t));
        for (int64_t j = 0; j < K; j++) {
            int32_t e = g->choice[i * K + j];
            dgate[j] = e < 0 ? 9 : g->weights[i * gate.experts + e]; /* 9: not read */
        }
        gating_put(&dgates, r, dgate);
    }
    for (int64_t i = 0; i < partial.shape[0]; i++) g->partial[i] += sums[i];
    if (m == 0) memcpy(g->statistics, statistics.data, ech_tensor_bytes(&statistics));
    if (backward)
        kernels->gate_backward(context, &gate, &logits, g->noisy ? &noise : NULL,
                               g->biased ? &flat : NULL, g->padded ? &lengths : NULL, &rows,
                               &choice, g->alone ? NULL : &statistics, &dgates,
                               g->alone ? NULL : &factor, &dlogits, g->noisy ? &dnoise : NULL);
    for (int64_t r = 0; backward && r < S; r++) {
        int64_t i = gating_index(g, &rows, r);
        gating_get(&dlogits, r, g->dlogits + i * L);
        gating_get(&dnoise, r, g->dnoise + i * L);
    }
    ech_tensor *rooms[] = {&dlogits, &dnoise, &gates, &dgates, &choice, &statistics, &bias};
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) free(rooms[i]->data);
}

/* All members, one after the other. */
static inline void gating_run(gating *g, const ech_kernels *kernels, bool backward)
{
    int64_t members = g->gate.context * g->gate.tensor, N = gating_rows(g), S = N / members;
    int64_t L = ech_gate_logits(&g->gate);
    int64_t forward_dims[] = {N, L, g->gate.chosen, g->samples}, dims[] = {S, L, g->gate.chosen};
    ech_kernel_context *context;
    ech_tensor all = gating_room(ech_dtype_wide(g->dtype), N, L);
    ech_tensor all_noise = gating_room(ech_dtype_wide(g->dtype), N, L);
    for (int64_t m = 0; m < members; m++) {
        ech_rows rows = gating_member(g, m, S);
        for (int64_t r = 0; r < S; r++) {
            gating_put(&all, m * S + r, g->logits + gating_index(g, &rows, r) * L);
            gating_put(&all_noise, m * S + r, g->noise + gating_index(g, &rows, r) * L);
        }
    }
    if (ech_kernel_context_create(1, &context) != ECH_OK) abort();
    size_t bytes = ech_kernel_scratch(kernels, ECH_OP_gate_forward, 1, forward_dims);
    size_t back = ech_kernel_scratch(kernels, ECH_OP_gate_backward, 1, dims);
    context->scratch_bytes = bytes > back ? bytes : back;
    context->scratch = ech_calloc(1, context->scratch_bytes);
    memset(g->partial, 0, sizeof g->partial);
    for (int64_t m = 0; m < members; m++)
        gating_one(g, kernels, context, m, &all, &all_noise, backward);
    free(all.data);
    free(all_noise.data);
    free(context->scratch);
    ech_kernel_context_destroy(context);
}

/* The sum of gates times weights. */
static inline double gating_output(const gating *g)
{
    double sum = 0;
    for (int64_t i = 0; i < gating_rows(g) * g->gate.chosen; i++)
        if (g->choice[i] >= 0)
            sum += g->gates[i] * g->weights[i / g->gate.chosen * g->gate.experts + g->choice[i]];
    return sum;
}

/* Of all groups. */
static inline double gating_losses(const gating *g)
{
    const double *sum = g->partial + 2 * g->gate.experts;
    return sum[ECH_GATE_AUXILIARY] + sum[ECH_GATE_IMPORTANCE] + sum[ECH_GATE_LOAD];
}

#endif
