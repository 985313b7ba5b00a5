/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a step's time goes: under clocks of the tests' own every moment is in one row, and work is
 * what the model says it is; and whole runs under several layouts.
 */

#include <jansson.h>
#include <math.h>

#include "app/fixture.h"
#include "app/step_profile/step_profile.h"
#include "app/train/train.h"
#include "base/log.h"
#include "unit.h"

static void assert_near(double a, double b, double within)
{
    if (!(fabs(a - b) <= within)) fail_msg("%.12g is not %.12g", a, b);
}

/* ---- a plan, and invented times of its train list ---- */

typedef struct timed {
    ech_config *config;
    ech_design design;
    ech_plan *plan;
    ech_exec_times times;
} timed;

static timed timed_create(const char *architecture, const char *more, int ranks, int rank)
{
    timed t = {.config = fixture_config(architecture, more)};
    assert_int_equal(ech_design_create(t.config, fixture_tokenizer, ranks, ranks, &t.design),
                     ECH_OK);
    assert_int_equal(ech_design_plan(&t.design, rank, false, &t.plan), ECH_OK);
    const ech_list *list = &t.plan->list[ECH_LIST_TRAIN];
    t.times.begins = ech_calloc(list->step.n, sizeof(double));
    t.times.ends = ech_calloc(list->step.n, sizeof(double));
    t.times.marks = ech_calloc((size_t)list->ticks + 1, sizeof(double));
    return t;
}

static void timed_destroy(timed *t)
{
    free(t->times.begins);
    free(t->times.ends);
    free(t->times.marks);
    ech_plan_destroy(t->plan);
    ech_design_destroy(&t->design);
    ech_config_destroy(t->config);
}

/* Every number of a clock is another one. */
static double later(double *clock, uint64_t *draws)
{
    ech_random_key key = {.seed = 5};
    *clock += 1e-3 * (1 + ech_random_word(key, (*draws)++) % 1000);
    return *clock;
}

/* The lanes' rules hold: a step begins when those that it comes after have ended, in its lane's
 * order. */
static void invent_times(timed *t, double start)
{
    const ech_list *list = &t->plan->list[ECH_LIST_TRAIN];
    double lane[ECH_LANES], most = start;
    uint64_t draws = (uint64_t)(1e3 * start);
    for (int l = 0; l < ECH_LANES; l++) lane[l] = start;
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        double *clock = &lane[step->lane];
        for (int i = 0; i < step->afters; i++)
            *clock = fmax(*clock, t->times.ends[list->after.at[step->first_after + i]]);
        t->times.begins[s] = later(clock, &draws);
        for (int i = 0; i < ech_step_ticks(step); i++)
            t->times.marks[step->tick + i] = later(clock, &draws);
        t->times.ends[s] = later(clock, &draws);
        most = fmax(most, t->times.ends[s]);
    }
    t->times.began = start;
    t->times.ended = later(&most, &draws);
}

static double sum_of(const ech_step_profile_table *table, ech_row_group group)
{
    double sum = 0;
    for (size_t i = 0; i < table->row.n; i++)
        if (table->row.at[i].group == group) sum += table->row.at[i].seconds;
    return sum;
}

static const ech_step_profile_row *row_of(const ech_step_profile_table *table, const char *name)
{
    for (size_t i = 0; i < table->row.n; i++)
        if (strcmp(table->row.at[i].name, name) == 0) return &table->row.at[i];
    fail_msg("no row %s", name);
    return NULL;
}

/* ---- sums ---- */

static double beside_of(const timed *t)
{
    const ech_list *list = &t->plan->list[ECH_LIST_TRAIN];
    double sum = 0;
    for (size_t s = 0; s < list->step.n; s++)
        if (list->step.at[s].lane != ECH_LANE_COMPUTE) sum += t->times.ends[s] - t->times.begins[s];
    return sum;
}

