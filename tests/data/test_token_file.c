/* SPDX-License-Identifier: Apache-2.0
 *
 * Token files as they should be, and as they should not: damaged, hostile, missing.
 */
#include "data/scratch.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static int64_t bytes_read, reads;

/* Counts. */
ssize_t pread(int fd, void *bytes, size_t n, off_t offset)
{
    ssize_t got = syscall(SYS_pread64, fd, bytes, n, offset);
    if (got > 0) bytes_read += got;
    reads++;
    return got;
}

/* Opens the file "t" and, if that works, reads all of it: whatever comes, no crash. */
static ech_status open_and_read(int64_t vocabulary)
{
    ech_token_file *file;
    ech_status st =
        ech_token_file_open(in_scratch("t"), &(ech_token_options){.documents = true}, &file);
    if (st != ECH_OK) return st;
    int64_t n = file->runs.tokens;
    assert_true(n >= 0 && n < 1 << 20 && file->documents >= 0);
    int32_t *ids = ech_calloc((size_t)n, sizeof *ids);
    ech_token_file_read(file, 0, n, vocabulary, ids);
    for (int64_t i = 0; i < n; i++) assert_true(ids[i] >= 0 && ids[i] < vocabulary);
    free(ids);
    ech_token_file_close(file);
    return ECH_OK;
}

static void write_golden(void)
{
    write_file("t.idx", golden_idx, sizeof golden_idx);
    write_file("t.bin", golden_bin, sizeof golden_bin);
}

/* The golden index with one number replaced. */
static void write_changed(size_t at, const void *number, size_t bytes)
{
    unsigned char idx[sizeof golden_idx];
    memcpy(idx, golden_idx, sizeof idx);
    memcpy(idx + at, number, bytes);
    write_file("t.idx", idx, sizeof idx);
    write_file("t.bin", golden_bin, sizeof golden_bin);
}

static void assert_refused_u64(size_t at, uint64_t number, const char *why)
{
    write_changed(at, &number, sizeof number);
    assert_int_equal(open_and_read(100), ECH_EINPUT);
    assert_error_has("t.idx: ");
    assert_error_has(why);
}

TEST(test_golden)
{
    write_golden();
    ech_token_file *file = open_tokens("t");
    assert_int_equal(file->runs.tokens, 5);
    assert_int_equal(file->documents, 2);
    for (int64_t first = 0; first <= 5; first++) {
        for (int64_t n = 0; n <= 5 - first; n++) {
            int32_t ids[6] = {-1, -1, -1, -1, -1, -1};
            assert_int_equal(ech_token_file_read(file, first, n, 10, ids), ECH_OK);
            for (int64_t i = 0; i < 6; i++) assert_int_equal(ids[i], i < n ? 5 + first + i : -1);
        }
    }
    ech_token_file_close(file);
    ech_token_file_close(NULL);
}

TEST(test_modes)
{
    unsigned char idx[sizeof golden_idx + 2] = {0};
    memcpy(idx, golden_idx, sizeof golden_idx);
    write_golden();
    write_file("t.idx", idx, sizeof idx);
    assert_int_equal(open_and_read(100), ECH_OK);
    write_file("t.idx", idx, sizeof idx - 1);
    assert_int_equal(open_and_read(100), ECH_EINPUT);
    assert_error_has("83 bytes do not hold the 2 sequences");
    const unsigned char unknown[] = {2, 127, 128, 255};
    for (size_t i = 0; i < sizeof unknown; i++) {
        idx[sizeof idx - 1] = unknown[i];
        write_file("t.idx", idx, sizeof idx);
        assert_int_equal(open_and_read(100), ECH_EUNSUPPORTED);
        assert_error_has("t.idx: sequence 1 has mode ");
    }
    idx[sizeof idx - 1] = 1;
    write_file("t.idx", idx, sizeof idx);
    assert_int_equal(open_and_read(100), ECH_OK);
}

