/* SPDX-License-Identifier: Apache-2.0
 *
 * log.sample: texts during training. Every layout writes the texts that one rank writes, and the
 * text that a checkpoint of the step writes by itself; files, metrics and events have them; the run
 * leaves the same bits as without.
 */

#include <jansson.h>

#include "app/generation.h"
#include "app/runs.h"
#include "unit.h"

#define RUN                                                                                        \
    "precision.compute=fp64 training.steps=4 log.sample_every=2 log.sample_tokens=12 "             \
    "checkpoint.every=2 training.micro_batch_size=2 "

static const char prompts[] = "ab\nHello";

/* Words of keys have no blanks and no ends of lines. */
static void train(const char *name, int ranks, const char *more)
{
    ech_training training = {0};
    ech_config *config = runs_config("gpt2", name, more);
    ech_config_replace_text(&config->log.sample, prompts);
    ech_status status = fixture_run(config, ranks, ech_train_rank, &training);
    ech_config_destroy(config);
    if (status != ECH_OK) fail_msg("%s: %s", more, ech_last_error());
}

/* The text of a prompt after a step in the run's metrics; n: how many there are. */
static char *find(const char *run, int step, const char *prompt, int *n)
{
    char *text = runs_metrics(run), *rest = NULL, *found = NULL;
    *n = 0;
    for (char *word = strtok_r(text, "\n", &rest); word; word = strtok_r(NULL, "\n", &rest)) {
        json_t *line = json_loads(word, 0, NULL);
        const char *sample = json_string_value(json_object_get(line, "sample"));
        if (sample) ++*n;
        if (sample && strcmp(sample, prompt) == 0 &&
            json_integer_value(json_object_get(line, "step")) == step) {
            free(found);
            found = strdup(json_string_value(json_object_get(line, "text")));
        }
        json_decref(line);
    }
    free(text);
    return found;
}

static bool add(const ech_generated *token, void *context)
{
    if (!token->is_prompt) ech_text_append_bytes(context, token->bytes, token->n);
    return true;
}

/* Only ASCII is compared with the checkpoint's bytes: the metrics replace what is not UTF-8. */
static bool same_ascii(const char *a, const char *b)
{
    for (; *a && *b && (*a & 0x80) == 0 && (*b & 0x80) == 0; a++, b++)
        if (*a != *b) return false;
    return true;
}

static void check_checkpoint(const char *run, int step, const char *prompt, const char *text)
{
    char path[512];
    ech_text own = {0};
    const ech_generation_options greedy = {
        .tokens = 12, .begins = ECH_AUTO, .sampler = {.temperature = 0, .top_p = 1}};
    runs_path(path, sizeof path, run, step, "");
    assert_int_equal(ech_generate(path, prompt, &greedy, add, &own), ECH_OK);
    if (!same_ascii(own.at ? own.at : "", text))
        fail_msg("step %d: \"%s\", the checkpoint writes \"%s\"", step, text, own.at);
    ech_text_free(&own);
}

TEST(layouts_write_the_texts_of_one_rank)
{
    static const struct {
        const char *words;
        int ranks;
    } layouts[] = {{"parallel.data=2 parallel.zero=3", 2},
                   {"parallel.pipeline=2 parallel.data=2", 4},
                   {"parallel.tensor=2", 2},
                   {"parallel.strategy=parameter_server parallel.data=2", 3},
                   {"memory.offload_parameters=host memory.offload_optimizer=host", 1}};
    int n;
    train("one", 1, RUN "checkpoint.dtype=fp32 ");
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        char words[300];
        snprintf(words, sizeof words, RUN "%s", layouts[i].words);
        train("many", layouts[i].ranks, words);
        for (int step = 2; step <= 4; step += 2)
            for (int k = 0; k < 2; k++) {
                const char *prompt = k ? "Hello" : "ab";
                char *a = find("one", step, prompt, &n);
                assert_int_equal(n, 4);
                char *b = find("many", step, prompt, &n);
                assert_int_equal(n, 4);
                assert_non_null(a);
                assert_string_equal(a, b);
                if (i == 0) check_checkpoint("many", step, prompt, b);
                free(a);
                free(b);
            }
        runs_remove("many");
    }
    runs_remove("one");
}

TEST(texts_are_in_a_file_for_each_step)
{
    char path[512], *text, *found;
    size_t n;
    int count;
    train("files", 1, RUN);
    for (int step = 2; step <= 4; step += 2) {
        snprintf(path, sizeof path, "%s/files/samples/step-%08d.txt", fixture_folder, step);
        assert_int_equal(ech_file_read(path, 1 << 20, &text, &n), ECH_OK);
        found = find("files", step, "Hello", &count);
        assert_non_null(strstr(text, "Hello"));
        assert_non_null(strstr(text, found));
        assert_int_equal(strncmp(text, "ab", 2), 0);
        free(found);
        free(text);
    }
    runs_remove("files");
}

TEST(texts_change_no_bit_and_survive_a_resume)
{
    int n;
    runs_train("gpt2", "without", 2,
               "precision.compute=fp64 training.steps=4 checkpoint.every=2 "
               "training.micro_batch_size=2 parallel.data=2");
    train("with", 2, RUN "parallel.data=2");
    assert_true(runs_same("with", "without", 4));
    char *whole = find("with", 4, "ab", &n);
    runs_remove_checkpoint("with", 4);
    train("with", 2, RUN "parallel.data=2");
    char *resumed = find("with", 4, "ab", &n);
    assert_int_equal(n, 4); /* those of step 4 are there once */
    assert_string_equal(whole, resumed);
    free(whole);
    free(resumed);
    runs_remove("with");
    runs_remove("without");
}

ALL_TESTS(fixture_setup, fixture_teardown)
