/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls with handles that cannot be used: closed ones, handles of another kind, handles that
 * another thread uses, and trainings in a forked process. All are errors that say so, and the
 * handle's owner goes on.
 */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "library/tiny_run.h"

/* Handles of any kind, closed or open. */
typedef struct handles {
    echelon_run *run;
    echelon_plan *plan;
    echelon_training *training;
    echelon_verification *verification;
    echelon_checkpoints *checkpoints;
} handles;

static void says(const char *said)
{
    if (!strstr(echelon_last_error(), said))
        fail_msg("\"%s\" does not say \"%s\"", echelon_last_error(), said);
}

static void refuses_run(echelon_run *run, const char *said)
{
    handles made;
    echelon_search *search;
    const char *value;
    bool is_set;
    fails(echelon_run_set(run, "training.steps", "3"), ECHELON_EUSAGE, said);
    fails(echelon_run_add_word(run, "training.steps=3"), ECHELON_EUSAGE, said);
    fails(echelon_run_get(run, "training.steps", &value), ECHELON_EUSAGE, said);
    fails(echelon_run_is_set(run, "training.steps", &is_set), ECHELON_EUSAGE, said);
    fails(echelon_plan_create(run, NULL, &made.plan), ECHELON_EUSAGE, said);
    fails(echelon_search_create(run, NULL, &search), ECHELON_EUSAGE, said);
    fails(echelon_train_start(run, NULL, &made.training), ECHELON_EUSAGE, said);
    fails(echelon_train(run, NULL, NULL), ECHELON_EUSAGE, said);
    fails(echelon_verify(run, NULL, &made.verification), ECHELON_EUSAGE, said);
}

static void refuses_plan(echelon_plan *plan, const char *said)
{
    assert_null(echelon_plan_text(plan));
    says(said);
    assert_null(echelon_plan_json(plan));
    assert_null(echelon_plan_svg(plan));
    assert_null(echelon_plan_html(plan));
    assert_int_equal(echelon_plan_ranks(plan), 0);
    assert_int_equal(echelon_plan_bytes(plan, 0, 0), -1);
}

static void refuses_training(echelon_training *training, const char *said)
{
    double loss;
    char byte = 0;
    echelon_tensor is = {.size = sizeof is};
    fails(echelon_train_step(training, NULL), ECHELON_EUSAGE, said);
    fails(echelon_train_run(training, 1, NULL), ECHELON_EUSAGE, said);
    fails(echelon_train_save(training), ECHELON_EUSAGE, said);
    fails(echelon_train_validate(training, &loss), ECHELON_EUSAGE, said);
    fails(echelon_train_set(training, "optimizer.clip_norm", 1), ECHELON_EUSAGE, said);
    fails(echelon_tensor_at(training, 0, &is), ECHELON_EUSAGE, said);
    fails(echelon_tensor_read(training, 0, &byte, 1), ECHELON_EUSAGE, said);
    fails(echelon_tensor_write(training, 0, &byte, 1), ECHELON_EUSAGE, said);
    assert_int_equal(echelon_tensor_count(training), 0);
    assert_false(echelon_train_is_done(training) || echelon_train_is_stopped(training));
    assert_int_equal(echelon_train_steps(training) + echelon_train_last_step(training), 0);
    fails(echelon_train_finish(training), ECHELON_EUSAGE, said);
    echelon_train_abort(training);
    says(said);
}

static void refuses_results(const handles *of, const char *said)
{
    echelon_comparison c = {.size = sizeof c};
    echelon_checkpoint is = {.size = sizeof is};
    fails(echelon_verification_at(of->verification, 0, &c), ECHELON_EUSAGE, said);
    assert_int_equal(echelon_verification_count(of->verification), 0);
    assert_string_equal(echelon_verification_text(of->verification), "");
    fails(echelon_checkpoints_at(of->checkpoints, 0, &is), ECHELON_EUSAGE, said);
    assert_int_equal(echelon_checkpoints_count(of->checkpoints), 0);
}

static echelon_run *open_in(const char *words, const char *folder)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", fixture_folder, folder);
    return open_run(words, path);
}

static bool take(const echelon_token *token, void *context)
{
    (void)token, (void)context;
    return false;
}

static void take_one(const echelon_likelihood *one, void *context)
{
    (void)one, (void)context;
}

static handles open_all(const char *folder)
{
    handles of;
    char path[4096];
    of.run = open_in("parallel.data=2", folder);
    assert_int_equal(echelon_plan_create(of.run, NULL, &of.plan), ECHELON_OK);
    assert_int_equal(echelon_verify(of.run, NULL, &of.verification), ECHELON_OK);
    assert_int_equal(echelon_train_start(of.run, NULL, &of.training), ECHELON_OK);
    assert_int_equal(echelon_train_step(of.training, NULL), ECHELON_OK);
    assert_int_equal(echelon_train_save(of.training), ECHELON_OK);
    snprintf(path, sizeof path, "%s/%s", fixture_folder, folder);
    assert_int_equal(echelon_checkpoints_list(path, &of.checkpoints), ECHELON_OK);
    return of;
}