/* Three lists, of which the first does not count, and activities between them. */
static void check_sums(const char *architecture, const char *more, int ranks, int rank)
{
    timed t = timed_create(architecture, more, ranks, rank);
    ech_step_profile *p = ech_step_profile_create(t.plan, (ech_machine_rates){1e9, 1e9});
    double now = 10, inside = 0, beside = 0, began = 0;
    for (int list = 0; list < 3; list++) {
        ech_step_profile_switch_to(p, ECH_ACTIVITY_STEPS, now);
        invent_times(&t, now + 0.25);
        now = t.times.ended + 0.5;
        ech_step_profile_switch_to(p, ECH_ACTIVITY_OTHER, now);
        ech_step_profile_take(p, &t.times, now);
        if (list == 0) began = now;
        if (list > 0) inside += t.times.ended - t.times.began;
        if (list > 0) beside += beside_of(&t);
        ech_step_profile_switch_to(p, ECH_ACTIVITY_METRICS, now);
        ech_step_profile_switch_to(p, ECH_ACTIVITY_VALIDATION, now += 2);
        ech_step_profile_switch_to(p, ECH_ACTIVITY_OTHER, now += 3);
        now += 4;
    }
    ech_step_profile_table table = ech_step_profile_end(p, now);
    double within = 1e-9 * now;
    assert_int_equal(table.steps, 2 * t.plan->list[ECH_LIST_TRAIN].turns);
    assert_near(table.seconds, now - began, within);
    assert_near(sum_of(&table, ECH_ROWS_COMPUTE), inside, within);
    assert_near(sum_of(&table, ECH_ROWS_BESIDE), beside, within);
    assert_near(sum_of(&table, ECH_ROWS_COMPUTE) + sum_of(&table, ECH_ROWS_OUTSIDE), table.seconds,
                within);
    assert_near(row_of(&table, "metrics and status")->seconds, 3 * 2, within);
    assert_near(row_of(&table, "validation")->seconds, 3 * 3, within);
    for (size_t i = 0; i < table.row.n; i++) assert_true(table.row.at[i].seconds >= -within);
    ech_step_profile_table_free(&table);
    ech_step_profile_destroy(p);
    timed_destroy(&t);
}

TEST(test_sums)
{
    check_sums("gpt2", "", 1, 0);
    check_sums("llama", "training.micro_batch_size=2", 2, 1);
    check_sums("gpt2", "parallel.pipeline=2 training.micro_batch_size=2", 2, 0);
    check_sums("gpt2",
               "parallel.pipeline=2 parallel.schedule=pipedream model.tie_word_embeddings=false "
               "training.micro_batch_size=2",
               2, 1);
    check_sums("gpt2", "parallel.tensor=2 parallel.sequence=true training.micro_batch_size=2", 2,
               1);
}

/* A wait is counted to what ended last; without one the time is the interpreter's. */
TEST(test_waits)
{
    timed t = timed_create("gpt2", "training.micro_batch_size=3", 2, 0);
    const ech_list *list = &t.plan->list[ECH_LIST_TRAIN];
    ech_step_profile *p = ech_step_profile_create(t.plan, (ech_machine_rates){0});
    invent_times(&t, 0);
    ech_step_profile_take(p, &t.times, 0);
    /* Each step takes a second, but for reductions of gradients, which take 100. */
    double compute = 0, reduce = 0, waited = 0;
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        double *clock = step->lane == ECH_LANE_COMPUTE ? &compute : &reduce, before = *clock;
        for (int i = 0; i < step->afters; i++)
            *clock = fmax(*clock, t.times.ends[list->after.at[step->first_after + i]]);
        if (step->lane == ECH_LANE_COMPUTE) waited += *clock - before;
        t.times.begins[s] = *clock;
        *clock += step->kind == ECH_STEP_REDUCE_GRADS ? 100 : 1;
        for (int i = 0; i < ech_step_ticks(step); i++) t.times.marks[step->tick + i] = *clock;
        t.times.ends[s] = *clock;
    }
    t.times.began = 0;
    t.times.ended = compute;
    ech_step_profile_take(p, &t.times, 0);
    ech_step_profile_table table = ech_step_profile_end(p, compute);
    const ech_step_profile_row *gradients = row_of(&table, "waits for reduce_grads");
    assert_true(gradients->waits && gradients->seconds > 100);
    assert_near(gradients->seconds + row_of(&table, "waits for reduce")->seconds, waited, 1e-9);
    assert_near(row_of(&table, "between steps")->seconds, 0, 1e-9);
    ech_step_profile_table_free(&table);
    ech_step_profile_destroy(p);
    timed_destroy(&t);
}

/* ---- work ---- */

/* Products: of every weight and token forward and two backward. Attention's backward makes the
 * scores once more than the model's count has it: seven products of half T x T in all. */
