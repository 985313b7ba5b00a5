/* SPDX-License-Identifier: Apache-2.0
 *
 * A vocabulary from texts, which are read as an import reads them.
 */
#include <stdlib.h>

#include "base/file.h"
#include "data/data.h"
#include "data/piece.h"

static size_t cut_at(const void *trainer, const void *bytes, size_t n)
{
    return ech_bpe_trainer_cut(trainer, bytes, n);
}

static ech_status count(const ech_piece_stretch *stretch, void *trainer)
{
    return ech_bpe_trainer_add(trainer, stretch->bytes, stretch->n);
}

static ech_status count_pieces(const ech_bpe_training *training, ech_bpe_trainer *trainer,
                               ech_piece_reader *reader, ech_piece *piece)
{
    const ech_text_source source = ech_text_source_complete(training->texts);
    bool found;
    ECH_TRY(ech_piece_read(reader, piece, &found));
    for (int64_t done = 0; found;) {
        ECH_TRY(ech_piece_each(&source, piece, count, trainer));
        done += (int64_t)piece->n;
        if (training->progress) training->progress(done, reader->texts->bytes);
        ECH_TRY(ech_piece_read(reader, piece, &found));
    }
    return ECH_OK;
}

static ech_status count_texts(const ech_bpe_training *training, ech_bpe_trainer *trainer)
{
    ech_texts texts;
    ech_piece piece = {0};
    ECH_TRY(ech_texts_find(training->texts.in, &texts));
    ech_piece_reader reader = {
        .texts = &texts, .cut_at = cut_at, .context = trainer, .place.line = 1, .fd = -1};
    ech_status status = count_pieces(training, trainer, &reader, &piece);
    ech_piece_reader_close(&reader);
    free(piece.bytes);
    ech_texts_free(&texts);
    return status;
}

static ech_status write_file(const char *folder, const char *name, const ech_text *text)
{
    ECH_FREED char *path = ech_file_join(folder, name);
    return ech_file_write(path, text->at, text->n);
}

static ech_status learn_and_write(const ech_bpe_training *training, const ech_bpe_trainer *trainer)
{
    ECH_FREED_TEXT tokens = {0}, config = {0};
    ech_status status =
        ech_bpe_trainer_finish(trainer, training->vocabulary, training->learnt, &tokens, &config);
    if (status == ECH_OK) status = ech_file_make_folder(training->out);
    if (status == ECH_OK) status = write_file(training->out, "tokenizer_config.json", &config);
    if (status == ECH_OK) status = write_file(training->out, "tokenizer.json", &tokens);
    return status;
}

ech_status ech_data_train_bpe(const ech_bpe_training *training)
{
    ech_bpe_trainer *trainer;
    ECH_TRY(ech_bpe_trainer_create(training->pattern, &trainer));
    ech_status status = count_texts(training, trainer);
    if (status == ECH_OK) status = learn_and_write(training, trainer);
    ech_bpe_trainer_destroy(trainer);
    return status;
}
