/* SPDX-License-Identifier: Apache-2.0
 *
 * Who has copies of an expert: the check of replicas compares these, and no expert with another; and what ranks make of
 * experts together is what one rank makes, gradients and weights, whatever is drawn.
 */

#include "app/grid_run.h"
#include "share.h"
#include "unit.h"

enum { RANKS = 4 };

static const char sizes[] = "model.num_key_value_heads=4 model.num_local_experts=4 "
                            "model.num_experts_per_tok=2 training.global_batch_size=8 "
                            "training.micro_batch_size=2 training.steps=4 optimizer.warmup_steps=1";

static bool is_expert(const ech_param *param)
{
    return strstr(param->name, "experts.%d") != NULL;
}

/* ---- the check of replicas ---- */

typedef struct check {
    bool of_expert,
        clean;        /* in: whose bit the last rank changes; out: before that nothing is seen */
    bool seen[RANKS]; /* out: behind it */
} check;

static ech_status run_check(void *context, int rank, ech_compared_run *c)
{
    check *k = context;
    ech_exec *exec = c->session.exec;
    const ech_model *model = c->design->model;
    int p = 0;
    for (int step = 0; step < 2; step++) ECH_TRY(ech_exec_run(exec, ECH_LIST_TRAIN, step));
    ECH_TRY(ech_exec_run(exec, ECH_LIST_CHECK, 2));
    if (rank == 0) k->clean = !ech_exec_readings(exec)->hash_differs;
    while (is_expert(&model->param.at[p]) != k->of_expert) p++;
    if (rank == c->design->world - 1) ((uint64_t *)ech_exec_param(exec, p).data)[3] ^= 1;
    ECH_TRY(ech_exec_run(exec, ECH_LIST_CHECK, 2));
    k->seen[rank] = ech_exec_readings(exec)->hash_differs;
    return ECH_OK;
}

TEST(test_check)
{
    static const struct {
        const char *words;
        unsigned copies,
            all; /* ranks that have the last one's experts, and those that have its other weights; 0: it alone */
    } layouts[] = {{"parallel.data=2 parallel.expert=2", 0, 3},
                   {"parallel.data=4 parallel.expert=4", 0, 15},
                   {"parallel.data=4 parallel.expert=2", 10, 15},
                   {"parallel.data=2 parallel.context=2 parallel.expert=2", 10, 15},
                   {"parallel.data=2 parallel.tensor=2 parallel.expert=2", 0, 10},
                   {"parallel.data=2", 3, 3}};
    for (size_t i = 0; i < 2 * sizeof layouts / sizeof *layouts; i++) {
        char words[600];
        check k = {.of_expert = i % 2};
        snprintf(words, sizeof words, "%s %s", sizes, layouts[i / 2].words);
        grid_run("mixtral", words, run_check, &k);
        unsigned seen = 0, wanted = k.of_expert ? layouts[i / 2].copies : layouts[i / 2].all;
        for (int r = 0; r < RANKS; r++) seen |= (unsigned)k.seen[r] << r;
        if (!k.clean || seen != wanted)
            fail_msg("%s: with another bit of %s the ranks %x saw it, not %x", words,
                     k.of_expert ? "an expert" : "what is no expert", seen, wanted);
    }
}

/* ---- one rank, or the serial replay ---- */

/* Gates that draw, with and without capacities, where other tests have an expert degree of 2. */
TEST(test_verify)
{
    static const char *const runs[] = {
        "model.moe_gate=gshard model.moe_capacity_factor=1.25 model.router_aux_loss_coef=3 "
        "model.moe_dropout=0.1 parallel.data=4 parallel.expert=4 parallel.zero=2",
        "model.moe_gate=noisy_topk model.router_jitter_noise=0.1 parallel.context=2 "
        "parallel.data=2 parallel.tensor=2 parallel.sequence=true parallel.expert=4",
        "model.moe_gate=switch model.num_experts_per_tok=1 model.moe_capacity_factor=1 "
        "model.router_jitter_noise=0.1 model.router_aux_loss_coef=1 parallel.context=4 "
        "parallel.pipeline=2 parallel.context_method=ulysses parallel.expert=4 "
        "memory.recompute=full",
        "model.moe_gate=noisy_topk model.moe_capacity_factor=1.25 model.router_load_coef=2 "
        "model.moe_group_samples=2 parallel.data=4 parallel.tensor=2 parallel.sequence=keep "
        "parallel.expert=4",
        "model.moe_gate=gshard model.moe_gshard_ports=true parallel.data=4 parallel.expert=4 "
        "parallel.pipeline=2 parallel.schedule=zero-bubble",
        "model.moe_gate=gshard model.moe_capacity_factor=1.25 model.router_aux_loss_coef=3 "
        "model.moe_dropout=0.1 parallel.data=4 parallel.expert=4 parallel.pipeline=2 "
        "parallel.schedule=pipedream parallel.flush_every=2",
        "model.architecture=switch model.hidden_act=gelu_new model.moe_every=1 "
        "model.moe_gate=topk model.moe_bound=1 parallel.data=2 parallel.context=2 "
        "parallel.tensor=2 parallel.sequence=true parallel.expert=4",
        "model.architecture=switch model.hidden_act=gelu_new model.num_experts_per_tok=1 "
        "model.moe_capacity_factor=1 model.router_aux_loss_coef=1 model.moe_dropout=0.1 "
        "parallel.data=4 parallel.pipeline=2 parallel.expert=4 memory.recompute=full",
        "model.moe_gate=noisy_topk model.router_importance_coef=2 parallel.data=2 "
        "parallel.context=2 parallel.expert=4 parallel.pipeline=2 training.micro_batch_size=1 "
        "parallel.schedule=pipedream-2bw parallel.flush_every=2",
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        if (!share_takes_of(i, sizeof runs / sizeof *runs)) continue;
        char words[700];
        snprintf(words, sizeof words, "%s %s", sizes, runs[i]);
        ech_config *config = grid_config("mixtral", words);
        ech_verification v = {.steps = 2, .tolerance = ECH_TOLERANCE};
        ech_status status = fixture_run(config, grid_ranks(config), ech_verify_rank, &v);
        if (status != ECH_OK) fail_msg("%s: %s", runs[i], ech_last_error());
        if (!v.passed) fail_msg("%s: %g at %s", runs[i], v.worst, v.first_bad);
        assert_true(v.compared > 1000 && v.replayed == (strstr(runs[i], "pipedream") != NULL));
        ech_config_destroy(config);
    }
}

ALL_TESTS(grid_setup, fixture_teardown)