TEST(test_dtypes)
{
    const int32_t lengths[] = {2, 1};
    const unsigned char u8[] = {7, 255, 9};
    const uint16_t u16[] = {7, 255, 9};
    const int32_t i32[] = {7, 255, 9};
    const int64_t i64[] = {7, 255, 9};
    const struct {
        int code, width;
        const void *bytes;
    } kinds[] = {{1, 1, u8}, {8, 2, u16}, {4, 4, i32}, {5, 8, i64}};
    for (size_t k = 0; k < 4; k++) {
        const int64_t pointers[] = {0, 2 * kinds[k].width};
        write_index("t", kinds[k].code, 2, lengths, pointers);
        write_file("t.bin", kinds[k].bytes, (size_t)(3 * kinds[k].width));
        int32_t ids[3];
        ech_token_file *file = open_tokens("t");
        assert_int_equal(ech_token_file_read(file, 0, 3, 256, ids), ECH_OK);
        assert_int_equal(ids[0], 7);
        assert_int_equal(ids[1], 255);
        assert_int_equal(ids[2], 9);
        ech_token_file_close(file);
    }
}

TEST(test_dtypes_without_ids)
{
    const int no_ids[] = {2, 3, 6, 7}, unknown[] = {0, 9, 255};
    for (size_t i = 0; i < 4; i++) {
        unsigned char code = (unsigned char)no_ids[i];
        write_changed(17, &code, 1);
        assert_int_equal(open_and_read(100), ECH_EUNSUPPORTED);
        assert_error_has("must be u8, u16, i32 or i64");
    }
    for (size_t i = 0; i < 3; i++) {
        unsigned char code = (unsigned char)unknown[i];
        write_changed(17, &code, 1);
        assert_int_equal(open_and_read(100), ECH_EINPUT);
        assert_error_has("dtype code");
    }
}

TEST(test_every_truncation)
{
    write_golden();
    for (size_t n = 0; n < sizeof golden_idx; n++) {
        write_file("t.idx", golden_idx, n);
        assert_int_equal(open_and_read(100), ECH_EINPUT);
        assert_error_has("t.idx: ");
    }
    write_golden();
    for (size_t n = 0; n < sizeof golden_bin; n++) {
        write_file("t.bin", golden_bin, n);
        assert_int_equal(open_and_read(100), ECH_EINPUT);
        assert_error_has("lies outside the");
    }
}

TEST(test_every_corrupt_byte)
{
    write_golden();
    int fd = open(in_scratch("t.idx"), O_WRONLY);
    int opened = 0, refused = 0;
    for (size_t at = 0; at < sizeof golden_idx; at++) {
        for (int change = 1; change < 256; change++) {
            unsigned char byte = (unsigned char)(golden_idx[at] ^ change);
            assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
            ech_status st = open_and_read(100);
            if (st == ECH_OK)
                opened++;
            else
                refused++;
            assert_true(st == ECH_OK || st == ECH_EINPUT || st == ECH_EUNSUPPORTED);
        }
        assert_int_equal(pwrite(fd, &golden_idx[at], 1, (off_t)at), 1);
    }
    close(fd);
    /* A shorter length, u8 for u16, or another pointer inside .bin is still a valid file. */
    assert_true(opened > 0 && opened < 100);
    assert_int_equal(opened + refused, 82 * 255);
    assert_int_equal(open_and_read(100), ECH_OK);
}

