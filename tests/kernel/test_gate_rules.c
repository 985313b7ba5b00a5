/* SPDX-License-Identifier: Apache-2.0
 *
 * What was published of each gate: Switch, noisy top-k in one level and two, GShard, and balance by
 * a bias.
 */
#include <string.h>

#include "kernel/gated.h"
#include "unit.h"

/* ---- Switch ---- */

TEST(switch_at_balance)
{
    gating *g = gating_make((ech_gate){.kind = ECH_GATE_switch,
                                       .experts = E,
                                       .chosen = 1,
                                       .auxiliary = 0.01,
                                       .capacity_factor = 1},
                            2, 4 * E);
    for (int64_t i = 0; i < gating_rows(g); i++)
        for (int64_t e = 0; e < E; e++) g->logits[i * E + e] = i % E == e ? 1 : 0;
    gating_run(g, table(ECH_F64), false);
    assert_true(sum_of(g, ECH_GATE_GROUPS) == 2);
    assert_true(fabs(sum_of(g, ECH_GATE_AUXILIARY) / 2 - 0.01) < 1e-15);
    for (int64_t e = 0; e < E; e++) {
        assert_true(g->partial[e] == 8);
        assert_true(g->partial[E + e] == 0);
    }
    free(g);
}

TEST(switch_drops_what_overflows)
{
    gating *g = gating_make(
        (ech_gate){.kind = ECH_GATE_switch, .experts = E, .chosen = 1, .capacity_factor = 1.25}, 1,
        160);
    double chosen[E] = {0}, drops = 0, expected = 0;
    const double capacity = 25; /* 1.25 x 160 / 8 */
    for (int64_t i = 0; i < 160; i++) g->logits[i * E + 3] += 1.5;
    gating_run(g, table(ECH_F64), false);
    for (int64_t i = 0; i < 160; i++) {
        int best = 0;
        for (int e = 1; e < E; e++)
            if (g->logits[i * E + e] > g->logits[i * E + best]) best = e;
        bool fits = chosen[best]++ < capacity; /* the first of them in the order of tokens */
        assert_int_equal(g->choice[i], fits ? best : -1);
    }
    for (int e = 0; e < E; e++) {
        expected += fmax(0, chosen[e] - capacity);
        drops += g->partial[E + e];
        assert_true(g->partial[e] == chosen[e]);
    }
    assert_true(drops == expected && drops > 0);
    free(g);
}

/* f and P need not go together: 90% of the rows at (.51, .49), 10% at (0, 1). */
TEST(switch_below_balance)
{
    gating *g = gating_make(
        (ech_gate){.kind = ECH_GATE_switch, .experts = 2, .chosen = 1, .auxiliary = 1}, 1, 100);
    for (int64_t i = 0; i < 100; i++) {
        g->logits[2 * i] = i < 90 ? log(0.51) : -1e9;
        g->logits[2 * i + 1] = i < 90 ? log(0.49) : 0;
    }
    gating_run(g, table(ECH_F64), false);
    assert_true(fabs(sum_of(g, ECH_GATE_AUXILIARY) - 2 * (0.9 * 0.459 + 0.1 * 0.541)) < 1e-12);
    free(g);
}

/* ---- noisy gates ---- */

/* The row's noise, and H by a program of the test's own. */
static void noisy_logits(const gating *g, int64_t i, bool draws, double *H, double *spread)
{
    int64_t L = ech_gate_logits(&g->gate);
    for (int64_t l = 0; l < L; l++) {
        double normals[4];
        uint64_t element = (uint64_t)((g->first_sample * g->T + i) * L + l);
        ech_random_normals(g->gate.key, element / 4, normals);
        spread[l] = log(1 + exp(g->noise[i * L + l]));
        H[l] = g->logits[i * L + l] + (draws ? normals[element % 4] * spread[l] : 0);
    }
}

/* The k-th largest of n numbers without that at i. */
static double kth_excluding(const double *x, int n, int k, int i)
{
    for (int c = 0; c < n; c++) {
        int larger = 0;
        for (int o = 0; o < n; o++) larger += o != i && x[o] > x[c];
        if (c != i && larger == k - 1) return x[c];
    }
    return NAN;
}

static double variation(const double *x, int n)
{
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++) {
        sum += x[i];
        squares += x[i] * x[i];
    }
    return squares * n / (sum * sum) - 1;
}

/* Importance and load of one group by their definitions; each P(x, i) agrees with how often fresh
 * noise on i alone brings i among the k. */
