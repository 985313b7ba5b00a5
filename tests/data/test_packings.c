/* SPDX-License-Identifier: Apache-2.0
 *
 * Packed texts give the tokens of the unpacked ones; damaged ones are named; what a folder holds
 * besides texts is left out.
 */
#include "data/imports.h"

#include "data/packing.h"
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
    /* padded to whole blocks, as tapes and some object stores leave it: inside and at the end */
    shell("(head -c 1000000 a.txt | gzip -n; head -c 700 /dev/zero; "
          "tail -c +1000001 a.txt | gzip -n; head -c 300000 /dev/zero) >padded.txt.gz");
    /* names do not tell */
    shell("cp b.txt.gz b && cp b.jsonl.gz part-00000.json");
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

TEST(as_unpacked)
{
    static const char *const pairs[][2] = {{"a.txt", "b.txt.gz"},
                                           {"a.jsonl", "b.jsonl.gz"},
                                           {"a.txt", "b"},
                                           {"a.txt", "padded.txt.gz"},
                                           {"a.jsonl", "part-00000.json"}};
    ech_import_count plain, packed;
    make_texts();
    for (int i = 0; i < 5; i++) {
        assert_int_equal(import(pairs[i][0], "plain", 0.13, &plain), ECH_OK);
        assert_int_equal(import(pairs[i][1], "packed", 0.13, &packed), ECH_OK);
        assert_memory_equal(&plain, &packed, sizeof plain); /* bytes are those of the text */
        assert_same("plain-train.bin", "packed-train.bin");
        assert_same("plain-train.idx", "packed-train.idx");
        assert_same("plain-valid.bin", "packed-valid.bin");
    }
}

