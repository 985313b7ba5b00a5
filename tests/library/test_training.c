/* SPDX-License-Identifier: Apache-2.0
 *
 * The library's training. A run that is driven step by step has the bits of the same run by itself,
 * on several grids, also if every tensor is read after every step. What is written is read. Calls,
 * runs and ranks report their errors. Several runs train at the same time.
 */
#include <echelon.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "app/setup/run.h"
#include "app/train/trainer.h"
#include "base/log.h"
#include "library/tiny_run.h"
#include "share.h"
#include "unit.h"

static const char *const grids[] = {
    "parallel.data=1",
    "parallel.data=4 parallel.zero=3",
    "parallel.data=2 parallel.tensor=2 precision.compute=bf16",
    "parallel.pipeline=2 parallel.context=2 memory.recompute=full",
    "parallel.data=2 parallel.pipeline=2 parallel.zero=1 precision.compute=bf16",
    "parallel.data=2 parallel.strategy=local_sgd parallel.sync_every=2",
};

typedef struct trained {
    double loss[STEPS], valid[STEPS], tensors;
} trained;

static trained drive(const char *words, const char *folder, bool reads)
{
    trained t = {0};
    echelon_training *training;
    echelon_run *run = open_run(words, folder);
    assert_int_equal(echelon_train_start(run, NULL, &training), ECHELON_OK);
    for (int i = 0; i < STEPS; i++) {
        echelon_metrics m = {.size = sizeof m};
        assert_false(echelon_train_is_done(training));
        assert_int_equal(echelon_train_step(training, &m), ECHELON_OK);
        assert_int_equal(m.step, i + 1);
        t.loss[i] = m.loss;
        t.valid[i] = m.valid_loss;
        assert_true(isnan(m.valid_loss) == (i % 2 == 0));
        if (reads) read_all(training);
    }
    t.tensors = read_all(training);
    assert_true(echelon_train_is_done(training));
    assert_int_equal(echelon_train_finish(training), ECHELON_OK);
    echelon_run_close(run);
    return t;
}

/* The run by itself, and then a second start, which has no steps left, and its tensors. */
static double run_alone(const char *words, const char *folder)
{
    echelon_training *training;
    echelon_run *run = open_run(words, folder);
    ech_run_arguments in = {.file = "the test", .text = run_file};
    ECH_FREED char *copy = ech_strdup(words), *log = ech_calloc(1, 4200);
    char *rest = NULL;
    snprintf(log, 4200, "log.directory=%s", folder);
    ECH_PUSH(in.assignment, log);
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        ECH_PUSH(in.assignment, word);
    ECH_CLEANUP(ech_run_close) ech_run opened = {0};
    ech_training options = {0};
    assert_int_equal(ech_run_open(&in, &opened), ECH_OK);
    ech_start start = {
        .command = "train", .run = &opened, .main = ech_train_rank, .context = &options};
    assert_int_equal(ech_start_ranks(&start), ECH_OK);
    free(in.assignment.at);
    assert_int_equal(echelon_train_start(run, NULL, &training), ECHELON_OK);
    assert_true(echelon_train_is_done(training));
    assert_int_equal(echelon_train_steps(training), STEPS);
    double sum = read_all(training);
    assert_int_equal(echelon_train_finish(training), ECHELON_OK);
    echelon_run_close(run);
    return sum;
}

TEST(test_same_bits)
{
    for (size_t g = 0; g < sizeof grids / sizeof *grids; g++) {
        if (!share_takes_of(g, sizeof grids / sizeof *grids)) continue;
        char folder[3][4096];
        for (int i = 0; i < 3; i++)
            snprintf(folder[i], sizeof folder[i], "%s/%zu-%d", fixture_folder, g, i);
        trained quiet = drive(grids[g], folder[0], false),
                looked = drive(grids[g], folder[1], true);
        assert_memory_equal(quiet.loss, looked.loss, sizeof quiet.loss);
        assert_true(quiet.tensors == looked.tensors);
        if (run_alone(grids[g], folder[2]) != quiet.tensors) fail_msg("%s", grids[g]);
    }
}

/* What is written is read, and the next step begins with it: two runs with other seeds go on alike
 * once they have the same tensors. */
