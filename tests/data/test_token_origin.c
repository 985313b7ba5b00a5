/* SPDX-License-Identifier: Apache-2.0
 *
 * Token files say which tokenizer made them, and are taken by no other.
 */
#include "data/imports.h"

#include "data/token_origin.h"

static ech_status open_with(const char *key, const char *prefix, const ech_tokenizer *tokenizer,
                            int64_t vocabulary)
{
    ech_corpus *corpus = NULL;
    ech_corpus_options options = {.key = key,
                                  .sources = in_scratch(prefix),
                                  .split = "",
                                  .sequence_length = 4,
                                  .tokenizer = tokenizer,
                                  .vocabulary = vocabulary};
    ech_status status = ech_corpus_open(&options, &corpus);
    ech_corpus_close(corpus);
    return status;
}

/* A tokenizer of its own in the folder NAME, learnt from a text. */
static ech_tokenizer *learn(const char *name, const char *text, int64_t vocabulary)
{
    ech_bpe_training training = {.pattern = "gpt2", .vocabulary = vocabulary};
    ech_tokenizer *tokenizer;
    write_text("learn.txt", text);
    training.texts.in = in_scratch("learn.txt");
    training.out = in_scratch(name);
    assert_int_equal(ech_data_train_bpe(&training), ECH_OK);
    assert_int_equal(ech_tokenizer_open(in_scratch(name), &tokenizer), ECH_OK);
    return tokenizer;
}

static void import_as(const ech_tokenizer *tokenizer, const char *out)
{
    ech_import_options options = {.tokenizer = tokenizer, .workers = 1};
    ech_import_count count;
    options.texts.in = in_scratch("text.txt");
    options.out = in_scratch(out);
    assert_int_equal(ech_data_import(&options, &count), ECH_OK);
}

TEST(another_is_refused)
{
    ech_tokenizer *bytes, *one, *other;
    write_text("text.txt", "the cat and the dog and the hen");
    assert_int_equal(ech_tokenizer_open("bytes", &bytes), ECH_OK);
    one = learn("one", "the the the and and", 260);
    other = learn("other", "cat cat cat dog dog", 260);
    import_as(one, "tokens");
    assert_int_equal(open_with("data.train", "tokens", one, 260), ECH_OK);
    assert_int_equal(open_with("data.train", "tokens", other, 260), ECH_EUSAGE);
    assert_error_has("data.train");
    assert_error_has("of 260 ids");
    assert_error_has("set data.tokenizer=");
    assert_error_has("/one, or");
    assert_int_equal(open_with("data.train", "tokens", bytes, 260), ECH_EUSAGE);
    assert_error_has("this is bytes, of 257");
    assert_int_equal(open_with("--data", "tokens", bytes, 260), ECH_EUSAGE);
    assert_error_has("echelon data IN OUT --tokenizer bytes");
    /* nobody knows the model's: its ids must suffice */
    assert_int_equal(open_with("data.train", "tokens", NULL, 260), ECH_OK);
    assert_int_equal(open_with("data.train", "tokens", NULL, 259), ECH_EUSAGE);
    assert_error_has("more than the model's 259");
    /* of other programs nothing is known */
    assert_int_equal(unlink(in_scratch("tokens.origin.json")), 0);
    assert_int_equal(open_with("data.train", "tokens", other, 260), ECH_OK);
    ech_tokenizer_close(bytes);
    ech_tokenizer_close(one);
    ech_tokenizer_close(other);
}

