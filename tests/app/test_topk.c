/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel.compression = topk over grids: selections have as many numbers as the density says; all
 * numbers are the plain sums; without what is kept training drifts away. What is sent and kept is
 * compared with a sort by verify (app/verify/chosen.c), and adds up to the gradients by
 * probes/residuals.c; that a step that is withheld changes nothing of it is probes/withheld.c, and
 * that checkpoints have it probes/resumes.c.
 */
#include "app/compressed.h"
#include "unit.h"

#define TOPK " parallel.compression=topk parallel.compression_density="
static const struct {
    int ranks;
    double density;
    const char *words;
} grids[] = {
    {1, 0.1, TOPK "0.1"},
    {2, 0.01, "parallel.data=2" TOPK "0.01"},
    {4, 0.25, "parallel.data=4 parallel.reduction=ring" TOPK "0.25"},
    {4, 0.1, "parallel.data=2 parallel.context=2 parallel.zero=2" TOPK "0.1"},
    {4, 0.1, "parallel.data=2 parallel.tensor=2 parallel.bucket_bytes=1" TOPK "0.1"},
    {4, 1, "parallel.data=2 parallel.pipeline=2 training.global_batch_size=8" TOPK "1"},
};
enum { GRIDS = sizeof grids / sizeof *grids };

static int64_t chosen_of(double density, int64_t length)
{
    int64_t k = 1;
    while ((double)k < density * (double)length - 1e-9) k++;
    return k;
}

/* Values and their places, of each line as many as the density says. */
TEST(selections_have_a_formula)
{
    for (int g = 0; g < GRIDS; g++) {
        grid_plans p = grid_plan("llama", grids[g].words);
        for (int r = 0; r < p.ranks; r++) {
            const ech_plan *plan = p.plan[r];
            int64_t selected = 0, formula = 0;
            for (size_t b = 0; b < plan->bucket.n; b++) selected += plan->bucket.at[b].chosen;
            for (int i = 0; i < (int)plan->model->param.n; i++) {
                const ech_param *param = &plan->model->param.at[i];
                int64_t n = plan->param[i].elements, size[ECH_MAX_DIMS];
                if (!has_residual(plan, i)) continue;
                bool by_columns = strstr(param->name, "o_proj") || strstr(param->name, "down_proj");
                ech_shape_resolve(&param->shape, ech_extent_of_params(plan->layout->sharding),
                                  size);
                int64_t length = size[by_columns ? 0 : 1];
                formula += 2 * n / length * chosen_of(grids[g].density, length);
            }
            assert_true(selected > 0);
            assert_int_equal(selected, formula);
        }
        grid_plans_free(&p);
    }
}

TEST(all_numbers_are_the_plain_sums)
{
    const char *with[] = {"parallel.data=4" TOPK "1",
                          "parallel.data=2 parallel.pipeline=2 training.global_batch_size=8" TOPK
                          "1"};
    const char *without[] = {"parallel.data=4", "parallel.data=2 parallel.pipeline=2 "
                                                "training.global_batch_size=8"};
    for (int g = 0; g < 2; g++) {
        run((job){.steps = 4, .of = of}, with[g]);
        run((job){.steps = 4, .of = other}, without[g]);
        for (int step = 0; step < 4; step++)
            assert_memory_equal(&of[0].loss[step], &other[0].loss[step], sizeof(double));
        for (int64_t i = 0; i < of[0].n; i++) assert_true(fabs(of[0].residual[i]) <= 0);
    }
}

TEST(forgetting_drifts_away)
{
    assert_forgetting_drifts_away("parallel.data=2 optimizer.learning_rate=1e-3" TOPK "0.1");
}

ALL_TESTS(grid_setup, fixture_teardown)
