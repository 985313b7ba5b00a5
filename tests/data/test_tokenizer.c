/* SPDX-License-Identifier: Apache-2.0
 *
 * What all tokenizers do alike; `bytes` in particular, and its files for Hugging Face.
 */
#include "data/scratch.h"

static ech_tokenizer *open_tokenizer(const char *source)
{
    ech_tokenizer *tokenizer = NULL;
    assert_int_equal(ech_tokenizer_open(source, &tokenizer), ECH_OK);
    return tokenizer;
}

TEST(test_open)
{
    ech_tokenizer *tokenizer = open_tokenizer("bytes");
    assert_string_equal(tokenizer->name, "bytes");
    assert_true(tokenizer->end_of_text < tokenizer->vocabulary);
    ech_tokenizer_close(tokenizer);
    ech_tokenizer_close(NULL);
    ech_coder_destroy(NULL);
    const char *const wrong[] = {"byte", "", in_scratch("missing.json")};
    for (int i = 0; i < 3; i++) {
        tokenizer = NULL;
        assert_int_equal(ech_tokenizer_open(wrong[i], &tokenizer), ECH_EUSAGE);
        assert_error_has("no such tokenizer; say bytes, or name a tokenizer.json");
        assert_null(tokenizer);
    }
}

/* Encodes `first` bytes, then the others, and decodes all. */
static void assert_round_trip(const unsigned char *bytes, size_t n, size_t first)
{
    ech_tokenizer *tokenizer = open_tokenizer("bytes");
    ech_coder *coder = ech_coder_create(tokenizer);
    ech_ids ids = {0};
    assert_int_equal(ech_coder_encode(coder, bytes, first, true, &ids), ECH_OK);
    assert_int_equal(ech_coder_encode(coder, bytes + first, n - first, true, &ids), ECH_OK);
    ech_text text = {0};
    for (size_t i = 0; i < ids.n; i++) {
        assert_in_range(ids.at[i], 0, (uintmax_t)tokenizer->vocabulary - 1);
        ech_tokenizer_decode(tokenizer, ids.at[i], i == 0, &text);
        ech_tokenizer_decode(tokenizer, tokenizer->end_of_text, false, &text);
    }
    assert_int_equal(text.n, n);
    if (n > 0) assert_memory_equal(text.at, bytes, n);
    ech_text_free(&text);
    free(ids.at);
    ech_coder_destroy(coder);
    ech_tokenizer_close(tokenizer);
}

TEST(test_round_trip)
{
    unsigned char all[1024];
    for (size_t i = 0; i < sizeof all; i++) all[i] = (unsigned char)(i * 7 + i / 256);
    for (size_t n = 0; n <= sizeof all; n += 64) assert_round_trip(all, n, n / 3);
}

TEST(test_bytes)
{
    ech_tokenizer *tokenizer = open_tokenizer("bytes");
    assert_int_equal(tokenizer->vocabulary, 257);
    assert_int_equal(tokenizer->end_of_text, 256);
    for (size_t n = 0; n < 4; n++) assert_int_equal(ech_tokenizer_split(tokenizer, "abc", n), n);
    ech_coder *coder = ech_coder_create(tokenizer);
    ech_ids ids = {0};
    assert_int_equal(ech_coder_encode(coder, "a\0\xff", 3, true, &ids), ECH_OK);
    assert_int_equal(ids.n, 3);
    assert_int_equal(ids.at[0], 97);
    assert_int_equal(ids.at[1], 0);
    assert_int_equal(ids.at[2], 255);
    free(ids.at);
    ech_coder_destroy(coder);
    ech_tokenizer_close(tokenizer);
}

static void assert_has(const ech_text *text, const char *part)
{
    if (!strstr(text->at, part)) fail_msg("no %s in %s", part, text->at);
}

TEST(test_bytes_for_hugging_face)
{
    ech_text tokens = {0}, config = {0};
    ech_tokenizer *tokenizer = open_tokenizer("bytes");
    ech_tokenizer_export(tokenizer, &tokens, &config);
    ech_tokenizer_close(tokenizer);
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

/* What a checkpoint has of it opens again, as the file or as its folder. */
TEST(test_bytes_from_a_file)
{
    ech_text tokens = {0}, config = {0}, again = {0}, again_config = {0};
    ech_tokenizer *tokenizer = open_tokenizer("bytes");
    ech_tokenizer_export(tokenizer, &tokens, &config);
    ech_tokenizer_close(tokenizer);
    write_file("tokenizer.json", tokens.at, tokens.n);
    write_file("tokenizer_config.json", config.at, config.n);
    const char *const sources[] = {scratch, in_scratch("tokenizer.json")};
    for (int i = 0; i < 2; i++) {
        tokenizer = open_tokenizer(sources[i]);
        assert_string_equal(tokenizer->name, sources[i]);
        assert_int_equal(tokenizer->vocabulary, 257);
        assert_int_equal(tokenizer->end_of_text, 256);
        ech_tokenizer_export(tokenizer, &again, &again_config);
        assert_string_equal(again.at, tokens.at);
        assert_string_equal(again_config.at, config.at);
        again.n = again_config.n = 0;
        ech_tokenizer_close(tokenizer);
    }
    ech_text_free(&tokens);
    ech_text_free(&config);
    ech_text_free(&again);
    ech_text_free(&again_config);
}
