/* SPDX-License-Identifier: Apache-2.0
 *
 * The gates that tests of all gates go through.
 */
#ifndef ECH_TESTS_KERNEL_GATED_H
#define ECH_TESTS_KERNEL_GATED_H

#include "kernel/gating.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
enum { E = 8, T = 24, SAMPLES = 6 };

static inline const ech_kernels *table(ech_dtype dtype)
{
    return ech_kernels_fast(dtype);
}

static inline double sum_of(const gating *g, int which)
{
    return g->partial[2 * g->gate.experts + which];
}

static const struct {
    ech_gate gate;
    bool noisy, biased;
} all_gates[] = {
    {.gate = {.kind = ECH_GATE_dense, .experts = E, .chosen = E}},
    {.gate = {.kind = ECH_GATE_topk,
              .experts = E,
              .chosen = 2,
              .normalized = true,
              .auxiliary = 0.3,
              .samples = 3}},
    {.gate = {.kind = ECH_GATE_topk,
              .experts = E,
              .chosen = 3,
              .auxiliary = 2,
              .capacity_factor = 0.5,
              .samples = 2}},
    {.gate = {.kind = ECH_GATE_switch,
              .experts = E,
              .chosen = 1,
              .auxiliary = 0.7,
              .capacity_factor = 1,
              .samples = 1}},
    {.gate = {.kind = ECH_GATE_noisy_topk,
              .experts = E,
              .chosen = 2,
              .importance = 0.5,
              .load = 0.8,
              .samples = 2},
     .noisy = true},
    {.gate = {.kind = ECH_GATE_noisy_topk,
              .experts = E,
              .chosen = E,
              .importance = 0.5,
              .load = 0.8},
     .noisy = true},
    {.gate = {.kind = ECH_GATE_hierarchical,
              .experts = E,
              .groups = 4,
              .groups_chosen = 2,
              .chosen = 2,
              .importance = 0.3,
              .load = 0.6,
              .samples = 3},
     .noisy = true},
    {.gate = {.kind = ECH_GATE_hierarchical,
              .experts = E,
              .groups = 2,
              .groups_chosen = 2,
              .chosen = 4,
              .importance = 0.3,
              .load = 0.6,
              .capacity_factor = 1.5},
     .noisy = true},
    {.gate = {.kind = ECH_GATE_gshard,
              .experts = E,
              .chosen = 2,
              .capacity_factor = 1,
              .auxiliary = 5,
              .samples = 2}},
    {.gate = {.kind = ECH_GATE_gshard,
              .experts = E,
              .chosen = 2,
              .capacity_factor = 1,
              .auxiliary = 1,
              .ports = true}},
    {.gate = {.kind = ECH_GATE_bias,
              .experts = E,
              .chosen = 3,
              .groups = 4,
              .groups_chosen = 2,
              .normalized = true,
              .scale = 2.5,
              .auxiliary = 0.4},
     .biased = true},
    {.gate = {.kind = ECH_GATE_bias, .experts = E, .chosen = 2, .scale = 1, .capacity_factor = 1},
     .biased = true},
};

static inline gating *make(size_t c, bool padded)
{
    gating *g = gating_make(all_gates[c].gate, SAMPLES, T);
    g->noisy = all_gates[c].noisy;
    g->biased = all_gates[c].biased;
    g->padded = padded;
    g->first_sample = 12;
    g->gate.draws = true;
    g->gate.key = (ech_random_key){.seed = 77, .step = 3, .stream = 0x205};
    return g;
}

#endif