TEST(test_hostile_counts)
{
    const char *why = "bytes do not hold the";
    const uint64_t huge[] = {3,
                             100,
                             UINT64_C(1) << 32,
                             UINT64_C(1) << 60,
                             UINT64_C(1) << 61,
                             UINT64_C(1) << 62,
                             UINT64_C(1) << 63,
                             UINT64_MAX};
    for (size_t i = 0; i < sizeof huge / sizeof huge[0]; i++) {
        assert_refused_u64(18, huge[i], why);
        if (huge[i] != 3) assert_refused_u64(26, huge[i], why);
    }
    /* Counts whose bytes come to the file's size only by overflow: 12 S + 8 D = 48 mod 2^64. */
    uint64_t wrapped[2] = {UINT64_C(1) << 62, 6};
    write_changed(18, wrapped, sizeof wrapped);
    assert_int_equal(open_and_read(100), ECH_EINPUT);
    assert_error_has(why);
    /* Sequences but no document indices at all. */
    uint64_t none[2] = {4, 0};
    write_changed(18, none, sizeof none);
    assert_int_equal(open_and_read(100), ECH_EINPUT);
    assert_error_has("no document indices");
}

TEST(test_hostile_sequences)
{
    const int32_t lengths[] = {-1, INT32_MIN, 6, INT32_MAX};
    for (size_t i = 0; i < 4; i++) {
        write_changed(34, &lengths[i], sizeof lengths[i]);
        assert_int_equal(open_and_read(100), ECH_EINPUT);
        assert_error_has(lengths[i] < 0 ? "sequence 0 has -" : "lies outside the 10 bytes");
    }
    const uint64_t outside[] = {8, 10, 12, 1000, INT64_MAX - 1, UINT64_C(1) << 63, UINT64_MAX - 1};
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++)
        assert_refused_u64(50, outside[i], "lies outside the 10 bytes");
    assert_refused_u64(50, 3, "no multiple of the 2 bytes of a token");
}

TEST(test_hostile_documents)
{
    assert_refused_u64(58, 1, "document index 0 is 1");
    assert_refused_u64(66, 3, "document index 1 is 3");
    assert_refused_u64(74, 0, "document index 2 is 0");
    assert_refused_u64(74, UINT64_MAX, "ascend to at most 2");
    assert_refused_u64(0, 0, "does not begin with MMIDIDX");
    uint64_t version = 2;
    write_changed(9, &version, sizeof version);
    assert_int_equal(open_and_read(100), ECH_EUNSUPPORTED);
    assert_error_has("version 2");
}

/* An index of `sequences` sequences without a token, of which `documents` are documents, one of its
 * document indices replaced. */
static ech_status open_with_entry(int64_t sequences, int64_t documents, int64_t which,
                                  int64_t entry)
{
    int32_t *lengths = ech_calloc((size_t)sequences + 1, sizeof *lengths);
    int64_t *pointers = ech_calloc((size_t)sequences + 1, sizeof *pointers);
    int64_t *begins = ech_calloc((size_t)documents + 1, sizeof *begins);
    for (int64_t i = 0; i <= documents; i++) begins[i] = i < sequences ? i : sequences;
    begins[which] = entry;
    write_marked("t", 8, sequences, lengths, pointers, documents, begins, NULL);
    write_file("t.bin", "", 0);
    free(lengths);
    free(pointers);
    free(begins);
    return open_and_read(100);
}

/* However many there are, each is checked, and each byte of the index is read once: what was
 * checked is what is used, even if somebody writes to the file. */
TEST(test_many_documents)
{
    enum { MANY = 3 * 4096 };
    const int64_t which[] = {4095, 4096, 4097, 8191, 8192, MANY - 1, MANY};
    struct stat info;
    for (size_t i = 0; i < sizeof which / sizeof *which; i++) {
        char expected[64];
        snprintf(expected, sizeof expected, "document index %d is %d;", (int)which[i],
                 (int)which[i] - 2);
        assert_int_equal(open_with_entry(MANY, MANY, which[i], which[i] - 2), ECH_EINPUT);
        assert_error_has(expected);
        snprintf(expected, sizeof expected, "document index %d is 1;", (int)which[i]);
        assert_int_equal(open_with_entry(0, MANY, which[i], 1), ECH_EINPUT);
        assert_error_has(expected);
    }
    bytes_read = 0;
    assert_int_equal(open_with_entry(MANY, MANY, 1, 1), ECH_OK);
    assert_int_equal(stat(in_scratch("t.idx"), &info), 0);
    assert_int_equal(bytes_read, info.st_size);
}

