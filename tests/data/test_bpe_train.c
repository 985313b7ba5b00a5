/* SPDX-License-Identifier: Apache-2.0
 *
 * Learning a vocabulary: the commonest pairs first, ties by id, the same from pieces and in any
 * order of texts. check_bpe.py holds it against Hugging Face's trainer.
 */
#include "data/scratch.h"

enum { BYTES_AND_END = 257 };

static ech_status learn(const char *pattern, const char *const *texts, int n, int64_t vocabulary,
                        ech_text *tokens)
{
    ech_bpe_trainer *trainer;
    ech_text config = {0};
    ECH_TRY(ech_bpe_trainer_create(pattern, &trainer));
    for (int i = 0; i < n; i++)
        assert_int_equal(ech_bpe_trainer_add(trainer, texts[i], strlen(texts[i])), ECH_OK);
    ech_status status = ech_bpe_trainer_finish(trainer, vocabulary, NULL, tokens, &config);
    ech_bpe_trainer_destroy(trainer);
    ech_text_free(&config);
    return status;
}

/* "merges" of a tokenizer.json, blanks and newlines left out. */
static void assert_merges(const ech_text *tokens, const char *expected)
{
    char have[4096];
    size_t n = 0;
    const char *at = strstr(tokens->at, "\"merges\": ");
    assert_non_null(at);
    for (at += strlen("\"merges\": "); *at && n + 1 < sizeof have; at++)
        if (*at != ' ' && *at != '\n') have[n++] = *at;
    have[n] = 0;
    assert_string_equal(have, expected);
}

TEST(test_merges)
{
    /* l-o 6; then blank-lo and lo-w 5 each: the lower ids first; blank-lo-w 4; e-r and low-e 2. */
    const char *const texts[] = {"low low low lower lower lot"};
    ech_text tokens = {0};
    assert_int_equal(learn("gpt2", texts, 1, BYTES_AND_END + 4, &tokens), ECH_OK);
    assert_merges(&tokens, "[[\"l\",\"o\"],[\"\xc4\xa0\",\"lo\"],[\"\xc4\xa0lo\",\"w\"],"
                           "[\"e\",\"r\"]]}}");
    assert_non_null(strstr(tokens.at, "\"<|endoftext|>\": 0,"));
    assert_non_null(strstr(tokens.at, "\"!\": 1,"));
    assert_non_null(strstr(tokens.at, "\"lo\": 257,"));
    ech_text_free(&tokens);
}

TEST(test_order_of_texts)
{
    const char *const texts[] = {"one two three four five", "three tree\nthree trees 333",
                                 "five four"};
    const char *const turned[] = {texts[2], texts[0], texts[1]};
    ech_text first = {0}, second = {0};
    assert_int_equal(learn("llama3", texts, 3, BYTES_AND_END + 20, &first), ECH_OK);
    assert_int_equal(learn("llama3", turned, 3, BYTES_AND_END + 20, &second), ECH_OK);
    assert_string_equal(first.at, second.at);
    ech_text_free(&first);
    ech_text_free(&second);
}

/* aaaa: merges within a word overlap, and a token of one merge is the part of the next. */
TEST(test_repeated_letter)
{
    const char *const texts[] = {"aaaaaaaa"};
    ech_text tokens = {0};
    assert_int_equal(learn("gpt2", texts, 1, BYTES_AND_END + 3, &tokens), ECH_OK);
    assert_merges(&tokens, "[[\"a\",\"a\"],[\"aa\",\"aa\"],[\"aaaa\",\"aaaa\"]]}}");
    tokens.n = 0;
    assert_int_equal(learn("gpt2", texts, 1, BYTES_AND_END + 4, &tokens), ECH_EINPUT);
    assert_error_has("the texts give a vocabulary of at most 260 tokens, and 261 are wanted: use "
                     "--train-bpe 260");
    assert_int_equal(tokens.n, 0);
    ech_text_free(&tokens);
}

TEST(test_refused)
{
    ech_text tokens = {0};
    const char *const texts[] = {"a"};
    assert_int_equal(learn("whole", texts, 1, 300, &tokens), ECH_EUSAGE);
    assert_error_has("pattern whole: not one of: gpt2 llama3 cl100k qwen2");
    assert_int_equal(learn("gpt2", texts, 1, 256, &tokens), ECH_EUSAGE);
    assert_error_has("257 (bytes and end-of-text) to 10000000");
    assert_int_equal(learn("gpt2", texts, 1, 10000001, &tokens), ECH_EUSAGE);
    ech_text_free(&tokens);
}

/* Files longer than a piece, one of them no UTF-8; what was learnt opens and encodes. */
TEST(test_files)
{
    enum { BYTES = 3 << 20 };
    char *text = ech_calloc(BYTES, 1);
    for (int i = 0; i < BYTES; i++) text[i] = "the cat sat on the mat. "[i % 24];
    ech_file_make_folder(in_scratch("in"));
    write_file("in/text", text, BYTES);
    write_file("in/junk", "\xff\xfe\xff\xfe", 4);
    const ech_bpe_training training = {.texts = {.in = in_scratch("in"), .binary = true},
                                       .out = in_scratch("deep/out"),
                                       .pattern = "gpt2",
                                       .vocabulary = 264};
    assert_int_equal(ech_data_train_bpe(&training), ECH_OK);
    ech_tokenizer *tokenizer;
    assert_int_equal(ech_tokenizer_open(in_scratch("deep/out"), &tokenizer), ECH_OK);
    assert_int_equal(tokenizer->vocabulary, 264);
    assert_int_equal(tokenizer->end_of_text, 0);
    ech_coder *coder = ech_coder_create(tokenizer);
    ech_ids ids = {0};
    ech_text back = {0};
    assert_int_equal(ech_coder_encode(coder, text, 24, true, &ids), ECH_OK);
    assert_true(ids.n < 20);
    for (size_t i = 0; i < ids.n; i++) ech_tokenizer_decode(tokenizer, ids.at[i], i == 0, &back);
    assert_int_equal(back.n, 24);
    assert_memory_equal(back.at, text, 24);
    ech_text_free(&back);
    free(ids.at);
    free(text);
    ech_coder_destroy(coder);
    ech_tokenizer_close(tokenizer);
}

