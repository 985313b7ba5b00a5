/* SPDX-License-Identifier: Apache-2.0
 *
 * SentencePiece's tokenizer.model, a protocol buffer: BPE with byte fallback. Its tokens are called
 * pieces. Any two adjacent pieces whose text is a piece are merged, the best score first: so each
 * split of a piece into two is a merge of the piece's rank. Control symbols are not searched in
 * texts, user-defined ones are.
 */
#include <math.h>
#include <pieces.pb-c.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/utf8.h"
#include "data/bpe/bpe.h"

enum { MOST_BYTES = 32 << 20, MOST_MEMORY = 1 << 30, LONGEST_PIECE = 256, LONGEST_SHOWN = 80 };
enum { UNIGRAM = 1, BPE = 2 };
enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5, BYTE = 6 };

/* ---- the file ---- */

/* What a message says takes some hundred bytes a piece; more than is left is an error. */
static void *allocate(void *left, size_t n)
{
    size_t *bytes = left;
    if (n + 32 > *bytes) return NULL;
    *bytes -= n + 32;
    return malloc(n);
}

static void release(void *left, void *memory)
{
    (void)left;
    free(memory);
}

/* ---- what it says of itself ---- */

static ech_status check_trainer(const Pieces__Trainer *trainer, const char *file)
{
    static const char *const types[] = {"unigram", "BPE", "word", "char"};
    int type = trainer ? trainer->model_type : UNIGRAM;
    if (type != BPE)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: a SentencePiece model of type %s; only type BPE can be read: use a BPE "
                 "tokenizer.model or a tokenizer.json",
                 file, type >= UNIGRAM && type <= 4 ? types[type - 1] : "unknown");
    if (!trainer->byte_fallback)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: without byte_fallback, characters that are no pieces would be lost; use a "
                 "model with byte_fallback, or a tokenizer.json",
                 file);
    if (trainer->treat_whitespace_as_suffix)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: treat_whitespace_as_suffix is not supported; use a model without it, or a "
                 "tokenizer.json",
                 file);
    return ECH_OK;
}

static ech_status take_normalizer(const Pieces__Normalizer *normalizer, ech_bpe *bpe)
{
    Pieces__Normalizer usual = PIECES__NORMALIZER__INIT;
    if (!normalizer) normalizer = &usual;
    if (normalizer->precompiled_charsmap.len > 0)
        ECH_FAIL(
            ECH_EUNSUPPORTED,
            "%s: normalizer %.*s is not supported; use a model with identity, or a tokenizer.json",
            bpe->file,
            normalizer->name.len < LONGEST_SHOWN ? (int)normalizer->name.len : LONGEST_SHOWN,
            normalizer->name.len > 0 ? (const char *)normalizer->name.data : "");
    if (normalizer->remove_extra_whitespaces)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: remove_extra_whitespaces is true, which is not supported; use a model with "
                 "false, or a tokenizer.json",
                 bpe->file);
    if (!normalizer->escape_whitespaces)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: escape_whitespaces is false; use a model with true, or a tokenizer.json",
                 bpe->file);
    bpe->normal_blanks = true;
    bpe->strips = normalizer->add_dummy_prefix;
    bpe->prefix = normalizer->add_dummy_prefix ? ECH_BPE_PREFIX_ALWAYS : ECH_BPE_NO_PREFIX;
    return ECH_OK;
}

/* ---- pieces ---- */

static ech_status check_piece(const Pieces__Piece *piece, const char *file, size_t id)
{
    size_t n = piece->piece.len;
    int most = piece->type == USER_DEFINED ? ECH_BPE_LONGEST_ADDED : LONGEST_PIECE;
    if (n == 0 || n > (size_t)most || ech_utf8_valid(piece->piece.data, n) != n)
        ECH_FAIL(ECH_EINPUT,
                 "%s: piece %zu: must be 1 to %d bytes of UTF-8: damaged; download it again", file,
                 id, most);
    if (!isfinite(piece->score))
        ECH_FAIL(ECH_EINPUT,
                 "%s: piece %zu: its score is no finite number: damaged; download it again", file,
                 id);
    bool known = piece->type >= NORMAL && piece->type <= BYTE && piece->type != UNUSED;
    if (!known)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: piece %zu: type %d; only normal, unknown, control, user-defined and byte are "
                 "supported" ECH_BPE_OTHERWISE,
                 file, id, (int)piece->type);
    return ECH_OK;
}

static ech_status take_piece(const Pieces__Piece *piece, size_t id, ech_bpe *bpe)
{
    ECH_TRY(check_piece(piece, bpe->file, id));
    bool plain = piece->type == NORMAL || piece->type == BYTE;
    if (!ech_bpe_put(bpe, (int32_t)id, piece->piece.data, piece->piece.len, plain))
        ECH_FAIL(ECH_EINPUT, "%s: piece %zu: \"%.*s\" comes twice: damaged; download it again",
                 bpe->file, id,
                 piece->piece.len < LONGEST_SHOWN ? (int)piece->piece.len : LONGEST_SHOWN,
                 (const char *)piece->piece.data);
    bpe->token.at[id].silent = piece->type == CONTROL;
    if (piece->type == USER_DEFINED)
        ECH_PUSH(bpe->added,
                 (ech_bpe_added){.id = (int32_t)id, .normalized = true, .verbatim = true});
    return ECH_OK;
}

