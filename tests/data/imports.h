/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests: texts in, token files out.
 */
#ifndef ECH_TESTS_DATA_IMPORTS_H
#define ECH_TESTS_DATA_IMPORTS_H

#include "data/scratch.h"
#include "unit.h"

#include "data/import.h"
#include "data/token_file.h"

static int64_t progress_done, progress_all, progress_calls;

static inline void note_progress(int64_t before, int64_t done, int64_t all)
{
    assert_true(before <= done && done > progress_done && done <= all);
    progress_done = done;
    progress_all = all;
    progress_calls++;
}

/* With what is not given by name: the bytes tokenizer, one thread. */
static inline ech_status import_with(ech_import_options options, const char *in, const char *out,
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

static inline ech_status import(const char *in, const char *out, double valid,
                                ech_import_count *count)
{
    return import_with((ech_import_options){.valid = valid}, in, out, count);
}

/* The stream of a token file is `expected`, with | for end-of-text. */
static inline void assert_stream(const char *name, const char *expected, int64_t documents)
{
    ech_token_file *file = open_tokens(name);
    assert_int_equal(file->documents, documents);
    int64_t n = file->runs.tokens;
    assert_int_equal(n, strlen(expected));
    for (int64_t i = 0; i < n; i++) {
        int32_t id;
        assert_int_equal(ech_token_file_read(file, i, 1, 257, &id), ECH_OK);
        assert_int_equal(id, expected[i] == '|' ? 256 : (unsigned char)expected[i]);
    }
    ech_token_file_close(file);
}

static inline void write_text(const char *name, const char *text)
{
    write_file(name, text, strlen(text));
}

#endif
