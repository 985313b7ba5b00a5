/* SPDX-License-Identifier: Apache-2.0
 *
 * All tokens to the same experts: routers are 0, so that all logits are alike and the lower index
 * is chosen. Without capacities nothing is dropped and every layout computes what one rank does,
 * within the bytes that plans promise; with them what is above a capacity is dropped, no row more
 * or less. And of routers as they begin, uneven and unlike, every byte is of a row that a table
 * counts.
 */

#include <math.h>

#include "app/experts.h"
#include "app/grid_run.h"
#include "schedule/traffic.h"
#include "share.h"
#include "unit.h"

enum { RANKS = 8, STEPS = 3, L = 2, E = 8, C = 32, T = 24, SAMPLES = 16, B = 2 };
enum { NUMBERS = 2 * E + ECH_GATE_SUMS };

typedef struct extreme {
    double reported[L][NUMBERS]; /* of the first step */
    double loss[STEPS], norm[STEPS];
    int64_t sent[RANKS], most[RANKS]; /* bytes of rows in the first step, and planned at most */
} extreme;

/* Also in shards: who has some of a router's numbers has zeros. */
static void zero_routers(const ech_compared_run *c, int rank)
{
    static const double zeros[E * C];
    const ech_model *model = c->design->model;
    for (int p = 0; p < (int)model->param.n; p++)
        if (strstr(model->param.at[p].name, "moe.gate.weight") &&
            ech_layout_holds(c->design->layout, rank, p)) {
            ech_tensor router = ech_exec_param(c->session.exec, p);
            ech_exec_write(c->session.exec, &router, zeros);
        }
}

static ech_status train(void *context, int rank, ech_compared_run *c)
{
    extreme *x = context;
    const ech_exec *exec = c->session.exec;
    ech_traffic traffic[ECH_TRAFFIC_AXES];
    zero_routers(c, rank);
    for (int step = 0; step < STEPS; step++) {
        ECH_TRY(ech_exec_run(c->session.exec, ECH_LIST_TRAIN, step));
        const ech_readings *read = ech_exec_readings(exec);
        if (step == 0) x->sent[rank] = ech_exec_counted(exec)->exchanged.bytes;
        if (rank > 0) continue;
        if (step == 0) memcpy(x->reported, read->reports, sizeof x->reported);
        x->loss[step] = read->loss;
        x->norm[step] = read->grad_norm;
    }
    ech_plan_traffic(c->session.plan, traffic);
    ech_flow rows = ech_traffic_of(&traffic[ECH_TRAFFIC_EXPERT], ECH_COLLECTIVE_EXCHANGE_ROWS,
                                   ECH_GROUP_EXPERT);
    x->most[rank] = rows.bytes + rows.more;
    return ECH_OK;
}

static extreme run(const char *gate, const char *layout)
{
    char words[700];
    extreme x = {.sent = {0}};
    snprintf(words, sizeof words,
             "model.num_key_value_heads=4 model.num_local_experts=%d training.micro_batch_size=%d "
             "training.global_batch_size=%d training.steps=%d optimizer.warmup_steps=1 %s %s",
             E, B, SAMPLES, STEPS, gate, layout);
    grid_run("mixtral", words, train, &x);
    return x;
}

static const struct {
    const char *words;
    int64_t k;
    double capacity; /* of a sample, of which each expert has its own; 0: none */
} gates[] = {
    {"model.num_experts_per_tok=2", 2, 0},
    {"model.num_experts_per_tok=1 model.moe_dropout=0.1", 1, 0},
    {"model.num_experts_per_tok=2 model.moe_capacity_factor=1.25", 2, 7},
    {"model.moe_gate=switch model.num_experts_per_tok=1 model.moe_capacity_factor=1 "
     "model.router_aux_loss_coef=0.1 model.router_jitter_noise=0.1",
     1, 3},
};

static const struct {
    const char *words;
    int expert, ranks;
} layouts[] = {
    {"", 1, 1},
    {"parallel.data=2 parallel.expert=2", 2, 2},
    {"parallel.data=4 parallel.expert=4 parallel.zero=2", 4, 4},
    {"parallel.context=2 parallel.data=2 parallel.expert=4 memory.recompute=full", 4, 4},
    {"parallel.data=2 parallel.tensor=2 parallel.expert=2", 2, 4},
    {"parallel.context=2 parallel.tensor=2 parallel.sequence=true parallel.expert=2", 2, 4},
    {"parallel.pipeline=2 parallel.data=4 parallel.expert=4 parallel.schedule=zero-bubble", 4, 8},
    {"parallel.tensor=2 parallel.data=2", 1, 4},
};

/* Experts 0 to k - 1 are chosen by all, and take what they may. */
static void check_counts(const extreme *x, int64_t k, double capacity)
{
    for (int l = 0; l < L; l++)
        for (int e = 0; e < E; e++) {
            double rows = e < k ? SAMPLES * T : 0;
            double dropped = capacity > 0 ? fmax(0, rows - SAMPLES * capacity) : 0;
            assert_true(x->reported[l][e] == rows);
            assert_true(x->reported[l][E + e] == dropped);
        }
}

