/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading token files: both halves mapped, the index checked, ids checked as they are read.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "data/data.h"
#include "data/token_index.h"

typedef struct mapping {
    char *path;
    unsigned char *bytes; /* NULL when the file is empty */
    size_t n;
} mapping;

struct ech_token_file {
    mapping idx, bin;
    ech_token_index index;
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

static ech_status map_open_file(int fd, mapping *map)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        ECH_FAIL(ECH_EIO, "%s: cannot look at it: %s", map->path, strerror(errno));
    if (!S_ISREG(info.st_mode)) ECH_FAIL(ECH_EINPUT, "%s: not a regular file", map->path);
    if (info.st_size == 0) return ECH_OK;
    void *bytes = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED)
        ECH_FAIL(ECH_EIO, "%s: cannot map it into memory: %s", map->path, strerror(errno));
    map->bytes = bytes;
    map->n = (size_t)info.st_size;
    return ECH_OK;
}

static ech_status map_file(const char *prefix, const char *suffix, mapping *map)
{
    map->path = ech_token_path(prefix, suffix);
    /* Not blocking, or a pipe of that name would wait for a writer. */
    int fd = open(map->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) ECH_FAIL(ECH_EIO, "%s: cannot open: %s", map->path, strerror(errno));
    ech_status st = map_open_file(fd, map);
    close(fd);
    return st;
}

static void unmap_file(mapping *map)
{
    if (map->bytes) munmap(map->bytes, map->n);
    free(map->path);
}

static ech_status open_halves(const char *prefix, ech_token_file *file)
{
    ECH_TRY(map_file(prefix, ".idx", &file->idx));
    ECH_TRY(map_file(prefix, ".bin", &file->bin));
    return ech_token_index_open(file->idx.path, file->idx.bytes, file->idx.n, file->bin.n,
                                &file->index);
}

ech_status ech_token_file_open(const char *prefix, ech_token_file **out)
{
    char *idx = ech_token_path(prefix, ".idx");
    bool missing = !ech_file_exists(idx);
    free(idx);
    if (missing) ECH_TRY(fail_missing(prefix));
    ech_token_file *file = ech_calloc(1, sizeof *file);
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
    ech_token_index_close(&file->index);
    unmap_file(&file->idx);
    unmap_file(&file->bin);
    free(file);
}

int64_t ech_token_file_tokens(const ech_token_file *file)
{
    return file->index.tokens;
}

int64_t ech_token_file_documents(const ech_token_file *file)
{
    return file->index.documents;
}

static int64_t token_at(const unsigned char *tokens, int dtype, int64_t i)
{
    switch (dtype) {
    case ECH_TOKEN_U8:
        return tokens[i];
    case ECH_TOKEN_U16:
        return ((const uint16_t *)(const void *)tokens)[i];
    case ECH_TOKEN_I32:
        return ((const int32_t *)(const void *)tokens)[i];
    default:
        return ((const int64_t *)(const void *)tokens)[i];
    }
}

/* n tokens from `bytes` on; `position` is the first one's place in the stream. */
static ech_status copy_ids(const ech_token_file *file, const unsigned char *bytes, int64_t position,
                           int64_t n, int64_t vocabulary, int32_t *ids)
{
    int dtype = file->index.dtype;
    for (int64_t i = 0; i < n; i++) {
        int64_t id = token_at(bytes, dtype, i);
        if (id < 0 || id >= vocabulary)
            ECH_FAIL(
                ECH_EINPUT,
                "%s: token %lld of the stream has id %lld, but the vocabulary has %lld: was it "
                "made with another data.tokenizer, or is model.vocab_size too small?",
                file->bin.path, (long long)(position + i), (long long)id, (long long)vocabulary);
        ids[i] = (int32_t)id;
    }
    return ECH_OK;
}

ech_status ech_token_file_read(const ech_token_file *file, int64_t first, int64_t n,
                               int64_t vocabulary, int32_t *ids)
{
    const ech_token_index *index = &file->index;
    ECH_ASSERT(vocabulary <= INT32_MAX);
    if (first < 0 || n < 0 || first > index->tokens - n)
        ECH_FAIL(ECH_EINTERNAL, "%s: %lld tokens from token %lld on asked for; the stream has %lld",
                 file->bin.path, (long long)n, (long long)first, (long long)index->tokens);
    if (n == 0) return ECH_OK;
    int64_t begin;
    int64_t sequence = ech_token_index_find(index, first, &begin);
    for (int64_t done = 0; done < n; sequence++) {
        int64_t skipped = first + done - begin;
        int64_t length = ech_token_index_length(index, sequence);
        int64_t take = length - skipped < n - done ? length - skipped : n - done;
        if (take > 0) {
            int64_t offset = ech_token_index_pointer(index, sequence) + skipped * index->width;
            ECH_TRY(copy_ids(file, file->bin.bytes + offset, first + done, take, vocabulary,
                             ids + done));
        }
        done += take;
        begin += length;
    }
    return ECH_OK;
}
