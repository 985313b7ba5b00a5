/* SPDX-License-Identifier: Apache-2.0
 *
 * Gates of mixtures of experts: against a second program, by finite differences, and cut over
 * members.
 */

#include <stdlib.h>

#include "kernel/finite.h"
#include "kernel/gated.h"
#include "unit.h"

static bool is_padding(const gating *g, int64_t i)
{
    return g->padded && i % g->T >= g->lengths[i / g->T];
}

/* ---- gates that choose by probabilities: a second program ---- */

/* What topk, switch and dense are to do, from logits and a rule alone. */
static void check_by_probability(gating *g)
{
    int64_t K = g->gate.chosen, experts = g->gate.experts, N = gating_rows(g);
    int64_t each = g->gate.samples * g->T;
    int64_t most = g->gate.capacity_factor > 0
                       ? (int64_t)(g->gate.capacity_factor * (double)(K * each) / (double)experts)
                       : each;
    double auxiliary = 0, dropped = 0, entropy = 0;
    for (int64_t first = 0; first < N; first += each) {
        double p[GATING_EXPERTS], mean[GATING_EXPERTS] = {0}, taken[GATING_EXPERTS] = {0}, rows = 0;
        for (int64_t j = 0; j < K; j++)
            for (int64_t i = first; i < first + each; i++) {
                double sum = 0, best = 0;
                int rank[GATING_EXPERTS], chosen = -1;
                if (is_padding(g, i)) {
                    assert_int_equal(g->choice[i * K + j], -1);
                    continue;
                }
                const double *x = g->logits + i * experts;
                for (int64_t e = 0; e < experts; e++) sum += exp(x[e]);
                for (int64_t e = 0; e < experts; e++) {
                    p[e] = exp(x[e]) / sum;
                    rank[e] = 0;
                    for (int64_t o = 0; o < experts; o++)
                        rank[e] += x[o] > x[e] || (x[o] == x[e] && o < e);
                    if (g->gate.kind == ECH_GATE_dense ? e == j : rank[e] == j) chosen = (int)e;
                    if (rank[e] < K) best += p[e];
                    if (j == 0) mean[e] += p[e];
                    if (j == 0) entropy -= p[e] * log(p[e]);
                }
                rows += j == 0;
                bool fits = taken[chosen]++ < (double)most;
                double gate = p[chosen] / (g->gate.normalized ? best : 1);
                assert_int_equal(g->choice[i * K + j], fits ? chosen : -1);
                assert_true(fabs(g->gates[i * K + j] - (fits ? gate : 0)) < 1e-12);
                dropped += !fits;
            }
        for (int64_t e = 0; e < experts && rows > 0; e++)
            auxiliary += g->gate.auxiliary * (double)experts * taken[e] / rows * mean[e] / rows;
    }
    double told = 0;
    for (int64_t e = 0; e < experts; e++) told += g->partial[experts + e];
    assert_true(told == dropped);
    assert_true(fabs(sum_of(g, ECH_GATE_AUXILIARY) - auxiliary) < 1e-12);
    assert_true(fabs(sum_of(g, ECH_GATE_ENTROPY) - entropy) < 1e-9);
}

static const ech_gate probable[] = {
    {.kind = ECH_GATE_dense, .experts = E, .chosen = E},
    {.kind = ECH_GATE_topk, .experts = E, .chosen = 2, .normalized = true},
    {.kind = ECH_GATE_topk, .experts = E, .chosen = 3, .auxiliary = 0.5, .samples = 2},
    {.kind = ECH_GATE_topk,
     .experts = E,
     .chosen = 2,
     .normalized = true,
     .capacity_factor = 0.75,
     .auxiliary = 0.1,
     .samples = 3},
    {.kind = ECH_GATE_switch, .experts = E, .chosen = 1, .auxiliary = 0.01, .capacity_factor = 1},
    {.kind = ECH_GATE_switch, .experts = 5, .chosen = 1, .auxiliary = 1, .samples = 2},
};

TEST(second_program_agrees)
{
    for (size_t c = 0; c < COUNT(probable); c++)
        for (int variant = 0; variant < 4; variant++) {
            gating *g = gating_make(probable[c], SAMPLES, T);
            g->padded = variant % 2;
            g->alone = variant >= 2 && !ech_gate_looks_at_groups(&g->gate);
            gating_run(g, table(ECH_F64), false);
            check_by_probability(g);
            free(g);
        }
}

