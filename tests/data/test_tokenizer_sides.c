/* SPDX-License-Identifier: Apache-2.0
 *
 * The files beside a tokenizer.json: what they add is used as transformers uses it, and where they
 * disagree the folder is refused, naming both.
 * */
#include "data/scratch.h"

#include "data/byte_ids.h"

#define END "{\"id\": 256, \"content\": \"<|endoftext|>\", \"special\": true}"
#define X   ", {\"id\": 257, \"content\": \"<x>\", \"special\": true}"

typedef struct sides {
    const char *config, *map, *added; /* NULL: there is no such file */
} sides;

static ech_status open_with(sides s, ech_tokenizer **out)
{
    const char *const names[] = {"tokenizer_config.json", "special_tokens_map.json",
                                 "added_tokens.json"};
    const char *const texts[] = {s.config, s.map, s.added};
    for (int i = 0; i < 3; i++) {
        unlink(in_scratch(names[i]));
        if (texts[i]) write_file(names[i], texts[i], strlen(texts[i]));
    }
    ech_clear_error();
    *out = NULL;
    return ech_tokenizer_open(scratch, out);
}

/* The ids of a text, blanks between, and those of end and begin of text. */
static void assert_opens(sides s, const char *text, const char *expected)
{
    ech_tokenizer *tokenizer;
    ech_ids ids = {0};
    ECH_FREED_TEXT is = {0};
    if (open_with(s, &tokenizer) != ECH_OK) fail_msg("%s", ech_last_error());
    ech_coder *coder = ech_coder_create(tokenizer);
    assert_int_equal(ech_coder_encode(coder, text, strlen(text), true, &ids), ECH_OK);
    for (size_t i = 0; i < ids.n; i++) ech_text_append(&is, "%d ", (int)ids.at[i]);
    ech_text_append(&is, "| %d %d", (int)tokenizer->end_of_text, (int)tokenizer->begin_of_text);
    assert_string_equal(is.at, expected);
    free(ids.at);
    ech_coder_destroy(coder);
    ech_tokenizer_close(tokenizer);
}

static void assert_refused(sides s, const char *first, const char *second)
{
    ech_tokenizer *tokenizer;
    assert_int_equal(open_with(s, &tokenizer), ECH_EINPUT);
    assert_null(tokenizer);
    assert_error_has(first);
    assert_error_has(second);
    assert_null(strchr(ech_last_error(), '\n'));
}

