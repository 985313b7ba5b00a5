/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel.compression = powersgd over grids: what Vogels et al. 2019 promise of it. Gradients of
 * as low a rank are exact; the elements are those of the factors. That what is sent and kept
 * adds up is probes/residuals.c, that left factors are orthonormal probes/factors.c, that a step
 * that is withheld changes nothing of it probes/withheld.c, and that checkpoints have it
 * probes/resumes.c and test_compressed_runs.c.
 */
#include "app/compressed.h"
#include "app/verdict.h"
#include "unit.h"

static const char *const grids[] = {
    "parallel.data=2 parallel.compression=powersgd",
    "parallel.data=4 parallel.compression=powersgd parallel.compression_orthogonal=gram_schmidt",
    "parallel.data=2 parallel.context=2 parallel.compression=powersgd parallel.zero=2",
    "parallel.data=2 parallel.pipeline=2 parallel.compression=powersgd "
    "training.global_batch_size=8",
};
enum { GRIDS = sizeof grids / sizeof *grids };

/* Of each matrix of n rows and m columns r (n + m) elements are sent. */
TEST(factors_have_a_formula)
{
    for (int g = 0; g < GRIDS; g++) {
        grid_plans p = grid_plan("llama", grids[g]);
        for (int r = 0; r < p.ranks; r++) {
            const ech_plan *plan = p.plan[r];
            int64_t elements = 0, formula = 0, size[2];
            for (size_t b = 0; b < plan->bucket.n; b++)
                elements += plan->bucket.at[b].left + plan->bucket.at[b].right;
            for (int i = 0; i < (int)plan->model->param.n; i++) {
                if (plan->param[i].rank == 0 || plan->param[i].bucket < 0) continue;
                ech_plan_matrix(plan, i, size);
                formula += plan->param[i].rank * (size[0] + size[1]);
            }
            assert_true(elements > 0);
            assert_int_equal(elements, formula);
        }
        grid_plans_free(&p);
    }
}

/* Of sides that no vector divides: each factor ends before the next begins. */
TEST(factors_lie_apart)
{
    grid_plans p = grid_plan("llama", "parallel.data=2 parallel.compression=powersgd "
                                      "parallel.compression_rank=3 model.intermediate_size=27 "
                                      "parallel.bucket_bytes=1GiB");
    const ech_plan *plan = p.plan[0];
    int64_t padding = 0, size[2];
    for (size_t b = 0; b < plan->bucket.n; b++) {
        const ech_bucket *bucket = &plan->bucket.at[b];
        int64_t left = 0, right = 0;
        for (int i = 0; i < bucket->params; i++) {
            int index = plan->bucket_param.at[bucket->first_param + i];
            const ech_plan_param *param = &plan->param[index];
            if (param->rank == 0) continue;
            ech_plan_matrix(plan, index, size);
            assert_true(param->left >= left && param->right >= right);
            padding += param->left - left + param->right - right;
            left = param->left + size[0] * param->rank;
            right = param->right + size[1] * param->rank;
        }
        assert_true(left <= bucket->left && right <= bucket->right);
    }
    assert_true(padding > 0);
    grid_plans_free(&p);
}

static void assert_near_plain(const char *compressed, double near)
{
    char words[400];
    run((job){.steps = 4, .of = of}, compressed);
    snprintf(words, sizeof words, "%s", compressed);
    char *from = strstr(words, "parallel.compression=");
    ECH_ASSERT(from);
    *from = '\0'; /* the compression's words come last */
    run((job){.steps = 4, .of = other}, words);
    for (int step = 0; step < 4; step++)
        assert_true(fabs(of[0].loss[step] - other[0].loss[step]) <= near * other[0].loss[step]);
}

/* All sides are shorter; and of three tokens on each of two ranks gradients have no higher rank. */
TEST(low_ranks_are_exact)
{
    assert_near_plain("parallel.data=2 parallel.compression=powersgd parallel.compression_rank=99",
                      1e-12);
    assert_near_plain("parallel.data=2 training.global_batch_size=2 data.sequence_length=3 "
                      "parallel.compression=powersgd parallel.compression_rank=6",
                      1e-12);
    for (int64_t i = 0; i < of[0].n; i++)
        assert_true(fabs(of[0].residual[i] + of[1].residual[i]) < 1e-10);
    assert_near_plain("parallel.data=2 training.global_batch_size=2 data.sequence_length=3 "
                      "parallel.compression=powersgd parallel.compression_rank=6 "
                      "parallel.compression_orthogonal=gram_schmidt",
                      1e-5);
}

TEST(forgetting_drifts_away)
{
    assert_forgetting_drifts_away("parallel.data=2 optimizer.learning_rate=1e-3 "
                                  "parallel.compression=powersgd parallel.compression_rank=1");
}

#define LOW "parallel.data=2 parallel.compression=powersgd "
#define SWITCH                                                                                     \
    "model.num_hidden_layers=1 model.moe_every=1 model.num_local_experts=4 "                       \
    "data.sequence_length=4 "
/* Gradients of a lower rank than factors, of experts that few tokens choose: columns are rounding
 * errors then, which depend on the layout. Optimizers that divide by the gradient's size make full
 * steps of them. */
TEST(low_ranks_are_one_ranks)
{
    static const struct {
        const char *family, *words;
        int steps;
    } runs[] = {
        {"qwen3_moe",
         "model.num_hidden_layers=1 model.num_local_experts=64 model.num_experts_per_tok=2 "
         "model.moe_intermediate_size=16 training.global_batch_size=8 optimizer.eps=1e-8 " LOW,
         4},
        {"switch", SWITCH LOW "optimizer.name=sm3", 1},
        {"switch", SWITCH LOW "optimizer.name=adafactor", 2},
        {"switch", SWITCH LOW "optimizer.name=adamw8", 1},
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        ech_text yaml = {0};
        grid_print_yaml(runs[i].family, "low", &yaml);
        ech_config *config = fixture_config_of(yaml.at, runs[i].words);
        const verdict_request request = {.config = config, .ranks = 2, .steps = runs[i].steps};
        verdict found = verdict_of(&request);
        if (!found.passed) fail_msg("%s %s: %s", runs[i].family, runs[i].words, found.why);
        ech_config_destroy(config);
        ech_text_free(&yaml);
    }
}

ALL_TESTS(grid_setup, fixture_teardown)
