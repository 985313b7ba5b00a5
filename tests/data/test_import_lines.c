/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines of JSON become token files: which keys, which lines are bad, and where a long text may be
 * cut.
 */
#include "data/imports.h"

#include "data/bpe/bpe.h"

TEST(test_lines)
{
    ech_import_count count;
    write_text("in.jsonl",
               "{\"text\": \"to\\nbe\", \"more\": [123456789012345678901234567890, {}]}\r\n"
               "\n  \t \n"
               "{\"text\": \"\"}\n"
               "{\"prompt\": \"or\", \"completion\": \" not\"}\n"
               "{\"prompt\": \"\", \"completion\": \"x\"}\n"
               "{\"prompt\": \"p\", \"completion\": \"\"}\n"
               "{\"text\": \"\\u00e4\\u0000\"}");
    assert_int_equal(import("in.jsonl", "t", 0, &count), ECH_OK);
    assert_int_equal(count.documents, 5);
    assert_int_equal(count.tokens, 6 + 7 + 2 + 2 + 4);
    ech_token_file *file = open_tokens("t");
    const ech_token_runs *runs = &file->runs;
    int32_t ids[21];
    const int32_t expected[21] = {'t', 'o', '\n', 'b', 'e', 256, 'o',  'r',  ' ', 'n', 'o',
                                  't', 256, 'x',  256, 'p', 256, 0xc3, 0xa4, 0,   256};
    assert_int_equal(ech_token_file_read(file, 0, 21, 257, ids), ECH_OK);
    assert_memory_equal(ids, expected, sizeof ids);
    assert_int_equal(file->documents, 5);
    const struct {
        int64_t first;
        bool opens, silent;
    } is[] = {{0, true, false}, {6, true, true},    {8, false, false}, {13, true, false},
              {15, true, true}, {16, false, false}, {17, true, false}};
    assert_int_equal(runs->run.n, 7);
    for (size_t i = 0; i < 7; i++) {
        assert_int_equal(runs->run.at[i].first, is[i].first);
        assert_int_equal(runs->run.at[i].opens, is[i].opens);
        assert_int_equal(runs->run.at[i].silent, is[i].silent);
    }
    ech_token_file_close(file);
}

/* Windows editors begin a file with a mark, which is no JSON; in a text it is a character. */
TEST(test_byte_order_mark)
{
    ech_import_count count;
    write_text("in.jsonl", "\xef\xbb\xbf{\"text\": \"1\"}\r\n{\"text\": \"2\"}\n");
    assert_int_equal(import("in.jsonl", "t", 0, &count), ECH_OK);
    assert_stream("t", "1|2|", 2);
    write_text("in.jsonl", "\xef\xbb\xbf\n");
    assert_int_equal(import("in.jsonl", "t", 0, &count), ECH_EINPUT);
    assert_error_has("holds no text");
    write_text("in.txt", "\xef\xbb\xbf"
                         "3");
    assert_int_equal(import("in.txt", "t", 0, &count), ECH_OK);
    assert_stream("t",
                  "\xef\xbb\xbf"
                  "3|",
                  1);
}

TEST(test_keys_by_other_names)
{
    ech_import_count count;
    ech_import_options options = {
        .texts = {.text_key = "content", .prompt_key = "q", .completion_key = "a"}};
    write_text("in.jsonl", "{\"content\": \"1\", \"text\": 2}\n{\"q\": \"3\", \"a\": \"4\"}\n");
    assert_int_equal(import_with(options, "in.jsonl", "t", &count), ECH_OK);
    assert_stream("t", "1|34|", 2);
}

/* Lines and texts side by side; a line belongs to the part in which it begins. */
TEST(test_lines_for_validation)
{
    ech_import_count count;
    ech_file_make_folder(in_scratch("in"));
    write_text("in/a.jsonl", "{\"text\": \"1\"}\n{\"text\": \"2\"}\n{\"text\": \"3\"}\n");
    write_text("in/b.txt", "abcdef");
    assert_int_equal(import("in", "t", 0.4, &count), ECH_OK);
    assert_stream("t-train", "1|2|abcd|", 3);
    assert_stream("t-valid", "3|ef|", 2);
}

static void assert_bad_line(const char *text, const char *why)
{
    ech_import_count count;
    write_text("in.jsonl", text);
    int before = count_entries();
    assert_int_equal(import("in.jsonl", "t", 0, &count), ECH_EINPUT);
    assert_error_has("in.jsonl:3");
    assert_error_has(why);
    assert_int_equal(count_entries(), before);
}

#define TWO "{\"text\": \"1\"}\n\n"

