/* SPDX-License-Identifier: Apache-2.0
 *
 * From text files to token files: one document a file, read in pieces, split into training and
 * validation parts if asked for.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "data/data.h"
#include "data/texts.h"
#include "data/token_index.h"

enum { PIECE_BYTES = 1 << 20, LONGEST_CHARACTER = 4 };

typedef struct import {
    const ech_tokenizer *tokenizer;
    double valid;
    void (*progress)(int64_t done, int64_t all);
    int64_t done, all;              /* bytes */
    ech_token_writer *train, *held; /* held: the validation part's, or NULL */
    ech_import_count count;
    ech_coder *coder;
    unsigned char *piece;
    size_t piece_capacity;
    ech_ids ids;
} import;

static ech_status add_ids(ech_token_writer *writer, const int32_t *ids, size_t n, int64_t *tokens)
{
    *tokens += (int64_t)n;
    return ech_token_writer_add(writer, ids, n);
}

/* Reads on where the last piece was cut, up to `end`. Where a piece as long as usual cannot be cut,
 * it becomes longer. *n: what of it can be encoded. */
static ech_status read_piece(import *im, int fd, const char *path, int64_t at, int64_t end,
                             size_t *n)
{
    size_t have = 0, wanted = PIECE_BYTES, left = (size_t)(end - at);
    for (*n = 0; *n == 0; wanted *= 2) {
        if (wanted > left) wanted = left;
        im->piece = ech_grow(im->piece, &im->piece_capacity, wanted, 1);
        ECH_TRY(ech_file_read_at(fd, path, im->piece + have, wanted - have, at + (int64_t)have));
        have = wanted;
        *n = have == left ? have : ech_tokenizer_cut(im->tokenizer, im->piece, have);
    }
    return ECH_OK;
}

/* Bytes [begin, end) of an open file as one document; none if there are no bytes. */
static ech_status add_document(import *im, int fd, const char *path, int64_t begin, int64_t end,
                               ech_token_writer *writer, int64_t *tokens)
{
    int32_t last = ech_tokenizer_end_of_text(im->tokenizer);
    if (begin == end) return ECH_OK;
    for (int64_t at = begin; at < end;) {
        size_t n;
        ECH_TRY(read_piece(im, fd, path, at, end, &n));
        im->ids.n = 0;
        ECH_TRY(ech_coder_encode(im->coder, im->piece, n, &im->ids));
        ECH_TRY(add_ids(writer, im->ids.at, im->ids.n, tokens));
        at += (int64_t)n;
        im->done += (int64_t)n;
        if (im->progress) im->progress(im->done, im->all);
    }
    ECH_TRY(add_ids(writer, &last, 1, tokens));
    im->count.documents++;
    return ech_token_writer_end_document(writer);
}

/* Where the validation part of a file begins: the last share of its bytes, from the start of the
 * UTF-8 character that the cut would go through. */
static ech_status find_cut(const import *im, int fd, const char *path, int64_t bytes, int64_t *out)
{
    int64_t cut = bytes - (int64_t)((double)bytes * im->valid);
    for (int back = 0; back < LONGEST_CHARACTER - 1 && cut > 0 && cut < bytes; back++) {
        unsigned char byte;
        ECH_TRY(ech_file_read_at(fd, path, &byte, 1, cut));
        if ((byte & 0xc0) != 0x80) break;
        cut--;
    }
    *out = cut;
    return ECH_OK;
}

static ech_status import_open_file(import *im, int fd, const ech_text_file *file)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        ECH_FAIL(ECH_EIO, "%s: cannot look at it: %s", file->path, strerror(errno));
    if (info.st_size != file->bytes)
        ECH_FAIL(ECH_EIO, "%s: its size changes while it is read", file->path);
    im->count.files++;
    im->count.bytes += file->bytes;
    int64_t cut = file->bytes;
    if (im->held) ECH_TRY(find_cut(im, fd, file->path, file->bytes, &cut));
    ECH_TRY(add_document(im, fd, file->path, 0, cut, im->train, &im->count.tokens));
    return add_document(im, fd, file->path, cut, file->bytes, im->held, &im->count.valid_tokens);
}

static ech_status import_files(import *im, const ech_texts *texts)
{
    for (size_t i = 0; i < texts->file.n; i++) {
        const ech_text_file *file = &texts->file.at[i];
        int fd = open(file->path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) ECH_FAIL(ECH_EIO, "%s: cannot open: %s", file->path, strerror(errno));
        ech_status st = import_open_file(im, fd, file);
        close(fd);
        ECH_TRY(st);
    }
    return ECH_OK;
}

static ech_status check_count(const import *im, const char *in)
{
    if (im->count.tokens == 0 && im->count.valid_tokens == 0)
        ECH_FAIL(ECH_EINPUT, "%s: holds no text", in);
    if (im->held && (im->count.tokens == 0 || im->count.valid_tokens == 0))
        ECH_FAIL(ECH_EUSAGE, "%s: too little text for a validation share of %g: nothing is left %s",
                 in, im->valid, im->count.tokens == 0 ? "to train on" : "to validate on");
    return ECH_OK;
}

static ech_status open_writer(const char *out, const char *suffix, int64_t vocabulary,
                              ech_token_writer **writer)
{
    char *prefix = ech_token_path(out, suffix);
    ech_status st = ech_token_writer_create(prefix, vocabulary, writer);
    free(prefix);
    return st;
}

static ech_status finish_writer(ech_token_writer **writer)
{
    ech_token_writer *finished = *writer;
    *writer = NULL;
    return finished ? ech_token_writer_finish(finished) : ECH_OK;
}

static ech_status import_texts(import *im, const char *in, const char *out, const ech_texts *texts)
{
    bool split = im->valid > 0;
    int64_t vocabulary = ech_tokenizer_vocabulary(im->tokenizer);
    ECH_TRY(open_writer(out, split ? "-train" : "", vocabulary, &im->train));
    if (split) ECH_TRY(open_writer(out, "-valid", vocabulary, &im->held));
    ECH_TRY(import_files(im, texts));
    ECH_TRY(check_count(im, in));
    ECH_TRY(finish_writer(&im->train));
    return finish_writer(&im->held);
}

ech_status ech_data_import(const char *in, const char *out, const ech_tokenizer *tokenizer,
                           double valid, void (*progress)(int64_t done, int64_t all),
                           ech_import_count *count)
{
    if (!(valid >= 0 && valid < 1))
        ECH_FAIL(ECH_EUSAGE, "a validation share of %g: it must be at least 0 and below 1", valid);
    ech_texts texts;
    ECH_TRY(ech_texts_find(in, &texts));
import im = {.tokenizer = tokenizer, .valid = valid, .progress = progress, .all = texts.bytes };
    im.coder = ech_coder_create(tokenizer);
    ech_status st = ech_texts_check_output(in, out);
    if (st == ECH_OK) st = import_texts(&im, in, out, &texts);
    ech_token_writer_discard(im.train);
    ech_token_writer_discard(im.held);
    ech_coder_destroy(im.coder);
    free(im.piece);
    free(im.ids.at);
    ech_texts_free(&texts);
    if (st == ECH_OK) *count = im.count;
    return st;
}