TEST(test_missing)
{
    char expected[8600];
    const char *prefix = in_scratch("t");
    assert_int_equal(open_and_read(100), ECH_EUSAGE);
    snprintf(expected, sizeof expected, "`echelon data TEXT %s`", prefix);
    assert_error_has(expected);

    write_file("t-train.idx", golden_idx, sizeof golden_idx);
    assert_int_equal(open_and_read(100), ECH_EUSAGE);
    assert_error_has("t-train.idx is there: give ");

    ech_token_file *none;
    assert_int_equal(ech_token_file_open(in_scratch("u.bin"), &(ech_token_options){0}, &none),
                     ECH_EUSAGE);
    assert_error_has("u.bin: no such file");
    write_file("t", "a text", 6);
    assert_int_equal(open_and_read(100), ECH_EUSAGE);
    snprintf(expected, sizeof expected,
             "t is no token file: if it is a text, tokenize it "
             "with `echelon data %s PREFIX`",
             prefix);
    assert_error_has(expected);
    write_file("p.images", "packed", 6);
    assert_int_equal(ech_token_file_open(in_scratch("p.images"), &(ech_token_options){0}, &none),
                     ECH_EUSAGE);
    assert_error_has("p.images has images, and this model reads texts");

    ech_token_file *file;
    assert_int_equal(ech_token_file_open(scratch, &(ech_token_options){.documents = true}, &file),
                     ECH_EUSAGE);
    assert_error_has("is a folder, not the prefix");

    write_golden();
    assert_int_equal(
        ech_token_file_open(in_scratch("t.bin"), &(ech_token_options){.documents = true}, &file),
        ECH_EUSAGE);
    assert_error_has("without .bin");
    unlink(in_scratch("t.bin"));
    assert_int_equal(open_and_read(100), ECH_EIO);
    assert_error_has("t.bin: cannot open");
    assert_int_equal(ech_file_make_folder(in_scratch("t.bin")), ECH_OK);
    assert_int_equal(open_and_read(100), ECH_EINPUT);
    assert_error_has("not a regular file");
}

static void assert_bad_id(int code, const void *bytes, int width, int64_t bad, const char *says)
{
    const int32_t lengths[] = {2, 2};
    const int64_t pointers[] = {0, 2 * width};
    write_index("t", code, 2, lengths, pointers);
    write_file("t.bin", bytes, (size_t)(4 * width));
    int32_t ids[4];
    ech_token_file *file = open_tokens("t");
    assert_int_equal(ech_token_file_read(file, 1, 3, 257, ids), ECH_EINPUT);
    assert_error_has("t.bin: ");
    assert_error_has(says);
    assert_error_has("data.tokenizer");
    assert_error_has("model.vocab_size");
    assert_int_equal(ech_token_file_read(file, 0, bad, 257, ids), ECH_OK);
    ech_token_file_close(file);
}

TEST(test_ids_outside_the_vocabulary)
{
    const uint16_t u16[] = {1, 2, 3, 257};
    assert_bad_id(8, u16, 2, 3, "token 3 of the stream has id 257, but the vocabulary has 257");
    const int32_t i32[] = {1, 2, -3, 4};
    assert_bad_id(4, i32, 4, 2, "token 2 of the stream has id -3,");
    const int64_t i64[] = {1, (INT64_C(1) << 32) + 5, 3, 4};
    assert_bad_id(5, i64, 8, 1, "token 1 of the stream has id 4294967301,");
}