TEST(test_bad_lines)
{
    assert_bad_line(TWO "{\"text\": \"1\"", "not JSON: it ends too early");
    assert_bad_line(TWO "{\"text\": \"1", "not JSON: it ends too early");
    assert_bad_line(TWO "{\"text\": \"1\"} {}\n", ":15: not JSON: something follows");
    assert_bad_line(TWO "{\"text\": \"1\", \"text\": \"2\"}\n", "not JSON: a key comes twice");
    assert_bad_line(TWO "{\"text\": \"1\", \"t\\u0065xt\": \"2\"}\n", "a key comes twice");
    assert_bad_line(TWO "{\"text\": \"\xff\"}\n", "not JSON: a string that is no UTF-8");
    assert_bad_line(TWO "{\"text\": \"\\ud800\"}\n", "half of a surrogate pair");
    assert_bad_line(TWO "{\"text\": \"\\udc00\\ud800\"}\n", "half of a surrogate pair");
    assert_bad_line(TWO "{\"text\": \"\\u12g4\"}\n", "four hexadecimal digits");
    assert_bad_line(TWO "{\"text\": \"\\x41\"}\n", "begins no escape");
    assert_bad_line(TWO "{\"text\": \"a\tb\"}\n", "a control character");
    assert_bad_line(TWO "{\"text\" \"1\"}\n", "a colon is due");
    assert_bad_line(TWO "{\"text\": \"1\" \"a\": 1}\n", "expected a comma or the end");
    assert_bad_line(TWO "{\"text\": }\n", "a value is due");
    assert_bad_line(TWO "{\"text\": \"1\",}\n", "expected a key in quotes");
    assert_bad_line(TWO "text\n", "must be an object");
    assert_bad_line(TWO "[\"text\"]\n", "must be an object");
    assert_bad_line(TWO "{\"prompt\": [{\"role\": \"user\"}], \"completion\": \"a\"}\n",
                    "prompt and completion must be lists of messages");
    assert_bad_line(TWO "{\"messages\": 1}\n", "has neither");
    assert_bad_line(TWO "{}\n", "has neither \"text\" nor \"prompt\" and \"completion\"");
    assert_bad_line(TWO "{\"prompt\": \"1\"}\n", "has neither");
    assert_bad_line(TWO "{\"Text\": \"1\"}\n", "--text-key");
    assert_bad_line(TWO "{\"text\": 1}\n", "\"text\" must be a string");
    assert_bad_line(TWO "{\"text\": null}\n", "has neither");
    assert_bad_line(TWO "{\"prompt\": null, \"completion\": \"1\"}\n", "has neither");
    assert_bad_line(TWO "{\"prompt\": [], \"completion\": \"1\"}\n", "\"prompt\" must be");
}

/* What is not read is not checked. */
TEST(test_what_is_not_read)
{
    ech_import_count count;
    ech_text lines = {0};
    ech_text_append(&lines, "{\"text\": \"1\", \"score\": NaN, \"more\": [-Infinity, 1e400]}\n");
    ech_text_append(&lines, "{\"n\": %0400d, \"text\": \"2\", \"n\": 2}\n", 9);
    ech_text_append(&lines, "{\"text\": \"3\", \"name\": \"\\ud800 \xff \\q\"}\n");
    ech_text_append(&lines, "{\"text\": \"4\", \"prompt\": null, \"completion\": [1]}\n");
    ech_text_append(&lines, "{\"prompt\": \"5\", \"text\": null, \"completion\": \"6\"}\n");
    ech_text_append(&lines, "{\"t\\u0065xt\": \"7\\ud83d\\ude00\"}\n{\"more\": ");
    for (int i = 0; i < 200; i++) ech_text_append(&lines, "[");
    ech_text_append(&lines, "\"]\"");
    for (int i = 0; i < 200; i++) ech_text_append(&lines, "]");
    ech_text_append(&lines, ", \"text\": \"8\"}");
    write_text("in.jsonl", lines.at);
    ech_text_free(&lines);
    assert_int_equal(import("in.jsonl", "t", 0, &count), ECH_OK);
    assert_stream("t", "1|2|3|4|56|7\xf0\x9f\x98\x80|8|", 7);
}

/* Bad lines are left out up to the number that is given, whatever the threads. */
TEST(test_bad_lines_left_out)
{
    static const char text[] = "{\"text\": \"1\"}\n{\"text\": \"\\ud800\"}\n{}\nno\n"
                               "{\"prompt\": \"p\", \"completion\": 1}\n{\"text\": \"2\"}\n";
    for (int workers = 1; workers < 4; workers += 2) {
        ech_import_count count;
        ech_import_options options = {.workers = workers, .texts.skip_bad = 4};
        write_text("in.jsonl", text);
        assert_int_equal(import_with(options, "in.jsonl", "t", &count), ECH_OK);
        assert_int_equal(count.bad, 4);
        assert_stream("t", "1|2|", 2);
        options.texts.skip_bad = 3;
        assert_int_equal(import_with(options, "in.jsonl", "t", &count), ECH_EINPUT);
        assert_error_has("in.jsonl:5: \"completion\" must be a string (the first bad one after 3");
    }
    ech_import_options options = {.texts.skip_bad = 1};
    ech_import_count count;
    write_text("in.json", "[{\"text\": \"1\"}, {\"text\": 1},\n{\"text\": \"2\"}]");
    assert_int_equal(import_with(options, "in.json", "t", &count), ECH_OK);
    assert_int_equal(count.bad, 1);
    assert_stream("t", "1|2|", 2);
}

