/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening token files without an index: llm.c's, which begin with a header of 256 i32, and
 * nanoGPT's, which are plain u16. Shards that match a pattern are one stream. Documents are
 * searched only on request.
 */
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/token_file.h"
#include "data/token_index.h"

enum { HEADER_BYTES = 1024, MAGIC_U16 = 20240520, MAGIC_U32 = 20240801 };

/* What else llm.c writes into files of that name. */
static const struct {
    int32_t magic;
    const char *what;
} others[] = {{20240326, "a model"},         {20240327, "a debug state"},
              {20240328, "a tokenizer"},     {20240522, "an evaluation set"},
              {20240803, "a Llama 3 model"}, {20240527, "an optimizer state"}};

static bool has_index(const char *prefix, size_t n)
{
    ECH_FREED char *idx = ech_calloc(n + sizeof ".idx", 1);
    memcpy(idx, prefix, n);
    memcpy(idx + n, ".idx", sizeof ".idx");
    return ech_file_exists(idx);
}

bool ech_token_is_plain(const char *path)
{
    size_t n = strlen(path);
    if (has_index(path, n)) return false;
    if (!ech_file_exists(path)) return strpbrk(path, "*?[") != NULL;
    if (n < 4 || strcmp(path + n - 4, ".bin") != 0 || ech_file_is_folder(path)) return false;
    return !has_index(path, n - 4);
}

/* The header of llm.c, if a file begins with one. */
static ech_status read_header(const char *path, const int32_t *header, int64_t size, bool *found,
                              ech_token_array *out, int64_t *tokens)
{
    int32_t magic = header[0];
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (magic == others[i].magic)
            ECH_FAIL(ECH_EUSAGE, "%s: %s of llm.c, not tokens; name a file that llm.c tokenized",
                     path, others[i].what);
    *found = magic == MAGIC_U16 || magic == MAGIC_U32;
    if (!*found) return ECH_OK;
    if (size < HEADER_BYTES)
        ECH_FAIL(ECH_EINPUT,
                 "%s: %lld bytes are less than llm.c's header of 1024: truncated; copy it again",
                 path, (long long)size);
    int32_t known = magic == MAGIC_U16 ? 1 : 7, version = header[1];
    if (version != known)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: version %d of llm.c's format %d; only %d is known; make it again with llm.c",
                 path, (int)version, (int)magic, (int)known);
    int64_t count = header[2], width = magic == MAGIC_U16 ? 2 : 4;
    if (count < 0 || size != HEADER_BYTES + count * width)
        ECH_FAIL(ECH_EINPUT,
                 "%s: its header counts %lld tokens of %lld bytes, which %lld bytes do not hold: "
                 "truncated or damaged; copy it again",
                 path, (long long)count, (long long)width, (long long)size);
    out->width = width;
    out->header = HEADER_BYTES;
    *tokens = count;
    return ECH_OK;
}

static ech_status measure_part(ech_token_part *part, int64_t size, int64_t *tokens)
{
    int32_t header[HEADER_BYTES / 4] = {0};
    int64_t n = size < HEADER_BYTES ? size : HEADER_BYTES;
    bool found;
    ECH_TRY(ech_file_read_at(part->tokens.fd, part->path, header, (size_t)n, 0));
    ECH_TRY(read_header(part->path, header, size, &found, &part->tokens, tokens));
    if (found) return ECH_OK;
    if (size % 2)
        ECH_FAIL(ECH_EINPUT,
                 "%s: %lld bytes are no whole number of u16, and there is no .idx beside it and no "
                 "header of llm.c in it: not a token file; make one with `echelon data`",
                 part->path, (long long)size);
    part->tokens.width = 2;
    *tokens = size / 2;
    return ECH_OK;
}

/* Appends n tokens as documents; *opens: whether the next token begins one. In llm.c's files, which
 * have a header, end of text stands before each document and is its first token; in others it is
 * the last one. */
static ech_status find_documents(const ech_token_array *tokens, int64_t n, int32_t end_of_text,
                                 bool *opens, ech_token_runs *runs)
{
    int64_t after = tokens->header > 0 ? 0 : 1; /* tokens of a document from its mark on */
    int64_t begin = 0, id;
    ECH_FREED ech_token_reader *reader = ech_calloc(1, sizeof *reader);
    reader->array = *tokens;
    reader->n = n;
    for (int64_t i = 0; i < n; i++) {
        ECH_TRY(ech_token_reader_get(reader, i, &id));
        if (id != end_of_text) continue;
        if (i + after > begin) ech_token_runs_add(runs, begin, i + after - begin, *opens, false);
        begin = i + after;
        *opens = true;
    }
    if (begin == n) return ECH_OK;
    ech_token_runs_add(runs, begin, n - begin, *opens, false);
    *opens = false;
    return ECH_OK;
}

static ech_status add_part(const char *path, const ech_token_options *options, bool *opens,
                           ech_token_file *file)
{
    int64_t size, tokens;
    ECH_TRY(ech_token_part_open(path, file, &size));
    ech_token_part *part = &file->part.at[file->part.n - 1];
    ECH_TRY(measure_part(part, size, &tokens));
    if (options->documents)
        return find_documents(&part->tokens, tokens, options->end_of_text, opens, &file->runs);
    ech_token_runs_add(&file->runs, 0, tokens, *opens, false);
    *opens = false;
    return ECH_OK;
}

/* In the order of their bytes, as everywhere. */
static ech_status add_pattern(const char *pattern, const ech_token_options *options, bool *opens,
                              ech_token_file *file)
{
    ECH_CLEANUP(globfree) glob_t found = {0};
    int why = glob(pattern, GLOB_NOSORT | GLOB_ERR, NULL, &found);
    if (why == GLOB_NOMATCH)
        ECH_FAIL(ECH_EUSAGE,
                 "%s: no file has such a name; give the prefix of a token file, or another pattern",
                 pattern);
    if (why) ECH_FAIL(ECH_EIO, "%s: cannot list the folder: %s", pattern, ech_system_error(errno));
    qsort(found.gl_pathv, found.gl_pathc, sizeof *found.gl_pathv, ech_text_compare);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *path = found.gl_pathv[i];
        if (!ech_token_is_plain(path))
            ECH_FAIL(ECH_EUSAGE,
                     "%s: matches the pattern %s, but is no .bin file without .idx: give the "
                     "prefixes of Megatron's files one by one",
                     path, pattern);
        ECH_TRY(add_part(path, options, opens, file));
    }
    return ECH_OK;
}

ech_status ech_token_open_plain(const char *path, const ech_token_options *options,
                                ech_token_file *file)
{
    bool opens = true;
    ECH_TRY(ech_file_exists(path) ? add_part(path, options, &opens, file)
                                  : add_pattern(path, options, &opens, file));
    if (options->documents) file->documents = ech_token_runs_documents(&file->runs);
    return ECH_OK;
}
