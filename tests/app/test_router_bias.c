/* SPDX-License-Identifier: Apache-2.0
 *
 * The bias that balances experts (kernel/gate/bias.h): after each step it follows how many rows
 * chose each expert in it, as reports tell, on any layout, however often forwards run again and
 * whatever is validated between steps. That a step that is withheld leaves it as it was is
 * probes/withheld.c.
 */
#include <math.h>
#include <string.h>

#include "app/grid_run.h"
#include "unit.h"

#define RATE 0x1p-6 /* exact in sums */
#define BIAS                                                                                       \
    "model.num_key_value_heads=4 model.num_local_experts=8 model.num_experts_per_tok=2 "           \
    "model.moe_gate=bias model.router_bias_rate=0.015625 training.steps=8 "

enum { L = 2, E = 8, K = 2, CHECKED = 5, TOLD = 2 * E + ECH_GATE_SUMS, TOKENS = 4 * 24 };

typedef struct history {
    double bias[CHECKED + 1][L][E]; /* before the first step, and after each */
    double chosen[CHECKED][L][E];   /* rows, as reports tell */
    int step;
} history;

static int bias_of(const ech_model *model, int layer)
{
    char name[100];
    int found = -1;
    snprintf(name, sizeof name, "model.layers.%d.block_sparse_moe.gate.e_score_correction_bias",
             layer);
    for (int p = 0; p < (int)model->param.n; p++)
        if (strcmp(model->param.at[p].name, name) == 0) found = p;
    assert_true(found >= 0 && model->param.at[found].commit);
    return found;
}

/* Of layers that this rank has. */
static void keep_bias(history *h, const ech_compared_run *run, int at)
{
    const ech_model *model = run->design->model;
    for (int l = 0; l < L; l++) {
        int param = bias_of(model, l);
        if (run->session.plan->param[param].bucket < 0) continue;
        ech_tensor bias = ech_exec_param(run->session.exec, param);
        assert_int_equal(ech_tensor_count(&bias), E);
        ech_exec_read(run->session.exec, &bias, h->bias[at][l]);
    }
}

static ech_status train(void *context, int rank, ech_compared_run *run)
{
    history *h = context, of_others = *h; /* what rank 0 keeps counts */
    if (rank != 0) h = &of_others;
    keep_bias(h, run, 0);
    for (h->step = 0; h->step < CHECKED; h->step++) {
        bool validates;
        double loss;
        ECH_TRY(ech_exec_run(run->session.exec, ECH_LIST_TRAIN, h->step));
        const ech_readings *read = ech_exec_readings(run->session.exec);
        for (int l = 0; l < L; l++)
            memcpy(h->chosen[h->step][l], read->reports + l * TOLD, sizeof h->chosen[0][0]);
        ECH_TRY(ech_compared_run_validate(run, &validates, &loss));
        keep_bias(h, run, h->step + 1);
    }
    return ECH_OK;
}

static history train_with(const char *more)
{
    char words[900];
    static history h;
    h = (history){.step = 0};
    snprintf(words, sizeof words, BIAS "%s", more);
    grid_run("mixtral", words, train, &h);
    return h;
}

/* By the rule; a layer that another stage has is not looked at. */
static void check_history(const history *h, int layers, const char *words)
{
    bool rises = false, falls = false;
    for (int step = 0; step < CHECKED; step++)
        for (int l = 0; l < layers; l++)
            for (int e = 0; e < E; e++) {
                double before = h->bias[step][l][e], after = h->bias[step + 1][l][e];
                double off = h->chosen[step][l][e] - (double)(K * TOKENS) / E;
                double moved = off > 0 ? -RATE : off < 0 ? RATE : 0;
                if (after != before + moved)
                    fail_msg("[%s], step %d, layer %d: %g after %g, %g rows", words, step, l, after,
                             before, h->chosen[step][l][e]);
                rises |= after > before;
                falls |= after < before;
            }
    assert_true(rises && falls);
}

TEST(test_follows_the_load)
{
    static const char *const ways[] = {
        "",
        "training.micro_batch_size=1",
        "training.micro_batch_size=2 memory.recompute=selective",
        "training.micro_batch_size=1 memory.recompute=full",
        "training.micro_batch_size=2 memory.sequence_chunks=2",
        "parallel.data=2 parallel.expert=2",
        "parallel.data=4 parallel.expert=2 parallel.zero=3",
        "parallel.context=2 parallel.data=2 parallel.expert=4",
        "parallel.tensor=2 parallel.data=2",
        "parallel.tensor=2 parallel.sequence=true",
        "parallel.tensor=2 parallel.data=2 parallel.expert=2",
        "parallel.pipeline=2 parallel.schedule=zero-bubble training.micro_batch_size=1",
    };
    history alone = {.step = 0};
    for (int i = 0; i < (int)(sizeof ways / sizeof *ways); i++) {
        int layers = strstr(ways[i], "pipeline") ? 1 : L;
        history h = train_with(ways[i]);
        check_history(&h, layers, ways[i]);
        if (i == 0) alone = h;
        for (int step = 0; step <= CHECKED; step++)
            for (int l = 0; l < layers; l++)
                assert_memory_equal(h.bias[step][l], alone.bias[step][l], sizeof h.bias[0][0]);
    }
}

ALL_TESTS(grid_setup, fixture_teardown)