TEST(test_ranges_outside_the_stream)
{
    write_golden();
    int32_t ids[8];
    ech_token_file *file = open_tokens("t");
    const int64_t ranges[][2] = {{-1, 1}, {0, -1},        {0, 6},         {5, 1},
                                 {6, 0},  {INT64_MAX, 1}, {1, INT64_MAX}, {INT64_MIN, INT64_MAX}};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        assert_int_equal(ech_token_file_read(file, ranges[i][0], ranges[i][1], 100, ids),
                         ECH_EINTERNAL);
    ech_token_file_close(file);
}

/* 300 sequences, many of them empty, that lie in .bin in reverse order with gaps. */
TEST(test_scattered_sequences)
{
    enum { SEQUENCES = 300, LONGEST = 5, PLACE = LONGEST + 2 };
    int32_t lengths[SEQUENCES];
    int64_t pointers[SEQUENCES];
    uint16_t bin[SEQUENCES * PLACE] = {0};
    uint16_t stream[SEQUENCES * LONGEST];
    int64_t tokens = 0;
    for (int i = 0; i < SEQUENCES; i++) {
        lengths[i] = i % 7 < 3 || (i > 100 && i < 240) ? 0 : i * i % LONGEST + 1;
        int at = (SEQUENCES - 1 - i) * PLACE;
        pointers[i] = 2 * at;
        for (int j = 0; j < lengths[i]; j++) {
            uint16_t id = (uint16_t)(i * LONGEST + j + 1);
            bin[at + j] = stream[tokens++] = id;
        }
    }
    write_index("t", 8, SEQUENCES, lengths, pointers);
    write_file("t.bin", bin, sizeof bin);
    int32_t ids[SEQUENCES * LONGEST];
    ech_token_file *file = open_tokens("t");
    assert_int_equal(file->runs.tokens, tokens);
    assert_int_equal(file->documents, SEQUENCES);
    for (int64_t first = 0; first < tokens; first++) {
        int64_t n = first % 2 ? tokens - first : (tokens - first + 1) / 2;
        assert_int_equal(ech_token_file_read(file, first, n, 65536, ids), ECH_OK);
        for (int64_t i = 0; i < n; i++) assert_int_equal(ids[i], stream[first + i]);
    }
    ech_token_file_close(file);
}

/* Documents follow each other in .bin without a gap, and then there is one. */
TEST(test_one_read_for_documents_without_gaps)
{
    enum { SEQUENCES = 6, TOKENS = 12 };
    const int32_t lengths[SEQUENCES] = {2, 3, 0, 1, 4, 2};
    const int64_t pointers[SEQUENCES] = {0, 4, 10, 10, 14, 22};
    uint16_t bin[TOKENS + 1];
    int32_t ids[TOKENS];
    for (int i = 0; i <= TOKENS; i++) bin[i] = (uint16_t)i;
    write_index("t", 8, SEQUENCES, lengths, pointers);
    write_file("t.bin", bin, sizeof bin);
    ech_token_file *file = open_tokens("t");
    assert_int_equal(file->documents, SEQUENCES);
    const int64_t ranges[][3] = {{0, 12, 2}, {0, 6, 1}, {1, 4, 1}, {6, 6, 1}, {5, 2, 2}};
    for (size_t r = 0; r < sizeof ranges / sizeof ranges[0]; r++) {
        reads = 0;
        assert_int_equal(ech_token_file_read(file, ranges[r][0], ranges[r][1], 100, ids), ECH_OK);
        assert_int_equal(reads, ranges[r][2]);
        for (int64_t i = 0, at; i < ranges[r][1]; i++) {
            at = ranges[r][0] + i;
            assert_int_equal(ids[i], at + (at >= 6));
        }
    }
    ech_token_file_close(file);
}

TEST(test_nothing_in_it)
{
    write_index("t", 8, 0, NULL, NULL);
    write_file("t.bin", "", 0);
    assert_int_equal(open_and_read(100), ECH_OK);
    const int32_t lengths[] = {0, 0};
    const int64_t pointers[] = {0, 0};
    write_index("t", 8, 2, lengths, pointers);
    assert_int_equal(open_and_read(100), ECH_OK);
}
