/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel.compression = topk over grids, against a program of a few lines that sorts: what each rank sends, keeps and gets, step by
 * step and bit by bit. All numbers are the plain sums; without what is kept training drifts away; the bytes are those of the selections; a
 * step that is withheld changes nothing; checkpoints have what is kept, replica by replica.
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

enum { RANKS = 4, MOST_STEPS = 30, SEEN_STEPS = 3, ELEMENTS = 20000, MATRICES = 14 };

/* A compressed matrix of a rank: of what tensor ranks share its shard. */
typedef struct matrix {
    int64_t at, rows, columns; /* from element `at` on of all compressed ones, side by side */
    bool by_columns;           /* its lines are columns */
    int64_t length;            /* of a line */
} matrix;

typedef struct seen {
    int64_t n;
    int matrices, stage, tensor;
    matrix matrix[MATRICES];
    double from[SEEN_STEPS][ELEMENTS]; /* gradient and residual, of which the rank chooses */
    double sum[SEEN_STEPS][ELEMENTS];  /* what all have sent */
    double kept[SEEN_STEPS][ELEMENTS]; /* the residual behind the step */
    double gradient[ELEMENTS], sent[ELEMENTS]; /* summed over all steps */
    double residual[ELEMENTS], weights[ELEMENTS];
    double loss[MOST_STEPS];
    int64_t bytes, planned;
    int64_t selected,
        others;   /* elements as planned: of selections; of gradients that are sent as they are */
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

/* Tensor ranks share rows of what they begin with, and columns of what they end with. */
static void note_matrix(watch *w, ech_exec *exec, int param, int64_t at)
{
    const char *name = w->run->session.plan->model->param.at[param].name;
    ech_tensor x = ech_exec_param(exec, param);
    bool by_columns = strstr(name, "o_proj") || strstr(name, "down_proj");
    ECH_ASSERT(w->out->matrices < MATRICES && x.dims == 2);
    w->out->matrix[w->out->matrices++] =
        (matrix){at, x.shape[0], x.shape[1], by_columns, x.shape[by_columns ? 0 : 1]};
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
    w.out->stage = run->design->layout->coordinates[rank].stage;
    w.out->tensor = run->design->layout->coordinates[rank].tensor;
    each_param(&w, exec, -1, note_matrix);
    if (j->from) ECH_TRY(saved_run_restore(j->from, exec));
    ech_exec_observe(exec, look, &w);
    int64_t before = ech_exec_reduce_count(exec).bytes; /* INIT gathers shards */
    for (int step = 0; step < j->steps; step++) ECH_TRY(train_step(&w, exec, step));
    ech_exec_observe(exec, NULL, NULL);
    each_param(&w, exec, -1, take_states);
    for (size_t b = 0; b < plan->bucket.n; b++) {
        const ech_bucket *bucket = &plan->bucket.at[b];
        w.out->selected += bucket->chosen;
        if (!bucket->compressed) w.out->others += bucket->elements;
    }
    w.out->bytes = ech_exec_reduce_count(exec).bytes - before;
    w.out->planned = j->steps * ech_plan_traffic_along(plan, ECH_TRAFFIC_DATA).bytes;
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

/* Whether number i of the line is among its k largest: fewer than k come before it. */
static bool is_chosen(const double *x, int64_t n, int64_t step, int64_t i, int64_t k)
{
    int64_t before = 0;
    for (int64_t j = 0; j < n; j++) {
        double a = fabs(x[j * step]), b = fabs(x[i * step]);
        before += a > b || (a >= b && j < i);
    }
    return before < k;
}

/* What the rank keeps of x, and adds to sum. */
static void choose(const matrix *m, double density, const double *x, double *kept, double *sum)
{
    int64_t k = chosen_of(density, m->length), step = m->by_columns ? m->columns : 1;
    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t c = 0; c < m->columns; c++) {
            int64_t i = m->by_columns ? r : c, at = m->at + r * m->columns + c;
            const double *line = x + m->at + (m->by_columns ? c : r * m->columns);
            bool is = is_chosen(line, m->length, step, i, k);
            kept[at] = is ? 0 : x[at];
            if (is) sum[at] += x[at];
        }
}

static void check_step(int g, int step, int rank)
{
    static double kept[ELEMENTS], sum[ELEMENTS], others[ELEMENTS];
    const seen *own = &of[rank];
    memset(sum, 0, sizeof sum);
    for (int r = 0; r < grids[g].ranks; r++) {
        if (of[r].stage != own->stage || of[r].tensor != own->tensor) continue;
        for (int m = 0; m < own->matrices; m++)
            choose(&own->matrix[m], grids[g].density, of[r].from[step], r == rank ? kept : others,
                   sum);
    }
    assert_int_equal(own->matrices, own->stage || of[grids[g].ranks - 1].stage ? 7 : 14);
    for (int64_t i = 0; i < own->n; i++) {
        assert_true(own->kept[step][i] == kept[i]); /* -0 is 0 */
        assert_true(fabs(own->sum[step][i] - sum[i]) <= 0);
    }
}

/* ---- tests ---- */

static void what_is_sent_is_what_sorting_finds(void **state)
{
    (void)state;
    for (int g = 0; g < GRIDS; g++) {
        run((job){.steps = SEEN_STEPS, .spoiled = -1}, of, grids[g].words);
        for (int r = 0; r < grids[g].ranks; r++) {
            int64_t formula = 0;
            for (int step = 0; step < SEEN_STEPS; step++) check_step(g, step, r);
            for (int m = 0; m < of[r].matrices; m++) {
                const matrix *x = &of[r].matrix[m];
                formula +=
                    2 * x->rows * x->columns / x->length * chosen_of(grids[g].density, x->length);
            }
            assert_int_equal(of[r].selected, formula);
            assert_int_equal(of[r].bytes, of[r].planned);
            /* Of two ranks each sends its selection; of what is not compressed half of the gradients and half of the sums. */
            if (g == 1)
                assert_int_equal(of[r].bytes, SEEN_STEPS * (of[r].selected + of[r].others) *
                                                  (int64_t)sizeof(double));
            if (of[r].stage == of[0].stage && of[r].tensor == of[0].tensor)
                assert_memory_equal(of[r].weights, of[0].weights, sizeof of[r].weights);
        }
    }
}

static void all_numbers_are_the_plain_sums(void **state)
{
    (void)state;
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

static void withheld_steps_change_nothing(void **state)
{
    (void)state;
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
static void forgetting_drifts_away(void **state)
{
    (void)state;
    const char *grid = "parallel.data=2 optimizer.learning_rate=1e-3" TOPK "0.1";
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_sent_is_what_sorting_finds),
                                       cmocka_unit_test(all_numbers_are_the_plain_sums),
                                       cmocka_unit_test(withheld_steps_change_nothing),
                                       cmocka_unit_test(forgetting_drifts_away),
                                       cmocka_unit_test(checkpoints_have_it)};
    return cmocka_run_group_tests(tests, grid_setup, fixture_teardown);
}
