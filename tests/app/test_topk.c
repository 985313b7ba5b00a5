/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel.compression = topk over grids: selections have as many numbers as the density says; all
 * numbers are the plain sums; without what is kept training drifts away; a step that is withheld
 * changes nothing; checkpoints have what is kept, replica by replica. What is sent and kept is
 * compared with a sort by verify (app/verify/chosen.c), and adds up to the gradients by
 * probes/residuals.c.
 */
#include <math.h>

#include "app/grid_run.h"
#include "app/saved_run.h"
#include "schedule/traffic.h"
#include "unit.h"

enum { RANKS = 4, MOST_STEPS = 30, SEEN_STEPS = 3, ELEMENTS = 20000 };

typedef struct seen {
    int64_t n;
    double from[SEEN_STEPS][ELEMENTS]; /* gradient and residual, of which the rank chooses */
    double sum[SEEN_STEPS][ELEMENTS];  /* what all have sent */
    double kept[SEEN_STEPS][ELEMENTS]; /* the residual behind the step */
    double gradient[ELEMENTS], sent[ELEMENTS]; /* summed over all steps */
    double residual[ELEMENTS], weights[ELEMENTS];
    double loss[MOST_STEPS];
    bool changed; /* a withheld step has changed something */
} seen;

typedef struct job {
    int steps;
    bool forgets;     /* what is left is thrown away after each step */
    int spoiled;      /* the step whose gradients get a NaN; -1: none */
    const char *from; /* a checkpoint; NULL: none */
    const char *to;   /* the folder for one behind the last step; NULL: none */
    seen *of;         /* [RANKS] */
} job;

typedef struct watch {
    const job *job;
    const ech_compared_run *run;
    seen *out;
    int step;
} watch;

/* ---- what is seen ---- */

typedef void (*on_param)(watch *w, ech_exec *exec, int param, int64_t at);

static bool has_residual(const ech_plan *plan, int param)
{
    return plan->param[param].bucket >= 0 &&
           ech_plan_state_of(plan, param, ECH_STATE_RESIDUAL) >= 0;
}

/* Calls `use` for each compressed parameter of the step's bucket, or of all (-1), with where it is in `seen`. */
static void each_param(watch *w, ech_exec *exec, int bucket, on_param use)
{
    const ech_plan *plan = w->run->session.plan;
    int64_t at = 0;
    for (int p = 0; p < (int)plan->model->param.n; p++) {
        if (!has_residual(plan, p)) continue;
        if (bucket < 0 || plan->param[p].bucket == bucket) use(w, exec, p, at);
        at += plan->param[p].elements;
    }
    ECH_ASSERT(at <= ELEMENTS);
    w->out->n = at;
}

static ech_tensor residual_of(const watch *w, ech_exec *exec, int param)
{
    return ech_exec_state(exec, param,
                          ech_plan_state_of(w->run->session.plan, param, ECH_STATE_RESIDUAL));
}

static void see_from(watch *w, ech_exec *exec, int param, int64_t at)
{
    static double some[RANKS][ELEMENTS];
    double *before = some[w->out - w->job->of], *from = w->out->from[w->step % SEEN_STEPS] + at;
    ech_tensor g = ech_exec_gradient(exec, param), e = residual_of(w, exec, param);
    ech_exec_read(exec, &g, from);
    ech_exec_read(exec, &e, before);
    for (int64_t i = 0; i < ech_tensor_count(&g); i++)
        w->out->gradient[at + i] += from[i] - before[i];
}

/* What all have sent, and what is left. */
static void see_rest(watch *w, ech_exec *exec, int param, int64_t at)
{
    double *sum = w->out->sum[w->step % SEEN_STEPS] + at;
    ech_tensor g = ech_exec_gradient(exec, param), e = residual_of(w, exec, param);
    ech_exec_read(exec, &g, sum);
    ech_exec_read(exec, &e, w->out->kept[w->step % SEEN_STEPS] + at);
    for (int64_t i = 0; i < ech_tensor_count(&g); i++) w->out->sent[at + i] += sum[i];
}

static void forget(watch *w, ech_exec *exec, int param, int64_t at)
{
    static const double none[ELEMENTS];
    (void)at;
    ech_tensor e = residual_of(w, exec, param);
    ech_exec_write(exec, &e, none);
}

static void spoil(watch *w, ech_exec *exec, int param, int64_t at)
{
    double *from = w->out->from[w->step % SEEN_STEPS] + at;
    ech_tensor g = ech_exec_gradient(exec, param);
    ech_exec_read(exec, &g, from);
    from[3] = (double)NAN;
    ech_exec_write(exec, &g, from);
}

static void take_states(watch *w, ech_exec *exec, int param, int64_t at)
{
    ech_tensor weights = ech_exec_param(exec, param), e = residual_of(w, exec, param);
    ech_exec_read(exec, &e, w->out->residual + at);
    ech_exec_read(exec, &weights, w->out->weights + at);
}

static void look(void *context, ech_exec *exec, const ech_step *step)
{
    watch *w = context;
    bool spoils = w->step == w->job->spoiled;
    if (step->kind == ECH_STEP_RESIDUAL)
        each_param(w, exec, step->index, spoils ? spoil : see_from);
    if (step->kind != ECH_STEP_DECOMPRESS || spoils) return;
    each_param(w, exec, step->index, see_rest);
    if (w->job->forgets) each_param(w, exec, step->index, forget);
}

