/* SPDX-License-Identifier: Apache-2.0
 *
 * Every tokenizer gives a text back; `bytes` in particular, and its files for Hugging Face.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/data.h"

static const char *const names[] = {
#define X(name, help) #name,
#include "data/tokenizer.def"
#undef X
};
enum { TOKENIZERS = sizeof names / sizeof names[0] };

static void test_table(void **state)
{
    (void)state;
    for (int i = 0; i < TOKENIZERS; i++) {
        const ech_tokenizer *tokenizer = ech_tokenizer_find(names[i]);
        assert_non_null(tokenizer);
        assert_string_equal(tokenizer->name, names[i]);
        assert_true(ech_text_has_word(ech_tokenizer_names(), names[i]));
        assert_true(tokenizer->end_of_text < tokenizer->vocabulary);
    }
    assert_null(ech_tokenizer_find("byte"));
    assert_null(ech_tokenizer_find(""));
    assert_true(ech_tokenizer_names()[0] != ' ');
}

/* Encodes `first` bytes, then the others, and decodes all. */
static void assert_round_trip(const ech_tokenizer *tokenizer, const unsigned char *bytes, size_t n,
                              size_t first)
{
    int32_t *ids = NULL;
    size_t count = 0, capacity = 0;
    tokenizer->encode(bytes, first, &ids, &count, &capacity);
    tokenizer->encode(bytes + first, n - first, &ids, &count, &capacity);
    ech_text text = {0};
    for (size_t i = 0; i < count; i++) {
        assert_in_range(ids[i], 0, (uintmax_t)tokenizer->vocabulary - 1);
        tokenizer->decode(ids[i], &text);
        tokenizer->decode(tokenizer->end_of_text, &text);
    }
    assert_int_equal(text.n, n);
    if (n > 0) assert_memory_equal(text.at, bytes, n);
    ech_text_free(&text);
    free(ids);
}

static void test_round_trip(void **state)
{
    (void)state;
    unsigned char all[1024];
    for (size_t i = 0; i < sizeof all; i++) all[i] = (unsigned char)(i * 7 + i / 256);
    for (int i = 0; i < TOKENIZERS; i++) {
        const ech_tokenizer *tokenizer = ech_tokenizer_find(names[i]);
        for (size_t n = 0; n <= sizeof all; n += 64) assert_round_trip(tokenizer, all, n, n / 3);
    }
}

static void test_bytes(void **state)
{
    (void)state;
    const ech_tokenizer *tokenizer = ech_tokenizer_find("bytes");
    assert_int_equal(tokenizer->vocabulary, 257);
    assert_int_equal(tokenizer->end_of_text, 256);
    assert_true(tokenizer->takes_pieces);
    int32_t *ids = NULL;
    size_t count = 0, capacity = 0;
    tokenizer->encode("a\0\xff", 3, &ids, &count, &capacity);
    assert_int_equal(count, 3);
    assert_int_equal(ids[0], 97);
    assert_int_equal(ids[1], 0);
    assert_int_equal(ids[2], 255);
    free(ids);
}

static void assert_has(const ech_text *text, const char *part)
{
    if (!strstr(text->at, part)) fail_msg("no %s in %s", part, text->at);
}

static void test_bytes_for_hugging_face(void **state)
{
    (void)state;
    ech_text tokens = {0}, config = {0};
    ech_tokenizer_find("bytes")->export_json(&tokens, &config);
    /* GPT-2's characters: blank is U+0120, line feed U+010A, 0 is U+0100, 173 the last, U+0143. */
    const char *const entries[] = {
        "\"a\": 97,",        "\"\\\"\": 34,",          "\"\\\\\": 92,",      "\"\xc4\xa0\": 32,",
        "\"\xc4\x8a\": 10,", "\"\xc4\x80\": 0,",       "\"\xc5\x83\": 173,", "\"\xc3\xbf\": 255,",
        "\"~\": 126,",       "\"<|endoftext|>\": 256", "\"merges\": []",     "\"type\": \"BPE\""};
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) assert_has(&tokens, entries[i]);
    int colons = 0;
    const char *end = strstr(tokens.at, "\n    }");
    for (const char *at = strstr(tokens.at, "\"vocab\": {") + 9; at < end; at++)
        colons += at[0] == '"' && at[1] == ':' && at[2] == ' ';
    assert_int_equal(colons, 257);
    assert_has(&config, "\"PreTrainedTokenizerFast\"");
    assert_has(&config, "\"eos_token\": \"<|endoftext|>\"");
    ech_text_free(&tokens);
    ech_text_free(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_bytes_for_hugging_face),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