/* ---- merges ---- */

typedef struct scored {
    float score;
    int32_t id;
} scored;

static int by_score(const void *a, const void *b)
{
    const scored *x = a, *y = b;
    if (x->score < y->score) return 1;
    if (x->score > y->score) return -1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* A part of a piece that may merge: a piece itself, and no byte's name. */
static int32_t find_part(const ech_bpe *bpe, const Pieces__Model *model, const char *text, size_t n)
{
    int32_t id = ech_bpe_find(bpe, text, n);
    return id != ECH_BPE_NONE && model->pieces[id]->type == NORMAL ? id : ECH_BPE_NONE;
}

static ech_status take_merges_of(const Pieces__Model *model, int32_t id, int32_t rank, ech_bpe *bpe)
{
    const char *text = (const char *)model->pieces[id]->piece.data;
    size_t n = model->pieces[id]->piece.len;
    uint32_t code;
    if (ech_bpe_symbol(bpe, text, n, &code) == n) return ECH_OK;
    for (size_t at = 0, length; at < n; at += length) {
        length = ech_bpe_symbol(bpe, text + at, n - at, &code);
        if (find_part(bpe, model, text + at, length) == ECH_BPE_NONE)
            ECH_FAIL(ECH_EUNSUPPORTED,
                     "%s: piece %d: \"%.*s\" of \"%.*s\" is no piece" ECH_BPE_OTHERWISE, bpe->file,
                     (int)id, (int)length, text + at, n < LONGEST_SHOWN ? (int)n : LONGEST_SHOWN,
                     text);
        if (at == 0) continue;
        int32_t left = find_part(bpe, model, text, at);
        int32_t right = find_part(bpe, model, text + at, n - at);
        if (left == ECH_BPE_NONE || right == ECH_BPE_NONE) continue;
        ECH_PUSH(bpe->merge, (ech_bpe_merge){left, right, id, rank});
    }
    return ECH_OK;
}

static ech_status take_merges(const Pieces__Model *model, ech_bpe *bpe)
{
    ECH_FREED scored *list = ech_calloc(model->n_pieces + 1, sizeof *list);
    size_t n = 0;
    int32_t rank = 0;
    for (size_t i = 0; i < model->n_pieces; i++)
        if (model->pieces[i]->type == NORMAL)
            list[n++] = (scored){model->pieces[i]->score, (int32_t)i};
    qsort(list, n, sizeof *list, by_score);
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && list[i].score < list[i - 1].score) rank++;
        ECH_TRY(take_merges_of(model, list[i].id, rank, bpe));
    }
    return ECH_OK;
}

/* ---- the whole ---- */

static int32_t find_end(const ech_bpe *bpe, int32_t id)
{
    bool known = id >= 0 && (size_t)id < bpe->token.n && bpe->token.at[id].n > 0;
    return known ? id : ECH_BPE_NONE;
}

static ech_status take_model(const Pieces__Model *model, ech_bpe *bpe)
{
    ECH_TRY(check_trainer(model->trainer, bpe->file));
    ECH_TRY(take_normalizer(model->normalizer, bpe));
    bpe->characters = true;
    bpe->pattern = ECH_BPE_whole;
    for (size_t i = 0; i < model->n_pieces; i++) ECH_TRY(take_piece(model->pieces[i], i, bpe));
    ECH_TRY(take_merges(model, bpe));
    bpe->begin_of_text = find_end(bpe, model->trainer->bos_id);
    bpe->end_of_text = find_end(bpe, model->trainer->eos_id);
    if (bpe->begin_of_text != ECH_BPE_NONE) ECH_PUSH(bpe->front, bpe->begin_of_text);
    return ECH_OK;
}

ech_status ech_bpe_read_sentencepiece(const char *path, ech_bpe *bpe)
{
    size_t left = MOST_MEMORY;
    ProtobufCAllocator allocator = {.alloc = allocate, .free = release, .allocator_data = &left};
    ech_text *source = &bpe->source;
    bpe->file = path;
    bpe->sentencepiece = true;
    ECH_TRY(ech_file_read(path, MOST_BYTES, &source->at, &source->n));
    source->capacity = source->n + 1;
    Pieces__Model *model =
        pieces__model__unpack(&allocator, source->n, (const uint8_t *)source->at);
    if (!model)
        ECH_FAIL(ECH_EINPUT,
                 "%s: is not a tokenizer.model of SentencePiece, or is damaged; download it again",
                 path);
    ech_status status = take_model(model, bpe);
    pieces__model__free_unpacked(model, &allocator);
    return status;
}