/* ---- runs ---- */

static ech_status train_step(watch *w, ech_exec *exec, int step)
{
    static seen before[RANKS];
    seen *kept = &before[w->out - w->job->of];
    w->step = step;
    if (step == w->job->spoiled) each_param(w, exec, -1, take_states), *kept = *w->out;
    ECH_TRY(ech_exec_run(exec, ECH_LIST_TRAIN, step));
    w->out->loss[step] = ech_exec_readings(exec)->loss;
    if (step != w->job->spoiled) return ECH_OK;
    each_param(w, exec, -1, take_states);
    ECH_ASSERT(ech_exec_readings(exec)->withheld);
    w->out->changed = memcmp(kept->residual, w->out->residual, sizeof kept->residual) ||
                      memcmp(kept->weights, w->out->weights, sizeof kept->weights);
    return ECH_OK;
}

static ech_status train(void *context, int rank, ech_compared_run *run)
{
    const job *j = context;
    const ech_plan *plan = run->session.plan;
    ech_exec *exec = run->session.exec;
    watch w = {.job = j, .run = run, .out = &j->of[rank], .step = -1};
    ECH_ASSERT(rank < RANKS && plan->types.wide == ECH_F64 && j->steps <= MOST_STEPS);
    memset(w.out, 0, sizeof *w.out);
    if (j->from) ECH_TRY(saved_run_restore(j->from, exec));
    ech_exec_observe(exec, look, &w);
    for (int step = 0; step < j->steps; step++) ECH_TRY(train_step(&w, exec, step));
    ech_exec_observe(exec, NULL, NULL);
    each_param(&w, exec, -1, take_states);
    return j->to ? saved_run_save(j->to, j->steps, run) : ECH_OK;
}

static seen of[RANKS], other[RANKS];

static void run(job j, seen *out, const char *grid)
{
    char words[600];
    j.of = out;
    snprintf(words, sizeof words,
             "optimizer.name=sgd optimizer.weight_decay=0 optimizer.momentum=0.9 "
             "training.steps=40 %s",
             grid);
    grid_run("llama", words, train, &j);
}

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

/* ---- the program ---- */

static int64_t chosen_of(double density, int64_t length)
{
    int64_t k = 1;
    while ((double)k < density * (double)length - 1e-9) k++;
    return k;
}

/* ---- tests ---- */

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
        run((job){.steps = 4, .spoiled = -1}, of, with[g]);
        run((job){.steps = 4, .spoiled = -1}, other, without[g]);
        for (int step = 0; step < 4; step++)
            assert_memory_equal(&of[0].loss[step], &other[0].loss[step], sizeof(double));
        for (int64_t i = 0; i < of[0].n; i++) assert_true(fabs(of[0].residual[i]) <= 0);
    }
}

TEST(withheld_steps_change_nothing)
{
    for (int g = 1; g < GRIDS; g += 3) {
        run((job){.steps = 4, .spoiled = 2}, of, grids[g].words);
        for (int r = 0; r < grids[g].ranks; r++) assert_false(of[r].changed);
        assert_true(isfinite(of[0].loss[3]));
    }
}

/* How far what has been sent is from the gradients, over all that these are. */
static double missing(const seen *x)
{
    double apart = 0, all = 0;
    for (int64_t i = 0; i < x[0].n; i++) {
        double gradient = x[0].gradient[i] + x[1].gradient[i];
        apart += pow(gradient - x[0].sent[i], 2);
        all += gradient * gradient;
    }
    return sqrt(apart / all);
}

/* What is not sent and forgotten is missing for good. */
TEST(forgetting_drifts_away)
{
    const char *grid = "parallel.data=2 optimizer.learning_rate=1e-3" TOPK "0.1";
    run((job){.steps = MOST_STEPS, .spoiled = -1}, of, grid);
    run((job){.steps = MOST_STEPS, .spoiled = -1, .forgets = true}, other, grid);
    assert_true(missing(other) > 2 * missing(of));
    assert_true(other[0].loss[MOST_STEPS - 1] > of[0].loss[MOST_STEPS - 1]);
}

/* Replica by replica; another number of them gets equal shares of the sum. */
TEST(checkpoints_have_it)
{
    char folder[300], checkpoint[400];
    snprintf(folder, sizeof folder, "%s/saved", fixture_folder);
    snprintf(checkpoint, sizeof checkpoint, "%s/step-%08d", folder, 3);
    run((job){.steps = 3, .spoiled = -1, .to = folder}, of, "parallel.data=4" TOPK "0.1");
    run((job){.spoiled = -1, .from = checkpoint}, other, "parallel.data=4" TOPK "0.1");
    for (int r = 0; r < RANKS; r++) {
        assert_memory_equal(of[r].residual, other[r].residual, sizeof of[r].residual);
        assert_memory_equal(of[r].weights, other[r].weights, sizeof of[r].weights);
    }
    run((job){.spoiled = -1, .from = checkpoint}, other, "parallel.data=2" TOPK "0.1");
    for (int64_t i = 0; i < of[0].n; i++) {
        double residuals = 0;
        for (int r = 0; r < 4; r++) residuals += of[r].residual[i];
        for (int r = 0; r < 2; r++) assert_true(fabs(2 * other[r].residual[i] - residuals) < 1e-15);
    }
}

ALL_TESTS(grid_setup, fixture_teardown)
