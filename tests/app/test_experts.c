/* SPDX-License-Identifier: Apache-2.0
 *
 * Experts over ranks: plans exchange rows and counts in as many calls a layer as there must be, and
 * as many bytes; and what gates report of a step. That runs send what tables say is
 * probes/counters.c.
 */

#include <math.h>

#include "app/experts.h"
#include "app/grid_run.h"
#include "schedule/traffic.h"
#include "unit.h"

enum { L = 2, E = 8, K = 2, C = 32, T = 24, B = 2, M = 2 };

static const char sizes[] =
    "model.num_key_value_heads=4 model.num_local_experts=8 model.num_experts_per_tok=2 "
    "training.micro_batch_size=2 training.steps=4 optimizer.warmup_steps=1";

static void print_words(const char *more, char *words, size_t n)
{
    const char *data = strstr(more, "parallel.data=");
    int replicas = data ? atoi(data + strlen("parallel.data=")) : 1;
    snprintf(words, n, "%s training.global_batch_size=%d %s", sizes, B * M * replicas, more);
}

/* ---- counters ---- */

static const struct {
    const char *words;
    int ranks, context, tensor, expert;
    bool again; /* forwards run twice */
} grids[] = {
    {"parallel.data=2 parallel.expert=2", 2, 1, 1, 2, false},
    {"parallel.data=4 parallel.expert=2 parallel.zero=3", 4, 1, 1, 2, false},
    {"parallel.context=2 parallel.expert=2 parallel.device=queued", 2, 2, 1, 2, false},
    {"parallel.context=2 parallel.data=2 parallel.expert=4 parallel.device=walled", 4, 2, 1, 4,
     false},
    {"parallel.data=8 parallel.expert=8 memory.recompute=full", 8, 1, 1, 8, true},
    {"parallel.data=4 parallel.tensor=2 parallel.expert=4", 8, 1, 2, 4, false},
    {"parallel.context=2 parallel.tensor=4 parallel.sequence=true parallel.expert=2", 8, 2, 4, 2,
     false},
    {"parallel.data=2 parallel.tensor=2 parallel.sequence=keep parallel.expert=2 "
     "memory.recompute=full",
     4, 1, 2, 2, true},
    {"parallel.data=2 parallel.tensor=2 parallel.expert=2 precision.compute=bf16", 4, 1, 2, 2,
     false},
};

/* A step has M micro-batches of L layers: 2 exchanges of rows forward, 2 backward, one of counts.
 * Where the forward runs again so do those. Each row is sent by one tensor rank. */
TEST(test_exchanges_have_a_formula)
{
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
        char words[600];
        int64_t item =
            strstr(grids[i].words, "bf16") ? 2 : 8; /* rows go as they are computed with */
        int64_t e = grids[i].expert, forwards = grids[i].again ? 2 : 1;
        int64_t rows = B * T / grids[i].context / grids[i].tensor, assignments = rows * K;
        int64_t row = C * item;
        print_words(grids[i].words, words, sizeof words);
        grid_plans g = grid_plan("mixtral", words);
        assert_int_equal(g.ranks, grids[i].ranks);
        for (int r = 0; r < g.ranks; r++) {
            ech_traffic traffic[ECH_TRAFFIC_AXES];
            ech_plan_traffic(g.plan[r], traffic);
            const ech_traffic *all = &traffic[ECH_TRAFFIC_EXPERT];
            ech_flow n = ech_traffic_of(all, ECH_COLLECTIVE_EXCHANGE_ROWS, ECH_GROUP_EXPERT);
            ech_flow told = ech_traffic_of(all, ECH_COLLECTIVE_ALL_TO_ALL, ECH_GROUP_EXPERT);
            int64_t calls = M * L, counts = forwards * calls * (e - 1) * (E / e) * 4;
            assert_in_range(n.calls, 4 * calls, 4 * calls + (forwards - 1) * 2 * calls);
            assert_int_equal(told.calls, forwards * calls);
            assert_int_equal(told.bytes, counts);
            assert_int_equal(n.bytes, n.calls * (assignments - assignments / e) * row);
            /* One that gets all rows sends back those of all others, of which each goes to an
             * expert of this rank once. */
            int64_t back = n.calls == 6 * calls ? 3 * calls : 2 * calls;
            int64_t piece = rows * (K < E / e ? K : E / e);
            int64_t most = ((n.calls - back) * assignments + back * (e - 1) * piece) * row;
            assert_int_equal(n.more, most - n.bytes);
            assert_int_equal(n.messages, n.calls * (e - 1));
        }
        grid_plans_free(&g);
    }
}

