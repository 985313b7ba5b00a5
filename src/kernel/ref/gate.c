/* SPDX-License-Identifier: Apache-2.0
 *
 * Gates of mixtures of experts, row after row and group after group (kernel/gate/).
 */
#include <string.h>

#define ECH_GATE_WORDS ech_random_words
#include "kernel/gate/gates.h"
#include "kernel/ref/real.h"

/* A call's arguments, and its scratch. */
typedef struct gating {
    const ech_gate *gate;
    const ech_tensor *logits, *noise, *bias; /* of the rows read: all members', or the view's own */
    const int32_t *lengths;
    const ech_rows *rows;
    int64_t S, E, L, K;
    ech_gate_row row;
    int32_t *chosen; /* of the forward: (rows, k) */
    double *sums;
} gating;

static const int32_t *numbers(const ech_tensor *x)
{
    return x ? x->data : NULL;
}

/* Per group: choices first and in all, shares, loads, slots taken. */
static int64_t sums_of(const gating *g)
{
    return 4 * g->E + g->L;
}

static gating begin(ech_kernel_context *context, const ech_gate *gate, const ech_tensor *logits,
                    const ech_tensor *bias, const ech_tensor *lengths, const ech_rows *rows,
                    int64_t N)
{
    gating g = {.gate = gate,
                .logits = logits,
                .bias = bias,
                .lengths = numbers(lengths),
                .rows = rows,
                .S = logits->shape[0],
                .E = gate->experts,
                .L = ech_gate_logits(gate),
                .K = gate->chosen};
    int64_t room = ech_gate_room(g.L, g.K), sums = sums_of(&g);
    ECH_ASSERT(logits->shape[1] == g.L && g.K >= 1 && g.K <= g.E);
    ECH_ASSERT(!bias || bias->shape[0] == g.E);
    double *scratch = ech_scratch(context, (size_t)(room + sums + N * g.K) * sizeof *scratch);
    ech_gate_row_assign(&g.row, gate, scratch);
    g.sums = scratch + room;
    g.chosen = (int32_t *)(g.sums + sums);
    g.row.has_noise = false;
    g.row.has_bias = bias != NULL;
    for (int64_t e = 0; bias && e < g.E; e++) g.row.bias[e] = ech_value(bias, e);
    return g;
}

/* Chooses experts by row `at` of the logits; whole: its index in the whole tensor. */
static void choose(gating *g, int64_t at, int64_t whole)
{
    ech_gate_row *row = &g->row;
    row->whole = whole;
    row->has_noise = g->noise != NULL;
    for (int64_t i = 0; i < g->L; i++) {
        row->logits[i] = ech_value(g->logits, at * g->L + i);
        if (g->noise) row->noise[i] = ech_value(g->noise, at * g->L + i);
        row->load[i] = 0;
    }
    ech_gate_choose(row);
}

/* ---- forward ---- */

/* Stores the gates of a row, which is row r of the view, and adds to the view's sums. */
static void put_row(const gating *g, int64_t r, const ech_tensor *gates, double *sum)
{
    for (int64_t j = 0; j < g->K; j++) ech_store(gates, r * g->K + j, g->row.gates[j]);
    if (!sum) return;
    sum[ECH_GATE_ROWS]++;
    sum[ECH_GATE_ENTROPY] += g->row.entropy;
}

/* Stores the choices of row r with their results; gates of choices that are not sent are 0. */
static void put_choices(const gating *g, const int32_t *chosen, int64_t r, const ech_tensor *gates,
                        const ech_tensor *choice, double *partial)
{
    int32_t E = (int32_t)g->E;
    for (int64_t j = 0; j < g->K; j++) {
        int32_t fate = chosen[j] < 0 ? -1 : chosen[j] / E, e = chosen[j] % E;
        ((int32_t *)choice->data)[r * g->K + j] = fate == ECH_GATE_SENT ? e : -1;
        if (fate != ECH_GATE_SENT) ech_store(gates, r * g->K + j, 0);
        if (fate < 0 || !partial) continue;
        partial[e]++;
        if (fate == ECH_GATE_DROPPED) partial[E + e]++;
        if (fate == ECH_GATE_KEPT_BACK) partial[2 * E + ECH_GATE_UNSENT]++;
    }
}

/* Handles a group's choices in their turns: first choices before second ones, rows in their
 * order. */
