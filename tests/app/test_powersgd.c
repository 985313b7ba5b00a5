/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel.compression = powersgd over grids: what Vogels et al. 2019 promise of it. Gradients of
 * as low a rank are exact; the elements are those of the factors; a step that is withheld changes
 * nothing of it; checkpoints have it, replica by replica. That what is sent and kept adds up is
 * probes/residuals.c, and that left factors are orthonormal probes/factors.c.
 */
#include <math.h>

#include "app/grid_run.h"
#include "app/saved_run.h"
#include "app/verdict.h"
#include "schedule/traffic.h"
#include "unit.h"

enum { RANKS = 4, MOST_STEPS = 40, ELEMENTS = 40000 };

/* What a rank has seen of all compressed parameters, side by side; of one that tensor ranks share,
 * its shard. */
typedef struct seen {
    int64_t n, states; /* numbers of gradients; of residuals and bases */
    double gradient[ELEMENTS], sent[ELEMENTS],
        residual[ELEMENTS]; /* the first two summed over steps */
    double basis[ELEMENTS], weights[ELEMENTS];
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

/* Calls `use` for each compressed parameter of the step's bucket, or of all (-1), with where it is
 * in `seen`. */
typedef void (*on_param)(watch *w, ech_exec *exec, int param, int64_t at);

static void each_param(watch *w, ech_exec *exec, int bucket, on_param use)
{
    const ech_plan *plan = w->run->session.plan;
    int64_t at = 0;
    for (int p = 0; p < (int)plan->model->param.n; p++) {
        if (plan->param[p].rank == 0 || plan->param[p].bucket < 0) continue;
        if (bucket < 0 || plan->param[p].bucket == bucket) use(w, exec, p, at);
        at += plan->param[p].elements;
    }
    ECH_ASSERT(at <= ELEMENTS);
    w->out->n = at;
}

static void read_state(watch *w, ech_exec *exec, int param, ech_state_role role, double *to)
{
    ech_tensor x =
        ech_exec_state(exec, param, ech_plan_state_of(w->run->session.plan, param, role));
    ech_exec_read(exec, &x, to);
}

static double one[ELEMENTS * RANKS]; /* a rank's own part */

static double *mine(const watch *w)
{
    return one + (w->out - w->job->of) * ELEMENTS;
}

/* At RESIDUAL the residual has been added, and is still there. */
static void add_gradient(watch *w, ech_exec *exec, int param, int64_t at)
{
    ech_tensor g = ech_exec_gradient(exec, param);
    ech_exec_read(exec, &g, mine(w));
    for (int64_t i = 0; i < ech_tensor_count(&g); i++) w->out->gradient[at + i] += mine(w)[i];
    read_state(w, exec, param, ECH_STATE_RESIDUAL, mine(w));
    for (int64_t i = 0; i < ech_tensor_count(&g); i++) w->out->gradient[at + i] -= mine(w)[i];
}

static void add_sent(watch *w, ech_exec *exec, int param, int64_t at)
{
    ech_tensor g = ech_exec_gradient(exec, param);
    ech_exec_read(exec, &g, mine(w));
    for (int64_t i = 0; i < ech_tensor_count(&g); i++) w->out->sent[at + i] += mine(w)[i];
}

static void forget(watch *w, ech_exec *exec, int param, int64_t at)
{
    (void)at;
    ech_tensor x = ech_exec_state(
        exec, param, ech_plan_state_of(w->run->session.plan, param, ECH_STATE_RESIDUAL));
    memset(mine(w), 0, (size_t)ech_tensor_count(&x) * sizeof(double));
    ech_exec_write(exec, &x, mine(w));
}

static void spoil(watch *w, ech_exec *exec, int param, int64_t at)
{
    (void)at;
    ech_tensor g = ech_exec_gradient(exec, param);
    ech_exec_read(exec, &g, mine(w));
    mine(w)[3] = (double)NAN;
    ech_exec_write(exec, &g, mine(w));
}

static void look(void *context, ech_exec *exec, const ech_step *step)
{
    watch *w = context;
    bool spoils = w->step == w->job->spoiled;
    if (step->kind == ECH_STEP_RESIDUAL && spoils) each_param(w, exec, step->index, spoil);
    if (step->kind == ECH_STEP_RESIDUAL && !spoils) each_param(w, exec, step->index, add_gradient);
    if (step->kind == ECH_STEP_DECOMPRESS && !spoils) each_param(w, exec, step->index, add_sent);
    if (step->kind == ECH_STEP_DECOMPRESS && w->job->forgets)
        each_param(w, exec, step->index, forget);
}

static void take_states(watch *w, ech_exec *exec, int param, int64_t at)
{
    ech_tensor weights = ech_exec_param(exec, param);
    read_state(w, exec, param, ECH_STATE_RESIDUAL, w->out->residual + at);
    read_state(w, exec, param, ECH_STATE_BASIS, w->out->basis + at);
    ech_exec_read(exec, &weights, w->out->weights + at);
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
                      memcmp(kept->basis, w->out->basis, sizeof kept->basis) ||
                      memcmp(kept->weights, w->out->weights, sizeof kept->weights);
    return ECH_OK;
}

static ech_status train(void *context, int rank, ech_compared_run *run)
{
    const job *j = context;
    const ech_plan *plan = run->session.plan;
    ech_exec *exec = run->session.exec;
    watch w = {.job = j, .run = run, .out = &j->of[rank], .step = -1};
    ECH_ASSERT(rank < RANKS && plan->types.wide == ECH_F64);
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
    snprintf(
        words, sizeof words,
        "optimizer.name=sgd optimizer.weight_decay=0 optimizer.momentum=0.9 training.steps=40 %s",
        grid);
    grid_run("llama", words, train, &j);
}

static const char *const grids[] = {
    "parallel.data=2 parallel.compression=powersgd",
    "parallel.data=4 parallel.compression=powersgd parallel.compression_orthogonal=gram_schmidt",
    "parallel.data=2 parallel.context=2 parallel.compression=powersgd parallel.zero=2",
    "parallel.data=2 parallel.pipeline=2 parallel.compression=powersgd "
    "training.global_batch_size=8",
};
enum { GRIDS = sizeof grids / sizeof *grids };

/* ---- tests ---- */

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

/* Ranks of one stage have replicas each; of a pipeline the first stage's come first. */
static void sum_replicas(const seen *x, int replicas, int64_t i, double *gradients,
                         double *residuals)
{
    *gradients = *residuals = 0;
    for (int r = 0; r < replicas; r++) {
        *gradients += x[r].gradient[i];
        *residuals += x[r].residual[i];
    }
}

static void assert_near_plain(const char *compressed, double near)
{
    char words[400];
    run((job){.steps = 4, .spoiled = -1}, of, compressed);
    snprintf(words, sizeof words, "%s", compressed);
    char *from = strstr(words, "parallel.compression=");
    ECH_ASSERT(from);
    *from = '\0'; /* the compression's words come last */
    run((job){.steps = 4, .spoiled = -1}, other, words);
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

TEST(withheld_steps_change_nothing)
{
    run((job){.steps = 4, .spoiled = 2}, of, grids[0]);
    run((job){.steps = 4, .spoiled = 2}, other, grids[3]);
    for (int r = 0; r < RANKS; r++) assert_false(of[r].changed || other[r].changed);
    assert_true(isfinite(of[0].loss[3]) && isfinite(other[0].loss[3]));
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

/* What is not sent and forgotten is missing for good: it grows with the steps, where otherwise it
 * stays below some steps'. */
TEST(forgetting_drifts_away)
{
    const char *grid = "parallel.data=2 optimizer.learning_rate=1e-3 parallel.compression=powersgd "
                       "parallel.compression_rank=1";
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
    run((job){.steps = 3, .spoiled = -1, .to = folder}, of, grids[1]);
    run((job){.spoiled = -1, .from = checkpoint}, other, grids[1]);
    for (int r = 0; r < RANKS; r++) {
        assert_memory_equal(of[r].residual, other[r].residual, sizeof of[r].residual);
        assert_memory_equal(of[r].basis, other[r].basis, sizeof of[r].basis);
        assert_memory_equal(of[r].weights, other[r].weights, sizeof of[r].weights);
    }
    run((job){.spoiled = -1, .from = checkpoint}, other, grids[0]);
    for (int64_t i = 0; i < of[0].n; i++) {
        double gradients, residuals;
        sum_replicas(of, 4, i, &gradients, &residuals);
        for (int r = 0; r < 2; r++) assert_true(fabs(2 * other[r].residual[i] - residuals) < 1e-15);
    }
    assert_memory_equal(of[0].basis, other[0].basis, sizeof of[0].basis);
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
