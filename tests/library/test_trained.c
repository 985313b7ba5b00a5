/* SPDX-License-Identifier: Apache-2.0
 *
 * Verification, evaluation, sampling and lists of checkpoints through the library, against what the
 * rooms below compute and against themselves.
 */
#include <math.h>

#include "app/evaluation.h"
#include "library/tiny_run.h"

static char folder[4096]; /* of a trained run */

static void train_once(void)
{
    snprintf(folder, sizeof folder, "%s/trained", fixture_folder);
    if (ech_file_exists(folder)) return;
    echelon_run *run = open_run("parallel.data=2 checkpoint.every=2", folder);
    assert_int_equal(echelon_train(run, NULL, NULL), ECHELON_OK);
    echelon_run_close(run);
}

TEST(test_verify)
{
    echelon_verification *v;
    echelon_comparison c = {.size = sizeof c}, own = {.size = sizeof own};
    char path[4096];
    snprintf(path, sizeof path, "%s/verified", fixture_folder);
    echelon_run *run = open_run("parallel.data=2 parallel.tensor=2", path);
    echelon_verify_options options = {.size = sizeof options, .steps = 1, .own_precision = true};
    assert_int_equal(echelon_verify(run, &options, &v), ECHELON_OK);
    assert_int_equal(echelon_verification_count(v), 2);
    assert_int_equal(echelon_verification_at(v, 0, &c), ECHELON_OK);
    assert_true(c.passed && !c.ill_conditioned && c.ranks == 4 && c.steps == 1);
    assert_string_equal(c.precision, "fp64");
    assert_string_equal(c.first_bad, "");
    assert_true(c.worst > 0 && c.worst <= c.tolerance && c.gradients <= c.worst);
    assert_true(c.compared > 10000 && isnan(c.reports) && c.validation < 1e-12);
    assert_int_equal(echelon_verification_at(v, 1, &own), ECHELON_OK);
    assert_string_equal(own.precision, "fp32");
    assert_true(own.passed && own.worst > c.worst);
    assert_non_null(strstr(echelon_verification_text(v), "PASSED"));
    fails(echelon_verification_at(v, 2, &c), ECHELON_EUSAGE, "there are 2");
    echelon_verification_free(v);
    /* A failed comparison is a result. */
    options = (echelon_verify_options){.size = sizeof options, .tolerance = 1e-30};
    assert_int_equal(echelon_verify(run, &options, &v), ECHELON_OK);
    assert_int_equal(echelon_verification_at(v, 0, &c), ECHELON_OK);
    assert_true(!c.passed && c.first_bad[0] && c.steps == 2);
    assert_non_null(strstr(echelon_verification_text(v), "FAILED"));
    echelon_verification_free(v);
    options.tolerance = (double)NAN;
    fails(echelon_verify(run, &options, &v), ECHELON_EUSAGE, "tolerance");
    assert_int_equal(echelon_run_set(run, "parallel.evaluators", "1"), ECHELON_OK);
    fails(echelon_verify(run, NULL, &v), ECHELON_EUSAGE, "parallel.evaluators");
    echelon_run_close(run);
}

static void count_call(int64_t sample, int64_t samples, void *context)
{
    assert_true(sample < samples);
    ++*(int *)context;
}

TEST(test_evaluate)
{
    char data[4096];
    int calls = 0;
    echelon_evaluation all = {.size = sizeof all}, some = {.size = sizeof some};
    train_once();
    snprintf(data, sizeof data, "%s/valid", fixture_folder);
    assert_int_equal(echelon_evaluate(folder, data, NULL, &all), ECHELON_OK);
    echelon_evaluate_options options = {.size = sizeof options,
                                        .samples = 5,
                                        .batch = 2,
                                        .progress = count_call,
                                        .context = &calls};
    assert_int_equal(echelon_evaluate(folder, data, &options, &some), ECHELON_OK);
    assert_int_equal(calls, 3);
    assert_int_equal(some.samples, 5);
    assert_true(some.targets > 60 && some.targets <= 80 && all.targets > some.targets);
    assert_true(all.loss > 3 && all.loss < 6 && all.loss != some.loss && !all.features);
    ech_eval_result below;
    assert_int_equal(ech_evaluate(folder, &(ech_eval_options){.data = data, .batch = 8}, &below),
                     ECH_OK);
    assert_true(below.loss == all.loss);
    fails(echelon_evaluate(folder, "none", NULL, &all), ECHELON_EUSAGE, "none");
    fails(echelon_evaluate("none", data, NULL, &all), ECHELON_EUSAGE, "no such folder");
    options.batch = -1;
    fails(echelon_evaluate(folder, data, &options, &all), ECHELON_EUSAGE, "batch -1");
    all.size = 0;
    fails(echelon_evaluate(folder, data, NULL, &all), ECHELON_EUSAGE, "size");
}

enum { MOST_TOKENS = 64 };

typedef struct written {
    int32_t id[MOST_TOKENS];
    char bytes[4 * MOST_TOKENS];
    size_t length;
    int n, prompt, most; /* most: no more are wanted then; 0: all */
} written;

