/* SPDX-License-Identifier: Apache-2.0
 *
 * From texts to token files: ids, order of files, the validation share, what is refused.
 */
#include "data/imports.h"

#include <sys/stat.h>

#include "base/utf8.h"

TEST(test_file)
{
    ech_import_count count;
    write_file("in.txt", "to be\n", 6);
    assert_int_equal(import("in.txt", "deep/er/t", 0, &count), ECH_OK);
    assert_stream("deep/er/t", "to be\n|", 1);
    assert_int_equal(count.files, 1);
    assert_int_equal(count.documents, 1);
    assert_int_equal(count.bytes, 6);
    assert_int_equal(count.tokens, 7);
    assert_int_equal(count.valid_tokens, 0);
    assert_int_equal(progress_all, 6);
    assert_int_equal(progress_done, 6);
}

static void make_texts(void)
{
    const char *const folders[] = {"in", "in/a", "in/a/b", "in/a-b"};
    for (size_t i = 0; i < 4; i++) ech_file_make_folder(in_scratch(folders[i]));
    write_file("in/z", "5", 1);
    write_file("in/a/b/c", "4", 1);
    write_file("in/a/2", "3", 1);
    write_file("in/a-b/1", "1", 1); /* '-' < '.' < '/' */
    write_file("in/a.txt", "2", 1);
    write_file("in/empty", "", 0);
}

TEST(test_folder_in_order_of_paths)
{
    ech_import_count count;
    make_texts();
    assert_int_equal(import("in", "t", 0, &count), ECH_OK);
    assert_stream("t", "1|2|3|4|5|", 5);
    assert_int_equal(count.files, 6);
    assert_int_equal(count.documents, 5);
    assert_int_equal(count.bytes, 5);
    assert_int_equal(progress_calls, 5);
}

TEST(test_links)
{
    ech_import_count count;
    make_texts();
    assert_int_equal(symlink("a.txt", in_scratch("in/y")), 0);
    assert_int_equal(symlink("in", in_scratch("link")), 0);
    assert_int_equal(import("link", "t", 0, &count), ECH_OK);
    assert_stream("t", "1|2|3|4|2|5|", 6);
    assert_int_equal(symlink("..", in_scratch("in/up")), 0);
    assert_int_equal(import("in", "t", 0, &count), ECH_EUSAGE);
    assert_error_has("in/up: a link to a folder");
    unlink(in_scratch("in/up"));
    assert_int_equal(symlink("nowhere", in_scratch("in/dangling")), 0);
    assert_int_equal(import("in", "t", 0, &count), ECH_OK); /* left out, with a warning */
    assert_int_equal(import("in/dangling", "t", 0, &count), ECH_EIO);
    assert_error_has("in/dangling: ");
}

TEST(test_valid_share)
{
    ech_import_count count;
    ech_file_make_folder(in_scratch("in"));
    write_file("in/a", "0123456789", 10);
    write_file("in/b", "xyz", 3); /* a fifth of three bytes is none */
    write_file("in/c", "abcde", 5);
    assert_int_equal(import("in", "t", 0.2, &count), ECH_OK);
    assert_stream("t-train", "01234567|xyz|abcd|", 3);
    assert_stream("t-valid", "89|e|", 2);
    assert_false(ech_file_exists(in_scratch("t.idx")));
    assert_int_equal(count.documents, 5);
    assert_int_equal(count.bytes, 18);
    assert_int_equal(count.tokens, 18);
    assert_int_equal(count.valid_tokens, 5);
    assert_int_equal(progress_done, 18);
}

TEST(test_cut_between_characters)
{
    ech_import_count count;
    /* Characters of 1, 2, 3 and 4 bytes: begins at 0, 1, 3, 6, 10. */
    static const char text[] = "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80z";
    const int cuts[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10};
    write_file("in", text, 11);
    for (int bytes = 1; bytes <= 10; bytes++) {
        char expected[16] = {0};
        int cut = cuts[11 - bytes];
        ech_status st = import("in", "t", (bytes + 0.5) / 11, &count);
        assert_int_equal(st, ECH_OK);
        memcpy(expected, text, (size_t)cut);
        strcat(expected, "|");
        assert_stream("t-train", expected, 1);
        snprintf(expected, sizeof expected, "%s|", text + cut);
        assert_stream("t-valid", expected, 1);
    }
}