static void close_all(const handles *of)
{
    assert_int_equal(echelon_train_finish(of->training), ECHELON_OK);
    echelon_plan_free(of->plan);
    echelon_verification_free(of->verification);
    echelon_checkpoints_free(of->checkpoints);
    echelon_run_close(of->run);
}

TEST(test_closed)
{
    handles of = open_all("closed");
    close_all(&of);
    refuses_run(of.run, "echelon_");
    refuses_run(of.run, "there is no such run: it was closed");
    refuses_plan(of.plan, "there is no such plan: it was closed");
    refuses_training(of.training, "there is no such training: it was closed");
    refuses_results(&of, "it was closed");
    refuses_run(NULL, "no such run");
    refuses_plan(NULL, "no such plan");
    echelon_run_close(of.run); /* a second time: an error that nobody hears */
    echelon_plan_free(of.plan);
    echelon_verification_free(of.verification);
    echelon_checkpoints_free(of.checkpoints);
    echelon_run_close(NULL);
}

TEST(test_of_another_kind)
{
    handles of = open_all("kinds");
    void *run = of.run, *training = of.training;
    refuses_run(training, "a training was passed in place of a run");
    refuses_training(run, "a run was passed in place of a training");
    refuses_plan(run, "a run was passed in place of a plan");
    assert_int_equal(echelon_train_step(of.training, NULL), ECHELON_OK);
    close_all(&of);
}

/* A NULL in place of an argument that is needed. */
TEST(test_null)
{
    echelon_training *training;
    echelon_checkpoints *list;
    echelon_evaluation result = {.size = sizeof result};
    const echelon_scored_text text = {.size = sizeof text, .text = "x"};
    const echelon_train_options no_size = {.ranks = 2};
    const char *value;
    bool is_set;
    echelon_run *run = open_in("parallel.data=2", "null"), *other;
    fails(echelon_run_open(NULL, &other), ECHELON_EUSAGE, "path is NULL");
    fails(echelon_run_open_text(NULL, "x", &other), ECHELON_EUSAGE, "text is NULL");
    fails(echelon_run_open_text("", NULL, &other), ECHELON_EUSAGE, "name is NULL");
    fails(echelon_run_open_model(NULL, &other), ECHELON_EUSAGE, "folder is NULL");
    fails(echelon_run_set(run, NULL, "3"), ECHELON_EUSAGE, "key is NULL");
    fails(echelon_run_set(run, "training.steps", NULL), ECHELON_EUSAGE, "value is NULL");
    fails(echelon_run_add_word(run, NULL), ECHELON_EUSAGE, "word is NULL");
    fails(echelon_run_get(run, NULL, &value), ECHELON_EUSAGE, "key is NULL");
    fails(echelon_run_is_set(run, NULL, &is_set), ECHELON_EUSAGE, "key is NULL");
    fails(echelon_plugin_register(NULL), ECHELON_EUSAGE, "table is NULL");
    fails(echelon_checkpoints_list(NULL, &list), ECHELON_EUSAGE, "path is NULL");
    fails(echelon_evaluate(NULL, "x", NULL, &result), ECHELON_EUSAGE, "path is NULL");
    fails(echelon_evaluate("x", NULL, NULL, &result), ECHELON_EUSAGE, "data is NULL");
    fails(echelon_sample(NULL, "x", NULL, take, NULL), ECHELON_EUSAGE, "path is NULL");
    fails(echelon_sample("x", NULL, NULL, take, NULL), ECHELON_EUSAGE, "prompt is NULL");
    fails(echelon_sample("x", "x", NULL, NULL, NULL), ECHELON_EUSAGE, "take_token is NULL");
    fails(echelon_score("x", NULL, 1, NULL, take_one, NULL), ECHELON_EUSAGE, "texts is NULL");
    fails(echelon_score(NULL, &text, 1, NULL, take_one, NULL), ECHELON_EUSAGE, "path is NULL");
    fails(echelon_score("x", &text, 1, NULL, NULL, NULL), ECHELON_EUSAGE, "take is NULL");
    fails(echelon_run_open_text("", "x", NULL), ECHELON_EUSAGE, "out is NULL");
    fails(echelon_run_get(run, "training.steps", NULL), ECHELON_EUSAGE, "out is NULL");
    fails(echelon_plan_create(run, NULL, NULL), ECHELON_EUSAGE, "out is NULL");
    fails(echelon_search_create(run, NULL, NULL), ECHELON_EUSAGE, "out is NULL");
    fails(echelon_train_start(run, NULL, NULL), ECHELON_EUSAGE, "out is NULL");
    fails(echelon_verify(run, NULL, NULL), ECHELON_EUSAGE, "out is NULL");
    fails(echelon_checkpoints_list("x", NULL), ECHELON_EUSAGE, "out is NULL");
    fails(echelon_evaluate("x", "x", NULL, NULL), ECHELON_EUSAGE, "out is NULL");
    fails(echelon_train_start(run, &no_size, &training), ECHELON_EUSAGE, "its size");
    assert_int_equal(echelon_train_start(run, NULL, &training), ECHELON_OK);
    fails(echelon_train_set(training, NULL, 1), ECHELON_EUSAGE, "key is NULL");
    fails(echelon_tensor_read(training, 0, NULL, 8), ECHELON_EUSAGE, "data is NULL");
    fails(echelon_tensor_write(training, 0, NULL, 8), ECHELON_EUSAGE, "data is NULL");
    assert_int_equal(echelon_train_finish(training), ECHELON_OK);
    echelon_run_close(run);
}