static bool take(const echelon_token *token, void *context)
{
    written *w = context;
    assert_true(token->size == sizeof *token && w->n < MOST_TOKENS);
    if (token->is_prompt) assert_int_equal(w->prompt++, w->n);
    w->id[w->n++] = token->id;
    assert_true(w->length + token->n <= sizeof w->bytes);
    memcpy(w->bytes + w->length, token->bytes, token->n);
    w->length += token->n;
    return w->n != w->most;
}

TEST(test_sample)
{
    echelon_sample_options options = ECHELON_SAMPLE_OPTIONS;
    written first = {0}, again = {0}, short_one = {.most = 6}, greedy[2] = {0};
    train_once();
    options.ids = "1 2 3";
    options.tokens = 20;
    assert_int_equal(echelon_sample(folder, "", &options, take, &first), ECHELON_OK);
    assert_int_equal(first.prompt, 3);
    assert_true(first.n > 3 && first.n <= 23 && first.id[2] == 3);
    assert_int_equal(echelon_sample(folder, "", &options, take, &again), ECHELON_OK);
    assert_memory_equal(first.id, again.id, sizeof first.id);
    assert_int_equal(echelon_sample(folder, "", &options, take, &short_one), ECHELON_OK);
    assert_int_equal(short_one.n, 6);
    assert_memory_equal(first.id, short_one.id, 6 * sizeof first.id[0]);
    options.temperature = 0;
    for (int i = 0; i < 2; i++) {
        options.seed = i;
        assert_int_equal(echelon_sample(folder, "", &options, take, &greedy[i]), ECHELON_OK);
    }
    assert_memory_equal(greedy[0].id, greedy[1].id, sizeof greedy[0].id);
    options.top_p = 2;
    fails(echelon_sample(folder, "", &options, take, &first), ECHELON_EUSAGE, "top-p");
    options.top_p = 1;
    options.ids = "999999";
    fails(echelon_sample(folder, "", &options, take, &first), ECHELON_EUSAGE, "999999");
    options.begin_of_text = 2;
    fails(echelon_sample(folder, "", &options, take, &first), ECHELON_EUSAGE, "begin_of_text");
    written text = {.most = 8}; /* of bytes, the run's tokenizer */
    assert_int_equal(echelon_sample(folder, "text", NULL, take, &text), ECHELON_OK);
    assert_int_equal(text.prompt, 4);
    assert_memory_equal(text.bytes, "text", 4);
}

/* A caller with an older, shorter struct gets the defaults for what it does not know. */
TEST(test_older_options)
{
    echelon_sample_options older = ECHELON_SAMPLE_OPTIONS, newer = ECHELON_SAMPLE_OPTIONS;
    written by_older = {0}, by_newer = {0};
    train_once();
    older.ids = newer.ids = "5";
    older.tokens = newer.tokens = 12;
    older.size = offsetof(echelon_sample_options, temperature);
    older.temperature = -1; /* is not read */
    assert_int_equal(echelon_sample(folder, "", &older, take, &by_older), ECHELON_OK);
    assert_int_equal(echelon_sample(folder, "", &newer, take, &by_newer), ECHELON_OK);
    assert_memory_equal(by_older.id, by_newer.id, sizeof by_older.id);
}

TEST(test_checkpoints)
{
    echelon_checkpoints *list;
    echelon_checkpoint is = {.size = sizeof is};
    char path[4200];
    train_once();
    assert_int_equal(echelon_checkpoints_list(folder, &list), ECHELON_OK);
    assert_int_equal(echelon_checkpoints_count(list), 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(echelon_checkpoints_at(list, i, &is), ECHELON_OK);
        assert_true(is.complete && is.step == 4 - 2 * i && is.ranks == 2 && is.bytes > 10000);
        assert_true(is.loss > 3 && is.loss < 6 && !is.problem[0]);
    }
    fails(echelon_checkpoints_at(list, 2, &is), ECHELON_EUSAGE, "there are 2");
    echelon_checkpoints_free(list);
    /* A damaged one is listed, with the reason. */
    snprintf(path, sizeof path, "%s/checkpoints/step-00000002/manifest.json", folder);
    assert_int_equal(ech_file_write(path, "{", 1), ECH_OK);
    assert_int_equal(echelon_checkpoints_list(folder, &list), ECHELON_OK);
    assert_int_equal(echelon_checkpoints_at(list, 1, &is), ECHELON_OK);
    assert_true(!is.complete && is.step == 2 && is.problem[0] && isnan(is.loss));
    echelon_checkpoints_free(list);
    fails(echelon_checkpoints_list("none", &list), ECHELON_EUSAGE, "none");
    /* The key checkpoint.resume restores by path. */
    snprintf(path, sizeof path, "%s/restored", fixture_folder);
    echelon_run *run = open_run("parallel.data=2", path);
    echelon_training *training;
    snprintf(path, sizeof path, "%s/checkpoints/step-00000004", folder);
    assert_int_equal(echelon_run_set(run, "checkpoint.resume", path), ECHELON_OK);
    assert_int_equal(echelon_train_start(run, NULL, &training), ECHELON_OK);
    assert_int_equal(echelon_train_steps(training), 4);
    assert_int_equal(echelon_train_finish(training), ECHELON_OK);
    echelon_run_close(run);
}

ALL_TESTS(fixture_setup, fixture_teardown)
