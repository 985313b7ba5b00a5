/* SPDX-License-Identifier: Apache-2.0
 *
 * Written token files have Megatron's bytes and are read back, and failures leave no file.
 */
#include "data/scratch.h"

#include <signal.h>
#include <sys/resource.h>

#include "base/random.h"
#include "data/token_writer.h"

static void add_document(ech_token_writer *writer, const int32_t *ids, size_t n)
{
    assert_int_equal(ech_token_writer_add(writer, ids, n), ECH_OK);
    assert_int_equal(ech_token_writer_end_document(writer), ECH_OK);
}

static void assert_bytes(const char *name, const void *bytes, size_t n)
{
    char *read;
    size_t count;
    assert_int_equal(ech_file_read(in_scratch(name), 1 << 20, &read, &count), ECH_OK);
    assert_int_equal(count, n);
    assert_memory_equal(read, bytes, n);
    free(read);
}

TEST(test_golden)
{
    const int32_t ids[] = {5, 6, 7, 8, 9};
    ech_token_writer *writer;
    assert_int_equal(ech_token_writer_create(in_scratch("t"), 257, &writer), ECH_OK);
    add_document(writer, ids, 3);
    add_document(writer, ids + 3, 2);
    assert_int_equal(ech_token_writer_finish(writer), ECH_OK);
    assert_bytes("t.idx", golden_idx, sizeof golden_idx);
    assert_bytes("t.bin", golden_bin, sizeof golden_bin);
    assert_int_equal(count_entries(), 2);
}

/* 200 documents of 0 to 9,999 ids, added in pieces; `longest` cuts them into sequences. */
static void round_trip(int64_t vocabulary, int64_t longest, int64_t width)
{
    enum { DOCUMENTS = 200 };
    ech_random_key key = {.seed = (uint64_t)vocabulary};
    ech_token_writer *writer;
    assert_int_equal(ech_token_writer_create(in_scratch("t"), vocabulary, &writer), ECH_OK);
    if (longest) writer->longest = longest;
    int32_t *all = NULL;
    size_t capacity = 0, n = 0;
    for (uint64_t d = 0; d < DOCUMENTS; d++) {
        size_t length = ech_random_word(key, d) % (d % 10 ? 50 : 10000);
        all = ech_grow(all, &capacity, n + length, sizeof *all);
        for (size_t i = 0; i < length; i++)
            all[n + i] = (int32_t)(ech_random_word(key, 1000 + n + i) % (uint32_t)vocabulary);
        size_t half = length / 2;
        assert_int_equal(ech_token_writer_add(writer, all + n, half), ECH_OK);
        add_document(writer, all + n + half, length - half);
        n += length;
    }
    assert_int_equal(ech_token_writer_finish(writer), ECH_OK);

    ech_token_file *file = open_tokens("t");
    assert_int_equal(file->documents, DOCUMENTS);
    assert_int_equal(file->runs.tokens, n);
    int32_t *read = ech_calloc(n, sizeof *read);
    assert_int_equal(ech_token_file_read(file, 0, (int64_t)n, vocabulary, read), ECH_OK);
    assert_memory_equal(read, all, n * sizeof *read);
    ech_token_file_close(file);
    char *bytes;
    size_t count;
    assert_int_equal(ech_file_read(in_scratch("t.bin"), 1 << 30, &bytes, &count), ECH_OK);
    assert_int_equal(count, (int64_t)n * width);
    free(bytes);
    free(read);
    free(all);
}

TEST(test_round_trip)
{
    round_trip(257, 0, 2);
    round_trip(65499, 0, 2);
    round_trip(65500, 0, 4);
    round_trip(INT32_MAX, 0, 4);
}

TEST(test_long_documents_are_cut)
{
    round_trip(257, 7, 2);
    const int32_t ids[] = {5, 6, 7, 8, 9};
    ech_token_writer *writer;
    assert_int_equal(ech_token_writer_create(in_scratch("cut"), 257, &writer), ECH_OK);
    writer->longest = 3;
    add_document(writer, ids, 5);
    assert_int_equal(ech_token_writer_finish(writer), ECH_OK);
    unsigned char idx[sizeof golden_idx - 8];
    memcpy(idx, golden_idx, sizeof idx);
    idx[26] = 2; /* indices: 0 and 2, one document of two sequences */
    idx[66] = 2;
    assert_bytes("cut.idx", idx, sizeof idx);
}

