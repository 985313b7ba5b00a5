/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of text are recognized by their first bytes: JSON under any name, formats that are refused,
 * and what a folder holds beside its texts.
 * */
#include "data/imports.h"

#include "data/text_kind.h"

static const char lines[] = "{\"text\": \"1\", \"url\": \"http://a\"}\n{\"text\": \"2\"}\n";

/* Lines are lines under any name. */
TEST(test_lines_of_any_name)
{
    ech_import_count count;
    static const char *const names[] = {"part-00000.json", "x.ndjson", "x.JSONL", "x.txt", "x"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        write_text(names[i], lines);
        assert_int_equal(import(names[i], "t", 0, &count), ECH_OK);
        assert_stream("t", "1|2|", 2);
    }
    write_text("x.txt", "\n {\"text\": \"1\"}\nno\n");
    assert_int_equal(import("x.txt", "t", 0, &count), ECH_EINPUT);
    assert_error_has("x.txt:3: must be an object");
    /* a line that is longer than what is looked at */
    ech_text line = {0};
    ech_text_append(&line, "{\"text\": \"%0*d\"}\n", ECH_TEXT_KIND_FIRST + 10, 0);
    write_text("x.txt", line.at);
    ech_text_free(&line);
    assert_int_equal(import("x.txt", "t", 0, &count), ECH_OK);
    assert_int_equal(count.tokens, ECH_TEXT_KIND_FIRST + 11);
}

TEST(test_arrays)
{
    ech_import_count count;
    static const char *const bad[][2] = {
        {"[{\"text\": \"1\"} {\"text\": \"2\"}]", ":1:1: not JSON: expected a comma or the end"},
        {"[{\"text\": \"1\"},\n {\"text\": \"2\"}", ":2:1: not JSON: the array does not end"},
        {"[{\"text\": \"1\"},\n\n {\"text\": \"2", ":3:1: not JSON: an element does not end"},
        {"[{\"text\": \"1\"},\n]", ":2:1: not JSON: expected an element"},
        {"[{\"text\": \"1\"},\n 2]", ":2: must be an object"},
        {"[{\"text\": \"1\"}]\n[", ":1:1: not JSON: something follows the array"},
        {"[{\"text\": \"1\"},\n{}]", ":2: has neither"},
    };
    write_text("a.json",
               "\xef\xbb\xbf [{\"text\": \"1\"}\n,{\"prompt\": \"[,]\", \"completion\":\"3\"} ]\n");
    assert_int_equal(import("a.json", "t", 0, &count), ECH_OK);
    assert_stream("t", "1|[,]3|", 2);
    write_text("a.json", "[{\"text\": \"1\"}, {\"text\": \"2\"}, {\"text\": \"3\"}]");
    assert_int_equal(import("a.json", "t", 0.4, &count), ECH_OK);
    assert_stream("t-train", "1|2|", 2);
    assert_stream("t-valid", "3|", 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_text("a.json", bad[i][0]);
        assert_int_equal(import("a.json", "t", 0, &count), ECH_EINPUT);
        assert_error_has(bad[i][1]);
    }
}

/* An array of several chunks has the tokens of the same objects as lines, and errors name the line.
 */
TEST(test_long_array)
{
    enum { ELEMENTS = 40000 };
    ech_import_count whole, cut;
    char expected[64];
    ech_text a = {0}, b = {0};
    for (int i = 0; i < ELEMENTS; i++) {
        ech_text_append(&a, "%s{\"more\": [\"]}\"], \"text\": \"%0*d\"}", i ? ",\n" : "[", i % 97,
                        i);
        ech_text_append(&b, "{\"text\": \"%0*d\"}\n", i % 97, i);
    }
    ech_text_append(&a, "]\n");
    assert_true(a.n > 2 * ECH_TEXT_CHUNK_BYTES);
    write_text("a.json", a.at);
    write_text("b.json", b.at);
    const ech_import_options options = {.workers = 2};
    assert_int_equal(import_with(options, "b.json", "b", &whole), ECH_OK);
    assert_int_equal(import_with(options, "a.json", "a", &cut), ECH_OK);
    assert_int_equal(cut.documents, ELEMENTS);
    assert_int_equal(cut.tokens, whole.tokens);
    a.at[a.n - 2] = ',';
    ech_text_append(&a, "{}]");
    write_text("a.json", a.at);
    assert_int_equal(import_with(options, "a.json", "a", &cut), ECH_EINPUT);
    snprintf(expected, sizeof expected, "a.json:%d: has neither", ELEMENTS + 1);
    assert_error_has(expected);
    ech_text_free(&a);
    ech_text_free(&b);
}