static void fill(gating *g, int32_t *chosen, int64_t n)
{
    double capacity = (double)ech_gate_capacity(g->gate, g->rows->whole);
    double *first = g->sums, *all = first + g->E, *taken = all + 2 * g->E + g->L;
    for (int64_t j = 0; j < g->K; j++)
        for (int64_t i = 0; i < n; i++) {
            int32_t *choice = &chosen[i * g->K + j], e = *choice % (int32_t)g->E;
            if (*choice < 0) continue;
            if (j == 0) first[e]++;
            all[e]++;
            ech_gate_take(g->gate, capacity, e, choice, &taken[e]);
        }
}

/* Processes the rows of group a, in the order of samples and positions, including the view's own
 * rows. */
static void choose_group(gating *g, int64_t a, const ech_tensor *gates, ech_gate_group *group,
                         double *sum)
{
    int64_t T = g->rows->whole, n = g->gate->samples * T, own = g->gate->member * g->S;
    double *share = g->sums + 2 * g->E, *load = share + g->E;
    memset(g->sums, 0, (size_t)sums_of(g) * sizeof *g->sums);
    group->rows = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t sample = a * g->gate->samples + i / T, position = i % T;
        int32_t *chosen = g->chosen + (a * n + i) * g->K;
        for (int64_t j = 0; j < g->K; j++) chosen[j] = -1;
        if (position >= ech_gate_length(g->lengths, g->rows, sample)) continue;
        int64_t at = ech_gate_row_index(g->gate, g->rows, g->S, sample, position);
        choose(g, at, (g->rows->first_sample + sample) * T + position);
        memcpy(chosen, g->row.choice, (size_t)g->K * sizeof *chosen);
        for (int64_t e = 0; e < g->E; e++) share[e] += g->row.share[e];
        for (int64_t l = 0; l < g->L; l++) load[l] += g->row.load[l];
        group->rows++;
        if (at >= own && at < own + g->S) put_row(g, at - own, gates, sum);
    }
    fill(g, g->chosen + a * n * g->K, n);
}

static void forward_groups(gating *g, int64_t groups, const ech_tensor *gates,
                           const ech_tensor *statistics, double *sum)
{
    int64_t width = ech_gate_statistics(g->gate);
    for (int64_t a = 0; a < groups; a++) {
        double *slopes = (double *)statistics->data + a * width;
        ech_gate_group group = {.gate = g->gate,
                                .first = g->sums,
                                .chosen = g->sums + g->E,
                                .share = g->sums + 2 * g->E,
                                .load = g->sums + 3 * g->E,
                                .dshare = slopes,
                                .dload = slopes + g->E};
        memset(slopes, 0, (size_t)width * sizeof *slopes);
        choose_group(g, a, gates, &group, sum);
        ech_gate_losses(&group);
        if (!sum || g->gate->member != 0) continue;
        sum[ECH_GATE_GROUPS]++;
        sum[ECH_GATE_AUXILIARY] += group.auxiliary;
        sum[ECH_GATE_IMPORTANCE] += group.importance;
        sum[ECH_GATE_LOAD] += group.load_loss;
    }
}

static int64_t sample_of(const gating *g, int64_t r)
{
    return (g->rows->first + r) / g->rows->tokens;
}

static bool is_padding(const gating *g, int64_t r)
{
    return g->lengths && ech_row_position(g->rows, r) >= g->lengths[sample_of(g, r)];
}

void ECH_REF(gate_forward)(ech_kernel_context *context, const ech_gate *gate,
                           const ech_tensor *logits, const ech_tensor *noise, const ech_tensor *all,
                           const ech_tensor *all_noise, const ech_tensor *bias,
                           const ech_tensor *lengths, const ech_rows *rows, const ech_tensor *gates,
                           const ech_tensor *choice, const ech_tensor *statistics,
                           const ech_tensor *partial)
{
    ECH_SHAPES(gate_forward, ECH_REAL, logits, noise, all, all_noise, bias, lengths, gates, choice,
               statistics, partial);
    ech_gate_check(gate, logits, noise, all, all_noise, rows, statistics, partial);
    ECH_ROWS_NOW(rows);
    ECH_ROWS(rows, NULL, logits->shape[0]);
    int64_t N = all ? all->shape[0] : logits->shape[0];
    gating g = begin(context, gate, logits, bias, lengths, rows, N);
    double *sums = partial ? partial->data : NULL, *sum = sums ? sums + 2 * g.E : NULL;
    g.logits = all ? all : logits;
    g.noise = all ? all_noise : noise;
    if (all) forward_groups(&g, statistics->shape[0], gates, statistics, sum);
    for (int64_t r = 0; r < g.S; r++) {
        int64_t position = ech_row_position(rows, r),
                at = sample_of(&g, r) * rows->whole + position;
        int32_t *chosen = all ? g.chosen + at * g.K : g.row.choice;
        if (!all && !is_padding(&g, r)) {
            choose(&g, r, ech_row_whole(rows, r));
            put_row(&g, r, gates, sum);
        } else if (!all) {
            for (int64_t j = 0; j < g.K; j++) chosen[j] = -1;
        }
        put_choices(&g, chosen, r, gates, choice, sums);
    }
}