/* Handles that come and go; a sanitizer's build finds what stays. */
TEST(test_many)
{
    for (int i = 0; i < 1000; i++) {
        const char *value;
        echelon_run *run = open_in("parallel.data=2", "many");
        assert_int_equal(echelon_run_get(run, "parallel.data", &value), ECHELON_OK);
        assert_string_equal(value, "2");
        echelon_run_close(run);
    }
}

/* ---- threads ---- */

static void *use_training(void *training)
{
    refuses_training(training, "another thread is using this training");
    return NULL;
}

static void *use_run(void *run)
{
    refuses_run(run, "another thread is using this run");
    return NULL;
}

static void *step(void *training)
{
    assert_int_equal(echelon_train_step(training, NULL), ECHELON_OK);
    return NULL;
}

static void in_thread(void *(*function)(void *), void *argument)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, function, argument), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static int hook(echelon_training *training, const echelon_metrics *m, void *context)
{
    (void)m;
    in_thread(use_training, training);
    assert_true(echelon_tensor_count(training) > 0); /* the hook itself may */
    ++*(int *)context;
    return 0;
}

/* All hooks, and the time between them, are one call of echelon_train. */
TEST(test_hooks_of_another_thread)
{
    int calls = 0;
    const echelon_train_hooks hooks = {.size = sizeof hooks,
                                       .context = &calls,
                                       .begin = hook,
                                       .step_end = hook,
                                       .validated = hook,
                                       .saved = hook,
                                       .end = hook};
    echelon_run *run = open_in("parallel.data=2", "threads");
    assert_int_equal(echelon_train(run, NULL, &hooks), ECHELON_OK);
    assert_int_equal(calls, 1 + STEPS + 2 + 1 + 1);
    echelon_run_close(run);
}

static void plan_progress(const char *doing, void *context)
{
    (void)doing;
    in_thread(use_run, context);
}

/* A run is in use while its plan is made. A handle may change its thread between two calls. */
TEST(test_threads_in_turn)
{
    echelon_plan *plan;
    echelon_training *training;
    echelon_run *run = open_in("parallel.data=2", "turns");
    const echelon_plan_options options = {
        .size = sizeof options, .simulate = true, .progress = plan_progress, .context = run};
    assert_int_equal(echelon_plan_create(run, &options, &plan), ECHELON_OK);
    echelon_plan_free(plan);
    assert_int_equal(echelon_train_start(run, NULL, &training), ECHELON_OK);
    in_thread(step, training);
    assert_int_equal(echelon_train_step(training, NULL), ECHELON_OK);
    in_thread(step, training);
    assert_int_equal(echelon_train_finish(training), ECHELON_OK);
    echelon_run_close(run);
}

/* ---- processes ---- */

static int fork_in_hook(echelon_training *training, const echelon_metrics *m, void *context)
{
    const char *value;
    int ended;
    if (m->step != 1) return 0;
    pid_t child = fork();
    if (child == 0) {
        alarm(20); /* ends it if it waits */
        bool refuses = echelon_train_save(training) == ECHELON_EUSAGE &&
                       strstr(echelon_last_error(), "from which this one was forked") &&
                       echelon_train_finish(training) == ECHELON_EUSAGE;
        bool reads = echelon_run_get(context, "training.steps", &value) == ECHELON_OK;
        _exit(refuses && reads ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
    return 0;
}

/* A forked process has the run's keys, and no ranks; the parent goes on. */
TEST(test_fork)
{
    echelon_run *run = open_in("parallel.data=2", "forked");
    const echelon_train_hooks hooks = {
        .size = sizeof hooks, .context = run, .step_end = fork_in_hook};
    assert_int_equal(echelon_train(run, NULL, &hooks), ECHELON_OK);
    echelon_run_close(run);
}

ALL_TESTS(fixture_setup, fixture_teardown)