/* Where reading goes on after an interruption, and where it goes back. */
TEST(at_any_place)
{
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

TEST(damaged_ones_are_named)
{
    ech_import_count count;
    make_texts();
    shell("head -c 100000 b.txt.gz >cut.txt.gz && : >empty.txt.gz");
    shell("(cat b.jsonl.gz; echo junk) >junk.jsonl.gz");
    shell("(head -c 30000 b.txt.gz; echo XXXXXXXX; tail -c +30010 b.txt.gz) >bad.txt.gz");
    shell("(head -c -6 b.txt.gz; echo XXXXX) >sum.txt.gz");
    shell("cp a.txt plain.txt.gz");
    static const struct {
        const char *name, *says;
    } cases[] = {{"cut.txt.gz", "truncated"},
                 {"empty.txt.gz", "truncated"},
                 {"junk.jsonl.gz", ".jsonl.gz"},
                 {"bad.txt.gz", "damaged before byte"},
                 {"plain.txt.gz", "does not begin as gzip does"},
                 {"sum.txt.gz", "a checksum is wrong"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(import(cases[i].name, "out", 0, &count), ECH_EINPUT);
        assert_error_has(cases[i].name);
        assert_error_has(cases[i].says);
        assert_false(ech_file_exists(in_scratch("out.bin")));
    }
}

/* Two members of each packing, as its own program makes them: {"text": "one"} and {"text": "two"},
 * a line each; between them a frame that is skipped, or padding. */
typedef struct packed_lines {
    const char *name, *bytes;
    size_t n;
} packed_lines;
#define PACKED(name, bytes)                                                                        \
    {                                                                                              \
        name, bytes, sizeof bytes - 1                                                              \
    }
static const packed_lines packed[] = {
    PACKED("zstd", "\x28\xb5\x2f\xfd\x04\x58\x81\x00\x00\x7b\x22\x74\x65\x78\x74\x22\x3a\x20\x22"
                   "\x6f\x6e\x65\x22\x7d\x0a\xda\x47\x0a\x1d\x50\x2a\x4d\x18\x02\x00\x00\x00\x61"
                   "\x62\x28\xb5\x2f\xfd\x04\x58\x81\x00\x00\x7b\x22\x74\x65\x78\x74\x22\x3a\x20"
                   "\x22\x74\x77\x6f\x22\x7d\x0a\x45\x6a\xc4\x1f"),
    PACKED("xz", "\xfd\x37\x7a\x58\x5a\x00\x00\x04\xe6\xd6\xb4\x46\x02\x00\x21\x01\x16\x00\x00"
                 "\x00\x74\x2f\xe5\xa3\x01\x00\x0f\x7b\x22\x74\x65\x78\x74\x22\x3a\x20\x22\x6f"
                 "\x6e\x65\x22\x7d\x0a\x00\x82\x39\xfb\xd0\x01\x69\x79\x5f\x00\x01\x28\x10\xe5"
                 "\x0b\x6c\x60\x1f\xb6\xf3\x7d\x01\x00\x00\x00\x00\x04\x59\x5a\x00\x00\x00\x00"
                 "\xfd\x37\x7a\x58\x5a\x00\x00\x04\xe6\xd6\xb4\x46\x02\x00\x21\x01\x16\x00\x00"
                 "\x00\x74\x2f\xe5\xa3\x01\x00\x0f\x7b\x22\x74\x65\x78\x74\x22\x3a\x20\x22\x74"
                 "\x77\x6f\x22\x7d\x0a\x00\x01\x9a\xf1\xc2\xbf\xe4\xce\xf5\x00\x01\x28\x10\xe5"
                 "\x0b\x6c\x60\x1f\xb6\xf3\x7d\x01\x00\x00\x00\x00\x04\x59\x5a"),
    PACKED("bzip2", "\x42\x5a\x68\x39\x31\x41\x59\x26\x53\x59\x06\x29\x90\x08\x00\x00\x07\x59\x80"
                    "\x00\x10\x50\x00\x00\x10\x02\x01\x84\x4a\x20\x00\x31\x00\xd3\x4d\x04\x03\x46"
                    "\x9a\x2b\x36\xb7\x48\xea\x50\x14\xf8\xbb\x92\x29\xc2\x84\x80\x31\x4c\x80\x40"
                    "\x42\x5a\x68\x39\x31\x41\x59\x26\x53\x59\x8a\x96\xf8\x23\x00\x00\x07\x59\x80"
                    "\x00\x10\x50\x00\x00\x10\x02\x00\x84\xca\x20\x00\x31\x00\xd3\x4d\x04\x26\xd0"
                    "\x1e\xa8\x4e\x15\xb9\x3c\x26\x40\xbe\x2e\xe4\x8a\x70\xa1\x21\x15\x2d\xf0\x46"),
};
#undef PACKED

/* Read by what they are, or refused where the build lacks the library. */
TEST(other_packings)
{
    ech_import_count count;
    for (size_t i = 0; i < sizeof packed / sizeof *packed; i++) {
        const unsigned char *bytes = (const unsigned char *)packed[i].bytes;
        const ech_packing *packing = ech_packing_of(bytes, packed[i].n);
        assert_non_null(packing);
        assert_string_equal(packing->name, packed[i].name);
        write_file("in", bytes, packed[i].n);
        ech_status status = import("in", "t", 0, &count);
        if (!packing->create) {
            assert_int_equal(status, ECH_EUNSUPPORTED);
            assert_error_has("whose library this build lacks: unpack it");
            continue;
        }
        assert_int_equal(status, ECH_OK);
        assert_stream("t", "one|two|", 2);
        for (size_t n = ECH_PACKING_FIRST; n < packed[i].n; n++) { /* each byte of a file counts */
            write_file("in", bytes, n);
            if (import("in", "t", 0, &count) == ECH_OK) assert_stream("t", "one|", 1);
        }
        ECH_FREED unsigned char *bad = ech_calloc(packed[i].n, 1);
        memcpy(bad, bytes, packed[i].n);
        bad[packed[i].n / 3] ^= 0x10;
        write_file("in", bad, packed[i].n);
        assert_int_equal(import("in", "t", 0, &count), ECH_EINPUT);
        assert_error_has("damaged before byte");
    }
}

TEST(what_is_left_out)
{
    ech_import_count count;
    shell("mkdir -p in/.git && echo one >in/a.txt && echo two | gzip >in/b.txt.gz");
    shell("echo hidden >in/.c.txt && echo hidden >in/.git/d.txt && ln -s nowhere in/e.txt");
    assert_int_equal(import("in", "out", 0, &count), ECH_OK);
    assert_int_equal(count.files, 2);
    assert_stream("out", "one\n|two\n|", 2);
    assert_int_not_equal(import("in/e.txt", "out", 0, &count), ECH_OK);
    assert_error_has("e.txt");
}