TEST(equal_logits_choose_the_lower_index)
{
    gating *g = gating_make((ech_gate){.kind = ECH_GATE_topk, .experts = E, .chosen = 3}, 1, 4);
    memset(g->logits, 0, sizeof g->logits);
    g->logits[E + 5] = 1;
    g->logits[2 * E + 7] = g->logits[2 * E + 2] = 1;
    gating_run(g, table(ECH_F64), false);
    static const int32_t expected[] = {0, 1, 2, 5, 0, 1, 2, 7, 0, 0, 1, 2};
    assert_memory_equal(g->choice, expected, sizeof expected);
    free(g);
}

/* ---- all gates ---- */

/* The sum of gates times numbers, and of the losses, by the definition. */
static double objective(void *state)
{
    gating *g = state;
    gating_run(g, ech_kernels_ref(ECH_F64), false);
    return gating_output(g) + g->factor * gating_losses(g);
}

/* Draws logits that differ by at least 0.15 in each row, so that the steps of a finite difference
 * change no choice. */
static void draw_apart(gating *g)
{
    int64_t L = ech_gate_logits(&g->gate);
    for (int64_t i = 0; i < gating_rows(g); i++)
        for (int64_t l = 0; l < L; l++) {
            int64_t place = (i * 5 + l * 3 + i / L) % L;
            g->logits[i * L + l] = 0.35 * (double)place + value_at(9, i * L + l, -0.1, 0.1);
        }
}

TEST(gradients_are_finite_differences)
{
    for (size_t c = 0; c < COUNT(all_gates); c++)
        for (int padded = 0; padded < 2; padded++) {
            gating *g = make(c, padded);
            int64_t n;
            g->T = 8;
            for (int64_t b = 0; b < SAMPLES; b++) g->lengths[b] = b % 3 == 1 ? 5 : 8;
            n = gating_rows(g) * ech_gate_logits(&g->gate);
            g->factor = 3;
            draw_apart(g);
            gating_run(g, table(ECH_F64), true);
            double error = finite_error(objective, g, n, g->logits, g->dlogits);
            if (!(error < 1e-8)) fail_msg("gate %zu: error %.3g of dlogits", c, error);
            error = g->noisy ? finite_error(objective, g, n, g->noise, g->dnoise) : 0;
            if (!(error < 1e-8)) fail_msg("gate %zu: error %.3g of dnoise", c, error);
            free(g);
        }
}

/* However the rows are shared, everybody gets what one rank with all rows does, bit for bit. */
TEST(members_equal_the_whole)
{
    static const struct {
        int64_t context, tensor;
        bool zigzag;
    } cuts[] = {{1, 3, false}, {2, 1, false}, {2, 1, true}, {3, 2, true}, {4, 3, false}};
    for (size_t c = 0; c < COUNT(all_gates); c++)
        for (size_t k = 0; k < COUNT(cuts); k++) {
            gating *whole = make(c, k % 2), *cut = make(c, k % 2);
            int64_t N = gating_rows(whole), K = whole->gate.chosen;
            int64_t L = ech_gate_logits(&whole->gate), groups = SAMPLES / whole->gate.samples;
            cut->gate.context = cuts[k].context;
            cut->gate.tensor = cuts[k].tensor;
            cut->gate.zigzag = cuts[k].zigzag;
            gating_run(whole, table(ECH_F64), true);
            gating_run(cut, table(ECH_F64), true);
            assert_memory_equal(whole->choice, cut->choice, (size_t)(N * K) * sizeof(int32_t));
            assert_memory_equal(whole->gates, cut->gates, (size_t)(N * K) * sizeof(double));
            assert_memory_equal(whole->dlogits, cut->dlogits, (size_t)(N * L) * sizeof(double));
            assert_memory_equal(whole->dnoise, cut->dnoise, (size_t)(N * L) * sizeof(double));
            assert_memory_equal(whole->statistics, cut->statistics,
                                (size_t)(groups * ech_gate_statistics(&whole->gate)) *
                                    sizeof(double));
            for (int64_t i = 0; i < ech_gate_partial(E); i++)
                assert_true(fabs(whole->partial[i] - cut->partial[i]) < 1e-9);
            free(whole);
            free(cut);
        }
}

