/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening token files of two halves, PREFIX.bin and PREFIX.idx.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "data/token_file.h"
#include "data/token_index.h"

static bool ends_with(const char *text, const char *suffix)
{
    size_t n = strlen(text), m = strlen(suffix);
    return n >= m && strcmp(text + n - m, suffix) == 0;
}

/* There is no PREFIX.idx: says what the user most likely has to do. */
static ech_status fail_missing(const char *prefix)
{
    if (ech_file_is_folder(prefix))
        ECH_FAIL(ECH_EUSAGE,
                 "%s is a folder, not the prefix of a token file: tokenize the texts in it with "
                 "`echelon data %s PREFIX`, then give PREFIX",
                 prefix, prefix);
    if (ech_file_exists(prefix) && (ends_with(prefix, ".bin") || ends_with(prefix, ".idx")))
        ECH_FAIL(ECH_EUSAGE, "%s: give the prefix of the token file, without %s", prefix,
                 prefix + strlen(prefix) - 4);
    if (ech_file_exists(prefix))
        ECH_FAIL(ECH_EUSAGE,
                 "%s is no token file: if it is a text, tokenize it with `echelon data %s PREFIX`, "
                 "then give PREFIX",
                 prefix, prefix);
    if (ends_with(prefix, ".bin") || ends_with(prefix, ".idx"))
        ECH_FAIL(ECH_EUSAGE, "%s: no such file", prefix);
    ECH_FREED char *train = ech_token_path(prefix, "-train.idx");
    bool split = ech_file_exists(train);
    if (split)
        ECH_FAIL(ECH_EUSAGE, "%s.idx: no such file, but %s-train.idx is there: give %s-train",
                 prefix, prefix, prefix);
    ECH_FAIL(ECH_EUSAGE, "%s.idx: no such file: make it with `echelon data TEXT %s`", prefix,
             prefix);
}

static ech_status open_bin(const char *prefix, ech_token_file *file, int64_t *bytes)
{
    int fd;
    char *path = ech_token_path(prefix, ".bin");
    ech_status st = ech_file_open(path, &fd, bytes);
    if (st == ECH_OK)
        ECH_PUSH(file->part, (ech_token_part){.path = path, .fd = fd});
    else
        free(path);
    return st;
}

static ech_status open_halves(const char *prefix, const char *idx, ech_token_file *file)
{
    int fd;
    int64_t bytes, bin_bytes;
    ech_token_index index;
    ECH_TRY(ech_file_open(idx, &fd, &bytes));
    ech_status st = open_bin(prefix, file, &bin_bytes);
    if (st == ECH_OK) st = ech_token_index_read(fd, idx, bytes, bin_bytes, &file->runs, &index);
    close(fd);
    ECH_TRY(st);
    file->part.at[0].width = index.width;
    file->documents = index.documents;
    return ECH_OK;
}

ech_status ech_token_open_megatron(const char *prefix, ech_token_file *file)
{
    ECH_FREED char *idx = ech_token_path(prefix, ".idx");
    return ech_file_exists(idx) ? open_halves(prefix, idx, file) : fail_missing(prefix);
}
