/* SPDX-License-Identifier: Apache-2.0
 *
 * Ids that Hugging Face's library gave, for texts whole and in pieces: to added tokens with their
 * flags, with special tokens and with their names as text (tests/oracle/make_added_fixtures.py),
 * and with patterns that have no name here (make_pattern_fixtures.py).
 */
#include "data/scratch.h"

#include <jansson.h>

#include "data/bpe/bpe.h"

static void write_json(const char *name, const json_t *content)
{
    ECH_FREED char *text = json_dumps(content, 0);
    write_file(name, text, strlen(text));
}

/* Of the file's vocabulary bytes are left out: they are their numbers. */
static void write_tokenizer(json_t *file)
{
    json_t *vocabulary = json_object_get(json_object_get(file, "model"), "vocab");
    for (int i = 0; i < 256; i++) {
        ECH_FREED_TEXT name = {0};
        ech_bpe_show(&(unsigned char){(unsigned char)i}, 1, &name);
        json_object_set_new(vocabulary, name.at, json_integer(i));
    }
    write_json("tokenizer.json", file);
}

/* A row has tokenizer.json alone, or it and files beside it, by their names. */
static ech_tokenizer *open_row(const json_t *row)
{
    static const char config[] = "{\"eos_token\": \"<y>\"}";
    json_t *file = json_object_get(row, "file"), *files = json_object_get(row, "files"), *content;
    const char *name;
    write_file("tokenizer_config.json", config, strlen(config));
    unlink(in_scratch("added_tokens.json"));
    if (file) write_tokenizer(file);
    json_object_foreach(files, name, content)
    {
        if (strcmp(name, "tokenizer.json") == 0)
            write_tokenizer(content);
        else
            write_json(name, content);
    }
    ech_tokenizer *tokenizer;
    if (ech_tokenizer_open(scratch, &tokenizer) != ECH_OK) fail_msg("%s", ech_last_error());
    return tokenizer;
}

/* In pieces of at most `most` bytes where the text may be cut. */
static void assert_ids(const ech_tokenizer *tokenizer, ech_coder *coder, const char *text, size_t n,
                       size_t most, const json_t *expected)
{
    ech_ids ids = {0};
    for (size_t at = 0, piece; at < n; at += piece) {
        piece = n - at > most ? ech_tokenizer_split(tokenizer, text + at, most) : n - at;
        if (piece == 0) piece = n - at;
        assert_int_equal(ech_coder_encode(coder, text + at, piece, at == 0, &ids), ECH_OK);
    }
    bool same = ids.n == json_array_size(expected);
    for (size_t i = 0; same && i < ids.n; i++)
        same = ids.at[i] == json_integer_value(json_array_get(expected, i));
    if (!same) {
        ECH_FREED_TEXT is = {0};
        for (size_t i = 0; i < ids.n; i++) ech_text_append(&is, " %d", (int)ids.at[i]);
        fail_msg("\"%s\" in pieces of %zu:%s, not %s", text, most, is.at,
                 json_dumps(expected, JSON_COMPACT));
    }
    free(ids.at);
}

/* special: tokens with this flag are found in texts. */
static void check_texts(const ech_tokenizer *tokenizer, const json_t *texts, bool special,
                        const json_t *ids)
{
    ech_coder *coder = ech_coder_create(tokenizer);
    ech_coder_keep_special(coder, !special);
    for (size_t i = 0; ids && i < json_array_size(texts); i++) {
        const json_t *text = json_array_get(texts, i);
        for (size_t most = 3; most < 64; most = 3 * most)
            assert_ids(tokenizer, coder, json_string_value(text), json_string_length(text), most,
                       json_array_get(ids, i));
    }
    ech_coder_destroy(coder);
}

/* What a checkpoint would have of it, read again. */
static ech_tokenizer *exported(const ech_tokenizer *tokenizer)
{
    ECH_FREED_TEXT file = {0}, config = {0};
    ech_tokenizer *again;
    ech_tokenizer_export(tokenizer, &file, &config);
    unlink(in_scratch("added_tokens.json"));
    write_file("tokenizer.json", file.at, file.n);
    write_file("tokenizer_config.json", config.at, config.n);
    if (ech_tokenizer_open(scratch, &again) != ECH_OK) fail_msg("%s", ech_last_error());
    return again;
}

static void check_rows(const char *path, size_t count)
{
    json_t *root = json_load_file(path, 0, NULL);
    const json_t *rows = json_object_get(root, "rows");
    assert_int_equal(json_array_size(rows), count);
    for (size_t r = 0; r < json_array_size(rows); r++) {
        const json_t *row = json_array_get(rows, r), *texts = json_object_get(row, "texts");
        const json_t *ids = json_object_get(row, "ids"), *plain = json_object_get(row, "plain");
        ech_tokenizer *tokenizer = open_row(row), *again = exported(tokenizer);
        check_texts(tokenizer, texts, true, ids);
        check_texts(tokenizer, texts, false, plain);
        check_texts(again, texts, true, ids);
        ech_tokenizer_close(again);
        ech_tokenizer_close(tokenizer);
    }
    json_decref(root);
}

TEST(test_flags)
{
    check_rows(ECH_FIXTURES "/bpe/added.json", 9);
}

/* Tokens that only tokenizer_config.json or added_tokens.json has (make_sides_fixtures.py). */
TEST(test_sides)
{
    check_rows(ECH_FIXTURES "/bpe/sides.json", 16);
}

TEST(test_patterns)
{
    check_rows(ECH_FIXTURES "/bpe/patterns.json", 5);
}
