/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data: the structure of an open token file, and opening each format.
 */
#ifndef ECH_DATA_TOKEN_FILE_H
#define ECH_DATA_TOKEN_FILE_H

#include "data/data.h"
#include "data/token_runs.h"

/* An open file of tokens. A stream has one or several such parts. */
typedef struct ech_token_part {
    char *path;
    int fd;
    int64_t width;  /* bytes of a token: 1, 2, 4 or 8 */
    int64_t header; /* bytes before the first one */
    int64_t first;  /* position in the stream of the part's first token */
} ech_token_part;

struct ech_token_file {
    ECH_LIST(ech_token_part) part;
    ech_token_runs runs; /* ech_token_run_at counts from the part's first token */
    int64_t documents;   /* 0: not known (no index, and not asked for) */
};

/* Reads n tokens of a part, from its token `at` on, in the file's type. */
ech_status ech_token_part_read(const ech_token_part *part, int64_t at, int64_t n, void *tokens);

static inline int64_t ech_token_at(const void *tokens, int64_t width, int64_t i)
{
    switch (width) {
    case 1:
        return ((const uint8_t *)tokens)[i];
    case 2:
        return ((const uint16_t *)tokens)[i];
    case 4:
        return ((const int32_t *)tokens)[i];
    default:
        return ((const int64_t *)tokens)[i];
    }
}

/* The formats. Each fills an empty `file`; on failure the caller closes it. */

/* token_megatron.c: PREFIX.bin and PREFIX.idx. */
ech_status ech_token_open_megatron(const char *prefix, ech_token_file *file);
/* token_plain.c: a file without an index, or all that match a pattern, as one stream. */
ech_status ech_token_open_plain(const char *path, const ech_token_options *options,
                                ech_token_file *file);
/* Whether `path` is for ech_token_open_plain: a pattern, or FILE.bin without FILE.idx. */
bool ech_token_is_plain(const char *path);

/* Restricts a file, opened with `documents`, to its documents [first, end). `documents`: their boundaries are still
 * needed. */
void ech_token_file_select(ech_token_file *file, int64_t first, int64_t end, bool documents);

#endif
