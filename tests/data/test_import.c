/* SPDX-License-Identifier: Apache-2.0
 *
 * From texts to token files: ids, order of files, the validation share, what is refused.
 */
#include "data/scratch.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <signal.h>

#include "base/utf8.h"
#include "data/import.h"
#include "data/token_file.h"

static int64_t progress_done, progress_all, progress_calls;

static void note_progress(int64_t before, int64_t done, int64_t all)
{
    assert_true(before <= done && done > progress_done && done <= all);
    progress_done = done;
    progress_all = all;
    progress_calls++;
}

/* With what is not given by name: the bytes tokenizer, one thread. */
static ech_status import_with(ech_import_options options, const char *in, const char *out,
                              ech_import_count *count)
{
    progress_done = progress_all = progress_calls = 0;
    ech_tokenizer *tokenizer;
    assert_int_equal(ech_tokenizer_open("bytes", &tokenizer), ECH_OK);
    options.texts.in = in_scratch(in);
    options.out = in_scratch(out);
    options.tokenizer = tokenizer;
    options.progress = note_progress;
    if (options.workers == 0) options.workers = 1;
    ech_status st = ech_data_import(&options, count);
    ech_tokenizer_close(tokenizer);
    return st;
}

static ech_status import(const char *in, const char *out, double valid, ech_import_count *count)
{
    return import_with((ech_import_options){.valid = valid}, in, out, count);
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
    ech_import_options options = {.valid = 0.5, .texts.binary = true};
    assert_int_equal(import_with(options, "in", "t", &count), ECH_OK);
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

/* ---- lines of JSON ---- */

static void write_text(const char *name, const char *text)
{
    write_file(name, text, strlen(text));
}

static void test_lines(void **state)
{
    (void)state;
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
    assert_int_equal(ech_token_file_documents(file), 5);
    const struct {
        int64_t first;
        bool opens, silent;
    } is[] = {{0, true, false}, {6, true, true},    {8, false, false}, {13, true, false},
              {15, true, true}, {16, false, false}, {17, true, false}};
    assert_int_equal(runs->run.n, 7);
    for (size_t i = 0; i < 7; i++) {
        assert_int_equal(runs->run.at[i].first, is[i].first);
        assert_int_equal(ech_token_run_opens(runs->run.at[i]), is[i].opens);
        assert_int_equal(ech_token_run_is_silent(runs->run.at[i]), is[i].silent);
    }
    ech_token_file_close(file);
}

/* Windows editors begin a file with a mark, which is no JSON; in a text it is a character. */
static void test_byte_order_mark(void **state)
{
    (void)state;
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

static void test_keys_by_other_names(void **state)
{
    (void)state;
    ech_import_count count;
    ech_import_options options = {
        .texts = {.text_key = "content", .prompt_key = "q", .completion_key = "a"}};
    write_text("in.jsonl", "{\"content\": \"1\", \"text\": 2}\n{\"q\": \"3\", \"a\": \"4\"}\n");
    assert_int_equal(import_with(options, "in.jsonl", "t", &count), ECH_OK);
    assert_stream("t", "1|34|", 2);
}

/* Lines and texts side by side; a line belongs to the part in which it begins. */
static void test_lines_for_validation(void **state)
{
    (void)state;
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

static void test_bad_lines(void **state)
{
    (void)state;
    assert_bad_line(TWO "{\"text\": \"1\"", "no JSON");
    assert_bad_line(TWO "{\"text\": \"1\"} {}\n", "no JSON");
    assert_bad_line(TWO "{\"text\": \"1\", \"text\": \"2\"}\n", "no JSON");
    assert_bad_line(TWO "{\"text\": \"\xff\"}\n", "no JSON");
    assert_bad_line(TWO "{\"text\": \"\\ud800\"}\n", "no JSON");
    assert_bad_line(TWO "text\n", "no JSON");
    assert_bad_line(TWO "[\"text\"]\n", "must be an object");
    assert_bad_line(TWO "{}\n", "has neither \"text\" nor \"prompt\" and \"completion\"");
    assert_bad_line(TWO "{\"prompt\": \"1\"}\n", "has neither");
    assert_bad_line(TWO "{\"Text\": \"1\"}\n", "--text-key");
    char deep[400];
    snprintf(deep, sizeof deep, TWO "{\"more\": %0100d}", 0);
    for (char *c = strchr(deep, '0'); *c == '0'; c++) *c = '[';
    assert_bad_line(deep, "deeper than 64");
    assert_bad_line(TWO "{\"text\": 1}\n", "\"text\" must be a string");
    assert_bad_line(TWO "{\"prompt\": null, \"completion\": \"1\"}\n", "\"prompt\" must be");
}

/* Many pieces in, the line number is still right; and a line without an end is not read for ever. */
static void test_lines_are_counted_over_pieces(void **state)
{
    (void)state;
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
    assert_int_equal(truncate(in_scratch("long.jsonl"), ECH_PIECE_LONGEST_LINE + (3 << 20)), 0);
    assert_int_equal(import("long.jsonl", "t", 0, &count), ECH_EINPUT);
    assert_error_has("long.jsonl:3: a line of more than 64 MiB");
}

static size_t cut_nowhere(const void *context, const void *bytes, size_t n)
{
    (void)context, (void)bytes, (void)n;
    return 0;
}

/* What cannot be cut is not read for ever either. */
static void test_text_without_a_place_to_cut(void **state)
{
    (void)state;
    const int64_t sizes[] = {ECH_PIECE_LONGEST, ECH_PIECE_LONGEST + 1};
    write_text("in", "");
    for (int i = 0; i < 2; i++) {
        ech_texts texts;
        ech_piece piece = {0};
        bool found;
        assert_int_equal(truncate(in_scratch("in"), sizes[i]), 0);
        assert_int_equal(ech_texts_find(in_scratch("in"), &texts), ECH_OK);
        ech_piece_reader reader = {.texts = &texts, .cut_at = cut_nowhere, .fd = -1};
        assert_int_equal(ech_piece_read(&reader, &piece, &found), i == 0 ? ECH_OK : ECH_EINPUT);
        if (i == 0) assert_int_equal(piece.n, ECH_PIECE_LONGEST);
        if (i == 1) assert_error_has("in: the 256 MiB from byte 0 on");
        ech_piece_reader_close(&reader);
        free(piece.bytes);
        ech_texts_free(&texts);
    }
}

/* ---- text that is none ---- */

static void test_no_utf8(void **state)
{
    (void)state;
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
static void test_characters_across_pieces(void **state)
{
    (void)state;
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

static void test_second_file_changes(void **state)
{
    (void)state;
    const struct {
        void (*progress)(int64_t before, int64_t done, int64_t all);
        const char *why;
    } cases[] = {{append_to_second, "in/b: its size has changed"},
                 {replace_second, "in/b: not a regular file"}};
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

/* ---- threads, interruptions ---- */

static void assert_same_files(const char *a, const char *b)
{
    const char *const suffixes[] = {"-train.bin", "-train.idx", "-valid.bin", "-valid.idx"};
    for (size_t i = 0; i < 4; i++) {
        char name[2][64], *bytes[2];
        size_t n[2];
        for (int k = 0; k < 2; k++) {
            snprintf(name[k], sizeof name[k], "%s%s", k ? b : a, suffixes[i]);
            assert_int_equal(ech_file_read(in_scratch(name[k]), 1 << 30, &bytes[k], &n[k]), ECH_OK);
        }
        assert_int_equal(n[0], n[1]);
        assert_memory_equal(bytes[0], bytes[1], n[0]);
        free(bytes[0]);
        free(bytes[1]);
    }
}

/* Texts of 0 to 3 MB and a long .jsonl, 10 MB together. */
static void make_many(void)
{
    ech_file_make_folder(in_scratch("in"));
    for (int i = 0; i < 6; i++) {
        char name[32];
        snprintf(name, sizeof name, "in/%d.txt", i);
        FILE *file = fopen(in_scratch(name), "w");
        assert_non_null(file);
        for (int word = 0; word < i * i * 12000; word++) fprintf(file, "%d\xc3\xa4 ", word % 977);
        fclose(file);
    }
    FILE *file = fopen(in_scratch("in/3.jsonl"), "w");
    assert_non_null(file);
    for (int i = 0; i < 60000; i++)
        fprintf(file,
                i % 3 ? "{\"text\": \"%d %0*d\"}\n"
                      : "{\"prompt\":\"%d\",\"completion\":\"%0*d\"}\n",
                i, i % 70 + 1, i);
    fclose(file);
}

static void test_same_for_any_number_of_threads(void **state)
{
    (void)state;
    ech_import_count one, count;
    make_many();
    assert_int_equal(import("in", "one", 0.1, &one), ECH_OK);
    for (int workers = 2; workers <= 5; workers++) {
        ech_import_options options = {.valid = 0.1, .workers = workers};
        options.save_bytes = workers % 2 ? 1 : 0;
        assert_int_equal(import_with(options, "in", "many", &count), ECH_OK);
        assert_memory_equal(&one, &count, sizeof one);
        assert_same_files("one", "many");
    }
    assert_int_equal(count_entries(), 9);
}

/* What is said on standard error goes to a file. */
static int begin_listening(void)
{
    int before = dup(STDERR_FILENO);
    fflush(stderr);
    assert_true(before >= 0);
    assert_non_null(freopen(in_scratch("said"), "w", stderr));
    ech_log_set_quiet(false);
    return before;
}

static void end_listening(int before, const char *expected)
{
    char *said;
    size_t n;
    ech_log_set_quiet(true);
    fflush(stderr);
    assert_int_equal(dup2(before, STDERR_FILENO), STDERR_FILENO);
    close(before);
    assert_int_equal(ech_file_read(in_scratch("said"), 1 << 20, &said, &n), ECH_OK);
    if (!strstr(said, expected)) fail_msg("\"%s\" does not say \"%s\"", said, expected);
    free(said);
    unlink(in_scratch("said"));
}

/* A disk that is full at some moment, played by a limit on the size of files. */
static ech_status import_to_full_disk(ech_import_options options, rlim_t most)
{
    struct rlimit before, small;
    ech_import_count count;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = most;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    ech_status st = import_with(options, "in", "t", &count);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    return st;
}

/* What was done stays, and the next import goes on and makes the same. */
static void test_goes_on_after_a_full_disk(void **state)
{
    (void)state;
    ech_import_count one, count;
    make_many();
    assert_int_equal(import("in", "one", 0.1, &one), ECH_OK);
    ech_import_options options = {.valid = 0.1, .workers = 2, .save_bytes = 1};
    assert_int_equal(import_to_full_disk(options, 5000000), ECH_EIO);
    assert_error_has("t-train.bin: cannot write");
    assert_true(ech_file_is_folder(in_scratch("t.tmp")));
    assert_false(ech_file_exists(in_scratch("t-train.bin")));
    int64_t stopped = progress_done;
    progress_done = 0;
    assert_int_equal(import_with(options, "in", "t", &count), ECH_OK);
    assert_memory_equal(&one, &count, sizeof one);
    assert_same_files("one", "t");
    assert_true(progress_calls < 12 && stopped > 2000000);
    assert_false(ech_file_exists(in_scratch("t.tmp")));
}

/* Nobody can go on with files that have become shorter; it is said, and the next import begins anew. */
static void test_begins_anew_after_files_were_cut_off(void **state)
{
    (void)state;
    ech_import_count one, count;
    make_many();
    assert_int_equal(import("in", "one", 0.1, &one), ECH_OK);
    ech_import_options options = {.valid = 0.1, .workers = 1, .save_bytes = 1};
    int before = begin_listening();
    assert_int_equal(import_to_full_disk(options, 5000000), ECH_EIO);
    end_listening(before, "t.tmp keeps what is done; the same command goes on from there");
    assert_int_equal(truncate(in_scratch("t.tmp/t-train.bin"), 1000), 0);
    before = begin_listening();
    assert_int_equal(import_with(options, "in", "t", &count), ECH_EINPUT);
    end_listening(before, "t.tmp is removed; the next import begins anew");
    assert_error_has("t-train.bin: has less than the ");
    assert_false(ech_file_exists(in_scratch("t.tmp")));
    assert_int_equal(import_with(options, "in", "t", &count), ECH_OK);
    assert_same_files("one", "t");
}

/* A journal of another import is none, nor is a damaged one, and it is said why. */
static void test_begins_anew_when_something_changed(void **state)
{
    (void)state;
    const struct {
        const char *journal, *text, *why; /* journal NULL: a whole one */
    } cases[] = {
        {NULL, "some text", "journal.json: is of another import: texts, tokenizer or options have"},
        {NULL, "other text", "journal.json: is of another import"},
        {"{\"version\": 1", "some text", "journal.json: is no JSON; the import begins anew"},
        {"{\"version\": 1}", "some text", "journal.json: is damaged; the import begins anew"},
        {"{\"version\": 2, \"hash\": \"\", \"sealed\": true, \"parts\": []}", "some text",
         "journal.json: is of another version"},
    };
    ech_import_count count;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ech_import_journal journal = {.count.documents = 77, .sealed = true};
        char stream[32];
        memset(journal.hash, 'f', 32);
        write_text("in", cases[i].text);
        ech_file_make_folder(in_scratch("t.tmp"));
        assert_int_equal(ech_import_journal_write(in_scratch("t.tmp"), &journal), ECH_OK);
        if (cases[i].journal) write_text("t.tmp/journal.json", cases[i].journal);
        write_text("t.tmp/t.bin", "left behind");
        write_text("t.tmp/t.idx", "left behind");
        int before = begin_listening();
        assert_int_equal(import("in", "t", 0, &count), ECH_OK);
        end_listening(before, cases[i].why);
        snprintf(stream, sizeof stream, "%s|", cases[i].text);
        assert_stream("t", stream, 1);
        assert_int_equal(count.documents, 1);
        assert_int_equal(count_entries(), 3);
    }
}

/* Of an import of "in", with this tokenizer and without options. */
static void hash_import(const char *tokenizer, char hash[33])
{
    ech_texts texts;
    ech_tokenizer *open;
    assert_int_equal(ech_tokenizer_open(tokenizer, &open), ECH_OK);
    assert_int_equal(ech_texts_find(in_scratch("in"), &texts), ECH_OK);
    const ech_import_options options = {.texts = ech_text_source_complete((ech_text_source){0}),
                                        .tokenizer = open};
    ech_import_hash(&options, &texts, hash);
    ech_texts_free(&texts);
    ech_tokenizer_close(open);
}

/* Sealed files that are nowhere any more. */
static void test_begins_anew_when_files_are_lost(void **state)
{
    (void)state;
    ech_import_count count;
    ech_import_journal journal = {.sealed = true};
    write_text("in", "some text");
    ech_file_make_folder(in_scratch("t.tmp"));
    hash_import("bytes", journal.hash);
    assert_int_equal(ech_import_journal_write(in_scratch("t.tmp"), &journal), ECH_OK);
    int before = begin_listening();
    assert_int_equal(import("in", "t", 0, &count), ECH_OK);
    end_listening(before, "t.idx is neither there nor in this folder any more");
    assert_stream("t", "some text|", 1);
}

static void hash_with_end_of_text(const char *end, char hash[33])
{
    char config[64];
    snprintf(config, sizeof config, "{\"eos_token\": \"%s\"}", end);
    write_text("tokenizer/tokenizer_config.json", config);
    hash_import(in_scratch("tokenizer"), hash);
}

/* Which token ends a text is said beside tokenizer.json, and is part of what an import is of. */
static void test_hash_covers_the_end_of_text(void **state)
{
    (void)state;
    ech_tokenizer *bytes;
    ech_text tokens = {0}, config = {0};
    char a[33], b[33], again[33];
    assert_int_equal(ech_tokenizer_open("bytes", &bytes), ECH_OK);
    ech_tokenizer_export(bytes, &tokens, &config);
    ech_tokenizer_close(bytes);
    write_text("in", "some text");
    ech_file_make_folder(in_scratch("tokenizer"));
    write_file("tokenizer/tokenizer.json", tokens.at, tokens.n);
    ech_text_free(&tokens);
    ech_text_free(&config);
    hash_with_end_of_text("a", a);
    hash_with_end_of_text("b", b);
    hash_with_end_of_text("a", again);
    assert_string_equal(a, again);
    assert_string_not_equal(a, b);
}

static void test_one_import_at_a_time(void **state)
{
    (void)state;
    ech_import_count count;
    int lock;
    write_text("in", "some text");
    ech_file_make_folder(in_scratch("t.tmp"));
    assert_int_equal(ech_file_lock_folder(in_scratch("t.tmp"), &lock), ECH_OK);
    assert_int_equal(import("in", "t", 0, &count), ECH_EIO);
    assert_error_has("t.tmp: another run writes");
    close(lock);
    assert_int_equal(import("in", "t", 0, &count), ECH_OK);
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
        SCRATCH_TEST(test_lines),
        SCRATCH_TEST(test_byte_order_mark),
        SCRATCH_TEST(test_keys_by_other_names),
        SCRATCH_TEST(test_lines_for_validation),
        SCRATCH_TEST(test_bad_lines),
        SCRATCH_TEST(test_lines_are_counted_over_pieces),
        SCRATCH_TEST(test_text_without_a_place_to_cut),
        SCRATCH_TEST(test_no_utf8),
        SCRATCH_TEST(test_characters_across_pieces),
        SCRATCH_TEST(test_second_file_changes),
        SCRATCH_TEST(test_same_for_any_number_of_threads),
        SCRATCH_TEST(test_goes_on_after_a_full_disk),
        SCRATCH_TEST(test_begins_anew_after_files_were_cut_off),
        SCRATCH_TEST(test_begins_anew_when_something_changed),
        SCRATCH_TEST(test_begins_anew_when_files_are_lost),
        SCRATCH_TEST(test_hash_covers_the_end_of_text),
        SCRATCH_TEST(test_one_import_at_a_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