TEST(test_writing)
{
    for (size_t g = 0; g + 1 < sizeof grids / sizeof *grids; g++) {
        echelon_training *training[2];
        echelon_metrics m[2];
        echelon_run *run[2];
        for (int i = 0; i < 2; i++) {
            char folder[4096];
            snprintf(folder, sizeof folder, "%s/w%zu-%d", fixture_folder, g, i);
            run[i] = open_run(grids[g], folder);
            /* other weights, and the same data */
            if (i) assert_int_equal(echelon_run_set(run[i], "model.initializer_range", "0.05"), 0);
            assert_int_equal(echelon_train_start(run[i], NULL, &training[i]), ECHELON_OK);
        }
        for (int k = 0; k < echelon_tensor_count(training[0]); k++) {
            echelon_tensor is = {.size = sizeof is};
            assert_int_equal(echelon_tensor_at(training[0], k, &is), ECHELON_OK);
            size_t bytes = (size_t)is.bytes;
            ECH_FREED char *data = ech_calloc(bytes, 1), *again = ech_calloc(bytes, 1);
            assert_int_equal(echelon_tensor_read(training[0], k, data, bytes), ECHELON_OK);
            assert_int_equal(echelon_tensor_write(training[1], k, data, bytes), ECHELON_OK);
            assert_int_equal(echelon_tensor_read(training[1], k, again, bytes), ECHELON_OK);
            assert_memory_equal(data, again, bytes);
        }
        for (int i = 0; i < 2; i++) {
            m[i].size = sizeof m[i];
            assert_int_equal(echelon_train_step(training[i], &m[i]), ECHELON_OK);
            assert_string_equal(m[i].unit, "token");
        }
        if (m[0].loss != m[1].loss || m[0].grad_norm != m[1].grad_norm)
            fail_msg("%s: loss %.17g and %.17g", grids[g], m[0].loss, m[1].loss);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(echelon_train_finish(training[i]), ECHELON_OK);
            echelon_run_close(run[i]);
        }
    }
}

TEST(test_refusals)
{
    echelon_run *run;
    echelon_training *training;
    echelon_tensor tensor = {.size = sizeof tensor};
    char folder[4096], byte = 0;
    double loss;
    snprintf(folder, sizeof folder, "%s/refused", fixture_folder);
    fails(echelon_run_open("/no/such/file.yaml", &run), ECHELON_EUSAGE, "cannot open");
    run = open_run("parallel.data=2", folder);
    fails(echelon_run_set(run, "training.stepz", "3"), ECHELON_EUSAGE, "training.steps");
    fails(echelon_run_set(run, "training.steps", "many"), ECHELON_EUSAGE, "training.steps");
    const char *value;
    fails(echelon_run_get(run, "training.stepz", &value), ECHELON_EUSAGE, "training.steps");
    assert_int_equal(echelon_run_get(run, "training.steps", &value), ECHELON_OK);
    assert_string_equal(value, "4");
    bool is_set = false;
    assert_int_equal(echelon_run_is_set(run, "training.steps", &is_set), ECHELON_OK);
    assert_true(is_set);
    assert_int_equal(echelon_run_is_set(run, "training.time_limit", &is_set), ECHELON_OK);
    assert_false(is_set);
    fails(echelon_run_is_set(run, "training.stepz", &is_set), ECHELON_EUSAGE, "training.steps");
    fails(echelon_train_start(
              run, &(echelon_train_options){.size = sizeof(echelon_train_options), .ranks = 3},
              &training),
          ECHELON_EUSAGE, "parallel.data");
    assert_int_equal(echelon_train_start(run, NULL, &training), ECHELON_OK);
    fails(echelon_train_set(training, "training.steps", 3), ECHELON_EUSAGE, "cannot change");
    fails(echelon_train_set(training, "optimizer.learning_rate", -1), ECHELON_EUSAGE, "between");
    fails(echelon_tensor_at(training, 10000, &tensor), ECHELON_EUSAGE, "there is no tensor");
    fails(echelon_tensor_read(training, 0, &byte, 1), ECHELON_EUSAGE, "bytes");
    assert_int_equal(echelon_train_validate(training, &loss), ECHELON_OK);
    assert_true(loss > 3 && loss < 6);
    for (int i = 0; i < STEPS; i++) assert_int_equal(echelon_train_step(training, NULL), 0);
    fails(echelon_train_step(training, NULL), ECHELON_EUSAGE, "step 4 was the last");
    assert_int_equal(echelon_train_finish(training), ECHELON_OK);
    echelon_run_close(run);
    run = open_run("parallel.data=2 parallel.comm=mpi", folder);
    fails(echelon_train_start(run, NULL, &training), ECHELON_EUSAGE, "parallel.comm=local");
    echelon_run_close(run);
}

/* A rank that fails by itself, here by a NaN in a weight: the call on whose behalf it happened says
 * why, and so does the end. */