/* ---- reports ---- */

enum { TOLD = 2 * E + ECH_GATE_SUMS, TOLD_SAMPLES = 8 };

typedef struct told {
    double of[L][TOLD]; /* of the first step, as rank 0 has read it */
    double loss, norm;  /* of it, and of its gradient */
    int64_t chosen;     /* of a row */
    ech_expert_metrics metrics;
} told;

/* Every rank reads the same; each row of each layer has chosen k experts. */
static ech_status read_reports(void *context, int rank, ech_compared_run *run)
{
    told *t = context;
    double rows = (double)TOLD_SAMPLES * T;
    ECH_TRY(ech_exec_run(run->session.exec, ECH_LIST_TRAIN, 0));
    const double *reports = ech_exec_readings(run->session.exec)->reports;
    assert_int_equal(run->design->model->reports, L * TOLD);
    for (int l = 0; l < L; l++, reports += TOLD) {
        double chosen = 0;
        for (int e = 0; e < E; e++) chosen += reports[e];
        assert_true(chosen == (double)t->chosen * rows && reports[2 * E + ECH_GATE_ROWS] == rows);
        double entropy = reports[2 * E + ECH_GATE_ENTROPY] / rows;
        assert_true(entropy > 0 && entropy <= log(E) + 1e-12);
        if (rank == 0) memcpy(t->of[l], reports, sizeof t->of[l]);
    }
    reports -= L * TOLD;
    if (rank == 0) ech_expert_metrics_take(run->design->model, reports, &t->metrics);
    if (rank == 0) t->norm = ech_exec_readings(run->session.exec)->grad_norm;
    if (rank == 0) t->loss = ech_exec_readings(run->session.exec)->loss;
    return ECH_OK;
}

static told tell(const char *gate)
{
    char words[900];
    told t = {.chosen = strstr(gate, "switch") ? 1 : K};
    snprintf(words, sizeof words, "%s training.global_batch_size=%d %s", sizes, TOLD_SAMPLES, gate);
    grid_run("mixtral", words, read_reports, &t);
    return t;
}

static const char *const gates[] = {
    "",
    "model.router_aux_loss_coef=0.5",
    "model.moe_gate=switch model.num_experts_per_tok=1 model.moe_capacity_factor=1.25 "
    "model.router_aux_loss_coef=0.5 model.router_jitter_noise=0.1",
    "model.moe_gate=gshard model.moe_capacity_factor=1.25 model.router_aux_loss_coef=5 "
    "model.moe_dropout=0.2",
    "model.moe_gate=gshard model.moe_capacity_factor=1.25 model.router_aux_loss_coef=5 "
    "model.moe_gshard_ports=true",
    "model.moe_gate=gshard",
    "model.moe_gate=noisy_topk",
    "model.moe_gate=noisy_topk model.moe_capacity_factor=1.25 model.router_importance_coef=5 "
    "model.router_load_coef=3 model.router_jitter_noise=0.1 model.moe_dropout=0.2",
    "model.moe_gate=hierarchical model.n_group=4 model.topk_group=2 model.router_importance_coef=5 "
    "model.router_load_coef=3",
    "model.moe_gate=bias model.n_group=4 model.topk_group=2 model.router_aux_loss_coef=0.5",
};

/* What they hold of each gate; that layouts tell what one rank does is verify's. */
TEST(test_reports_of_gates)
{
    double norm = 0;
    for (size_t g = 0; g < sizeof gates / sizeof *gates; g++) {
        told alone = tell(gates[g]);
        const ech_expert_metrics *m = &alone.metrics;
        double loads = 0;
        for (int e = 0; e < m->loads; e++) loads += (double)m->of[e];
        assert_true(m->experts == E && m->loads == E && fabs(loads - E) < 1e-4);
        assert_true(m->most >= 1 && m->most <= E);
        bool drops = strstr(gates[g], "capacity") || strstr(gates[g], "gshard");
        assert_true((m->dropped > 0) == drops);
        assert_true((m->auxiliary > 0) == (strstr(gates[g], "router_aux_loss") != NULL));
        assert_true((m->importance > 0) == (strstr(gates[g], "router_importance") != NULL));
        assert_true((m->load > 0) == (strstr(gates[g], "router_load") != NULL));
        assert_true(fabs(alone.norm - norm) > 1e-6 * norm);
        norm = alone.norm;
    }
}

ALL_TESTS(grid_setup, fixture_teardown)