/* Continuation bytes without an end are no UTF-8: the cut moves by no more than a character. */
TEST(test_cut_of_no_utf8)
{
    ech_import_count count;
    char text[100];
    memset(text, 0x80, sizeof text);
    write_file("in", text, sizeof text);
    ech_import_options options = {.valid = 0.5, .texts.binary = true};
    assert_int_equal(import_with(options, "in", "t", &count), ECH_OK);
    assert_int_equal(count.tokens, 47 + 1);
    assert_int_equal(count.valid_tokens, 53 + 1);
}

TEST(test_long_file)
{
    enum { BYTES = (5 << 19) + 3 };
    ech_import_count count;
    char *text = ech_calloc(BYTES + 2, 1);
    for (int i = 0; i < BYTES; i++) text[i] = (char)('a' + i % 23 + i % 3);
    write_file("in", text, BYTES);
    assert_int_equal(import("in", "t", 0, &count), ECH_OK);
    assert_int_equal(progress_calls, 3);
    ech_token_file *file = open_tokens("t");
    assert_int_equal(file->runs.tokens, BYTES + 1);
    int32_t *ids = ech_calloc(BYTES + 1, sizeof *ids);
    assert_int_equal(ech_token_file_read(file, 0, BYTES + 1, 257, ids), ECH_OK);
    int wrong = 0;
    for (int i = 0; i < BYTES; i++) wrong += ids[i] != text[i];
    assert_int_equal(wrong, 0);
    ech_token_file_close(file);
    free(ids);
    free(text);
}

static void assert_refused(const char *in, const char *out, double valid, ech_status st,
                           const char *why)
{
    ech_import_count count = {.files = -1};
    int before = count_entries();
    assert_int_equal(import(in, out, valid, &count), st);
    assert_error_has(why);
    assert_int_equal(count.files, -1);
    assert_int_equal(count_entries(), before);
}

TEST(test_refused)
{
    write_file("in", "some text", 9);
    write_file("short", "\xc3\xa4", 2);
    write_file("empty", "", 0);
    ech_file_make_folder(in_scratch("none"));
    assert_refused("in", "t", -0.1, ECH_EUSAGE, "validation share");
    assert_refused("in", "t", 1, ECH_EUSAGE, "validation share");
    assert_refused("in", "t", strtod("nan", NULL), ECH_EUSAGE, "validation share");
    assert_refused("in", "t", 0.01, ECH_EUSAGE, "nothing is left to validate on");
    assert_refused("short", "t", 0.5, ECH_EUSAGE, "nothing is left to train on");
    assert_refused("empty", "t", 0, ECH_EINPUT, "holds no text");
    assert_refused("none", "t", 0.5, ECH_EINPUT, "holds no text");
    assert_refused("missing", "t", 0, ECH_EIO, "missing: cannot read it");
    assert_refused("in", "", 0, ECH_EUSAGE, "is no prefix");
    assert_refused("none", "none/t", 0, ECH_EUSAGE, "lies in the folder");
    assert_refused(".", "t", 0, ECH_EUSAGE, "lies in the folder");
}

TEST(test_never_over_its_input)
{
    ech_import_count count;
    write_file("in.bin", "some text", 9);
    assert_refused("in.bin", "in", 0, ECH_EUSAGE, "would be overwritten");
    write_file("in-train.bin", "some text", 9);
    assert_refused("in-train.bin", "in", 0.5, ECH_EUSAGE, "would be overwritten");
    assert_int_equal(import("in.bin", "in.bin", 0, &count), ECH_OK);
    assert_stream("in.bin", "some text|", 1);
}

TEST(test_beside_a_folder_of_that_name)
{
    ech_import_count count;
    make_texts();
    assert_int_equal(import("in", "in", 0, &count), ECH_OK);
    assert_stream("in", "1|2|3|4|5|", 5);
}

/* ---- text that is none ---- */