/* Without capacities all rows of all members but the first go to that, and come back; twice, of
 * rows and of gradients. With dropout the numbers of their choices, of two words each, go once.
 * A recomputed forward sends all of it again. */
static void check_bytes(const extreme *x, size_t layout, int64_t k, bool drops)
{
    int64_t sent = 0, item = sizeof(double), e = layouts[layout].expert, number = drops ? 8 : 0;
    bool again = strstr(layouts[layout].words, "recompute=full") != NULL;
    int64_t row = (again ? 6 : 4) * C * item + (again ? 2 : 1) * number;
    for (int r = 0; r < layouts[layout].ranks; r++) sent += x->sent[r];
    assert_int_equal(sent, L * SAMPLES * T * k * row * (e - 1) / e);
}

TEST(test_all_to_the_same)
{
    for (size_t g = 0; g < sizeof gates / sizeof *gates; g++) {
        extreme alone = run(gates[g].words, "");
        check_counts(&alone, gates[g].k, gates[g].capacity);
        for (size_t i = 1; i < sizeof layouts / sizeof *layouts; i++) {
            const char *words = layouts[i].words;
            if (!share_takes()) continue;
            extreme x = run(gates[g].words, words);
            check_counts(&x, gates[g].k, gates[g].capacity);
            for (int step = 0; step < STEPS; step++)
                if (!(fabs(x.loss[step] - alone.loss[step]) <= 1e-10 * alone.loss[step] &&
                      fabs(x.norm[step] - alone.norm[step]) <= 1e-9 * alone.norm[step]))
                    fail_msg("%s, %s: step %d has loss %.17g and norm %.17g, of one rank %.17g and "
                             "%.17g",
                             gates[g].words, words, step, x.loss[step], x.norm[step],
                             alone.loss[step], alone.norm[step]);
            for (int r = 0; r < layouts[i].ranks; r++)
                if (x.sent[r] > x.most[r])
                    fail_msg("%s, %s: rank %d sent %lld bytes, planned are %lld at most",
                             gates[g].words, words, r, (long long)x.sent[r], (long long)x.most[r]);
            if (gates[g].capacity == 0)
                check_bytes(&x, i, gates[g].k, strstr(gates[g].words, "model.moe_dropout") != NULL);
        }
    }
}

/* ---- uneven ---- */

enum { MICRO_BATCHES = SAMPLES / B };

typedef struct tables {
    int64_t rows[MICRO_BATCHES][E]; /* that choose an expert, of all layers */
} tables;

/* A micro-batch a step, of weights that no step changes. */
static ech_status keep_tables(void *context, int rank, ech_compared_run *c)
{
    tables *t = context;
    (void)rank;
    for (int m = 0; m < MICRO_BATCHES; m++) {
        ECH_TRY(ech_exec_run(c->session.exec, ECH_LIST_TRAIN, m));
        const double *reported = ech_exec_readings(c->session.exec)->reports;
        for (int l = 0; l < L; l++)
            for (int e = 0; e < E; e++) t->rows[m][e] += (int64_t)reported[l * NUMBERS + e];
    }
    return ECH_OK;
}

static ech_status count_bytes(void *context, int rank, ech_compared_run *c)
{
    int64_t *sent = context;
    ECH_TRY(ech_exec_run(c->session.exec, ECH_LIST_TRAIN, 0));
    sent[rank] = ech_exec_counted(c->session.exec)->exchanged.bytes;
    return ECH_OK;
}

/* What a rank sends of its micro-batches to others' experts, and back of what these have sent to
 * its own; twice. Replica r has micro-batches r, r + N, ... */
static int64_t bytes_of(const tables *t, int rank, int ranks)
{
    int64_t rows = 0;
    for (int m = 0; m < MICRO_BATCHES; m++)
        for (int e = 0; e < E; e++)
            if ((m % ranks == rank) != (e / (E / ranks) == rank)) rows += t->rows[m][e];
    return 2 * rows * C * (int64_t)sizeof(double);
}

TEST(test_bytes_are_the_tables)
{
    static const char words[] = "model.num_key_value_heads=4 model.num_local_experts=8 "
                                "model.num_experts_per_tok=2 training.micro_batch_size=2 "
                                "training.steps=8 optimizer.learning_rate=1e-300";
    tables t = {.rows = {{0}}};
    char all[400];
    snprintf(all, sizeof all, "%s training.global_batch_size=%d", words, B);
    grid_run("mixtral", all, keep_tables, &t);
    for (int ranks = 2; ranks <= RANKS; ranks *= 2) {
        int64_t sent[RANKS];
        snprintf(all, sizeof all,
                 "%s training.global_batch_size=%d parallel.data=%d parallel.expert=%d", words,
                 SAMPLES, ranks, ranks);
        grid_run("mixtral", all, count_bytes, sent);
        for (int r = 0; r < ranks; r++) assert_int_equal(sent[r], bytes_of(&t, r, ranks));
    }
}

ALL_TESTS(grid_setup, fixture_teardown)
