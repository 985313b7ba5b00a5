/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared experts. With one expert to choose, whose gate is 1, a layer equals the feed-forward layer
 * of a Llama whose weights are all experts' weights side by side. Loss and gradient are that
 * Llama's, and the router's gradient is zero. The lattice tests that every layout trains as one
 * rank does.
 */
#include <math.h>
#include <string.h>

#include "app/grid_run.h"
#include "unit.h"

enum { C = 32, F = 16, SHARED = 2, WIDE = (SHARED + 1) * F, STEPS = 3 };

static const struct {
    const char *chosen, *shared, *dense; /* of a layer; %d: its number */
    bool columns;                        /* experts have columns of the dense matrix, not rows */
} parts[] = {
#define PART(theirs, ours, columns)                                                                \
    {                                                                                              \
        "model.layers.%d.block_sparse_moe.experts.%%d." theirs ".weight",                          \
            "model.layers.%d.block_sparse_moe.shared_experts." theirs ".weight",                   \
            "model.layers.%d.mlp." ours ".weight", columns                                         \
    }
    PART("w1", "gate_proj", false),
    PART("w3", "up_proj", false),
    PART("w2", "down_proj", true),
#undef PART
};
enum { PARTS = sizeof parts / sizeof *parts };

typedef struct kept {
    ech_text names;            /* a line each, in the order of `values` */
    ECH_LIST(double *) values; /* of the model with experts */
    double loss[STEPS], norm[STEPS];
} kept;

static const double *find(const kept *k, const char *name)
{
    size_t i = 0;
    for (const char *at = k->names.at; *at; at = strchr(at, '\n') + 1, i++)
        if (strncmp(at, name, strlen(name)) == 0 && at[strlen(name)] == '\n')
            return k->values.at[i];
    return NULL;
}

static ech_status step(kept *k, ech_compared_run *run, int rank)
{
    for (int i = 0; i < STEPS; i++) {
        ECH_TRY(ech_exec_run(run->session.exec, ECH_LIST_TRAIN, i));
        if (rank != 0) continue;
        k->loss[i] = ech_exec_readings(run->session.exec)->loss;
        k->norm[i] = ech_exec_readings(run->session.exec)->grad_norm;
    }
    return ECH_OK;
}

/* Keeps the first weights, and trains. */
static ech_status train_experts(void *context, int rank, ech_compared_run *run)
{
    kept *k = context;
    const ech_model *model = run->design->model;
    for (size_t p = 0; p < model->param.n; p++) {
        ech_tensor x = ech_exec_param(run->session.exec, (int)p);
        double *values = ech_calloc((size_t)ech_tensor_count(&x), sizeof *values);
        ech_exec_read(run->session.exec, &x, values);
        ECH_PUSH(k->values, values);
        ech_text_append(&k->names, "%s\n", model->param.at[p].name);
    }
    return step(k, run, rank);
}

/* Element i of the matrix of the layer without experts. */
static double beside(const double *chosen, const double *shared, bool columns, int64_t i)
{
    int64_t row = columns ? i / WIDE : i / C, column = columns ? i % WIDE : i % C;
    int64_t unit = columns ? column : row, of = columns ? F : C, more = columns ? SHARED * F : C;
    if (unit < F) return chosen[columns ? row * of + unit : unit * of + column];
    return shared[columns ? row * more + unit - F : (unit - F) * more + column];
}

static void fill(const kept *k, const char *name, double *values, int64_t n)
{
    const double *same = find(k, name);
    for (int64_t i = 0; same && i < n; i++) values[i] = same[i];
    for (int part = 0, filled = same != NULL; !filled; part++) {
        int layer = atoi(name + strlen("model.layers."));
        char chosen[200], shared[200], dense[200];
        assert_in_range(part, 0, PARTS - 1);
        snprintf(chosen, sizeof chosen, parts[part].chosen, layer);
        snprintf(shared, sizeof shared, parts[part].shared, layer);
        snprintf(dense, sizeof dense, parts[part].dense, layer);
        if (strcmp(name, dense) != 0) continue;
        filled = true;
        assert_int_equal(n, C * WIDE);
        for (int64_t i = 0; i < n; i++)
            values[i] = beside(find(k, chosen), find(k, shared), parts[part].columns, i);
    }
}