TEST(load_is_a_probability)
{
    enum { K = 2, DRAWS = 10000, ROWS = 40 };
    gating *g = make(4, false);
    g->samples = g->gate.samples = 2;
    g->first_sample = 4;
    g->T = ROWS / 2;
    double importance[E] = {0}, load[E] = {0};
    gating_run(g, table(ECH_F64), false);
    for (int64_t i = 0; i < ROWS; i++) {
        double H[E], spread[E], sum = 0;
        noisy_logits(g, i, true, H, spread);
        for (int j = 0; j < K; j++) sum += exp(H[g->choice[i * K + j]]);
        for (int j = 0; j < K; j++) {
            int32_t e = g->choice[i * K + j];
            assert_true(H[e] > kth_excluding(H, E, K, e));
            assert_true(fabs(g->gates[i * K + j] - exp(H[e]) / sum) < 1e-12);
            importance[e] += g->gates[i * K + j];
        }
        for (int e = 0; e < E; e++) {
            double least = kth_excluding(H, E, K, e), among = 0;
            double z = (g->logits[i * E + e] - least) / spread[e];
            double p = 0.5 * (1 + erf(z / sqrt(2)));
            load[e] += p;
            for (int d = 0; i < 3 && d < DRAWS; d++) {
                double normals[4];
                ech_random_key key = {.seed = 5, .step = (uint32_t)i, .stream = (uint32_t)e};
                ech_random_normals(key, (uint64_t)d / 4, normals);
                among += g->logits[i * E + e] + normals[d % 4] * spread[e] > least;
            }
            if (i < 3) assert_true(fabs(among / DRAWS - p) <= 3 * sqrt(p * (1 - p) / DRAWS) + 1e-4);
        }
    }
    assert_true(fabs(sum_of(g, ECH_GATE_IMPORTANCE) - 0.5 * variation(importance, E)) < 1e-12);
    assert_true(fabs(sum_of(g, ECH_GATE_LOAD) - 0.8 * variation(load, E)) < 1e-12);
    free(g);
}

/* Groups of one expert are no level: what the groups' logits decide is what a flat gate decides. */
TEST(one_expert_groups_are_flat)
{
    ech_gate flat = {
        .kind = ECH_GATE_noisy_topk, .experts = E, .chosen = 3, .importance = 1, .load = 2};
    ech_gate levels = flat;
    levels.kind = ECH_GATE_hierarchical;
    levels.groups = E;
    levels.groups_chosen = 3;
    gating *one = gating_make(flat, SAMPLES, T), *two = gating_make(levels, SAMPLES, T);
    one->noisy = two->noisy = true; /* validation: each draws by its own number of logits */
    for (int64_t i = 0; i < gating_rows(one); i++) {
        memcpy(two->logits + 2 * E * i, one->logits + E * i, E * sizeof(double));
        memcpy(two->noise + 2 * E * i, one->noise + E * i, E * sizeof(double));
    }
    gating_run(one, table(ECH_F64), true);
    gating_run(two, table(ECH_F64), true);
    assert_memory_equal(one->choice, two->choice, (size_t)gating_rows(one) * 3 * sizeof(int32_t));
    for (int64_t i = 0; i < gating_rows(one) * 3; i++)
        assert_true(fabs(one->gates[i] - two->gates[i]) < 1e-14);
    for (int64_t i = 0; i < gating_rows(one) * E; i++) {
        assert_true(fabs(one->dlogits[i] - two->dlogits[i / E * 2 * E + i % E]) < 1e-12);
        assert_true(two->dlogits[i / E * 2 * E + E + i % E] == 0);
    }
    for (int64_t i = 0; i < ech_gate_partial(E); i++)
        assert_true(fabs(one->partial[i] - two->partial[i]) < 1e-9);
    free(one);
    free(two);
}

/* ---- GShard: algorithm 1, by hand ---- */