/* The ids of the bytes' tokenizer mean the same when it comes from a checkpoint's files. */
TEST(exported_is_the_same)
{
    ech_tokenizer *bytes, *exported;
    ech_text json = {0}, config = {0};
    char a[ECH_TOKENIZER_HASH], b[ECH_TOKENIZER_HASH];
    assert_int_equal(ech_tokenizer_open("bytes", &bytes), ECH_OK);
    ech_tokenizer_export(bytes, &json, &config);
    write_text("tokenizer.json", json.at);
    write_text("tokenizer_config.json", config.at);
    assert_int_equal(ech_tokenizer_open(in_scratch("tokenizer.json"), &exported), ECH_OK);
    ech_tokenizer_hash(bytes, a);
    ech_tokenizer_hash(exported, b);
    assert_string_equal(a, b);
    ech_tokenizer_close(bytes);
    ech_tokenizer_close(exported);
    ech_text_free(&json);
    ech_text_free(&config);
}

/* The description of one token file is not used for another. */
TEST(goes_with_its_file)
{
    ech_import_count count;
    write_text("text.txt", "some words");
    assert_int_equal(import("text.txt", "tokens", 0, &count), ECH_OK);
    assert_true(ech_file_exists(in_scratch("tokens.origin.json")));
    assert_int_equal(import("text.txt", "parts", 0.5, &count), ECH_OK);
    assert_true(ech_file_exists(in_scratch("parts-train.origin.json")));
    assert_true(ech_file_exists(in_scratch("parts-valid.origin.json")));
    assert_int_equal(rename(in_scratch("tokens.origin.json"), in_scratch("kept")), 0);
    ech_token_file_close(counting_file("tokens", 50));
    assert_int_equal(rename(in_scratch("kept"), in_scratch("tokens.origin.json")), 0);
    assert_int_equal(open_with("data.train", "tokens", NULL, 65000), ECH_EINPUT);
    assert_error_has("describes 11 tokens");
    ech_token_file_close(counting_file("tokens", 60)); /* who writes a file anew removes it */
    assert_false(ech_file_exists(in_scratch("tokens.origin.json")));
}

TEST(what_it_may_hold)
{
    static const char whole[] =
        "{\"format\": \"echelon tokens\", \"version\": 2, \"tokenizer\": \"t\", \"vocabulary\": "
        "257, \"tokens\": 11, \"begin_of_text\": true, \"hash\": "
        "\"0123456789abcdef0123456789abcdef\"}";
    static const struct {
        const char *from, *to, *says;
    } changes[] = {{"echelon tokens", "tokens", "'format'"},
                   {"\"version\": 2", "\"version\": 3", "newer"},
                   {"\"version\": 2", "\"version\": 1", "damaged"},
                   {"true", "1", "damaged"},
                   {"\"begin_of_text\": true, ", "", "damaged"},
                   {"257", "0", "damaged"},
                   {"257", "4294967296", "damaged"},
                   {"\"t\"", "null", "damaged"},
                   {"abcdef0", "abcdeG0", "damaged"},
                   {"abcdef\"", "abcdef0\"", "damaged"},
                   {"\"tokens\": 11", "\"tokens\": -1", "damaged"},
                   {"\"tokens\": 11", "\"tokens\": 11, \"more\": 1", "damaged"}};
    ech_token_origin origin;
    assert_int_equal(ech_token_origin_parse("f", whole, strlen(whole), &origin), ECH_OK);
    assert_int_equal(origin.vocabulary, 257);
    assert_int_equal(origin.tokens, 11);
    assert_true(origin.begins);
    ech_token_origin_free(&origin);
    static const char old[] =
        "{\"format\": \"echelon tokens\", \"version\": 1, \"tokenizer\": \"t\", \"vocabulary\": "
        "257, \"tokens\": 11, \"hash\": \"0123456789abcdef0123456789abcdef\"}";
    assert_int_equal(ech_token_origin_parse("f", old, strlen(old), &origin), ECH_OK);
    assert_false(origin.begins);
    ech_token_origin_free(&origin);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        char text[400];
        const char *at = strstr(whole, changes[i].from);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - whole), whole, changes[i].to,
                 at + strlen(changes[i].from));
        assert_int_not_equal(ech_token_origin_parse("f", text, strlen(text), &origin), ECH_OK);
        assert_error_has(changes[i].says);
    }
}