/* Many chunks in, the line number is still right; and a line without an end is not read for
 * ever. */
TEST(test_lines_are_counted_over_pieces)
{
    enum { LINES = 50000 };
    ech_import_count count;
    char expected[64];
    FILE *file = fopen(in_scratch("in.jsonl"), "w");
    assert_non_null(file);
    for (int i = 0; i < LINES; i++) fprintf(file, "{\"text\": \"%0*d\"}\n", 10 + i % 90, i);
    fputs("{\n", file);
    fclose(file);
    ech_import_options options = {.workers = 3};
    assert_int_equal(import_with(options, "in.jsonl", "t", &count), ECH_EINPUT);
    snprintf(expected, sizeof expected, "in.jsonl:%d:", LINES + 1);
    assert_error_has(expected);

    file = fopen(in_scratch("long.jsonl"), "w");
    assert_non_null(file);
    fputs(TWO, file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(truncate(in_scratch("long.jsonl"), ECH_TEXT_CHUNK_LONGEST_LINE + (3 << 20)),
                     0);
    assert_int_equal(import("long.jsonl", "t", 0, &count), ECH_EINPUT);
    assert_error_has("long.jsonl:3: a line of more than 64 MiB");
}

/* A line of so many bytes more than the longest, between two others. */
static void write_long_line(const char *name, long more)
{
    FILE *file = fopen(in_scratch(name), "w");
    assert_non_null(file);
    fputs("{\"text\": \"1\"}\n", file);
    assert_int_equal(fseek(file, ECH_TEXT_CHUNK_LONGEST_LINE + more, SEEK_CUR), 0);
    fputs("\n{\"text\": \"2\"}\n", file);
    assert_int_equal(fclose(file), 0);
}

/* Both where its end is read with it, and where that is far away. */
TEST(test_lines_that_are_too_long_left_out)
{
    static const long more[] = {1, 70 << 20};
    for (int i = 0; i < 2; i++) {
        ech_import_count count;
        ech_import_options options = {.workers = 2, .texts.skip_bad = 1};
        write_long_line("in.jsonl", more[i]);
        assert_int_equal(import_with(options, "in.jsonl", "t", &count), ECH_OK);
        assert_int_equal(count.bad, 1);
        assert_stream("t", "1|2|", 2);
        assert_int_equal(import("in.jsonl", "t", 0, &count), ECH_EINPUT);
        assert_error_has("in.jsonl:2: a line of more than 64 MiB");
    }
    ech_texts texts;
    ech_text_chunk chunk = {0};
    bool found;
    assert_int_equal(ech_texts_find(&(ech_data_text_source){.in = in_scratch("in.jsonl")}, &texts),
                     ECH_OK);
    ech_text_chunk_reader reader = {.texts = &texts, .leaves_out = true, .position.line = 1};
    int64_t extent = 0;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ech_text_chunk_read(&reader, &chunk, &found), ECH_OK);
        assert_true(found && chunk.line == 1 + i && (chunk.left_out > 0) == (i == 1));
        assert_int_equal(chunk.at, extent);
        extent += ech_text_chunk_extent(&chunk);
    }
    assert_true(chunk.ends && extent == texts.bytes);
    ech_text_chunk_reader_close(&reader);
    ech_texts_free(&texts);
    free(chunk.bytes);
}

/* What cannot be cut is not read for ever either. */
TEST(test_text_without_a_place_to_cut)
{
    const int64_t sizes[] = {ECH_TEXT_CHUNK_LONGEST, ECH_TEXT_CHUNK_LONGEST + 1};
    write_text("in", "");
    for (int i = 0; i < 2; i++) {
        ech_texts texts;
        ech_text_chunk chunk = {0};
        bool found;
        assert_int_equal(truncate(in_scratch("in"), sizes[i]), 0);
        const ech_data_text_source source = {.in = in_scratch("in"), .binary = true};
        assert_int_equal(ech_texts_find(&source, &texts), ECH_OK);
        ech_bpe *bpe = ech_bpe_create();
        bpe->ignore_merges = true; /* without a pattern: any text may be one token */
        ech_text_chunk_reader reader = {.texts = &texts, .bpe = bpe};
        assert_int_equal(ech_text_chunk_read(&reader, &chunk, &found),
                         i == 0 ? ECH_OK : ECH_EINPUT);
        if (i == 0) assert_int_equal(chunk.n, ECH_TEXT_CHUNK_LONGEST);
        if (i == 1) assert_error_has("in: the 256 MiB from byte 0 on");
        ech_text_chunk_reader_close(&reader);
        ech_bpe_destroy(bpe);
        free(chunk.bytes);
        ech_texts_free(&texts);
    }
}
