/* SPDX-License-Identifier: Apache-2.0
 *
 * Begin of text before documents, and names of special tokens in texts: what an import writes, and
 * what it records.
 * */
#include "data/imports.h"

#include "data/byte_ids.h"

enum { END = 256, BEGIN = 257, MARK = 258 };

/* Over bytes, with <e>, <b> and <m>; `front`: the tokenizer puts <b> before a text. */
static ech_tokenizer *open_tokenizer(bool front)
{
    static const char added[] = "{\"id\": 256, \"content\": \"<e>\", \"special\": true}, "
                                "{\"id\": 257, \"content\": \"<b>\", \"special\": true}, "
                                "{\"id\": 258, \"content\": \"<m>\"}";
    static const char puts_it[] = "\"post_processor\": {\"type\": \"BertProcessing\", "
                                  "\"cls\": [\"<b>\", 257], \"sep\": [\"<e>\", 256]}, ";
    write_byte_tokenizer(added, false, front ? puts_it : "");
    write_text("tokenizer_config.json", "{\"eos_token\": \"<e>\", \"bos_token\": \"<b>\"}");
    ech_tokenizer *tokenizer;
    if (ech_tokenizer_open(scratch, &tokenizer) != ECH_OK) fail_msg("%s", ech_last_error());
    return tokenizer;
}

/* The stream of an import: | end of text, ^ begin of text, @ <m>, ~ before tokens that are not
 * trained on. */
static void assert_import(bool front, int begins, bool special, const char *in, double valid,
                          const char *expected)
{
    ECH_CLEANUP(ech_tokenizer_close_at) ech_tokenizer *tokenizer = open_tokenizer(front);
    const ech_import_options options = {.texts.in = in_scratch(in),
                                        .out = in_scratch("t"),
                                        .tokenizer = tokenizer,
                                        .begins = begins,
                                        .special = special,
                                        .valid = valid,
                                        .workers = 1};
    ech_import_count count;
    ECH_FREED_TEXT is = {0};
    int recorded;
    assert_int_equal(ech_data_import(&options, &count), ECH_OK);
    ech_token_file *file = open_tokens(valid > 0 ? "t-valid" : "t");
    for (size_t r = 0; r < file->runs.run.n; r++) {
        int64_t end = ech_token_run_end(&file->runs, r);
        if (file->runs.run.at[r].silent) ech_text_append(&is, "~");
        for (int64_t i = file->runs.run.at[r].first; i < end; i++) {
            int32_t id;
            assert_int_equal(ech_token_file_read(file, i, 1, 259, &id), ECH_OK);
            ech_text_append(&is, "%c", id < 256 ? (char)id : "|^@"[id - 256]);
        }
    }
    assert_string_equal(is.at, expected);
    ech_token_file_close(file);
    int64_t kept = 0; /* names that are still text */
    for (const char *at = expected; (at = strchr(at, '<')); at++)
        kept += at[1] == 'b' || at[1] == 'e';
    assert_int_equal(count.kept, kept);
    if (kept) assert_true(count.kept_id == END || count.kept_id == BEGIN);
    const char *prefix = in_scratch(valid > 0 ? "t-valid" : "t");
    assert_int_equal(ech_data_begins("data.train", prefix, &recorded), ECH_OK);
    assert_int_equal(recorded, strchr(expected, '^') != NULL);
}

TEST(test_documents)
{
    write_text("in.txt", "ab");
    assert_import(false, -1, false, "in.txt", 0, "ab|");
    assert_import(true, -1, false, "in.txt", 0, "^ab|");
    assert_import(true, 0, false, "in.txt", 0, "ab|");
    assert_import(false, 1, false, "in.txt", 0, "^ab|");
    assert_import(true, -1, false, "in.txt", 0.5, "^b|");
    write_text("in.jsonl", "{\"text\": \"1\"}\n{\"prompt\": \"2\", \"completion\": \"3\"}\n"
                           "{\"prompt\": \"\", \"completion\": \"4\"}\n{\"text\": \"\"}\n");
    assert_import(true, -1, false, "in.jsonl", 0, "^1|~^23|~^4|");
    assert_import(true, 0, false, "in.jsonl", 0, "1|~23|4|");
}

/* Names of special tokens stay text unless they are to be tokens; other added tokens are found. */
TEST(test_special_tokens)
{
    write_text("in.txt", "<b>a<e><m>");
    assert_import(true, -1, false, "in.txt", 0, "^<b>a<e>@|");
    assert_import(true, -1, true, "in.txt", 0, "^a|@|"); /* once */
    assert_import(false, 1, true, "in.txt", 0, "^a|@|");
    assert_import(false, 0, false, "in.txt", 0, "<b>a<e>@|");
}

TEST(test_sources_that_differ)
{
    ech_import_count count;
    char text[9000];
    int begins = 7;
    ECH_CLEANUP(ech_tokenizer_close_at) ech_tokenizer *tokenizer = open_tokenizer(true);
    write_text("in.txt", "ab");
    for (int i = 0; i < 2; i++) {
        const ech_import_options options = {.texts.in = in_scratch("in.txt"),
                                            .out = in_scratch(i ? "with" : "out"),
                                            .tokenizer = tokenizer,
                                            .begins = i,
                                            .workers = 1};
        assert_int_equal(ech_data_import(&options, &count), ECH_OK);
    }
    snprintf(text, sizeof text, "0.5 %s 0.5 %s", in_scratch("with"), in_scratch("out"));
    assert_int_equal(ech_data_begins("data.train", text, &begins), ECH_EUSAGE);
    assert_error_has("with was made with begin of text before each document, and ");
    assert_error_has("out without");
    assert_int_equal(unlink(in_scratch("out.origin.json")), 0);
    assert_int_equal(ech_data_begins("data.train", text, &begins), ECH_OK);
    assert_int_equal(begins, 1);
}