TEST(test_names)
{
    write_byte_tokenizer(END X, false, "");
    assert_opens((sides){0}, "<x>", "257 | 256 256");
    assert_opens((sides){.map = "{\"eos_token\": \"<x>\"}"}, "a", "97 | 257 257");
    assert_opens((sides){.map = "{\"eos_token\": {\"content\": \"<x>\"}, \"bos_token\": "
                                "\"<|endoftext|>\", \"pad_token\": null}"},
                 "a", "97 | 257 256");
    assert_opens((sides){.config = "{\"eos_token\": \"<x>\"}", .map = "{\"eos_token\": \"<x>\"}"},
                 "a", "97 | 257 257");
    /* a token of the model is found in texts once it has a name */
    assert_opens((sides){.config = "{\"pad_token\": \"b\"}"}, "ab", "97 98 | 256 256");
    /* transformers (5.24) takes its flags from the file that it reads last */
#define AS_B(key, flag) "\"" key "\": {\"content\": \"b\", \"" flag "\": true}"
    static const struct named {
        sides files;
        const char *ids;
    } named[] = {
        {{.map = "{" AS_B("pad_token", "lstrip") "}"}, "97 98 32 97 98 | 256 256"},
        {{.map = "{" AS_B("pad_token", "rstrip") "}"}, "97 32 98 97 98 | 256 256"},
        {{.map = "{" AS_B("pad_token", "single_word") "}"}, "97 32 98 32 97 98 | 256 256"},
        {{.config = "{" AS_B("pad_token", "lstrip") "}"}, "97 98 32 97 98 | 256 256"},
        {{.config = "{\"pad_token\": \"b\"}", .map = "{" AS_B("pad_token", "lstrip") "}"},
         "97 98 32 97 98 | 256 256"},
        {{.config = "{" AS_B("pad_token", "lstrip") "}", .map = "{\"pad_token\": \"b\"}"},
         "97 32 98 32 97 98 | 256 256"},
        {{.config = "{\"added_tokens_decoder\": {}, \"pad_token\": \"b\"}",
          .map = "{" AS_B("pad_token", "lstrip") "}"},
         "97 32 98 32 97 98 | 256 256"},
        {{.config = "{\"pad_token\": \"b\"}", .map = "{" AS_B("unk_token", "lstrip") "}"},
         "97 32 98 32 97 98 | 256 256"},
        {{.config = "{\"unk_token\": \"b\"}", .map = "{" AS_B("pad_token", "lstrip") "}"},
         "97 98 32 97 98 | 256 256"},
        {{.map = "{\"extra_special_tokens\": [{\"content\": \"b\", \"lstrip\": true}]}"},
         "97 98 32 97 98 | 256 256"},
    };
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        assert_opens(named[i].files, "a b ab", named[i].ids);
    assert_opens((sides){.map = "{\"pad_token\": {\"content\": \"<x>\", \"lstrip\": true}}"},
                 "a <x>", "97 32 257 | 256 256");
    assert_refused(
        (sides){.config = "{\"eos_token\": \"<x>\"}", .map = "{\"eos_token\": \"<|endoftext|>\"}"},
        "tokenizer_config.json: eos_token is \"<x>\", and \"<|endoftext|>\" in ",
        "special_tokens_map.json");
    assert_refused((sides){.config = "{\"pad_token\": \"<pad>\"}"},
                   "tokenizer_config.json: pad_token: \"<pad>\" is no token", "tokenizer.json");
    assert_refused((sides){.map = "{\"unk_token\": \"<unk>\"}"},
                   "special_tokens_map.json: unk_token: \"<unk>\" is no token", "tokenizer.json");
    assert_refused((sides){.map = "{\"eos_token\": 7}"}, "special_tokens_map.json: eos_token",
                   "must be a string");
    assert_opens((sides){.map = "{\"additional_special_tokens\": [\"<x>\", {\"content\": "
                                "\"<|endoftext|>\"}]}"},
                 "a", "97 | 256 256");
    assert_refused((sides){.config = "{\"additional_special_tokens\": [\"<x>\", \"<y>\"]}"},
                   "tokenizer_config.json: additional_special_tokens: \"<y>\" is no token",
                   "tokenizer.json");
    assert_refused((sides){.map = "{\"extra_special_tokens\": [7]}"},
                   "special_tokens_map.json: extra_special_tokens[0]", "must be a string");
    assert_refused((sides){.map = "["}, "special_tokens_map.json", "");
}

#define DECODER(rows) "{\"added_tokens_decoder\": {" rows "}}"

/* Flags of tokenizer_config.json count. Tokens that tokenizer.json has are there with the same ids;
 * others are added, in the order of their ids. */
TEST(test_added_tokens_decoder)
{
    write_byte_tokenizer(END X, false, "");
    assert_opens((sides){.config = DECODER("\"257\": {\"content\": \"<x>\"}")}, "a <x> b",
                 "97 32 257 32 98 | 256 256");
    assert_opens((sides){.config = DECODER("\"257\": {\"content\": \"<x>\", \"lstrip\": true, "
                                           "\"rstrip\": true}")},
                 "a <x> b", "97 257 98 | 256 256");
    assert_opens(
        (sides){.config = DECODER("\"257\": {\"content\": \"<x>\", \"single_word\": true}")},
        "a<x>.<x>.", "97 60 120 62 46 257 46 | 256 256");
    assert_opens((sides){.config = DECODER("\"259\": {\"content\": \"<y>\"}, "
                                           "\"258\": {\"content\": \"<z>\"}")},
                 "<y><x><z>", "259 257 258 | 256 256");
    /* a character as which byte 233 is written; and ids with a gap, as in tokenizer.json */
    assert_opens((sides){.config = DECODER("\"233\": {\"content\": \"\u00e9\"}")}, "caf\u00e9",
                 "99 97 102 233 | 256 256");
    assert_opens((sides){.config = DECODER("\"300\": {\"content\": \"<y>\"}")}, "<y>",
                 "258 | 256 256");
    assert_refused((sides){.config = DECODER("\"258\": {\"content\": \"<x>\"}")},
                   "added_tokens_decoder: \"<x>\" has id 258, and 257 in ", "tokenizer.json");
    assert_refused((sides){.config = DECODER("\"257\": {\"content\": \"<y>\"}")},
                   "added_tokens_decoder: \"<y>\" has id 257, which another token has", "");
    assert_refused((sides){.config = DECODER("\"258\": {\"content\": \"b\"}")},
                   "added_tokens_decoder: \"b\" has id 258 here and 98 in the vocabulary", "");
    assert_refused((sides){.config = DECODER("\"258\": {\"content\": \"\"}")},
                   "added_tokens_decoder: content: must be a string of 1 to 1024 bytes", "");
    assert_refused((sides){.config = DECODER("\"258\": {\"content\": \"<y>\"}, "
                                             "\"259\": {\"content\": \"<y>\"}")},
                   "tokenizer_config.json: added_tokens_decoder: \"<y>\" comes twice", "");
    assert_refused((sides){.config = DECODER("\"-1\": {\"content\": \"<y>\"}")},
                   "added_tokens_decoder: -1: must be an id", "");
    assert_refused((sides){.config = DECODER("\"x\": {\"content\": \"<x>\"}")},
                   "added_tokens_decoder: x: must be an id", "");
    assert_refused((sides){.config = DECODER("\"257\": \"<x>\"")}, "added_tokens_decoder: 257", "");
}

