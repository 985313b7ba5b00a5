/* SPDX-License-Identifier: Apache-2.0
 *
 * GPT-2's pair of files: made by hand, and OpenAI's own where ECHELON_GPT2, or ../shared/data/gpt2
 * beside the project, has them.
 */
#include "data/scratch.h"

#include "data/byte_ids.h"

/* All bytes as id 0 to 255, then `more`. */
static void write_encoder(const char *name, const char *more)
{
    ech_text out = {0};
    ech_text_append(&out, "{");
    append_byte_ids(&out);
    ech_text_append(&out, ", %s}", more);
    write_file(name, out.at, out.n);
    ech_text_free(&out);
}

static void assert_ids(const char *source, const char *text, const int32_t *expected, size_t n)
{
    ech_tokenizer *tokenizer;
    ech_ids ids = {0};
    assert_int_equal(ech_tokenizer_open(source, &tokenizer), ECH_OK);
    ech_coder *coder = ech_coder_create(tokenizer);
    assert_int_equal(ech_coder_encode(coder, text, strlen(text), true, &ids), ECH_OK);
    assert_int_equal(ids.n, n);
    assert_memory_equal(ids.at, expected, n * sizeof *expected);
    free(ids.at);
    ech_coder_destroy(coder);
    ech_tokenizer_close(tokenizer);
}

TEST(test_by_hand)
{
    const char *const pairs[][2] = {{"encoder.json", "vocab.bpe"}, {"vocab.json", "merges.txt"}};
    const char *const merges[] = {"#version: 0.2\na b\n\xc4\xa0 ab\n", "a b\r\n\xc4\xa0 ab"};
    for (int i = 0; i < 2; i++) {
        write_encoder(pairs[i][0], "\"ab\": 256, \"\xc4\xa0"
                                   "ab\": 257, \"<|endoftext|>\": 258");
        write_file(pairs[i][1], merges[i], strlen(merges[i]));
        assert_ids(scratch, "ab ab<|endoftext|>a b", (int32_t[]){256, 257, 258, 'a', ' ', 'b'}, 6);
        unlink(in_scratch(pairs[i][0]));
        unlink(in_scratch(pairs[i][1]));
    }
}

static void assert_refused(const char *encoder, const char *merges, const char *why)
{
    ech_tokenizer *tokenizer;
    write_encoder("encoder.json", encoder);
    write_file("vocab.bpe", merges, strlen(merges));
    assert_int_not_equal(ech_tokenizer_open(scratch, &tokenizer), ECH_OK);
    assert_error_has(why);
}

TEST(test_refused)
{
    const char *end = "\"ab\": 256, \"<|endoftext|>\": 257";
    assert_refused(end, "#version: 0.2\nab\n", "vocab.bpe: line 2: must be two tokens");
    assert_refused(end, "a b c\n", "vocab.bpe: line 1: must be two tokens");
    assert_refused(end, "a b\nb a\n",
                   "vocab.bpe: line 2: the token it makes is not in the vocabulary");
    assert_refused(end, "a b\na b\n", "merge 1 is merge 0 again");
    assert_refused(end, "xx b\n", "vocab.bpe: line 1: \"xx\" is not in the vocabulary");
    assert_refused("\"ab\": 7, \"<|endoftext|>\": 257", "a b\n",
                   "encoder.json: the vocabulary: \"ab\"");
    assert_refused("\"ab\": 256", "a b\n", "which token ends a text?");
}

TEST(test_other_family)
{
    const char *const class[] = {"{\"tokenizer_class\": \"Qwen2Tokenizer\"}",
                                 "{\"tokenizer_class\": \"GPT2Tokenizer\"}", "{}"};
    ech_tokenizer *tokenizer;
    write_encoder("vocab.json", "\"<|endoftext|>\": 256");
    write_file("merges.txt", "", 0);
    for (int i = 0; i < 3; i++) {
        write_file("tokenizer_config.json", class[i], strlen(class[i]));
        ech_status status = ech_tokenizer_open(scratch, &tokenizer);
        assert_int_equal(status, i == 0 ? ECH_EUNSUPPORTED : ECH_OK);
        if (status == ECH_OK) ech_tokenizer_close(tokenizer);
    }
    assert_error_has("tokenizer_config.json: tokenizer_class is Qwen2Tokenizer");
}

TEST(test_openai)
{
    const char *folder = getenv("ECHELON_GPT2");
    if (!folder) folder = ECH_SHARED_GPT2;
    if (!ech_file_is_folder(folder)) {
        print_message(
            "skipped: no %s; ECHELON_GPT2 names a folder with encoder.json and vocab.bpe\n",
            folder);
        skip();
    }
    assert_ids(folder, "Hello world", (int32_t[]){15496, 995}, 2);
    assert_ids(folder, "To be, or not to be<|endoftext|>",
               (int32_t[]){2514, 307, 11, 393, 407, 284, 307, 50256}, 8);
    assert_ids(folder, "\xf0\x9f\x99\x82\n\n  x", (int32_t[]){8582, 25081, 628, 220, 2124}, 5);
}