static void check_work(const char *architecture, const char *more)
{
    timed t = timed_create(architecture, more, 1, 0);
    ech_step_profile *p = ech_step_profile_create(t.plan, (ech_machine_rates){1e9, 1e9});
    invent_times(&t, 0);
    ech_step_profile_take(p, &t.times, 0);
    ech_step_profile_take(p, &t.times, 1);
    ech_step_profile_table table = ech_step_profile_end(p, t.times.ended);
    const ech_model *model = t.design.model;
    double tokens = 12 * 9, products = 0, attention = 0, weights = 0, all = 0;
    for (size_t i = 0; i < table.row.n; i++) {
        const ech_step_profile_row *row = &table.row.at[i];
        bool attends = strncmp(row->name, "attention", 9) == 0;
        *(attends ? &attention : &products) += row->flops;
        assert_near(row->bound,
                    row->group == ECH_ROWS_COMPUTE ? fmax(row->flops, row->bytes) / 1e9 : 0, 1e-12);
        if (strncmp(row->name, "update", 6) == 0)
            assert_near(row->bytes, 7 * 4 * (double)ech_model_params(model), 0);
    }
    for (size_t i = 0; i < model->param.n; i++) {
        const ech_param *param = &model->param.at[i];
        bool is_table = strstr(param->name, "wte") || strstr(param->name, "wpe") ||
                        strstr(param->name, "embed");
        bool is_used = !is_table || t.config->model.tie_word_embeddings;
        if (param->shape.dims == 2 && is_used && !strstr(param->name, "wpe"))
            weights += (double)ech_shape_whole(&param->shape);
    }
    double width = (double)(t.config->model.num_attention_heads * t.config->model.head_dim);
    all = 7.0 * (double)model->layers * 9 * width * tokens;
    assert_near(products, 6 * weights * tokens, 0.5);
    assert_near(attention, all, 0.5);
    ech_step_profile_table_free(&table);
    ech_step_profile_destroy(p);
    timed_destroy(&t);
}

TEST(test_work)
{
    check_work("gpt2", "");
    check_work("gpt2", "training.micro_batch_size=3");
    check_work("llama", "training.micro_batch_size=4");
}

/* ---- whole runs ---- */

typedef struct checked {
    int ranks, lines;
    double seconds[8], compute[8], outside[8];
} checked;

static double real_of(const json_t *line, const char *key)
{
    return json_number_value(json_object_get(line, key));
}

static void check_line(const json_t *line, checked *c)
{
    int rank = (int)json_integer_value(json_object_get(line, "rank"));
    const char *group = json_string_value(json_object_get(line, "group"));
    assert_in_range(rank, 0, 7);
    c->lines++;
    if (!group) {
        assert_int_equal(rank, c->ranks++);
        assert_int_equal(json_integer_value(json_object_get(line, "steps")), 3);
        assert_true(real_of(line, "flops_per_second") > 0);
        assert_true(real_of(line, "bytes_per_second") > 0);
        c->seconds[rank] = real_of(line, "seconds");
    } else if (strcmp(group, "compute") == 0) {
        c->compute[rank] += real_of(line, "seconds");
    } else if (strcmp(group, "outside") == 0) {
        c->outside[rank] += real_of(line, "seconds");
    }
}

/* Real clocks, but only sums of theirs are compared. */
static void check_run(const char *architecture, const char *more, int ranks)
{
    ech_config *config = fixture_config(architecture, more);
    ech_training training = {.profile = true};
    ech_status status = fixture_run(config, ranks, ech_train_rank, &training);
    assert_int_equal(status, ECH_OK);
    char *path = ech_file_join(fixture_folder, "run/step_profile.jsonl"), *text;
    size_t n;
    assert_int_equal(ech_file_read(path, 1 << 22, &text, &n), ECH_OK);
    checked c = {0};
    for (char *at = text, *end; (end = memchr(at, '\n', n - (size_t)(at - text))); at = end + 1) {
        json_t *line = json_loadb(at, (size_t)(end - at), JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(line);
        check_line(line, &c);
        json_decref(line);
    }
    assert_int_equal(c.ranks, ranks);
    assert_true(c.lines > 10 * ranks);
    for (int r = 0; r < ranks; r++) {
        assert_true(c.seconds[r] > 0 && c.compute[r] > 0);
        assert_near(c.compute[r] + c.outside[r], c.seconds[r], 1e-4 * c.seconds[r]);
    }
    free(text);
    free(path);
    path = ech_file_join(fixture_folder, "run");
    assert_int_equal(ech_file_remove_all(path), ECH_OK);
    free(path);
    ech_config_destroy(config);
}

TEST(test_runs)
{
    check_run("gpt2", "training.validate_every=2 checkpoint.every=2", 1);
    check_run("llama", "training.micro_batch_size=3", 2);
    check_run("gpt2", "parallel.pipeline=2 training.micro_batch_size=2", 2);
    check_run("llama", "parallel.tensor=2 training.micro_batch_size=3", 4);
    check_run("gpt2", "parallel.pipeline=2 parallel.tensor=2 training.micro_batch_size=2", 4);
}

ALL_TESTS(fixture_setup, fixture_teardown)