TEST(gshard_is_algorithm_1)
{
    enum { ROWS = 96, CAPACITY = 2 * ROWS / E };
    for (int variant = 0; variant < 4; variant++) {
        ech_gate gate = {.kind = ECH_GATE_gshard,
                         .experts = E,
                         .chosen = 2,
                         .capacity_factor = 1,
                         .auxiliary = 1,
                         .draws = variant % 2 == 0,
                         .ports = variant >= 2,
                         .key = {.seed = 3, .step = 1, .stream = 9}};
        gating *g = gating_make(gate, 1, ROWS);
        int c[E] = {0}, first[ROWS], second[ROWS], sent[E] = {0}, unsent = 0;
        double m[E] = {0}, raw[ROWS][2], auxiliary = 0;
        for (int s = 0; s < ROWS; s++) g->logits[s * E + 2] += 1;
        gating_run(g, table(ECH_F64), false);
        for (int s = 0; s < ROWS; s++) {
            double p[E], sum = 0;
            for (int e = 0; e < E; e++) sum += exp(g->logits[s * E + e]);
            first[s] = -1;
            second[s] = -1;
            for (int e = 0; e < E; e++) {
                p[e] = exp(g->logits[s * E + e]) / sum;
                m[e] += p[e] / ROWS;
                if (first[s] < 0 || p[e] > p[first[s]]) first[s] = e;
            }
            for (int e = 0; e < E; e++)
                if (e != first[s] && (second[s] < 0 || p[e] > p[second[s]])) second[s] = e;
            raw[s][0] = p[first[s]] / (p[first[s]] + p[second[s]]);
            raw[s][1] = p[second[s]] / (p[first[s]] + p[second[s]]);
            bool fits = c[first[s]]++ < CAPACITY;
            sent[first[s]] += fits;
            assert_int_equal(g->choice[2 * s], fits ? first[s] : -1);
            assert_true(fabs(g->gates[2 * s] - (fits ? raw[s][0] : 0)) < 1e-12);
        }
        for (int e = 0; e < E; e++) auxiliary += (double)c[e] / ROWS * m[e] / E;
        if (gate.ports) auxiliary *= E * E;
        for (int s = 0; s < ROWS; s++) {
            double unit = ech_random_unit(ech_random_word(gate.key, (uint64_t)s));
            bool chance = !gate.draws || 2 * raw[s][1] > unit, is = false;
            if (chance || !gate.ports) is = c[second[s]]++ < CAPACITY && chance;
            unsent += !chance;
            sent[second[s]] += is;
            assert_int_equal(g->choice[2 * s + 1], is ? second[s] : -1);
            assert_true(fabs(g->gates[2 * s + 1] - (is ? raw[s][1] : 0)) < 1e-12);
        }
        for (int e = 0; e < E; e++) assert_true(sent[e] <= CAPACITY);
        assert_true(fabs(sum_of(g, ECH_GATE_AUXILIARY) - auxiliary) < 1e-12);
        assert_true(sum_of(g, ECH_GATE_UNSENT) == unsent && (unsent > 0) == gate.draws);
        free(g);
    }
}

/* With room for all the second is sent at a rate of twice its gate. */
TEST(gshard_sends_the_second_by_chance)
{
    ech_gate gate = {.kind = ECH_GATE_gshard,
                     .experts = E,
                     .chosen = 2,
                     .draws = true,
                     .key = {.seed = 4, .stream = 9}};
    double sent = 0, draws = 0;
    const double second = 0.2;
    for (int round = 0; round < 3; round++) {
        gating *g = gating_make(gate, 1, GATING_ROWS);
        g->first_sample = round;
        g->alone = true;
        for (int64_t i = 0; i < GATING_ROWS; i++)
            for (int e = 0; e < E; e++)
                g->logits[i * E + e] = e == 1 ? log(1 - second) : e == 6 ? log(second) : -50;
        gating_run(g, table(ECH_F64), false);
        for (int64_t i = 0; i < GATING_ROWS; i++) sent += g->choice[2 * i + 1] == 6;
        draws += GATING_ROWS;
        free(g);
    }
    double rate = 2 * second;
    assert_true(draws >= 1e4);
    assert_true(fabs(sent / draws - rate) < 3 * sqrt(rate * (1 - rate) / draws));
}

TEST(gshard_at_balance)
{
    gating *g = gating_make(
        (ech_gate){.kind = ECH_GATE_gshard, .experts = E, .chosen = 2, .auxiliary = 1}, 2, 5 * E);
    for (int64_t i = 0; i < gating_rows(g); i++)
        for (int e = 0; e < E; e++) g->logits[i * E + e] = i % E == e;
    gating_run(g, table(ECH_F64), false);
    assert_true(fabs(sum_of(g, ECH_GATE_AUXILIARY) / 2 - 1.0 / (E * E)) < 1e-15);
    g->gate.ports = true;
    gating_run(g, table(ECH_F64), false);
    assert_true(fabs(sum_of(g, ECH_GATE_AUXILIARY) / 2 - 1) < 1e-13);
    free(g);
}

/* ---- bias ---- */

