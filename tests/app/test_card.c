/* SPDX-License-Identifier: Apache-2.0
 *
 * Model cards: what they say, names that would be Markdown or YAML, and cards that a user wrote.
 */
#include "app/runs.h"
#include "app/train/card.h"
#include "checkpoint/checkpoint.h"

static void has(const char *text, const char *part)
{
    if (!strstr(text, part)) fail_msg("\"%s\" is not in:\n%s", part, text);
}

static void lacks(const char *text, const char *part)
{
    if (strstr(text, part)) fail_msg("\"%s\" is in:\n%s", part, text);
}

static void describe(const char *directory, const char *base, const char *data, ech_text *out)
{
    ech_config *config = fixture_config("llama", "training.micro_batch_size=3");
    ECH_FREED_TEXT yaml = {0};
    ech_config_replace_text(&config->log.directory, directory);
    ech_config_replace_text(&config->model.init_from, base);
    ech_config_replace_text(&config->data.train, data);
    ech_config_print(config, &yaml);
    const ech_card card = {.config = config,
                           .run_yaml = yaml.at,
                           .parameters = 1234,
                           .step = 7,
                           .tokens = 5678,
                           .loss = 2.5,
                           .valid_loss = 2.25,
                           .valid_step = 6};
    ech_card_append(&card, out);
    ech_config_destroy(config);
}

TEST(test_what_it_says)
{
    ECH_FREED_TEXT card = {0};
    describe("runs/book/", "/home/me/.cache/models--org--my-base/snapshots/12ab", "0.3 d/a 0.7 e/b",
             &card);
    assert_true(strncmp(card.at, "---\nlibrary_name: transformers\n", 31) == 0);
    has(card.at, "\nbase_model: \"org/my-base\"\n");
    has(card.at, "\ntags:\n- echelon\n- llama\n---\n");
    has(card.at, "\n# book\n");
    has(card.at, "| llama, 1234 parameters |");
    has(card.at, "| data | 0\\.3 a 0\\.7 b |");
    has(card.at, "| training steps | 7 |\n| tokens | 5678 |\n| loss of the last step | 2.5000 |\n");
    has(card.at, "| validation loss | 2.2500, after step 6 |");
    has(card.at, "training:\n  global_batch_size: 12\n");
    has(card.at, "optimizer:\n  name: adamw\n  learning_rate: 0.01\n");
    has(card.at, "Trained with Echelon ");
    lacks(card.at, "/home/me"); /* no path of this machine */
    lacks(card.at, fixture_folder);
    lacks(card.at, "micro_batch_size"); /* nothing of the layout */
    lacks(card.at, "parallel");
}

TEST(test_names_are_escaped)
{
    ECH_FREED_TEXT card = {0};
    describe("a|b\n<script>", "x\"\nlicense: mit\n", "[t](u) `c`\\ d", &card);
    has(card.at, "\n# a\\|b \\<script\\>\n");
    has(card.at, "\nbase_model: \"x\\\"\\nlicense: mit\\n\"\n");
    has(card.at, "| base model | x\\\" license\\: mit  |\n");
    has(card.at, "| data | \\[t\\]\\(u\\) \\`c\\`\\\\ d |\n");
    lacks(card.at, "\nlicense");
    lacks(card.at, "<script>");
}

static char *read_card(int step)
{
    char path[512], *text;
    size_t n;
    runs_path(path, sizeof path, "carded", step, "model/README.md");
    assert_int_equal(ech_file_read(path, 1 << 20, &text, &n), ECH_OK);
    return text;
}

/* A checkpoint is whole with an edited card. One that replaces it keeps a card without the mark
 * only. */
TEST(test_own_cards_are_kept)
{
    static const char words[] = "training.steps=2 checkpoint.every=1 checkpoint.keep=0";
    char path[512];
    for (int own = 0; own < 2; own++) {
        const char *text = own ? "# mine\n" : "# theirs\n" ECH_CARD_MARK "\n";
        runs_train("llama", "carded", 2, words);
        ECH_FREED char *first = read_card(2);
        has(first, "| training steps | 2 |");
        has(first, ECH_CARD_MARK);
        runs_path(path, sizeof path, "carded", 2, "model/README.md");
        assert_int_equal(ech_file_write(path, text, strlen(text)), ECH_OK);
        ECH_CLEANUP(ech_checkpoint_close_at) ech_checkpoint *opened = NULL;
        runs_path(path, sizeof path, "carded", 2, "");
        assert_int_equal(ech_checkpoint_open(path, true, &opened), ECH_OK);
        runs_path(path, sizeof path, "carded", 2, "manifest.json");
        assert_int_equal(ech_file_write(path, "{", 1), ECH_OK); /* it is made again */
        runs_train("llama", "carded", 2, words);
        ECH_FREED char *second = read_card(2);
        if (own)
            assert_string_equal(second, text);
        else
            has(second, "| training steps | 2 |");
        runs_remove("carded");
    }
}

ALL_TESTS(fixture_setup, fixture_teardown)
