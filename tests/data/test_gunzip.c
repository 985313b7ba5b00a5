/* SPDX-License-Identifier: Apache-2.0
 *
 * Packed texts give the tokens of the unpacked ones; damaged ones are named; what a folder holds
 * besides texts is left out.
 */
#include "data/imports.h"

#include "data/text_file.h"

/* A command of the shell in the folder. */
static void shell(const char *words)
{
    char line[6000];
    snprintf(line, sizeof line, "cd %s && %s", scratch, words);
    assert_int_equal(system(line), 0);
}

static void make_texts(void)
{
    ech_text text = {0}, lines = {0};
    for (int i = 0; i < 250000; i++)
        ech_text_append(&text, "%s%d%s", i % 3 ? "na\xc3\xafve " : "word", i, i % 7 ? "" : "\n");
    for (int i = 0; i < 20000; i++)
        ech_text_append(&lines, "{\"prompt\": \"p%d\", \"completion\": \"\xc3\xa9 %d\"}\n", i,
                        i * i);
    write_text("a.txt", text.at);
    write_text("a.jsonl", lines.at);
    ech_text_free(&text);
    ech_text_free(&lines);
    /* two members; one */
    shell(
        "head -c 1000000 a.txt | gzip -n >b.txt.gz && tail -c +1000001 a.txt | gzip -n >>b.txt.gz");
    shell("gzip -nc a.jsonl >b.jsonl.gz");
}

static void assert_same(const char *a, const char *b)
{
    char *bytes[2];
    size_t n[2];
    assert_int_equal(ech_file_read(in_scratch(a), 1 << 28, &bytes[0], &n[0]), ECH_OK);
    assert_int_equal(ech_file_read(in_scratch(b), 1 << 28, &bytes[1], &n[1]), ECH_OK);
    assert_int_equal(n[0], n[1]);
    assert_true(n[0] > 10);
    assert_memory_equal(bytes[0], bytes[1], n[0]);
    free(bytes[0]);
    free(bytes[1]);
}

static void as_unpacked(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {{"a.txt", "b.txt.gz"}, {"a.jsonl", "b.jsonl.gz"}};
    ech_import_count plain, packed;
    make_texts();
    for (int i = 0; i < 2; i++) {
        assert_int_equal(import(pairs[i][0], "plain", 0.13, &plain), ECH_OK);
        assert_int_equal(import(pairs[i][1], "packed", 0.13, &packed), ECH_OK);
        assert_memory_equal(&plain, &packed, sizeof plain); /* bytes are those of the text */
        assert_same("plain-train.bin", "packed-train.bin");
        assert_same("plain-train.idx", "packed-train.idx");
        assert_same("plain-valid.bin", "packed-valid.bin");
    }
}

/* Where reading goes on after an interruption, and where it goes back. */
static void at_any_place(void **state)
{
    (void)state;
    ech_import_count plain, packed;
    ech_import_options options = {.save_bytes = 1};
    make_texts();
    assert_int_equal(import("a.txt", "plain", 0, &plain), ECH_OK);
    assert_int_equal(import_with(options, "b.txt.gz", "packed", &packed), ECH_OK);
    assert_same("plain.bin", "packed.bin");
    ech_text_file *gunzip;
    int64_t stored;
    char late[8], early[8];
    assert_int_equal(ech_text_file_open(in_scratch("b.txt.gz"), &gunzip, &stored), ECH_OK);
    assert_int_equal(ech_text_file_read(gunzip, 1500000, 8, late), ECH_OK);
    assert_int_equal(ech_text_file_read(gunzip, 0, 8, early), ECH_OK);
    assert_memory_equal(early, "word0\nna", 8);
    char again[8];
    assert_int_equal(ech_text_file_read(gunzip, 1500000, 8, again), ECH_OK);
    assert_memory_equal(late, again, 8);
    ech_text_file_close(gunzip);
}

static void damaged_ones_are_named(void **state)
{
    (void)state;
    ech_import_count count;
    make_texts();
    shell("head -c 100000 b.txt.gz >cut.txt.gz && : >empty.txt.gz");
    shell("(cat b.jsonl.gz; echo junk) >junk.jsonl.gz");
    shell("(head -c 30000 b.txt.gz; echo XXXXXXXX; tail -c +30010 b.txt.gz) >bad.txt.gz");
    shell("(head -c -6 b.txt.gz; echo XXXXX) >sum.txt.gz");
    static const struct {
        const char *name, *says;
    } cases[] = {{"cut.txt.gz", "truncated"},
                 {"empty.txt.gz", "truncated"},
                 {"junk.jsonl.gz", ".jsonl.gz"},
                 {"bad.txt.gz", "damaged before byte"},
                 {"sum.txt.gz", "a checksum is wrong"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(import(cases[i].name, "out", 0, &count), ECH_EINPUT);
        assert_error_has(cases[i].name);
        assert_error_has(cases[i].says);
        assert_false(ech_file_exists(in_scratch("out.bin")));
    }
}

static void what_is_left_out(void **state)
{
    (void)state;
    ech_import_count count;
    shell("mkdir -p in/.git && echo one >in/a.txt && echo two | gzip >in/b.txt.gz");
    shell("echo hidden >in/.c.txt && echo hidden >in/.git/d.txt && ln -s nowhere in/e.txt");
    assert_int_equal(import("in", "out", 0, &count), ECH_OK);
    assert_int_equal(count.files, 2);
    assert_stream("out", "one\n|two\n|", 2);
    assert_int_not_equal(import("in/e.txt", "out", 0, &count), ECH_OK);
    assert_error_has("e.txt");
}

int main(void)
{
    const struct CMUnitTest tests[] = {SCRATCH_TEST(as_unpacked), SCRATCH_TEST(at_any_place),
                                       SCRATCH_TEST(damaged_ones_are_named),
                                       SCRATCH_TEST(what_is_left_out)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
