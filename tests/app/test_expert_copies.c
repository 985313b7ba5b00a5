/* SPDX-License-Identifier: Apache-2.0
 *
 * Who has copies of an expert: the check of replicas compares these, and no expert with another.
 */

#include "app/grid_run.h"
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
    bool of_expert;   /* in: the last rank changes a bit of an expert's weight */
    bool clean;       /* out: no difference was found before that */
    bool seen[RANKS]; /* out: a difference was found after it */
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
        /* ranks that have the last one's experts, and those that have its other weights; 0: it
         * alone */
        unsigned copies, all;
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

ALL_TESTS(grid_setup, fixture_teardown)