/* ---- backward ---- */

static void differentiate(gating *g, int64_t r, const ech_tensor *choice,
                          const ech_tensor *statistics, const ech_tensor *dgates, double factor)
{
    const int32_t *sent = (const int32_t *)choice->data + r * g->K;
    const double *slopes = NULL;
    if (statistics)
        slopes = (const double *)statistics->data +
                 sample_of(g, r) / g->gate->samples * ech_gate_statistics(g->gate);
    choose(g, r, ech_row_whole(g->rows, r));
    for (int64_t j = 0; j < g->K; j++)
        g->row.dgates[j] = sent[j] < 0 ? 0 : ech_value(dgates, r * g->K + j);
    for (int64_t e = 0; e < g->E; e++) g->row.dshare[e] = slopes ? slopes[e] * factor : 0;
    for (int64_t l = 0; l < g->L; l++) g->row.dload[l] = slopes ? slopes[g->E + l] * factor : 0;
    ech_gate_differentiate(&g->row);
}

void ECH_REF(gate_backward)(ech_kernel_context *context, const ech_gate *gate,
                            const ech_tensor *logits, const ech_tensor *noise,
                            const ech_tensor *bias, const ech_tensor *lengths, const ech_rows *rows,
                            const ech_tensor *choice, const ech_tensor *statistics,
                            const ech_tensor *dgates, const ech_tensor *factor,
                            const ech_tensor *dlogits, const ech_tensor *dnoise)
{
    ECH_SHAPES(gate_backward, ECH_REAL, logits, noise, bias, lengths, choice, statistics, dgates,
               factor, dlogits, dnoise);
    ECH_ASSERT(!statistics == !factor && !noise == !dnoise);
    ECH_ROWS_NOW(rows);
    ECH_ROWS(rows, NULL, logits->shape[0]);
    gating g = begin(context, gate, logits, bias, lengths, rows, 0);
    double by = factor ? *(const double *)factor->data : 0;
    g.noise = noise;
    for (int64_t r = 0; r < g.S; r++) {
        memset(g.row.dlogits, 0, (size_t)g.L * sizeof *g.row.dlogits);
        memset(g.row.dnoise, 0, (size_t)g.L * sizeof *g.row.dnoise);
        if (!is_padding(&g, r)) differentiate(&g, r, choice, statistics, dgates, by);
        for (int64_t l = 0; l < g.L; l++) {
            ech_store(dlogits, r * g.L + l, g.row.dlogits[l]);
            if (dnoise) ech_store(dnoise, r * g.L + l, g.row.dnoise[l]);
        }
    }
}

/* ---- balancing by a bias ---- */

void ECH_REF(gate_load)(ech_kernel_context *context, const ech_tensor *choice, bool accumulate,
                        const ech_tensor *load)
{
    ECH_SHAPES(gate_load, ECH_REAL, choice, load);
    const int32_t *chosen = choice->data;
    double *to = load->data;
    for (int64_t e = 0; e < load->shape[0] && !accumulate; e++) to[e] = 0;
    for (int64_t i = 0, n = ech_tensor_count(choice); i < n; i++)
        if (chosen[i] >= 0) to[chosen[i]]++;
}

void ECH_REF(gate_balance)(ech_kernel_context *context, const ech_tensor *load, double rate,
                           const ech_update *update, const ech_tensor *bias)
{
    ECH_SHAPES(gate_balance, ECH_REAL, load, bias);
    ECH_UPDATE_UNLESS_WITHHELD(update, (void)0);
    const double *of = load->data;
    int64_t E = load->shape[0];
    double sum = 0;
    for (int64_t e = 0; e < E; e++) sum += of[e];
    for (int64_t e = 0; e < E; e++)
        ech_store(bias, e, ech_gate_bias_moved(ech_value(bias, e), of[e], sum / (double)E, rate));
}
