/* SPDX-License-Identifier: Apache-2.0
 *
 * For the tests of this room: a folder of the test's own, files in it, token files by hand.
 */
#ifndef ECH_TESTS_DATA_SCRATCH_H
#define ECH_TESTS_DATA_SCRATCH_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/token_file.h"
#include "unit.h"

static char scratch[4096];

/* setup and teardown of a test */
static inline int scratch_make(void **state)
{
    (void)state;
    const char *root = getenv("TMPDIR");
    snprintf(scratch, sizeof scratch, "%s/ech-test-data-XXXXXX", root ? root : "/tmp");
    ech_clear_error();
    return mkdtemp(scratch) ? 0 : -1;
}

static inline int scratch_remove(void **state)
{
    (void)state;
    return ech_file_remove_all(scratch) == ECH_OK ? 0 : -1;
}

/* The path of a name in the folder; valid for the next seven calls. */
static inline const char *in_scratch(const char *name)
{
    static char paths[8][4200];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", scratch, name);
    return path;
}

static inline void write_file(const char *name, const void *bytes, size_t n)
{
    FILE *file = fopen(in_scratch(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static inline int count_entries(void)
{
    DIR *folder = opendir(scratch);
    assert_non_null(folder);
    int n = 0;
    while (readdir(folder)) n++;
    closedir(folder);
    return n - 2;
}

static inline void assert_error_has(const char *part)
{
    if (!strstr(ech_last_error(), part))
        fail_msg("the error \"%s\" does not say \"%s\"", ech_last_error(), part);
}

/* The documents [5 6 7] and [8 9] as u16, as Megatron writes them. */
enum { GOLDEN_IDX_BYTES = 82, GOLDEN_BIN_BYTES = 10 };
static const unsigned char golden_idx[GOLDEN_IDX_BYTES] = {
    0x4d, 0x4d, 0x49, 0x44, 0x49, 0x44, 0x58, 0, 0, /* magic */
    1,    0,    0,    0,    0,    0,    0,    0,    /* version */
    8,                                              /* u16 */
    2,    0,    0,    0,    0,    0,    0,    0,    /* sequences */
    3,    0,    0,    0,    0,    0,    0,    0,    /* document indices */
    3,    0,    0,    0,    2,    0,    0,    0,    /* lengths */
    0,    0,    0,    0,    0,    0,    0,    0,    /* pointers */
    6,    0,    0,    0,    0,    0,    0,    0,    /**/
    0,    0,    0,    0,    0,    0,    0,    0,    /* documents */
    1,    0,    0,    0,    0,    0,    0,    0,    /**/
    2,    0,    0,    0,    0,    0,    0,    0};
static const unsigned char golden_bin[GOLDEN_BIN_BYTES] = {5, 0, 6, 0, 7, 0, 8, 0, 9, 0};

/* Writes PREFIX.idx with these numbers, and nothing checked: `documents` of them begin at the
 * sequences begins[0] = 0, ..., and end at begins[documents]. `modes` may be NULL. */
static inline void write_marked(const char *prefix, int dtype, int64_t sequences,
                                const int32_t *lengths, const int64_t *pointers, int64_t documents,
                                const int64_t *begins, const int8_t *modes)
{
    char name[64];
    snprintf(name, sizeof name, "%s.idx", prefix);
    FILE *file = fopen(in_scratch(name), "wb");
    assert_non_null(file);
    uint64_t counts[2] = {(uint64_t)sequences, (uint64_t)documents + 1};
    fwrite(golden_idx, 1, 17, file);
    fputc(dtype, file);
    fwrite(counts, sizeof counts, 1, file);
    if (sequences > 0) {
        fwrite(lengths, sizeof *lengths, (size_t)sequences, file);
        fwrite(pointers, sizeof *pointers, (size_t)sequences, file);
    }
    fwrite(begins, sizeof *begins, (size_t)documents + 1, file);
    if (modes) fwrite(modes, 1, (size_t)sequences, file);
    assert_int_equal(fclose(file), 0);
}

/* One document a sequence. */
static inline void write_index(const char *prefix, int dtype, int64_t sequences,
                               const int32_t *lengths, const int64_t *pointers)
{
    int64_t *begins = ech_calloc((size_t)sequences + 1, sizeof *begins);
    for (int64_t i = 0; i <= sequences; i++) begins[i] = i;
    write_marked(prefix, dtype, sequences, lengths, pointers, sequences, begins, NULL);
    free(begins);
}

/* Opens a token file of the folder, with the boundaries of its documents. */
static inline ech_token_file *open_tokens(const char *name)
{
    ech_token_file *file;
    ech_token_options options = {.documents = true};
    assert_int_equal(ech_token_file_open(in_scratch(name), &options, &file), ECH_OK);
    return file;
}

/* A token file in which token i of the stream has id i; documents of 1, 2, ... 7, 1, ... tokens. */
static inline ech_token_file *counting_file(const char *name, int64_t tokens)
{
    ech_token_writer *writer;
    assert_int_equal(ech_token_writer_create(in_scratch(name), 65000, &writer), ECH_OK);
    for (int32_t i = 0, left = 1, length = 1; i < tokens; i++) {
        assert_int_equal(ech_token_writer_add(writer, &i, 1), ECH_OK);
        if (--left > 0 && i + 1 < tokens) continue;
        assert_int_equal(ech_token_writer_end_document(writer), ECH_OK);
        length = length % 7 + 1;
        left = length;
    }
    assert_int_equal(ech_token_writer_finish(writer), ECH_OK);
    ech_token_file *file = open_tokens(name);
    assert_int_equal(file->runs.tokens, tokens);
    return file;
}

EACH_TEST(scratch_make, scratch_remove)

#endif
