/* SPDX-License-Identifier: Apache-2.0
 *
 * What is printed reads back to the same struct, whatever the values.
 */
#include <string.h>

#include "base/log.h"
#include "base/random.h"
#include "config/capture.h"
#include "config/same.h"
#include "config/sample.h"
#include "unit.h"

/* Prints, reads back, compares, prints again; the print goes to *out if that is not NULL. */
static void assert_round_trip(const ech_config *config, ech_text *out)
{
    ech_text first = {0}, second = {0};
    ech_config_print(config, &first);
    ech_config *back = sample_create();
    if (sample_read(back, first.at) != ECH_OK)
        fail_msg("does not read back: %s\n%s", ech_last_error(), first.at);
    const char *differs = first_difference(config, back);
    if (differs) fail_msg("%s differs:\n%s", differs, first.at);
    ech_config_print(back, &second);
    assert_string_equal(first.at, second.at);
    ech_config_destroy(back);
    ech_text_free(&second);
    if (out)
        *out = first;
    else
        ech_text_free(&first);
}

TEST(test_resolved_run_file)
{
    ech_config *config = sample_create();
    assert_int_equal(sample_read(config, sample_run), ECH_OK);
    assert_round_trip(config, NULL);
    config->model.vocab_size = 257;
    config->model.tie_word_embeddings = 1;
    config->memory.device_limit = (INT64_C(3) << 29) + 1;
    ech_config_replace_text(&config->checkpoint.directory, "runs/one/checkpoints");
    ech_text text = {0};
    assert_round_trip(config, &text);
    const char *lines[] = {"model:\n  architecture: gpt2\n  hidden_size: 64\n",
                           "  vocab_size: 257\n",
                           "  rms_norm_eps: 1.0e-05\n",
                           "  tie_word_embeddings: true\n",
                           "\n\ndata:\n  train: corpus/train\n  valid: \"\"\n",
                           "  schedule: 1f1b\n",
                           "  bucket_bytes: 4MiB\n",
                           "  threads: auto\n",
                           "  device_limit: 1610612737\n",
                           "  directory: runs/one/checkpoints\n"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        if (!strstr(text.at, lines[i])) fail_msg("no \"%s\" in\n%s", lines[i], text.at);
    ech_text_free(&text);
    ech_config_destroy(config);
}

TEST(test_unset_required_keys_are_left_out)
{
    ech_config *config = sample_create();
    ech_text text = {0};
    assert_round_trip(config, &text);
    assert_null(strstr(text.at, "hidden_size"));
    ech_text_free(&text);
    ech_config_destroy(config);
}

TEST(test_unread_keys_are_left_out)
{
    const char *owned = "model.rope_theta model.rms_norm_eps model.layer_norm_epsilon";
    const char *read = "model.layer_norm_epsilon";
    ech_config *config = sample_create();
    assert_int_equal(sample_read(config, sample_run), ECH_OK);
    assert_int_equal(ech_config_check_read(config, owned, read, "gpt2"), ECH_OK);
    ech_config *copy = ech_config_copy(config);
    ech_text text = {0};
    ech_config_print(copy, &text);
    assert_null(strstr(text.at, "rope_theta"));
    assert_non_null(strstr(text.at, "layer_norm_epsilon"));
    /* So what was printed can be run. */
    ech_config *again = sample_create();
    assert_int_equal(sample_read(again, text.at), ECH_OK);
    assert_null(first_difference(config, again));
    assert_int_equal(ech_config_check_read(again, owned, read, "gpt2"), ECH_OK);
    ech_text_free(&text);
    /* Another choice may read them. */
    assert_int_equal(ech_config_check_read(config, owned, owned, "all"), ECH_OK);
    ech_config_print(config, &text);
    assert_non_null(strstr(text.at, "rope_theta"));
    ech_text_free(&text);
    ech_config_destroy(again);
    ech_config_destroy(copy);
    ech_config_destroy(config);
}

TEST(test_texts)
{
    const char *texts[] = {"",
                           "null",
                           "~",
                           "Yes",
                           "123",
                           "1e5",
                           "0x1f",
                           ".5",
                           ".inf",
                           "a b",
                           " a",
                           "a ",
                           "a: b",
                           "a #b",
                           "- a",
                           "\"q\"",
                           "it's",
                           "back\\slash",
                           "a\nb",
                           "\ttab",
                           "\r",
                           "\x7f",
                           "{a}",
                           "[a]",
                           "*a",
                           "&a",
                           "!a",
                           "%a",
                           "@a",
                           "`a",
                           "d\xc3\xa9j\xc3\xa0",
                           "\xc2\x85",
                           "\xe2\x80\xa8",
                           "\xef\xbb\xbfx",
                           "\xef\xbf\xbf",
                           "\xf0\x9f\x8f\x94",
                           "---",
                           "...",
                           "<<",
                           "=",
                           "?",
                           ":"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        ech_config *config = sample_create();
        ech_text assignment = {0};
        ech_text_append(&assignment, "optimizer.no_decay=%s", texts[i]);
        assert_int_equal(ech_config_set(config, assignment.at), ECH_OK);
        assert_string_equal(config->optimizer.no_decay, texts[i]);
        assert_round_trip(config, NULL);
        ech_text_free(&assignment);
        ech_config_destroy(config);
    }
}

TEST(test_lists)
{
    ech_config *config = sample_create();
    ech_text text = {0};
    static int64_t list[ECH_CONFIG_LONGEST_LIST];
    assert_int_equal(ech_config_set(config, "parallel.stage_replicas=[3,1]"), ECH_OK);
    assert_round_trip(config, &text);
    assert_non_null(strstr(text.at, "\n  stage_replicas: [3, 1]\n  partition: even\n"));
    ech_text_free(&text);
    for (int i = 0; i < ECH_CONFIG_LONGEST_LIST; i++) list[i] = 1000000 - i;
    ech_config_replace_list(&config->parallel.partition, -1, list, ECH_CONFIG_LONGEST_LIST);
    assert_round_trip(config, NULL);
    ech_config_destroy(config);
}

/* Names beside which there are true and false: YAML's own, not texts. */
TEST(test_truths)
{
    const char *const names[] = {"true", "false", "keep"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        ech_config *config = sample_create();
        ech_text run = {0}, text = {0}, line = {0};
        ech_text_append(&run, "parallel:\n  sequence: %s\n", names[i]);
        ech_text_append(&line, "\n  sequence: %s\n", names[i]);
        assert_int_equal(sample_read(config, run.at), ECH_OK);
        assert_string_equal(ech_config_name(config, "parallel.sequence"), names[i]);
        assert_round_trip(config, &text);
        assert_non_null(strstr(text.at, line.at));
        ech_text_free(&run);
        ech_text_append(&run, "parallel.sequence=%s", names[(i + 1) % 3]);
        assert_int_equal(ech_config_set(config, run.at), ECH_OK);
        assert_string_equal(ech_config_name(config, "parallel.sequence"), names[(i + 1) % 3]);
        ech_text_free(&run);
        ech_text_free(&text);
        ech_text_free(&line);
        ech_config_destroy(config);
    }
}

TEST(test_reals)
{
    ech_config *config = sample_create();
    const double few[] = {0, -0.0, 1, 0.1, 1e-5, 1.0 / 3, 1e6, 5e-324, 2.2250738585072014e-308};
    for (size_t i = 0; i < sizeof few / sizeof few[0]; i++) {
        config->optimizer.min_learning_rate = few[i];
        assert_round_trip(config, NULL);
    }
    for (uint64_t q = 0; q < 50; q++) {
        double normals[4];
        ech_random_normals((ech_random_key){3, 0, 0}, q, normals);
        config->optimizer.min_learning_rate = normals[0] * normals[0];
        config->optimizer.clip_norm = normals[1] * normals[1] * 1e6;
        config->optimizer.eps = normals[2] * normals[2] * 1e-12;
        assert_round_trip(config, NULL);
    }
    ech_config_destroy(config);
}

TEST(test_help)
{
    ech_config *config = sample_create();
    ech_text help = {0};
    ech_config_help(config, &help);
    const char *parts[] = {
        "model: the model; names as in",
        "  model.hidden_size\n      hidden width C\n"
        "      whole number, 1 to 1000000; required; may not change on resume\n",
        "one of: gpt2 llama; required; may not change on resume\n",
        "optimizer.eps\n      epsilon added to the root of the mean square\n"
        "      number, 0 to 1; default 1e-8\n",
        "true or false; default auto; may not change on resume\n",
        "list like [3, 1] of whole numbers, 0 to 1000000; or one of: even auto; default even\n",
        "default \"\"\n",
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (!strstr(help.at, parts[i])) fail_msg("no \"%s\" in\n%s", parts[i], help.at);
    size_t longest = 0;
    for (const char *at = help.at, *end; (end = strchr(at, '\n')); at = end + 1) {
        if ((size_t)(end - at) > longest) longest = (size_t)(end - at);
        if (end > help.at) assert_int_not_equal(end[-1], ' ');
    }
    assert_in_range(longest, 80, 90); /* wrapped, and not too early */
    ech_text_free(&help);
    ech_config_destroy(config);
}

/* Help of one key begins with its lines of the list, and has its longer text, each line of it as a
 * paragraph. */
TEST(test_help_of_a_key)
{
    ech_config *config = sample_create();
    ech_text help = {0};
    ech_config_help_key(config, "optimizer.eps", &help);
    assert_string_equal(help.at,
                        "  optimizer.eps\n      epsilon added to the root of the mean square\n"
                        "      muon also adds it to the norm by which a matrix is divided.\n"
                        "      number, 0 to 1; default 1e-8; may change on resume\n");
    ech_config_help_key(config, "parallel.zero", &help);
    assert_non_null(strstr(help.at, "et al. 2020).\n      1: each rank"));
    ECH_FREED_TEXT all = {0};
    ech_config_help(config, &all);
    int keys = 0;
    for (const char *at = all.at; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (strncmp(at, "  ", 2) != 0 || at[2] == ' ') continue;
        ECH_FREED_TEXT name = {0};
        ech_text_append_bytes(&name, at + 2, strcspn(at + 2, "\n"));
        ech_config_help_key(config, name.at, &help);
        keys++;
    }
    assert_true(keys > 100);
    for (const char *at = help.at, *end; (end = strchr(at, '\n')); at = end + 1)
        assert_in_range(end - at, 5, 90);
    ech_text_free(&help);
    ech_config_destroy(config);
}

/* A name means each key that has it; others are refused with the nearest key. */
TEST(test_key_names)
{
    static const struct {
        const char *name, *keys; /* or the error */
    } cases[] = {
        {"zero", "parallel.zero"},
        {"parallel.zero", "parallel.zero"},
        {"schedule", "optimizer.schedule parallel.schedule"},
        {"every", "checkpoint.every log.every"},
        {"lerning_rate", "no key lerning_rate; did you mean optimizer.learning_rate?"},
        {"optimizer.lerning_rate",
         "no key optimizer.lerning_rate; did you mean optimizer.learning_rate?"},
        {"log", "log is a section of run files, not a key; `echelon help keys log` lists its keys"},
        {"xyzzyplugh", "no key xyzzyplugh; `echelon help keys` lists all keys"},
        {"", "no key ; `echelon help keys` lists all keys"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ech_text keys = {0};
        capture c = begin_capture();
        ech_status status = ech_config_match_keys(cases[i].name, &keys);
        char *lines = end_capture(&c);
        if (status == ECH_OK) {
            assert_string_equal(keys.at, cases[i].keys);
            assert_string_equal(lines, "");
        } else {
            assert_int_equal(status, ECH_EUSAGE);
            assert_int_equal(keys.n, 0);
            assert_non_null(strstr(lines, cases[i].keys));
        }
        free(lines);
        ech_text_free(&keys);
    }
}
