/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs that go wrong: what is saved is finite, the last checkpoint that was of use stays, and
 * skipping has an end.
 */

#include "app/runs.h"
#include "base/json.h"
#include "checkpoint/folder.h"
#include "config/capture.h"
#include "unit.h"

enum { MOST_LINES = 64 };

/* Of each step in metrics.jsonl whether its update was skipped; returns the last step. */
static int read_skipped(const char *name, bool skipped[MOST_LINES])
{
    char *text = runs_metrics(name), *rest = NULL;
    int last = 0;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        json_t *object = json_loads(line, 0, NULL);
        if (json_object_get(object, "skipped")) {
            last = (int)json_integer_value(json_object_get(object, "step"));
            assert_in_range(last, 1, MOST_LINES - 1);
            skipped[last] = json_is_true(json_object_get(object, "skipped"));
        }
        json_decref(object);
    }
    free(text);
    return last;
}

/* Every checkpoint that is there is finite: it verifies. Returns how many. */
static int check_folder(const char *name)
{
    char path[512];
    ech_folders folders = {0};
    snprintf(path, sizeof path, "%s/%s/checkpoints", fixture_folder, name);
    assert_int_equal(ech_folder_list(path, &folders), ECH_OK);
    for (size_t i = 0; i < folders.n; i++) {
        ech_checkpoint *checkpoint;
        assert_int_equal(folders.at[i].kind, ECH_FOLDER_FINAL);
        assert_int_equal(ech_checkpoint_open(folders.at[i].path, true, &checkpoint), ECH_OK);
        ech_checkpoint_close(checkpoint);
    }
    int n = (int)folders.n;
    ech_folders_free(&folders);
    return n;
}

/* AdamW without eps computes 0/0 for every token that never occurs, in the first update already:
 * gradients are finite, weights are not. Whether training stops or skips, and for any number of
 * ranks, no checkpoint has these weights. */
TEST(nan_is_not_saved)
{
    static const char *const ways[] = {"", "training.on_nonfinite=skip",
                                       "checkpoint.background=false checkpoint.dtype=bf16",
                                       "training.on_nonfinite=skip training.nonfinite_limit=0"};
    for (int i = 0; i < 4; i++) {
        char more[256];
        snprintf(more, sizeof more,
                 "optimizer.eps=0 training.steps=6 checkpoint.every=1 checkpoint.keep=1 %s",
                 ways[i]);
        assert_int_equal(runs_try("llama", "nan", 1 + i % 2, more), ECH_ENUMERIC);
        assert_int_equal(check_folder("nan"), 0);
        runs_remove("nan");
    }
}

/* What was saved before goes on to be there, and a start takes it. */
TEST(the_last_good_one_stays)
{
    const char *calendar = "checkpoint.every=1 checkpoint.keep=1";
    char more[256];
    snprintf(more, sizeof more, "training.steps=3 %s", calendar);
    runs_train("llama", "good", 2, more);
    assert_true(runs_has_checkpoint("good", 3));
    assert_true(runs_has_checkpoint("good", 2)); /* no step has followed 3 */
    assert_int_equal(check_folder("good"), 2);
    snprintf(more, sizeof more, "training.steps=6 optimizer.eps=0 %s", calendar);
    assert_int_equal(runs_try("llama", "good", 2, more), ECH_ENUMERIC);
    assert_true(runs_has_checkpoint("good", 3));
    assert_int_equal(check_folder("good"), 2);
    snprintf(more, sizeof more, "training.steps=6 %s", calendar);
    runs_train("llama", "good", 2, more);
    assert_true(runs_has_checkpoint("good", 6) && runs_has_checkpoint("good", 5));
    assert_int_equal(check_folder("good"), 2);
    runs_remove("good");
}

/* Weights that grow by 1e7 a step are finite at first where nothing that follows from them is. */
TEST(what_no_finite_step_followed_prunes_nothing)
{
    enum { GOOD = 3, LIMIT = 4 };
    bool skipped[MOST_LINES] = {0};
    const char *calendar = "optimizer.name=sgd optimizer.schedule=constant checkpoint.every=1 "
                           "checkpoint.keep=1 training.on_nonfinite=skip";
    char more[400];
    snprintf(more, sizeof more, "%s training.steps=%d", calendar, GOOD);
    runs_train("gpt2", "growing", 1, more);
    snprintf(more, sizeof more,
             "%s training.steps=60 optimizer.learning_rate=1e6 optimizer.weight_decay=10 "
             "training.nonfinite_limit=%d",
             calendar, LIMIT);
    assert_int_equal(runs_try("gpt2", "growing", 1, more), ECH_ENUMERIC);
    int last = read_skipped("growing", skipped);
    assert_int_equal(last, GOOD + 1 + LIMIT); /* one more ended the run */
    for (int step = 1; step <= last; step++) assert_int_equal(skipped[step], step > GOOD + 1);
    /* all that no finite step has followed, and the last that one has */
    for (int step = 1; step <= last; step++)
        assert_int_equal(runs_has_checkpoint("growing", step), step >= GOOD);
    assert_int_equal(check_folder("growing"), LIMIT + 2);
    runs_remove("growing");
}

/* What a run that ends by a NaN or infinity prints. */
static char *complaint_of(const char *more)
{
    char words[256];
    snprintf(words, sizeof words, "training.steps=3 precision.compute=fp16 %s", more);
    ech_config *config = runs_config("gpt2", "hinted", words);
    ech_training training = {0};
    capture c = begin_capture();
    ech_status status = fixture_run(config, 1, ech_train_rank, &training);
    char *said = end_capture(&c);
    assert_int_equal(status, ECH_ENUMERIC);
    ech_config_destroy(config);
    runs_remove("hinted");
    return said;
}

/* fp16 ends at 65,504: where the loss itself is infinite or NaN no loss scale mends it, and none is
 * named. */
TEST(the_hint_mends_it)
{
    char *forward =
        complaint_of("optimizer.learning_rate=300 precision.loss_scale=1024 log.every=1");
    assert_non_null(strstr(forward, "precision.compute=bf16 or fp32"));
    assert_null(strstr(forward, "precision.loss_scale"));
    assert_null(strstr(forward, "-nan"));
    char *backward = complaint_of("precision.loss_scale=1099511627776");
    assert_non_null(strstr(backward, "precision.loss_scale"));
    assert_null(strstr(backward, "precision.compute"));
    free(forward);
    free(backward);
}

/* Gradients beyond fp16 in every step: none updates, and a resumed run goes on counting. */
TEST(skipped_steps_are_counted_on)
{
    const char *calendar = "precision.compute=fp16 precision.loss_scale=1099511627776 "
                           "training.on_nonfinite=skip training.nonfinite_limit=0 "
                           "checkpoint.every=2";
    char more[300];
    for (int steps = 2; steps <= 5; steps += 3) {
        snprintf(more, sizeof more, "%s training.steps=%d", calendar, steps);
        runs_train("gpt2", "counted", 1, more);
    }
    ech_checkpoint_info info = runs_info("counted", 5);
    assert_int_equal(info.skipped_steps, 5);
    assert_int_equal(info.optimizer_count, 0);
    char *text = runs_metrics("counted");
    assert_non_null(strstr(text, "{\"step\":5,\"skipped_steps\":5,"));
    free(text);
    runs_remove("counted");
}

ALL_TESTS(fixture_setup, fixture_teardown)
