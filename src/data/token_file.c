/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading token files: the index checked when it is opened, ids as they are read.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "data/token_file.h"
#include "data/token_index.h"

enum { PIECE = 4096 }; /* tokens read at a time */

struct ech_token_file {
    char *path; /* of .bin */
    int fd;
    ech_token_index index;
    ech_token_runs runs;
};

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
                 "%s is a text, not the prefix of a token file: tokenize it with "
                 "`echelon data %s PREFIX`, then give PREFIX",
                 prefix, prefix);
    char *train = ech_token_path(prefix, "-train.idx");
    bool split = ech_file_exists(train);
    free(train);
    if (split)
        ECH_FAIL(ECH_EUSAGE, "%s.idx: no such file, but %s-train.idx is there: give %s-train",
                 prefix, prefix, prefix);
    ECH_FAIL(ECH_EUSAGE, "%s.idx: no such file: make it with `echelon data TEXT %s`", prefix,
             prefix);
}

static ech_status open_path(const char *path, int *out, int64_t *bytes)
{
    /* Not blocking, or a pipe of that name would wait for a writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) ECH_FAIL(ECH_EIO, "%s: cannot open: %s", path, strerror(errno));
    struct stat info;
    bool known = fstat(fd, &info) == 0;
    int why = errno;
    if (!known || !S_ISREG(info.st_mode)) close(fd);
    if (!known) ECH_FAIL(ECH_EIO, "%s: cannot look at it: %s", path, strerror(why));
    if (!S_ISREG(info.st_mode)) ECH_FAIL(ECH_EINPUT, "%s: not a regular file", path);
    *out = fd;
    *bytes = info.st_size;
    return ECH_OK;
}

static ech_status open_halves(const char *prefix, ech_token_file *file)
{
    int fd;
    int64_t bytes, bin_bytes;
    file->path = ech_token_path(prefix, ".bin");
    char *idx = ech_token_path(prefix, ".idx");
    ech_status st = open_path(idx, &fd, &bytes);
    if (st == ECH_OK) {
        st = open_path(file->path, &file->fd, &bin_bytes);
        if (st == ECH_OK)
            st = ech_token_index_read(fd, idx, bytes, bin_bytes, &file->runs, &file->index);
        close(fd);
    }
    free(idx);
    return st;
}

ech_status ech_token_file_open(const char *prefix, ech_token_file **out)
{
    char *idx = ech_token_path(prefix, ".idx");
    bool missing = !ech_file_exists(idx);
    free(idx);
    if (missing) ECH_TRY(fail_missing(prefix));
    ech_token_file *file = ech_calloc(1, sizeof *file);
    file->fd = -1;
    file->runs.documents = true;
    ech_status st = open_halves(prefix, file);
    if (st != ECH_OK) {
        ech_token_file_close(file);
        return st;
    }
    *out = file;
    return ECH_OK;
}

void ech_token_file_close(ech_token_file *file)
{
    if (!file) return;
    ech_token_runs_free(&file->runs);
    if (file->fd >= 0) close(file->fd);
    free(file->path);
    free(file);
}

int64_t ech_token_file_tokens(const ech_token_file *file)
{
    return file->runs.tokens;
}

int64_t ech_token_file_documents(const ech_token_file *file)
{
    return file->index.documents;
}

const ech_token_runs *ech_token_file_runs(const ech_token_file *file)
{
    return &file->runs;
}

static int64_t token_at(const void *tokens, int dtype, int64_t i)
{
    switch (dtype) {
    case ECH_TOKEN_U8:
        return ((const uint8_t *)tokens)[i];
    case ECH_TOKEN_U16:
        return ((const uint16_t *)tokens)[i];
    case ECH_TOKEN_I32:
        return ((const int32_t *)tokens)[i];
    default:
        return ((const int64_t *)tokens)[i];
    }
}

/* n tokens; `position` is the first one's place in the stream. */
static ech_status copy_ids(const ech_token_file *file, const void *tokens, int64_t position,
                           int64_t n, int64_t vocabulary, int32_t *ids)
{
    int dtype = file->index.dtype;
    for (int64_t i = 0; i < n; i++) {
        int64_t id = token_at(tokens, dtype, i);
        if (id < 0 || id >= vocabulary)
            ECH_FAIL(
                ECH_EINPUT,
                "%s: token %lld of the stream has id %lld, but the vocabulary has %lld: was it "
                "made with another data.tokenizer, or is model.vocab_size too small?",
                file->path, (long long)(position + i), (long long)id, (long long)vocabulary);
        ids[i] = (int32_t)id;
    }
    return ECH_OK;
}

/* n tokens that lie in one piece, from the file's token `at` on. They are read, not mapped: a file
 * that somebody cuts off meanwhile is an error here, where a mapping would end the process. */
static ech_status read_run(const ech_token_file *file, int64_t at, int64_t position, int64_t n,
                           int64_t vocabulary, int32_t *ids)
{
    int64_t piece[PIECE], width = file->index.width; /* aligned for every width */
    for (int64_t done = 0; done < n; done += PIECE) {
        int64_t take = n - done < PIECE ? n - done : PIECE;
        ECH_TRY(ech_file_read_at(file->fd, file->path, piece, (size_t)(take * width),
                                 (at + done) * width));
        ECH_TRY(copy_ids(file, piece, position + done, take, vocabulary, ids + done));
    }
    return ECH_OK;
}

ech_status ech_token_file_read(const ech_token_file *file, int64_t first, int64_t n,
                               int64_t vocabulary, int32_t *ids)
{
    const ech_token_runs *runs = &file->runs;
    ECH_ASSERT(vocabulary <= INT32_MAX);
    if (first < 0 || n < 0 || first > runs->tokens - n)
        ECH_FAIL(ECH_EINTERNAL, "%s: %lld tokens from token %lld on asked for; the stream has %lld",
                 file->path, (long long)n, (long long)first, (long long)runs->tokens);
    if (n == 0) return ECH_OK;
    size_t i = ech_token_runs_find(runs, first);
    for (int64_t done = 0; done < n; i++) {
        int64_t skipped = first + done - runs->run.at[i].first;
        int64_t rest = ech_token_run_end(runs, i) - first - done;
        int64_t take = rest < n - done ? rest : n - done;
        ECH_TRY(read_run(file, ech_token_run_at(runs->run.at[i]) + skipped, first + done, take,
                         vocabulary, ids + done));
        done += take;
    }
    return ECH_OK;
}
