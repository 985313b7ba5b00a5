/* SPDX-License-Identifier: Apache-2.0
 *
 * Arbitrary bytes as a token file without an index: refused, or the same stream whether documents
 * are asked for or not, and documents that end where end-of-text is.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/fuzz_folder.h"
#include "data/token_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { END = 9 };

static ech_token_file *open_file(const char *path, bool documents)
{
    ech_token_file *file = NULL;
    ech_token_options options = {.documents = documents, .end_of_text = END};
    bool good = ech_token_file_open(path, &options, &file) == ECH_OK;
    return good ? file : NULL;
}

static void check(const ech_token_file *whole, const ech_token_file *parts)
{
    int64_t n = whole->runs.tokens, ends = 0;
    if (n != parts->runs.tokens || whole->runs.run.n > 1) abort();
    int32_t *a = ech_calloc((size_t)n + 1, sizeof *a), *b = ech_calloc((size_t)n + 1, sizeof *b);
    bool good = ech_token_file_read(whole, 0, n, INT32_MAX, a) == ECH_OK;
    if (good != (ech_token_file_read(parts, 0, n, INT32_MAX, b) == ECH_OK)) abort();
    if (good && memcmp(a, b, (size_t)n * sizeof *a) != 0) abort();
    bool before = parts->part.n > 0 && parts->part.at[0].tokens.header > 0; /* llm.c's convention */
    for (int64_t i = 0; good && i < n; i++) ends += a[i] == END && (before ? i > 0 : i + 1 < n);
    if (good && n > 0 && parts->documents != ends + 1) abort();
    free(a);
    free(b);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (!folder[0]) make_folder();
    ech_log_set_quiet(true);
    write_source("t.bin", bytes, n);
    char *path = ech_file_join(folder, "t.bin");
    ech_token_file *whole = open_file(path, false), *parts = open_file(path, true);
    if (!whole != !parts) abort();
    if (whole) check(whole, parts);
    ech_token_file_close(whole);
    ech_token_file_close(parts);
    free(path);
    return 0;
}