/* A document of a prompt, in two parts, and a completion; and one without: modes at the end. */
TEST(test_prompts)
{
    const int32_t ids[] = {5, 6, 7, 8, 9};
    ech_token_writer *writer;
    assert_int_equal(ech_token_writer_create(in_scratch("t"), 257, &writer), ECH_OK);
    writer->longest = 2;
    assert_int_equal(ech_token_writer_add_prompt(writer, ids, 3), ECH_OK);
    assert_int_equal(ech_token_writer_add_prompt(writer, ids, 0), ECH_OK);
    assert_int_equal(ech_token_writer_add(writer, ids + 3, 1), ECH_OK);
    assert_int_equal(ech_token_writer_end_document(writer), ECH_OK);
    add_document(writer, ids + 4, 1);
    assert_int_equal(ech_token_writer_finish(writer), ECH_OK);
    char *bytes;
    size_t n;
    assert_int_equal(ech_file_read(in_scratch("t.idx"), 1000, &bytes, &n), ECH_OK);
    const int32_t lengths[] = {2, 1, 1, 1};
    const int64_t documents[] = {0, 3, 4};
    const char modes[] = {1, 1, 0, 0};
    assert_int_equal(n, 34 + 4 * 12 + 3 * 8 + 4);
    assert_memory_equal(bytes + 34, lengths, sizeof lengths);
    assert_memory_equal(bytes + 34 + 48, documents, sizeof documents);
    assert_memory_equal(bytes + n - 4, modes, sizeof modes);
    free(bytes);
    ech_token_file_close(open_tokens("t"));
}

TEST(test_nothing_before_the_end)
{
    const int32_t id = 65;
    ech_token_writer *writer;
    assert_int_equal(ech_token_writer_create(in_scratch("t"), 257, &writer), ECH_OK);
    for (int i = 0; i < 1000000; i++)
        if (ech_token_writer_add(writer, &id, 1) != ECH_OK) fail();
    assert_false(ech_file_exists(in_scratch("t.bin")));
    assert_false(ech_file_exists(in_scratch("t.idx")));
    assert_int_equal(count_entries(), 2); /* .bin, and the list of its sequences */
    ech_token_writer_discard(writer);
    assert_int_equal(count_entries(), 0);
}

TEST(test_replaces_an_older_one)
{
    for (int64_t tokens = 50; tokens > 0; tokens -= 24) {
        ech_token_file *file = counting_file("t", tokens);
        ech_token_file_close(file);
        assert_int_equal(count_entries(), 2);
    }
}

TEST(test_two_writers_of_one_prefix)
{
    const int32_t id = 65;
    ech_token_writer *a, *b;
    assert_int_equal(ech_token_writer_create(in_scratch("t"), 257, &a), ECH_OK);
    assert_int_equal(ech_token_writer_create(in_scratch("t"), 257, &b), ECH_OK);
    add_document(a, &id, 1);
    assert_int_equal(ech_token_writer_finish(a), ECH_OK);
    ech_token_writer_discard(b);
    assert_int_equal(count_entries(), 2);
}

TEST(test_refuses_other_ids)
{
    const int32_t bad[] = {257, -1, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < 4; i++) {
        ech_token_writer *writer;
        assert_int_equal(ech_token_writer_create(in_scratch("t"), 257, &writer), ECH_OK);
        assert_int_equal(ech_token_writer_add(writer, &bad[i], 1), ECH_EINPUT);
        assert_error_has("cannot hold token id ");
        ech_token_writer_discard(writer);
    }
}

TEST(test_no_folder)
{
    ech_token_writer *writer;
    assert_int_equal(ech_token_writer_create(in_scratch("no/t"), 257, &writer), ECH_EIO);
    assert_error_has("no/t.bin");
}

/* A disk that is full, played by a limit on the size of files. */
TEST(test_full_disk)
{
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 5000;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    for (int documents = 1; documents <= 400; documents += 399) {
        const int32_t ids[3] = {1, 2, 3};
        ech_token_writer *writer;
        assert_int_equal(ech_token_writer_create(in_scratch("t"), 257, &writer), ECH_OK);
        for (int i = 0; i < documents; i++) add_document(writer, ids, documents == 1 ? 3 : 1);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        ech_status st = ech_token_writer_finish(writer);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        /* 400 documents: .bin and the list fit, .idx does not. */
        assert_int_equal(st, documents == 1 ? ECH_OK : ECH_EIO);
        if (st != ECH_OK) assert_error_has("t.idx.tmp-");
        assert_int_equal(count_entries(), 2);
    }
    signal(SIGXFSZ, handler);
    ech_token_file *file = open_tokens("t");
    assert_int_equal(file->runs.tokens, 3); /* the first one, untouched */
    ech_token_file_close(file);
}