TEST(test_no_utf8)
{
    const struct {
        const char *text;
        size_t n, good;
    } cases[] = {{"abc\xff", 4, 3},
                 {"\xc3", 1, 0},
                 {"\xc3\xa4\xa4", 3, 2},
                 {"\xc0\x80", 2, 0},
                 {"\xe0\x9f\xbf", 3, 0},
                 {"\xed\xa0\x80", 3, 0},
                 {"\xf0\x8f\xbf\xbf", 4, 0},
                 {"\xf4\x90\x80\x80", 4, 0},
                 {"\xf5\x80\x80\x80", 4, 0},
                 {"12345678\xe2\x82", 10, 8},
                 {"1234567\xe2\x82\xac", 10, 10},
                 {"\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf\xed\x9f\xbf", 11, 11}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char expected[64];
        ech_import_count count;
        assert_int_equal(ech_utf8_valid(cases[i].text, cases[i].n), cases[i].good);
        write_file("in", cases[i].text, cases[i].n);
        bool good = cases[i].good == cases[i].n;
        assert_int_equal(import("in", "t", 0, &count), good ? ECH_OK : ECH_EINPUT);
        snprintf(expected, sizeof expected, "in: byte %zu (0x", cases[i].good);
        if (!good) assert_error_has(expected);
        ech_import_options options = {.texts.binary = true};
        assert_int_equal(import_with(options, "in", "t", &count), ECH_OK);
        assert_int_equal(count.tokens, cases[i].n + 1);
    }
}

/* Characters across the ends of pieces are none the worse for it. */
TEST(test_characters_across_pieces)
{
    enum { CHARACTERS = 800000 };
    ech_import_count count;
    char *text = ech_calloc(3 * CHARACTERS + 3, 1);
    for (size_t shift = 0; shift < 3; shift++) {
        memset(text, 'x', shift);
        for (size_t i = 0; i < CHARACTERS; i++) memcpy(text + shift + 3 * i, "\xe2\x82\xac", 3);
        write_file("in", text, 3 * CHARACTERS + shift);
        assert_int_equal(import("in", "t", 0.3, &count), ECH_OK);
        assert_int_equal(count.tokens + count.valid_tokens, 3 * CHARACTERS + shift + 2);
        write_file("in", text, 3 * CHARACTERS + shift - 1);
        assert_int_equal(import("in", "t", 0, &count), ECH_EINPUT);
        char expected[64];
        snprintf(expected, sizeof expected, "in: byte %zu (0xe2)", 3 * CHARACTERS + shift - 3);
        assert_error_has(expected);
    }
    free(text);
}

/* ---- texts that become something else meanwhile ---- */

static void append_to_second(int64_t before, int64_t done, int64_t all)
{
    (void)before, (void)done, (void)all;
    write_text("in/b", "longer");
}

static void replace_second(int64_t before, int64_t done, int64_t all)
{
    (void)before, (void)done, (void)all;
    unlink(in_scratch("in/b"));
    assert_int_equal(mkfifo(in_scratch("in/b"), 0600), 0);
}

TEST(test_second_file_changes)
{
    const struct {
        void (*progress)(int64_t before, int64_t done, int64_t all);
        const char *why;
    } cases[] = {{append_to_second, "in/b: its size has changed"},
                 {replace_second, "in/b: is a pipe, not a regular file"}};
    ech_import_count count;
    ech_tokenizer *tokenizer;
    assert_int_equal(ech_tokenizer_open("bytes", &tokenizer), ECH_OK);
    ech_file_make_folder(in_scratch("in"));
    write_text("in/a", "a");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const ech_import_options options = {.texts.in = in_scratch("in"),
                                            .out = in_scratch("t"),
                                            .tokenizer = tokenizer,
                                            .workers = 1,
                                            .save_bytes = 1, /* each piece a round */
                                            .progress = cases[i].progress};
        write_text("in/b", "b");
        assert_int_equal(ech_data_import(&options, &count), ECH_EINPUT);
        assert_error_has(cases[i].why);
        assert_int_equal(count_entries(), 1);
    }
    ech_tokenizer_close(tokenizer);
}