TEST(test_added_tokens)
{
    write_byte_tokenizer(END X, false, "");
    assert_opens((sides){.added = "{\"<x>\": 257}"}, "<x>", "257 | 256 256");
    assert_opens((sides){.added = "{\"<y>\": 258}"}, "<y>", "258 | 256 256");
    assert_opens((sides){.config = "{\"pad_token\": \"<y>\"}", .added = "{\"<y>\": 258}"}, "<y>",
                 "258 | 256 256");
    /* not read where tokenizer_config.json has its own list */
    assert_opens((sides){.config = DECODER(""), .added = "{\"<y>\": 258}"}, "<y>",
                 "60 121 62 | 256 256");
    assert_refused((sides){.added = "{\"<x>\": 300}"}, "added_tokens.json: \"<x>\" has id 300",
                   "tokenizer.json");
    assert_refused((sides){.added = "{\"<x>\": \"257\"}"}, "added_tokens.json: \"<x>\"", "");
}

/* Ids that a file states with gaps are those that the library gives; both files may state them. */
TEST(test_gaps)
{
    write_byte_tokenizer(
        END ", {\"id\": 300, \"content\": \"<x>\"}, {\"id\": 310, \"content\": \"<y>\"}", false,
        "");
    assert_opens((sides){0}, "a<x><y>", "97 257 258 | 256 256");
    assert_opens((sides){.added = "{\"<x>\": 300, \"<y>\": 310}"}, "<y>", "258 | 256 256");
    /* the character as which byte 233 is written */
    write_byte_tokenizer(END ", {\"id\": 233, \"content\": \"\u00e9\"}", false, "");
    assert_opens((sides){0}, "caf\u00e9", "99 97 102 233 | 256 256");
}

TEST(test_prefix)
{
    for (int has = 0; has < 2; has++)
        for (int wants = 0; wants < 2; wants++) {
            const char *config =
                wants ? "{\"add_prefix_space\": true}" : "{\"add_prefix_space\": false}";
            write_byte_tokenizer(END, has, "");
            if (has == wants)
                assert_opens((sides){.config = config}, "a",
                             has ? "32 97 | 256 256" : "97 | 256 256");
            else
                assert_refused((sides){.config = config}, "tokenizer_config.json: add_prefix_space",
                               "tokenizer.json puts");
        }
    /* GPT-2's pair does not say, so the key counts */
    write_byte_tokenizer(END, false, "");
    ech_tokenizer *tokenizer;
    assert_int_equal(open_with((sides){0}, &tokenizer), ECH_OK);
    ech_tokenizer_close(tokenizer);
    unlink(in_scratch("tokenizer.json"));
    ech_text vocabulary = {0};
    ech_text_append(&vocabulary, "{\"<|endoftext|>\": 256, ");
    append_byte_ids(&vocabulary);
    ech_text_append(&vocabulary, "}");
    write_file("vocab.json", vocabulary.at, vocabulary.n);
    write_file("merges.txt", "#version: 0.2\n", 14);
    ech_text_free(&vocabulary);
    assert_opens((sides){.config = "{\"add_prefix_space\": true}"}, "a", "32 97 | 256 256");
    assert_opens((sides){.config = "{\"add_prefix_space\": false}"}, "a", "97 | 256 256");
}
