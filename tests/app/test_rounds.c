/* SPDX-License-Identifier: Apache-2.0
 *
 * All tokens to one expert (its router's weights are zero, and ties go to the lower index): experts
 * that drop nothing keep as many rows as model.moe_bound says, and what is beyond goes in rounds.
 * The loss is one rank's; memory is what was planned, which is that of the bound; rounds in which a
 * rank has nothing for another send nothing, and bytes and messages follow by formulae.
 */

#include <math.h>
#include <string.h>

#include "app/grid_run.h"
#include "layer/layers.h"
#include "schedule/traffic.h"
#include "share.h"
#include "unit.h"

enum { MOST = 8, STEPS = 2, L = 2, T = 24, M = 2, C = 32, F = 48, ITEM = sizeof(double) };

typedef struct trial {
    double loss, norm;
    ech_comm_count exchanged[MOST], sent[MOST];
    ech_flow rows[MOST], tensor[MOST];
    int64_t gathered[MOST]; /* bytes over tensor ranks */
    bool peaks[MOST];       /* the ledger's are the plan's */
    int64_t kept;           /* most bytes of activations of rank 0 */
    int64_t fetched[MOST];  /* ech_exec_counts.tables_fetched */
} trial;

static void route_to_first(const ech_model *model, ech_exec *exec)
{
    for (size_t p = 0; p < model->param.n; p++) {
        const char *name = model->param.at[p].name;
        if (!strstr(name, "block_sparse_moe.gate.")) continue;
        ech_tensor router = ech_exec_param(exec, (int)p);
        memset(router.data, 0, ech_tensor_bytes(&router));
    }
}

static ech_status train(void *context, int rank, ech_compared_run *run)
{
    trial *t = context;
    ech_exec *exec = run->session.exec;
    ech_traffic traffic[ECH_TRAFFIC_AXES];
    route_to_first(run->design->model, exec);
    for (int step = 0; step < STEPS; step++) ECH_TRY(ech_exec_run(exec, ECH_LIST_TRAIN, step));
    t->peaks[rank] = fixture_peaks_are_planned(&run->session, FIXTURE_TRAINED);
    ech_plan_traffic(run->session.plan, traffic);
    t->exchanged[rank] = ech_exec_counted(exec)->exchanged;
    t->fetched[rank] = ech_exec_counted(exec)->tables_fetched;
    t->sent[rank] =
        ech_exec_channel_count(exec, ECH_GROUP_EXPERT, ECH_LANE_COLLECTIVE, ECH_COMM_COLLECTIVES);
    t->rows[rank] = ech_traffic_of(&traffic[ECH_TRAFFIC_EXPERT], ECH_COLLECTIVE_EXCHANGE_ROWS,
                                   ECH_GROUP_EXPERT);
    t->tensor[rank] = ech_traffic_of(&traffic[ECH_TRAFFIC_TENSOR], -1, ECH_GROUP_TENSOR);
    t->gathered[rank] =
        ech_exec_channel_count(exec, ECH_GROUP_TENSOR, ECH_LANE_COLLECTIVE, ECH_COMM_COLLECTIVES)
            .bytes;
    if (rank > 0) return ECH_OK;
    t->loss = ech_exec_readings(exec)->loss;
    t->norm = ech_exec_readings(exec)->grad_norm;
    t->kept = run->session.plan->list[ECH_LIST_TRAIN].peak[ECH_MEMORY_ACTIVATIONS];
    return ECH_OK;
}

static trial run(const char *words, int replicas, const char *more)
{
    trial t = {0};
    char all[600];
    snprintf(all, sizeof all,
             "model.num_key_value_heads=4 model.num_local_experts=8 model.num_experts_per_tok=1 "
             "training.micro_batch_size=%d training.global_batch_size=8 %s %s",
             8 / M / replicas, words, more);
    grid_run("mixtral", all, train, &t);
    return t;
}

static const struct {
    const char *words;
    int ranks, replicas, context, expert;
    int rounds; /* with a bound of 1 */
} grids[] = {
    {"parallel.data=2 parallel.expert=2", 2, 2, 1, 2, 2},
    {"parallel.data=4 parallel.expert=4", 4, 4, 1, 4, 4},
    {"parallel.data=4 parallel.expert=2 parallel.zero=3", 4, 4, 1, 2, 2},
    {"parallel.context=4 parallel.expert=4", 4, 1, 4, 4, 4},
    {"parallel.context=2 parallel.data=2 parallel.expert=4", 4, 2, 2, 4, 4},
};

/* Per layer and micro-batch rows go to experts in F and again, but for the first round's, in B, and
 * gradients go there in B; rows and gradients come back. Whoever has rows for the first rank of its
 * group sends a message a round, and in the first round all send one to all. */