TEST(bias_chooses_and_does_not_weigh)
{
    enum { K = 3, GROUPS = 4, EACH = E / GROUPS };
    gating *g = make(COUNT(all_gates) - 2, false);
    double auxiliary = 0;
    gating_run(g, table(ECH_F64), false);
    for (int64_t sample = 0; sample < SAMPLES; sample++) {
        double chosen[E] = {0}, share[E] = {0};
        for (int64_t i = sample * T; i < (sample + 1) * T; i++) {
            double s[E], of_group[GROUPS] = {0}, sum = 0, all = 0;
            for (int e = 0; e < E; e++) {
                s[e] = 1 / (1 + exp(-g->logits[i * E + e]));
                of_group[e / EACH] += s[e] + g->bias[e]; /* its two best are all that it has */
                all += s[e];
            }
            for (int e = 0; e < E; e++) share[e] += s[e] / all / T;
            for (int e = 0; e < E; e++) {
                int better = 0, rank = 0, at = -1;
                for (int o = 0; o < GROUPS; o++) better += of_group[o] > of_group[e / EACH];
                for (int o = 0; o < E; o++) {
                    int above = 0;
                    for (int q = 0; q < GROUPS; q++) above += of_group[q] > of_group[o / EACH];
                    rank += above < 2 && s[o] + g->bias[o] > s[e] + g->bias[e];
                }
                for (int j = 0; j < K; j++)
                    if (g->choice[i * K + j] == e) at = j;
                assert_int_equal(at, better < 2 && rank < K ? rank : -1);
                if (at >= 0) sum += s[e];
                chosen[e] += at >= 0;
            }
            for (int j = 0; j < K; j++)
                assert_true(fabs(g->gates[i * K + j] - 2.5 * s[g->choice[i * K + j]] / sum) <
                            1e-12);
        }
        for (int e = 0; e < E; e++) auxiliary += 0.4 * E * chosen[e] / (K * T) * share[e];
    }
    assert_true(fabs(sum_of(g, ECH_GATE_AUXILIARY) - auxiliary) < 1e-12);
    free(g);
}

/* Counts by a loop of the test's own; of the bias the sign alone counts. */
TEST(bias_follows_the_load)
{
    enum { ROWS = 50, K = 2, TYPES = 4 };
    static const ech_dtype types[TYPES] = {ECH_F64, ECH_F32, ECH_BF16, ECH_F16};
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
    for (int type = 0; type < TYPES; type++)
        for (int way = 0; way < 4; way++) {
            int32_t chosen[ROWS * K];
            static const double even[E] = {10, 10, 10, 20, 20, 30, 30, 30};
            double load[E], wanted[E], mean = 0, withheld = way == 3, moved[E];
            double bias[E]; /* room for numbers of the wide type */
            bool accumulate = way & 1;
            for (int e = 0; e < E; e++) wanted[e] = accumulate ? 100 * e : 0;
            for (int e = 0; e < E; e++) load[e] = 100 * e;
            for (int i = 0; i < ROWS * K; i++) {
                chosen[i] = (int32_t)value_at(61 + (unsigned)way, i, -1, E - 0.001);
                if (i % 7 == 0) chosen[i] = -1;
                for (int e = 0; e < E; e++) wanted[e] += chosen[i] == e;
            }
            ech_tensor choice = ech_tensor_2d(chosen, ECH_I32, ROWS, K);
            ech_tensor loads = ech_tensor_1d(load, ECH_F64, E);
            table(types[type])->gate_load(context, &choice, accumulate, &loads);
            assert_memory_equal(load, wanted, sizeof load);
            if (way == 2) memcpy(load, even, sizeof load);
            for (int e = 0; e < E; e++) mean += load[e] / E;
            ech_dtype wide = ech_dtype_wide(types[type]);
            ech_tensor biases = ech_tensor_1d(bias, wide, E);
            for (int e = 0; e < E; e++) moved[e] = e / 8.0 - 0.5;
            ech_convert(moved, ECH_F64, bias, wide, E);
            ech_update update = {.learning_rate = 7, .withheld = &withheld};
            table(types[type])->gate_balance(context, &loads, 0.125, &update, &biases);
            ech_convert(bias, wide, moved, ECH_F64, E);
            for (int e = 0; e < E; e++) {
                double by = fabs(load[e] - mean) < 1e-9 ? 0 : load[e] < mean ? 0.125 : -0.125;
                if (moved[e] != e / 8.0 - 0.5 + (way == 3 ? 0 : by))
                    fail_msg("type %d, way %d, expert %d: %g, load %g of %g", type, way, e,
                             moved[e], load[e], mean);
            }
        }
    ech_kernel_context_destroy(context);
}