/* Texts that begin as JSON does, and are none. */
TEST(test_no_json)
{
    static const char *const texts[] = {
        "{ x = 1; }\n",       "[section]\na=1\n",           "{\"a\", \"b\"}\n",
        "[1] A reference.\n", "{\"a\": 1} is an object.\n", "{"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        ech_import_count count;
        write_text("a.txt", texts[i]);
        assert_int_equal(import("a.txt", "t", 0, &count), ECH_OK);
        assert_int_equal(count.documents, 1);
        assert_int_equal(count.tokens, strlen(texts[i]) + 1);
    }
}

/* What is no text is refused by what it is, and nobody is advised to learn its bytes. */
TEST(test_refused)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *says;
    } cases[] = {
#define X(bytes, says) {bytes, sizeof bytes - 1, says}
        X("PAR1\x15\x04", "a Parquet file"),
        X("ARROW1\0\0", "an Arrow file"),
        X("PK\x03\x04\x14\0", "a zip archive"),
        X("\xff\xfeh\0i\0", "text in UTF-16; convert it"),
        X("%PDF-1.4\n", "a PDF"),
        X("\x04\x22\x4d\x18\x64", "packed by lz4"),
        X("{\n \"text\": \"1\"\n}\n", "JSON, but neither lines"),
        X("{\n \"text\": \"1\"\n}\n{\n\"text\": \"2\"\n}\n", "JSON, but neither lines"),
#undef X
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ech_import_count count;
        write_file("in.jsonl.bak", cases[i].bytes, cases[i].n);
        assert_int_equal(import("in.jsonl.bak", "t", 0, &count), ECH_EINPUT);
        assert_error_has(cases[i].says);
        assert_null(strstr(ech_last_error(), "--binary"));
    }
    /* unless that is asked for */
    ech_import_count count;
    write_file("in.bin", "ab\0c", 4);
    assert_int_equal(import("in.bin", "t", 0, &count), ECH_EINPUT);
    assert_error_has("binary, with NUL bytes");
    assert_int_equal(import_with((ech_import_options){.texts.binary = true}, "in.bin", "t", &count),
                     ECH_OK);
    assert_int_equal(count.tokens, 5);
    write_file("in", "PK\x03\x04", 4);
    assert_int_equal(import_with((ech_import_options){.texts.binary = true}, "in", "t", &count),
                     ECH_OK);
    assert_int_equal(count.tokens, 5);
    write_text("in", lines);
    assert_int_equal(import_with((ech_import_options){.texts.as_text = true}, "in", "t", &count),
                     ECH_OK);
    assert_int_equal(count.tokens, strlen(lines) + 1);
}

/* A folder's files that are about its texts, or in another format, are left out with a warning; as
 * plain text they are read by --as-text, or by name. */
TEST(test_left_out)
{
    ech_import_count count;
    static const char *const aside[] = {"README.md", "LICENSE", "a.csv",
                                        "b.html",    "c.txt",   "d.json"};
    static const char *const holds[] = {"about\n",           "law\n",         "x,y\n", "<b>\n",
                                        "<!DOCTYPE html>\n", "{\n\"a\": 1}\n"};
    ech_file_make_folder(in_scratch("in"));
    write_text("in/text", "abc");
    write_text("in/x.jsonl", lines);
    write_file("in/e.docx", "PK\x03\x04", 4);
    write_file("in/tokens.bin", "\1\0\2\0", 4);
    for (int i = 0; i < 6; i++) {
        char name[32];
        snprintf(name, sizeof name, "in/%s", aside[i]);
        write_text(name, holds[i]);
    }
    assert_int_equal(import("in", "t", 0, &count), ECH_OK);
    assert_int_equal(count.files, 2);
    assert_stream("t", "abc|1|2|", 3);
    assert_int_equal(import_with((ech_import_options){.texts.as_text = true}, "in", "t", &count),
                     ECH_OK);
    assert_int_equal(count.files, 8);
    assert_int_equal(count.documents, 8);
    assert_int_equal(import("in/a.csv", "t", 0, &count), ECH_OK);
    assert_stream("t", "x,y\n|", 1);
    assert_int_equal(import("in/e.docx", "t", 0, &count), ECH_EINPUT);
    write_text("in/y.parquet", "PAR1");
    assert_int_equal(import("in", "t", 0, &count), ECH_EINPUT);
    assert_error_has("y.parquet: is a Parquet file");
}
