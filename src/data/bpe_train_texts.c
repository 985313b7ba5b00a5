/* SPDX-License-Identifier: Apache-2.0
 *
 * A vocabulary from text files, each a text, read in pieces.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "data/data.h"
#include "data/texts.h"

enum { PIECE_BYTES = 1 << 20 };

typedef struct reading {
    const ech_bpe_training *training;
    ech_bpe_trainer *trainer;
    int64_t done, all; /* bytes */
    unsigned char *piece;
    size_t capacity;
} reading;

/* What can be counted of the next piece, which grows until it can be cut. */
static ech_status read_piece(reading *r, int fd, const char *path, int64_t at, size_t left,
                             size_t *n)
{
    size_t have = 0, wanted = PIECE_BYTES;
    for (*n = 0; *n == 0; wanted *= 2) {
        if (wanted > left) wanted = left;
        r->piece = ech_grow(r->piece, &r->capacity, wanted, 1);
        ECH_TRY(ech_file_read_at(fd, path, r->piece + have, wanted - have, at + (int64_t)have));
        have = wanted;
        *n = have == left ? have : ech_bpe_trainer_cut(r->trainer, r->piece, have);
    }
    return ECH_OK;
}

static ech_status count_open_file(reading *r, int fd, const ech_text_file *file)
{
    for (int64_t at = 0; at < file->bytes;) {
        size_t n;
        ECH_TRY(read_piece(r, fd, file->path, at, (size_t)(file->bytes - at), &n));
        ECH_TRY(ech_bpe_trainer_add(r->trainer, r->piece, n));
        at += (int64_t)n;
        r->done += (int64_t)n;
        if (r->training->progress) r->training->progress(r->done, r->all);
    }
    return ECH_OK;
}

static ech_status count_files(reading *r, const ech_texts *texts)
{
    for (size_t i = 0; i < texts->file.n; i++) {
        const ech_text_file *file = &texts->file.at[i];
        int fd = open(file->path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) ECH_FAIL(ECH_EIO, "%s: cannot open: %s", file->path, strerror(errno));
        ech_status status = count_open_file(r, fd, file);
        close(fd);
        ECH_TRY(status);
    }
    return ECH_OK;
}

static ech_status write_file(const char *folder, const char *name, const ech_text *text)
{
    char *path = ech_file_join(folder, name);
    ech_status status = ech_file_write(path, text->at, text->n);
    free(path);
    return status;
}

static ech_status learn_and_write(const reading *r)
{
    const ech_bpe_training *training = r->training;
    ech_text tokens = {0}, config = {0};
    ech_status status = ech_bpe_trainer_finish(r->trainer, training->vocabulary, training->learnt,
                                               &tokens, &config);
    if (status == ECH_OK) status = ech_file_make_folder(training->out);
    if (status == ECH_OK) status = write_file(training->out, "tokenizer_config.json", &config);
    if (status == ECH_OK) status = write_file(training->out, "tokenizer.json", &tokens);
    ech_text_free(&tokens);
    ech_text_free(&config);
    return status;
}

ech_status ech_data_train_bpe(const ech_bpe_training *training)
{
    reading r = {.training = training};
    ech_texts texts;
    ECH_TRY(ech_bpe_trainer_create(training->pattern, &r.trainer));
    ech_status status = ech_texts_find(training->in, &texts);
    if (status == ECH_OK) {
        r.all = texts.bytes;
        status = count_files(&r, &texts);
        ech_texts_free(&texts);
    }
    if (status == ECH_OK) status = learn_and_write(&r);
    ech_bpe_trainer_destroy(r.trainer);
    free(r.piece);
    return status;
}
