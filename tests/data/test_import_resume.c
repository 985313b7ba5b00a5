/* SPDX-License-Identifier: Apache-2.0
 *
 * An import over several threads, and after an interruption: the same files, or a new beginning
 * that is said.
 */
#include "data/imports.h"

#include <sys/resource.h>
#include <signal.h>

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

TEST(test_same_for_any_number_of_threads)
{
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
    assert_int_equal(count_entries(), 13);
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
TEST(test_goes_on_after_a_full_disk)
{
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

/* An import cannot continue with files that have become shorter. It says so, and the next import
 * starts from the beginning. */
TEST(test_begins_anew_after_files_were_cut_off)
{
    ech_import_count one, count;
    make_many();
    assert_int_equal(import("in", "one", 0.1, &one), ECH_OK);
    ech_import_options options = {.valid = 0.1, .workers = 1, .save_bytes = 1};
    int before = begin_listening();
    assert_int_equal(import_to_full_disk(options, 5000000), ECH_EIO);
    end_listening(before, "t.tmp holds the finished part; the same command continues from there");
    assert_int_equal(truncate(in_scratch("t.tmp/t-train.bin"), 1000), 0);
    before = begin_listening();
    assert_int_equal(import_with(options, "in", "t", &count), ECH_EINPUT);
    end_listening(before, "t.tmp is removed; the next import starts from the beginning");
    assert_error_has("t-train.bin: has less than the ");
    assert_false(ech_file_exists(in_scratch("t.tmp")));
    assert_int_equal(import_with(options, "in", "t", &count), ECH_OK);
    assert_same_files("one", "t");
}

/* A journal of another import is none, nor is a damaged one, and it is said why. */
TEST(test_begins_anew_when_something_changed)
{
    const struct {
        const char *journal, *text, *why; /* journal NULL: a whole one */
    } cases[] = {
        {NULL, "some text", "journal.json: is of another import: texts, tokenizer or options have"},
        {NULL, "other text", "journal.json: is of another import"},
        {"{\"version\": 1", "some text",
         "journal.json: is no JSON; the import starts from the beginning"},
        {"{\"version\": 1}", "some text",
         "journal.json: is damaged; the import starts from the beginning"},
        {"{\"version\": 1000, \"hash\": \"\", \"sealed\": true, \"parts\": []}", "some text",
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
        assert_int_equal(count_entries(), 4);
    }
}

/* Every number of a journal is under its hash: one that was changed is not believed. */
TEST(test_begins_anew_when_a_number_is_damaged)
{
    ech_import_journal journal = {.count.documents = 77}, read;
    char *text;
    size_t n;
    bool found;
    memset(journal.hash, 'f', 32);
    ech_file_make_folder(in_scratch("t.tmp"));
    assert_int_equal(ech_import_journal_write(in_scratch("t.tmp"), &journal), ECH_OK);
    assert_int_equal(ech_import_journal_read(in_scratch("t.tmp"), journal.hash, &found, &read),
                     ECH_OK);
    assert_true(found && read.count.documents == 77);
    assert_int_equal(ech_file_read(in_scratch("t.tmp/journal.json"), 1 << 20, &text, &n), ECH_OK);
    for (char *digits = strstr(text, "\"version\""); (digits = strpbrk(digits, "0123456789"));
         digits++) {
        char was = *digits;
        *digits = was == '3' ? '4' : '3';
        write_text("t.tmp/journal.json", text);
        assert_int_equal(ech_import_journal_read(in_scratch("t.tmp"), journal.hash, &found, &read),
                         ECH_OK);
        assert_false(found);
        *digits = was;
    }
    free(text);
}

/* Of an import of "in", with this tokenizer and without options. */
static void hash_import(const char *tokenizer, char hash[33])
{
    ech_texts texts;
    ech_tokenizer *open;
    assert_int_equal(ech_tokenizer_open(tokenizer, &open), ECH_OK);
    assert_int_equal(ech_texts_find(&(ech_data_text_source){.in = in_scratch("in")}, &texts),
                     ECH_OK);
    ech_import_options options = {.texts = ech_data_text_source_complete((ech_data_text_source){0}),
                                  .tokenizer = open};
    assert_int_equal(ech_chat_template_find(open, NULL, &options.texts.chat), ECH_OK);
    ech_import_hash(&options, &texts, hash);
    ech_texts_free(&texts);
    ech_tokenizer_close(open);
}

/* Sealed files that are nowhere any more. */
TEST(test_begins_anew_when_files_are_lost)
{
    ech_import_count count;
    ech_import_journal journal = {.sealed = true};
    write_text("in", "some text");
    ech_file_make_folder(in_scratch("t.tmp"));
    hash_import("bytes", journal.hash);
    assert_int_equal(ech_import_journal_write(in_scratch("t.tmp"), &journal), ECH_OK);
    int before = begin_listening();
    assert_int_equal(import("in", "t", 0, &count), ECH_OK);
    end_listening(before, "t.idx is no longer there");
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
TEST(test_hash_covers_the_end_of_text)
{
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

TEST(test_one_import_at_a_time)
{
    ech_import_count count;
    int lock;
    write_text("in", "some text");
    ech_file_make_folder(in_scratch("t.tmp"));
    assert_int_equal(ech_file_lock_folder(in_scratch("t.tmp"), 0, &lock), ECH_OK);
    assert_int_equal(import("in", "t", 0, &count), ECH_EIO);
    assert_error_has("t.tmp: another run writes");
    close(lock);
    assert_int_equal(import("in", "t", 0, &count), ECH_OK);
}
