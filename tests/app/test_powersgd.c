/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel.compression = powersgd over grids: what Vogels et al. 2019 promise of it, step by step. What is sent and what is kept add
 * up to the gradients; left factors are orthonormal, and factors the same bits everywhere; gradients of as low a rank are exact; the
 * bytes are those of the factors; a step that is withheld changes nothing of it; checkpoints have it, replica by replica.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "app/grid_run.h"
#include "app/saved_run.h"
#include "schedule/traffic.h"

enum { RANKS = 4, MOST_STEPS = 40, ELEMENTS = 40000 };

/* What a rank has seen of all compressed parameters, side by side; of one that tensor ranks share, its shard. */
typedef struct seen {
    int64_t n, states; /* numbers of gradients; of residuals and bases */
    double gradient[ELEMENTS], sent[ELEMENTS],
        residual[ELEMENTS]; /* the first two summed over steps */
    double basis[ELEMENTS], weights[ELEMENTS];
    double loss[MOST_STEPS];
    double apart;     /* of transposed P times P from I, at most */
    uint64_t factors; /* a hash of all factors' bits */
    int64_t bytes, planned;
    int64_t factor_elements, formula; /* as planned; r (n + m) of each matrix */
    bool changed;                     /* a withheld step has changed something */
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

/* Calls `use` for each compressed parameter of the step's bucket, or of all (-1), with where it is in `seen`. */
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

static void look_at_left(watch *w, ech_exec *exec, int param, int64_t at)
{
    (void)at;
    const ech_plan *plan = w->run->session.plan;
    const ech_list *list = &plan->list[ECH_LIST_TRAIN];
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        if (step->kind != ECH_STEP_TRANSFORM_BACK || step->index != plan->param[param].bucket)
            continue;
        const double *p = ech_exec_factors(exec, step).data;
        int64_t size[2], rank = plan->param[param].rank;
        ech_plan_matrix(plan, param, size);
        p += plan->param[param].left;
        for (int64_t i = 0; i < rank; i++)
            for (int64_t j = 0; j < rank; j++) {
                double sum = 0;
                for (int64_t r = 0; r < size[0]; r++) sum += p[r * rank + i] * p[r * rank + j];
                w->out->apart = fmax(w->out->apart, fabs(sum - (i == j)));
            }
    }
}

/* FNV-1a of what the bucket's factors are when all are summed, as they lie. */
static void hash_factors(watch *w, ech_exec *exec, const ech_step *step)
{
    const ech_plan *plan = w->run->session.plan;
    const ech_bucket *bucket = &plan->bucket.at[step->index];
    const unsigned char *x = ech_exec_factors(exec, step).data;
    uint64_t hash = 1469598103934665603ull;
    for (int64_t i = 0; i < (bucket->left + bucket->right) * (int64_t)sizeof(double); i++)
        hash = (hash ^ x[i]) * 1099511628211ull;
    w->out->factors += hash * (uint64_t)(step->index + 1);
}

static void look(void *context, ech_exec *exec, const ech_step *step)
{
    watch *w = context;
    const ech_plan *plan = w->run->session.plan;
    bool spoils = w->step == w->job->spoiled;
    if (step->kind == ECH_STEP_RESIDUAL && spoils) each_param(w, exec, step->index, spoil);
    if (step->kind == ECH_STEP_RESIDUAL && !spoils) each_param(w, exec, step->index, add_gradient);
    if (step->kind == ECH_STEP_TRANSFORM_BACK && !spoils)
        each_param(w, exec, step->index, look_at_left);
    if (step->kind == ECH_STEP_NORM && plan->bucket.at[step->index].compressed && !spoils)
        hash_factors(w, exec, step);
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

static void add_formula(watch *w, ech_exec *exec, int param, int64_t at)
{
    (void)exec;
    (void)at;
    int64_t size[2];
    ech_plan_matrix(w->run->session.plan, param, size);
    w->out->formula += w->run->session.plan->param[param].rank * (size[0] + size[1]);
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
    int64_t before = ech_exec_reduce_count(exec).bytes; /* INIT gathers shards */
    for (int step = 0; step < j->steps; step++) ECH_TRY(train_step(&w, exec, step));
    ech_exec_observe(exec, NULL, NULL);
    each_param(&w, exec, -1, take_states);
    each_param(&w, exec, -1, add_formula);
    for (size_t b = 0; b < plan->bucket.n; b++)
        w.out->factor_elements += plan->bucket.at[b].left + plan->bucket.at[b].right;
    w.out->bytes = ech_exec_reduce_count(exec).bytes - before;
    w.out->planned = j->steps * ech_plan_traffic_along(plan, ECH_TRAFFIC_DATA).bytes;
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

static void what_is_sent_and_kept_adds_up(void **state)
{
    (void)state;
    for (int g = 0; g < GRIDS; g++) {
        int replicas = g == 1 || g == 2 ? 4 : 2;
        double left = 0;
        run((job){.steps = 6, .spoiled = -1}, of, grids[g]);
        for (int64_t i = 0; i < of[0].n; i++) {
            double gradients, residuals;
            sum_replicas(of, replicas, i, &gradients, &residuals);
            assert_true(fabs(of[0].sent[i] + residuals - gradients) < 1e-12);
            left = fmax(left, fabs(residuals));
        }
        assert_true(left > 1e-4); /* something is */
        for (int r = 0; r < RANKS; r++) {
            assert_true(of[r].apart < 1e-12);
            assert_int_equal(of[r].bytes, of[r].planned);
            assert_int_equal(of[r].factor_elements, of[r].formula);
            if (r > 0 && r < replicas) assert_true(of[r].factors == of[0].factors);
            if (r > 0 && r < replicas)
                assert_memory_equal(of[r].weights, of[0].weights, sizeof of[r].weights);
        }
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
static void low_ranks_are_exact(void **state)
{
    (void)state;
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

static void withheld_steps_change_nothing(void **state)
{
    (void)state;
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

/* What is not sent and forgotten is missing for good: it grows with the steps, where otherwise it stays below some steps'. */
static void forgetting_drifts_away(void **state)
{
    (void)state;
    const char *grid = "parallel.data=2 optimizer.learning_rate=1e-3 parallel.compression=powersgd "
                       "parallel.compression_rank=1";
    run((job){.steps = MOST_STEPS, .spoiled = -1}, of, grid);
    run((job){.steps = MOST_STEPS, .spoiled = -1, .forgets = true}, other, grid);
    assert_true(missing(other) > 2 * missing(of));
    assert_true(other[0].loss[MOST_STEPS - 1] > of[0].loss[MOST_STEPS - 1]);
}

/* Replica by replica; another number of them gets equal shares of the sum. */
static void checkpoints_have_it(void **state)
{
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_sent_and_kept_adds_up), cmocka_unit_test(low_ranks_are_exact),
        cmocka_unit_test(withheld_steps_change_nothing), cmocka_unit_test(forgetting_drifts_away),
        cmocka_unit_test(checkpoints_have_it)};
    return cmocka_run_group_tests(tests, grid_setup, fixture_teardown);
}