/* Tables of narrower types, whose logits are fp32, against fp64 of the same numbers. */
TEST(narrow_types_agree)
{
    static const ech_dtype types[] = {ECH_F32, ECH_BF16, ECH_F16};
    for (size_t c = 0; c < COUNT(all_gates); c++)
        for (size_t t = 0; t < COUNT(types); t++) {
            gating *exact = make(c, true), *g = make(c, true);
            int64_t N = gating_rows(g), K = g->gate.chosen, L = ech_gate_logits(&g->gate);
            g->dtype = types[t];
            gating_run(exact, ech_kernels_ref(ECH_F64), true);
            gating_run(g, table(types[t]), true);
            assert_memory_equal(exact->choice, g->choice, (size_t)(N * K) * sizeof(int32_t));
            for (int64_t i = 0; i < N * K; i++)
                assert_true(fabs(exact->gates[i] - g->gates[i]) < 1e-6);
            for (int64_t i = 0; i < N * L; i++) {
                assert_true(fabs(exact->dlogits[i] - g->dlogits[i]) < 1e-6);
                assert_true(fabs(exact->dnoise[i] - g->dnoise[i]) < 1e-6);
            }
            for (int64_t i = 0; i < ech_gate_partial(E); i++)
                assert_true(fabs(exact->partial[i] - g->partial[i]) < 1e-5);
            free(exact);
            free(g);
        }
}

TEST(a_nan_is_passed_on)
{
    for (size_t c = 0; c < COUNT(all_gates); c++) {
        gating *g = make(c, false);
        double found = 0;
        for (int64_t l = 0; l < ech_gate_logits(&g->gate); l++) g->logits[l] = NAN;
        gating_run(g, table(ECH_F64), false);
        for (int64_t j = 0; j < g->gate.chosen; j++) {
            assert_true(g->choice[j] >= -1 && g->choice[j] < g->gate.experts);
            found += g->gates[j];
        }
        assert_true(isnan(found));
        free(g);
    }
}

TEST(topk_of_all_is_dense)
{
    gating *dense = gating_make(probable[0], SAMPLES, T), *g;
    g = gating_make(
        (ech_gate){.kind = ECH_GATE_topk, .experts = E, .chosen = E, .normalized = true}, SAMPLES,
        T);
    gating_run(dense, table(ECH_F64), true);
    gating_run(g, table(ECH_F64), true);
    for (int64_t i = 0; i < gating_rows(g) * E; i++)
        assert_true(fabs(g->gates[i] - dense->gates[i / E * E + g->choice[i]]) < 1e-14);
    for (int64_t i = 0; i < gating_rows(g) * E; i++)
        assert_true(fabs(g->dlogits[i] - dense->dlogits[i]) < 1e-13);
    free(dense);
    free(g);
}

TEST(k_gates_that_sum_to_one)
{
    for (size_t c = 0; c < COUNT(all_gates); c++) {
        gating *g = make(c, false);
        int64_t K = g->gate.chosen;
        bool sums = g->gate.kind != ECH_GATE_switch &&
                    (g->gate.normalized || g->noisy || g->gate.kind == ECH_GATE_gshard ||
                     g->gate.kind == ECH_GATE_dense);
        g->gate.capacity_factor = 0;
        gating_run(g, table(ECH_F64), false);
        for (int64_t i = 0; i < gating_rows(g); i++) {
            double sum = 0;
            unsigned seen = 0;
            for (int64_t j = 0; j < K; j++) {
                int32_t e = g->choice[i * K + j];
                sum += g->gates[i * K + j];
                /* GShard's second may be kept back, and its gate is lost then. */
                if (g->gate.kind == ECH_GATE_gshard && j == 1 && e < 0) sum = 1;
                if (g->gate.kind == ECH_GATE_gshard && j == 1 && e < 0) continue;
                assert_true(e >= 0 && e < E && !(seen >> e & 1));
                seen |= 1u << e;
            }
            double whole = g->gate.kind == ECH_GATE_bias ? g->gate.scale : 1;
            if (sums) assert_true(fabs(sum - whole) < 1e-12);
        }
        free(g);
    }
}

/* Other groups' rows do not matter, and validation draws nothing. */
TEST(groups_are_independent)
{
    for (size_t c = 0; c < COUNT(all_gates); c++) {
        gating *g = make(c, false), *other = make(c, false);
        int64_t half = g->gate.samples * T, K = g->gate.chosen, L = ech_gate_logits(&g->gate);
        for (int64_t i = half * L; i < gating_rows(g) * L; i++) other->logits[i] *= -1;
        gating_run(g, table(ECH_F64), true);
        gating_run(other, table(ECH_F64), true);
        assert_memory_equal(g->choice, other->choice, (size_t)(half * K) * sizeof(int32_t));
        assert_memory_equal(g->dlogits, other->dlogits, (size_t)(half * L) * sizeof(double));
        g->gate.draws = other->gate.draws = false;
        other->gate.key.seed++;
        memcpy(other->logits, g->logits, sizeof g->logits);
        gating_run(g, table(ECH_F64), false);
        gating_run(other, table(ECH_F64), false);
        assert_memory_equal(g->choice, other->choice,
                            (size_t)(gating_rows(g) * K) * sizeof(int32_t));
        free(g);
        free(other);
    }
}