/* With the same weights. */
static ech_status train_dense(void *context, int rank, ech_compared_run *run)
{
    kept *k = context;
    const ech_model *model = run->design->model;
    for (size_t p = 0; p < model->param.n; p++) {
        ech_tensor x = ech_exec_param(run->session.exec, (int)p);
        int64_t n = ech_tensor_count(&x);
        ECH_FREED double *values = ech_calloc((size_t)n, sizeof *values);
        fill(k, model->param.at[p].name, values, n);
        ech_exec_write(run->session.exec, &x, values);
    }
    kept dense = {.names = {0}};
    ECH_TRY(step(&dense, run, rank));
    for (int i = 0; i < STEPS; i++) {
        assert_true(fabs(dense.loss[i] - k->loss[i]) <= 1e-12 * k->loss[i]);
        assert_true(fabs(dense.norm[i] - k->norm[i]) <= 1e-10 * k->norm[i]);
    }
    return ECH_OK;
}

#define ONE_EXPERT                                                                                 \
    "model.intermediate_size=16 model.num_local_experts=1 model.num_experts_per_tok=1 "            \
    "model.moe_gate=dense model.moe_shared_experts=2 training.steps=4 "
#define OPTIMIZER "optimizer.name=sgd optimizer.weight_decay=0"

TEST(test_wide_as_together)
{
    kept k = {.names = {0}};
    grid_run("mixtral", ONE_EXPERT OPTIMIZER, train_experts, &k);
    grid_run("llama", "model.intermediate_size=48 training.steps=4 " OPTIMIZER, train_dense, &k);
    for (size_t i = 0; i < k.values.n; i++) free(k.values.at[i]);
    free(k.values.at);
    ech_text_free(&k.names);
}

/* ---- layouts ---- */

/* ---- what goes on while rows are on their way ---- */

static bool waits_for(const ech_list *list, const ech_step *step, int other)
{
    for (int i = 0; i < step->afters; i++)
        if (list->after.at[step->first_after + i] == other) return true;
    return false;
}

/* The calls of the compute lane between a collective and the first step that waits for it. */
static int calls_beside(const ech_list *list, int collective)
{
    int calls = 0;
    for (int s = collective + 1; s < (int)list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        if (waits_for(list, step, collective)) break;
        if (step->lane == ECH_LANE_COMPUTE) calls += step->calls;
    }
    return calls;
}

typedef struct exchanges {
    int all, alone;
} exchanges;

static ech_status count_exchanges(void *context, int rank, ech_compared_run *run)
{
    exchanges *n = context;
    const ech_list *list = &run->session.plan->list[ECH_LIST_TRAIN];
    for (int s = 0; s < (int)list->step.n && rank == 0; s++) {
        const ech_step *step = &list->step.at[s];
        if (step->kind != ECH_STEP_COLLECTIVE || step->collective != ECH_COLLECTIVE_EXCHANGE_ROWS ||
            step->group != ECH_GROUP_EXPERT)
            continue;
        n->all++;
        n->alone += calls_beside(list, s) == 0;
    }
    return ECH_OK;
}

/* All four exchanges of a layer: there and back, forward and backward. Without shared experts, one
 * of them. */
TEST(test_exchanges_are_overlapped)
{
    exchanges shared = {0}, bare = {0};
    static const char words[] = "parallel.data=2 parallel.expert=2 training.steps=4 "
                                "training.micro_batch_size=1 training.global_batch_size=4 "
                                "model.num_local_experts=4 model.moe_shared_experts=";
    char all[300];
    snprintf(all, sizeof all, "%s1", words);
    grid_run("mixtral", all, count_exchanges, &shared);
    snprintf(all, sizeof all, "%s0", words);
    grid_run("mixtral", all, count_exchanges, &bare);
    assert_int_equal(shared.alone, 0);
    assert_int_equal(shared.all, bare.all);
    assert_int_equal(4 * bare.alone, 3 * bare.all);
}

ALL_TESTS(grid_setup, fixture_teardown)