TEST(test_failure_of_a_rank)
{
    echelon_training *training;
    char folder[4096];
    snprintf(folder, sizeof folder, "%s/failed", fixture_folder);
    echelon_run *run =
        open_run("parallel.data=2 training.on_nonfinite=stop precision.loss_scale=1", folder);
    assert_int_equal(echelon_train_start(run, NULL, &training), ECHELON_OK);
    echelon_tensor is = {.size = sizeof is};
    assert_int_equal(echelon_tensor_at(training, 0, &is), ECHELON_OK);
    ECH_FREED unsigned char *bad = ech_calloc((size_t)is.bytes, 1);
    memset(bad, 0xff, (size_t)is.bytes);
    assert_int_equal(echelon_tensor_write(training, 0, bad, (size_t)is.bytes), ECHELON_OK);
    fails(echelon_train_step(training, NULL), ECHELON_ENUMERIC, "nan");
    fails(echelon_train_step(training, NULL), ECHELON_ENUMERIC, "nan");
    fails(echelon_train_save(training), ECHELON_ENUMERIC, "nan");
    fails(echelon_tensor_at(training, 0, &is), ECHELON_ENUMERIC, "nan");
    assert_int_equal(echelon_tensor_count(training), 0);
    fails(echelon_train_finish(training), ECHELON_ENUMERIC, "nan");
    echelon_run_close(run);
}

/* What a training says on a thread or in a process that cannot wait for its ranks. */
typedef struct elsewhere {
    echelon_training *training;
    echelon_status step, end;
    pthread_t caller; /* the ranks' threads may say something, too */
    bool was_called;
} elsewhere;

static void use(elsewhere *e)
{
    e->step = echelon_train_step(e->training, NULL);
    e->end = echelon_train_finish(e->training);
}

static void use_in_log(const char *line, void *context)
{
    elsewhere *e = context;
    (void)line;
    if (pthread_equal(e->caller, pthread_self()) && !e->was_called) {
        e->was_called = true;
        use(e);
    }
}

