/* SPDX-License-Identifier: Apache-2.0
 *
 * Token files without an index: llm.c's and nanoGPT's, alone and as shards.
 */
#include "data/scratch.h"

enum { END = 9 };

/* A file as llm.c writes it: 256 i32, then ids. */
static void write_llm(const char *name, int32_t magic, int32_t version, int32_t count,
                      const void *ids, size_t bytes)
{
    unsigned char file[1024 + 256] = {0};
    const int32_t words[3] = {magic, version, count};
    assert_true(bytes <= 256);
    memcpy(file, words, sizeof words);
    memcpy(file + 1024, ids, bytes);
    write_file(name, file, 1024 + bytes);
}

static ech_token_file *open_plain(const char *name, bool documents)
{
    ech_token_file *file;
    ech_token_options options = {.documents = documents, .end_of_text = END};
    assert_int_equal(ech_token_file_open(in_scratch(name), &options, &file), ECH_OK);
    return file;
}

static void assert_ids(const ech_token_file *file, const int32_t *expected, int64_t n)
{
    assert_int_equal(file->runs.tokens, n);
    for (int64_t first = 0; first < n; first++) {
        for (int64_t m = 0; m <= n - first; m++) {
            int32_t ids[64];
            assert_int_equal(ech_token_file_read(file, first, m, 200000, ids), ECH_OK);
            if (m) assert_memory_equal(ids, expected + first, (size_t)m * sizeof *ids);
        }
    }
}

static void assert_refused(const char *name, ech_status why, const char *says)
{
    ech_token_file *file = NULL;
    ech_token_options options = {.documents = true, .end_of_text = END};
    assert_int_equal(ech_token_file_open(in_scratch(name), &options, &file), why);
    assert_error_has(says);
    assert_null(file);
}

/* End of text stands before each of llm.c's documents, and is its first token. */
TEST(test_llm)
{
    const uint16_t narrow[] = {9, 1, 2, 9, 65535};
    const uint32_t wide[] = {9, 1, 2, 9, 128000};
    const int32_t narrow_ids[] = {9, 1, 2, 9, 65535}, wide_ids[] = {9, 1, 2, 9, 128000};
    write_llm("n.bin", 20240520, 1, 5, narrow, sizeof narrow);
    write_llm("w.bin", 20240801, 7, 5, wide, sizeof wide);
    for (int documents = 0; documents < 2; documents++) {
        ech_token_file *file = open_plain("n.bin", documents);
        assert_ids(file, narrow_ids, 5);
        assert_int_equal(file->documents, documents ? 2 : 0);
        if (documents) assert_int_equal(file->runs.run.at[1].first, 3);
        ech_token_file_close(file);
        file = open_plain("w.bin", documents);
        assert_ids(file, wide_ids, 5);
        assert_int_equal(file->documents, documents ? 2 : 0);
        ech_token_file_close(file);
    }
}

TEST(test_llm_damaged)
{
    const uint16_t ids[] = {1, 2, 3};
    const char *why = "its header counts";
    const int32_t counts[] = {-1, 0, 2, 4, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        write_llm("t.bin", 20240520, 1, counts[i], ids, sizeof ids);
        assert_refused("t.bin", ECH_EINPUT, why);
    }
    write_llm("t.bin", 20240801, 7, 3, ids, sizeof ids);
    assert_refused("t.bin", ECH_EINPUT, why);
    write_llm("t.bin", 20240520, 7, 3, ids, sizeof ids);
    assert_refused("t.bin", ECH_EUNSUPPORTED, "version 7 of llm.c's format 20240520; only 1");
    write_llm("t.bin", 20240801, 1, 3, ids, sizeof ids);
    assert_refused("t.bin", ECH_EUNSUPPORTED, "only 7 is known");
    write_llm("t.bin", 20240326, 3, 3, ids, sizeof ids);
    assert_refused("t.bin", ECH_EUSAGE, "a model of llm.c, not tokens");
    write_llm("t.bin", 20240520, 1, 3, ids, sizeof ids);
    for (off_t n = 1029; n >= 4; n--) {
        assert_int_equal(truncate(in_scratch("t.bin"), n), 0);
        assert_refused("t.bin", ECH_EINPUT, n < 1024 ? "less than llm.c's header" : why);
    }
}

TEST(test_nanogpt)
{
    const uint16_t bytes[] = {1, 2, 9, 3, 9, 9, 4};
    const int32_t ids[] = {1, 2, 9, 3, 9, 9, 4};
    write_file("train.bin", bytes, sizeof bytes);
    ech_token_file *file = open_plain("train.bin", true);
    assert_ids(file, ids, 7);
    assert_int_equal(file->documents, 4);
    int32_t id[7];
    assert_int_equal(ech_token_file_read(file, 0, 7, 9, id), ECH_EINPUT);
    assert_error_has("train.bin: token 2 of the stream has id 9");
    ech_token_file_close(file);
    write_file("train.bin", bytes, sizeof bytes - 1);
    assert_refused("train.bin", ECH_EINPUT, "13 bytes are no whole number of u16");
    write_file("train.idx", golden_idx, sizeof golden_idx);
    assert_refused("train.bin", ECH_EUSAGE, "without .bin");
    assert_refused("other.bin", ECH_EUSAGE, "no such file");
}

/* Shards in the order of their bytes, of both widths, one empty; documents cross them. */
TEST(test_shards)
{
    const uint16_t a[] = {1, 9, 2}, c[] = {3, 9}, d[] = {4, 5};
    const uint32_t b[] = {70000, 70001};
    const int32_t ids[] = {1, 9, 2, 3, 9, 4, 5, 70000, 70001};
    write_llm("x_train_000010.bin", 20240520, 1, 2, c, sizeof c);
    write_llm("x_train_000002.bin", 20240520, 1, 3, a, sizeof a);
    write_llm("x_train_000011.bin", 20240520, 1, 0, a, 0);
    write_llm("x_val_000000.bin", 20240520, 1, 3, a, sizeof a);
    write_file("x_train_00002.bin", d, sizeof d);
    write_llm("x_train_2.bin", 20240801, 7, 2, b, sizeof b);
    for (int documents = 0; documents < 2; documents++) {
        ech_token_file *file = open_plain("x_train_*.bin", documents);
        assert_ids(file, ids, 9);
        assert_int_equal(file->documents, documents ? 3 : 0);
        ech_token_file_close(file);
    }
    assert_refused("y_train_*.bin", ECH_EUSAGE, "no file has such a name");
    write_file("x_train_2.idx", golden_idx, sizeof golden_idx);
    assert_refused("x_train_*.bin", ECH_EUSAGE, "give the prefixes of Megatron's files one by one");
}