static void check_counts(const trial *t, size_t g, int rank)
{
    int64_t e = grids[g].expert, others = e - 1, calls = STEPS * M * L, rounds = grids[g].rounds;
    int64_t S = 8 / M / grids[g].replicas * T / grids[g].context, row = C * ITEM;
    int64_t window = (S + e - 1) / e, further = rounds - 1;
    bool owner = rank % e == 0; /* groups are neighbours */
    int64_t messages = 4 * others + (owner ? 2 * others * further : 3 * further);
    int64_t rows = owner ? 2 * others * S : 3 * S - window;
    const ech_comm_count *is = &t->exchanged[rank];
    assert_true(t->peaks[rank]);
    assert_int_equal(is->calls, calls * (5 * rounds - 1));
    assert_int_equal(is->messages, calls * messages);
    assert_int_equal(is->bytes, calls * rows * row);
    assert_int_equal(t->sent[rank].messages, is->messages + calls * others);
    assert_int_equal(t->rows[rank].messages, M * L * 4 * others);
    assert_in_range(is->bytes, 1, STEPS * (t->rows[rank].bytes + t->rows[rank].more));
}

TEST(test_all_to_one)
{
    trial alone = run("", 1, "");
    for (size_t g = 0; g < sizeof grids / sizeof *grids; g++) {
        if (!share_takes_of(g, sizeof grids / sizeof *grids)) continue;
        trial whole = run(grids[g].words, grids[g].replicas, "");
        trial bound = run(grids[g].words, grids[g].replicas, "model.moe_bound=1");
        int64_t S = 8 / M / grids[g].replicas * T / grids[g].context, e = grids[g].expert;
        const trial *both[] = {&whole, &bound};
        for (int i = 0; i < 2; i++)
            if (!(fabs(both[i]->loss - alone.loss) <= 1e-12 * alone.loss &&
                  fabs(both[i]->norm - alone.norm) <= 1e-10 * alone.norm))
                fail_msg("%s: loss %.17g, norm %.17g; of one rank %.17g, %.17g", grids[g].words,
                         both[i]->loss, both[i]->norm, alone.loss, alone.norm);
        /* What a layer keeps of rows that experts have received, but of the last, whose rounds take
         * room. */
        assert_true(bound.kept <= whole.kept - (L - 1) * (e - 1) * S * (C + 2 * F) * ITEM);
        for (int r = 0; r < grids[g].ranks; r++) {
            check_counts(&bound, g, r);
            /* once in F and once in B of each layer and micro-batch, however many rounds */
            assert_int_equal(whole.fetched[r], STEPS * (2 * M * L - M));
            assert_int_equal(bound.fetched[r], whole.fetched[r]);
        }
    }
}

/* A capacity of the balanced share bounds what a rank sends to another without further rounds: all
 * tokens of a balance group choose the first expert, which accepts its share of them. The rows of a
 * group that context ranks share may all be on one of these. */
TEST(test_capacity)
{
    static const char *const capacity = "model.moe_capacity_factor=1";
    trial alone = run("", 1, capacity);
    for (size_t g = 0; g < sizeof grids / sizeof *grids; g++) {
        int64_t e = grids[g].expert, c = grids[g].context;
        int64_t S = 8 / M / grids[g].replicas * T / c, window = S * c / e < S ? S * c / e : S;
        trial all = run(grids[g].words, grids[g].replicas, "");
        trial some = run(grids[g].words, grids[g].replicas, capacity);
        assert_true(fabs(some.loss - alone.loss) <= 1e-12 * alone.loss);
        assert_true(fabs(some.norm - alone.norm) <= 1e-10 * alone.norm);
        if (window < S)
            assert_true(some.kept <= all.kept - (L - 1) * e * (S - window) * (C + 2 * F) * ITEM);
        for (int r = 0; r < grids[g].ranks; r++) {
            int64_t groups = S * c / T, to_first = groups * (T / 8); /* of a mesh of c ranks */
            const ech_comm_count *is = &some.exchanged[r];
            assert_true(some.peaks[r]);
            assert_int_equal(is->calls, STEPS * M * L * 4);
            if (c == 1 && r % e)
                assert_int_equal(is->bytes, STEPS * M * L * 2 * to_first * C * ITEM);
        }
    }
}

/* Tensor ranks send each other only the rows in use. If all rows go to one expert, its ranks send
 * the plan's upper bound, and the others no row; the plan expects an e-th of the rows on each. */
TEST(test_tensor_ranks)
{
    static const char *const more[] = {"", "memory.recompute=full", "parallel.sequence=true"};
    enum { EXPERT = 2, TENSOR = 2, RANKS = EXPERT * TENSOR };
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        if (!share_takes_of(i, sizeof more / sizeof *more)) continue;
        char words[200], bounded[300];
        snprintf(words, sizeof words, "parallel.data=2 parallel.tensor=2 parallel.expert=2 %s",
                 more[i]);
        snprintf(bounded, sizeof bounded, "%s model.moe_bound=1", words);
        trial whole = run(words, EXPERT, ""), bound = run(bounded, EXPERT, "");
        for (int r = 0; r < RANKS; r++) {
            const ech_flow *is = &whole.tensor[r];
            int64_t most = STEPS * (is->bytes + is->more);
            int64_t least = STEPS * (is->bytes - is->more / (EXPERT - 1));
            bool owner = r / TENSOR == 0;
            assert_true(is->more > 0 && is->messages < 0);
            assert_int_equal(whole.gathered[r], owner ? most : least);
            assert_int_equal(bound.fetched[r], whole.fetched[r]); /* nobody waits once a round */
            if (owner) most = STEPS * (bound.tensor[r].bytes + bound.tensor[r].more);
            assert_int_equal(bound.gathered[r], owner ? most : least);
        }
    }
}

ALL_TESTS(grid_setup, fixture_teardown)