/* The merges that are learnt from `in` of the folder. */
static ech_status learn_file(ech_data_text_source source, const char *in, int64_t vocabulary,
                             ech_text *tokens)
{
    source.in = in_scratch(in);
    const ech_bpe_training training = {
        .texts = source, .out = in_scratch("out"), .pattern = "gpt2", .vocabulary = vocabulary};
    ECH_TRY(ech_data_train_bpe(&training));
    char *json;
    size_t n;
    assert_int_equal(ech_file_read(in_scratch("out/tokenizer.json"), 1 << 20, &json, &n), ECH_OK);
    ech_text_append_bytes(tokens, json, n);
    free(json);
    return ECH_OK;
}

static void assert_learns(ech_data_text_source source, const char *in, int64_t learnt,
                          const char *merges)
{
    ech_text tokens = {0};
    assert_int_equal(learn_file(source, in, BYTES_AND_END + learnt, &tokens), ECH_OK);
    assert_merges(&tokens, merges);
    ech_text_free(&tokens);
}

/* Of lines only the strings are texts: neither keys, nor escapes, nor what joins two of them. */
TEST(test_lines)
{
    static const char lines[] = "{\"text\": \"xy\\u0078y\", \"meta\": \"zwzwzwzw\"}\n\n"
                                "{\"prompt\": \"xyx\", \"completion\": \"yxy\"}";
    static const char keyed[] = "{\"q\": \"mn\", \"a\": \"mn\"}\n{\"content\": \"op\"}\n";
    write_file("a.jsonl", lines, sizeof lines - 1);
    /* xyxy, xyx, yxy: x-y 4; then y-xy, xy-x and xy-xy 1 each: the lowest ids first. */
    assert_learns((ech_data_text_source){0}, "a.jsonl", 2, "[[\"x\",\"y\"],[\"y\",\"xy\"]]}}");
    write_file("b.jsonl", keyed, sizeof keyed - 1);
    const ech_data_text_source keys = {
        .text_key = "content", .prompt_key = "q", .completion_key = "a"};
    assert_learns(keys, "b.jsonl", 2, "[[\"m\",\"n\"],[\"o\",\"p\"]]}}");
    ech_text tokens = {0};
    assert_int_equal(learn_file(keys, "b.jsonl", BYTES_AND_END + 3, &tokens), ECH_EINPUT);
    assert_error_has("a vocabulary of at most 259 tokens");
    assert_int_equal(learn_file((ech_data_text_source){0}, "b.jsonl", 300, &tokens), ECH_EINPUT);
    assert_error_has("b.jsonl:1: has neither \"text\" nor");
}

/* More lines than a piece has, and the same as plain text: the same vocabulary. */
TEST(test_many_lines)
{
    ech_text lines = {0}, plain = {0}, from_lines = {0}, from_plain = {0};
    for (int i = 0; i < 80000; i++) {
        ech_text_append(&lines, "{\"text\": \"word%d and\\nmore%d\\n\"}\n", i % 97, i % 13);
        ech_text_append(&plain, "word%d and\nmore%d\n", i % 97, i % 13);
    }
    assert_true(lines.n > 2 << 20);
    write_file("a.jsonl", lines.at, lines.n);
    write_file("a.txt", plain.at, plain.n);
    const ech_data_text_source source = {0};
    assert_int_equal(learn_file(source, "a.jsonl", 320, &from_lines), ECH_OK);
    assert_int_equal(learn_file(source, "a.txt", 320, &from_plain), ECH_OK);
    assert_string_equal(from_lines.at, from_plain.at);
    ech_text *all[] = {&lines, &plain, &from_lines, &from_plain};
    for (int i = 0; i < 4; i++) ech_text_free(all[i]);
}

static void write_text(const char *name, const char *text)
{
    write_file(name, text, strlen(text));
}

TEST(test_refused_texts)
{
    ech_text tokens = {0};
    const ech_data_text_source source = {0}, binary = {.binary = true};
    write_text("a.txt", "ab \xff ab");
    assert_int_equal(learn_file(source, "a.txt", 258, &tokens), ECH_EINPUT);
    assert_error_has("a.txt: byte 3 (0xff) is no UTF-8 text");
    assert_false(ech_file_exists(in_scratch("out")));
    assert_learns(binary, "a.txt", 1, "[[\"a\",\"b\"]]}}");
    write_text("b.jsonl", "{\"text\": \"ab\"}\n{\"text\": 1}\n");
    assert_int_equal(learn_file(source, "b.jsonl", 258, &tokens), ECH_EINPUT);
    assert_error_has("b.jsonl:2: \"text\" must be a string");
    write_text("c.jsonl", "{\"text\": \"ab\"}\n\n{\"text\": \"a");
    assert_int_equal(learn_file(binary, "c.jsonl", 258, &tokens), ECH_EINPUT);
    assert_error_has("c.jsonl:3:");
    assert_int_equal(learn_file(source, "missing", 258, &tokens), ECH_EIO);
    assert_error_has("missing: cannot read it");
}
