/* SPDX-License-Identifier: Apache-2.0
 *
 * From texts to token files: ids, order of files, the validation share, what is refused.
 */
#include "data/scratch.h"

static int64_t progress_done, progress_all, progress_calls;

static void note_progress(int64_t done, int64_t all)
{
    assert_true(done > progress_done && done <= all);
    progress_done = done;
    progress_all = all;
    progress_calls++;
}

static ech_status import(const char *in, const char *out, double valid, ech_import_count *count)
{
    progress_done = progress_all = progress_calls = 0;
    ech_tokenizer *tokenizer;
    assert_int_equal(ech_tokenizer_open("bytes", &tokenizer), ECH_OK);
    ech_status st =
        ech_data_import(in_scratch(in), in_scratch(out), tokenizer, valid, note_progress, count);
    ech_tokenizer_close(tokenizer);
    return st;
}

/* The stream of a token file is `expected`, with | for end-of-text. */
static void assert_stream(const char *name, const char *expected, int64_t documents)
{
    ech_token_file *file = open_tokens(name);
    assert_int_equal(ech_token_file_documents(file), documents);
    int64_t n = ech_token_file_tokens(file);
    assert_int_equal(n, strlen(expected));
    for (int64_t i = 0; i < n; i++) {
        int32_t id;
        assert_int_equal(ech_token_file_read(file, i, 1, 257, &id), ECH_OK);
        assert_int_equal(id, expected[i] == '|' ? 256 : (unsigned char)expected[i]);
    }
    ech_token_file_close(file);
}

static void test_file(void **state)
{
    (void)state;
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

static void test_folder_in_order_of_paths(void **state)
{
    (void)state;
    ech_import_count count;
    make_texts();
    assert_int_equal(import("in", "t", 0, &count), ECH_OK);
    assert_stream("t", "1|2|3|4|5|", 5);
    assert_int_equal(count.files, 6);
    assert_int_equal(count.documents, 5);
    assert_int_equal(count.bytes, 5);
    assert_int_equal(progress_calls, 5);
}

static void test_links(void **state)
{
    (void)state;
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
    assert_int_equal(import("in", "t", 0, &count), ECH_EIO);
    assert_error_has("in/dangling: ");
}

static void test_valid_share(void **state)
{
    (void)state;
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

static void test_cut_between_characters(void **state)
{
    (void)state;
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
static void test_cut_of_no_utf8(void **state)
{
    (void)state;
    ech_import_count count;
    char text[100];
    memset(text, 0x80, sizeof text);
    write_file("in", text, sizeof text);
    assert_int_equal(import("in", "t", 0.5, &count), ECH_OK);
    assert_int_equal(count.tokens, 47 + 1);
    assert_int_equal(count.valid_tokens, 53 + 1);
}

static void test_long_file(void **state)
{
    (void)state;
    enum { BYTES = (5 << 19) + 3 };
    ech_import_count count;
    char *text = ech_calloc(BYTES + 2, 1);
    for (int i = 0; i < BYTES; i++) text[i] = (char)('a' + i % 23 + i % 3);
    write_file("in", text, BYTES);
    assert_int_equal(import("in", "t", 0, &count), ECH_OK);
    assert_int_equal(progress_calls, 3);
    ech_token_file *file = open_tokens("t");
    assert_int_equal(ech_token_file_tokens(file), BYTES + 1);
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

static void test_refused(void **state)
{
    (void)state;
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

static void test_never_over_its_input(void **state)
{
    (void)state;
    ech_import_count count;
    write_file("in.bin", "some text", 9);
    assert_refused("in.bin", "in", 0, ECH_EUSAGE, "would be overwritten");
    write_file("in-train.bin", "some text", 9);
    assert_refused("in-train.bin", "in", 0.5, ECH_EUSAGE, "would be overwritten");
    assert_int_equal(import("in.bin", "in.bin", 0, &count), ECH_OK);
    assert_stream("in.bin", "some text|", 1);
}

static void test_beside_a_folder_of_that_name(void **state)
{
    (void)state;
    ech_import_count count;
    make_texts();
    assert_int_equal(import("in", "in", 0, &count), ECH_OK);
    assert_stream("in", "1|2|3|4|5|", 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCRATCH_TEST(test_file),
        SCRATCH_TEST(test_folder_in_order_of_paths),
        SCRATCH_TEST(test_links),
        SCRATCH_TEST(test_valid_share),
        SCRATCH_TEST(test_cut_between_characters),
        SCRATCH_TEST(test_cut_of_no_utf8),
        SCRATCH_TEST(test_long_file),
        SCRATCH_TEST(test_refused),
        SCRATCH_TEST(test_never_over_its_input),
        SCRATCH_TEST(test_beside_a_folder_of_that_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