TEST(test_log_and_fork)
{
    elsewhere e = {.caller = pthread_self()};
    int ended;
    char folder[4096];
    snprintf(folder, sizeof folder, "%s/elsewhere", fixture_folder);
    echelon_run *run = open_run("parallel.data=2", folder);
    assert_int_equal(echelon_train_start(run, NULL, &e.training), ECHELON_OK);
    bool quiet = ech_log_set_quiet(false);
    echelon_set_log(use_in_log, &e);
    assert_int_equal(echelon_run_set(run, "training.steps", "many"), ECHELON_EUSAGE); /* a line */
    echelon_set_log(NULL, NULL);
    ech_log_set_quiet(quiet);
    assert_int_equal(e.step, ECHELON_EUSAGE);
    assert_int_equal(e.end, ECHELON_EUSAGE);
    e.step = e.end = ECHELON_OK;
    pid_t child = fork();
    if (child == 0) {
        alarm(20); /* ends it if it waits */
        use(&e);
        _exit(e.step == ECHELON_EUSAGE && e.end == ECHELON_EUSAGE ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
    assert_int_equal(echelon_train_step(e.training, NULL), ECHELON_OK);
    assert_int_equal(echelon_train_finish(e.training), ECHELON_OK);
    echelon_run_close(run);
}

/* A tensor that is written after its step was saved is in the next save of that step. A training
 * that is aborted saves nothing. */
TEST(test_save_again)
{
    echelon_training *training;
    echelon_tensor is = {.size = sizeof is};
    char folder[4096];
    snprintf(folder, sizeof folder, "%s/again", fixture_folder);
    echelon_run *run = open_run("parallel.data=2", folder);
    assert_int_equal(echelon_train_start(run, NULL, &training), ECHELON_OK);
    assert_int_equal(echelon_train_step(training, NULL), ECHELON_OK);
    assert_int_equal(echelon_train_save(training), ECHELON_OK);
    assert_int_equal(echelon_tensor_at(training, 0, &is), ECHELON_OK);
    size_t bytes = (size_t)is.bytes;
    ECH_FREED char *zeros = ech_calloc(bytes, 1), *read = ech_calloc(bytes, 1);
    assert_int_equal(echelon_tensor_write(training, 0, zeros, bytes), ECHELON_OK);
    assert_int_equal(echelon_train_save(training), ECHELON_OK);
    assert_int_equal(echelon_train_step(training, NULL), ECHELON_OK);
    echelon_train_abort(training);
    assert_int_equal(echelon_train_start(run, NULL, &training), ECHELON_OK);
    assert_int_equal(echelon_train_steps(training), 1);
    assert_int_equal(echelon_tensor_read(training, 0, read, bytes), ECHELON_OK);
    assert_memory_equal(read, zeros, bytes);
    fails(echelon_train_step(training, &(echelon_metrics){.size = 0}), ECHELON_EUSAGE, "size");
    assert_int_equal(echelon_train_finish(training), ECHELON_OK);
    echelon_run_close(run);
}

/* With a constant learning rate of 0 weights stay; with the curve's own they move. */
TEST(test_set)
{
    echelon_training *training;
    echelon_metrics m = {.size = sizeof m};
    char folder[4096];
    snprintf(folder, sizeof folder, "%s/set", fixture_folder);
    echelon_run *run = open_run("parallel.data=2 optimizer.weight_decay=0", folder);
    assert_int_equal(echelon_train_start(run, NULL, &training), ECHELON_OK);
    echelon_tensor is = {.size = sizeof is};
    assert_int_equal(echelon_tensor_at(training, 0, &is), ECHELON_OK);
    ECH_FREED char *before = ech_calloc((size_t)is.bytes, 1);
    ECH_FREED char *after = ech_calloc((size_t)is.bytes, 1);
    for (int i = 0; i < 3; i++) {
        double rate = i == 1 ? 0 : 0.25;
        assert_int_equal(echelon_tensor_read(training, 0, before, (size_t)is.bytes), ECHELON_OK);
        assert_int_equal(echelon_train_set(training, "optimizer.learning_rate", rate), ECHELON_OK);
        assert_int_equal(echelon_train_step(training, &m), ECHELON_OK);
        assert_true(m.learning_rate == rate);
        assert_int_equal(echelon_tensor_read(training, 0, after, (size_t)is.bytes), ECHELON_OK);
        assert_true((memcmp(before, after, (size_t)is.bytes) == 0) == (i == 1));
    }
    assert_int_equal(echelon_train_finish(training), ECHELON_OK);
    echelon_run_close(run);
}

static void *train_beside(void *context)
{
    trained *t = context;
    char folder[4096];
    snprintf(folder, sizeof folder, "%s/beside-%p", fixture_folder, context);
    *t = drive("parallel.data=2", folder, false);
    return NULL;
}

/* Two runs at the same time have the bits of one. */
TEST(test_two_at_once)
{
    pthread_t thread[2];
    trained both[2], alone;
    for (int i = 0; i < 2; i++) pthread_create(&thread[i], NULL, train_beside, &both[i]);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    train_beside(&alone);
    for (int i = 0; i < 2; i++) assert_true(both[i].tensors == alone.tensors);
}

static int lines;
static void count_line(const char *line, void *context)
{
    assert_true(context == &lines && !strchr(line, '\n'));
    __atomic_add_fetch(&lines, 1, __ATOMIC_RELAXED);
}

/* Plans of a run, and keys; whoever sets a log gets the lines. A caller with an older, shorter
 * struct gets what fits. */
TEST(test_plan)
{
    echelon_plan *plan;
    char folder[4096];
    snprintf(folder, sizeof folder, "%s/planned", fixture_folder);
    echelon_run *run = open_run("parallel.data=2 parallel.tensor=2", folder);
    echelon_plan_options options = {.size = sizeof options, .simulate = true};
    assert_int_equal(echelon_plan_create(run, &options, &plan), ECHELON_OK);
    echelon_run_close(run);
    assert_int_equal(echelon_plan_ranks(plan), 4);
    assert_non_null(strstr(echelon_plan_text(plan), "simulation"));
    assert_non_null(strstr(echelon_plan_json(plan), "\"model\""));
    assert_non_null(strstr(echelon_plan_svg(plan), "<svg"));
    assert_string_equal(echelon_memory_kind(0), "parameters");
    assert_true(echelon_plan_bytes(plan, 3, 0) > 4000 && echelon_plan_bytes(plan, 4, 0) == -1);
    echelon_plan_free(plan);
    run = open_run("parallel.data=2 memory.device_limit=1KiB", folder);
    echelon_set_log(count_line, &lines);
    bool quiet = ech_log_set_quiet(false);
    fails(echelon_plan_create(run, NULL, &plan), ECHELON_EUSAGE, "memory.device_limit");
    assert_true(lines > 3); /* a table of its memory */
    ech_log_set_quiet(quiet);
    echelon_set_log(NULL, NULL);
    echelon_run_close(run);
    struct {
        size_t size;
        const char *section;
        const char *untouched;
    } older = {offsetof(echelon_key, name), NULL, folder};
    assert_int_equal(echelon_key_at(0, (echelon_key *)(void *)&older), ECHELON_OK);
    assert_string_equal(older.section, "model");
    assert_ptr_equal(older.untouched, folder);
    echelon_key key = {.size = sizeof key};
    assert_int_equal(echelon_key_at(0, &key), ECHELON_OK);
    assert_non_null(strstr(key.choices, "llama"));
    assert_int_equal(echelon_key_at(100000, &(echelon_key){.size = sizeof(echelon_key)}),
                     ECHELON_EUSAGE);
}

ALL_TESTS(fixture_setup, fixture_teardown)
