/* SPDX-License-Identifier: Apache-2.0
 *
 * For targets that open a tokenizer from files: a folder for them in memory, and what any tokenizer
 * that opens must keep. Ids are in its vocabulary and the same in pieces, and what it exports opens
 * again and gives the same ids and the same export.
 */
#ifndef ECH_TESTS_DATA_FUZZ_TOKENIZER_H
#define ECH_TESTS_DATA_FUZZ_TOKENIZER_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "data/data.h"
#include "data/fuzz_folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

/* In pieces of at most `most` bytes where it may be cut. */
static inline void check_pieces(const ech_tokenizer *tokenizer, ech_coder *coder,
                                const uint8_t *bytes, size_t n, size_t most, const ech_ids *whole)
{
    ech_ids ids = {0};
    for (size_t at = 0, piece; at < n; at += piece) {
        piece = n - at > most ? ech_tokenizer_split(tokenizer, bytes + at, most) : n - at;
        if (piece > most) abort();
        if (piece == 0) piece = n - at;
        if (ech_coder_encode(coder, bytes + at, piece, at == 0, &ids) != ECH_OK) abort();
    }
    if (ids.n != whole->n) abort();
    if (ids.n > 0 && memcmp(ids.at, whole->at, ids.n * sizeof *ids.at) != 0) abort();
    free(ids.at);
}

static inline ech_ids encode(const ech_tokenizer *tokenizer, const uint8_t *bytes, size_t n)
{
    ech_ids ids = {0};
    ech_text text = {0};
    ech_coder *coder = ech_coder_create(tokenizer);
    if (ech_coder_encode(coder, bytes, n, true, &ids) != ECH_OK) {
        if (!strstr(ech_last_error(), "backtracks too often")) abort(); /* its own pattern */
        ech_coder_destroy(coder);
        ids.n = 0;
        return ids;
    }
    for (size_t i = 0; i < ids.n; i++) {
        if (ids.at[i] < 0 || ids.at[i] >= tokenizer->vocabulary) abort();
        ech_tokenizer_decode(tokenizer, ids.at[i], i == 0, &text);
    }
    check_pieces(tokenizer, coder, bytes, n, 16, &ids);
    check_pieces(tokenizer, coder, bytes, n, 100, &ids);
    ech_coder_destroy(coder);
    ech_text_free(&text);
    return ids;
}

/* Also encodes the bytes as a text. */
static inline void try_again(const ech_tokenizer *tokenizer, const uint8_t *bytes, size_t n)
{
    ech_tokenizer *again;
    ech_text tokens = {0}, config = {0}, tokens_again = {0}, config_again = {0};
    ech_tokenizer_export(tokenizer, &tokens, &config);
    write_source(tokenizer->file, tokens.at, tokens.n);
    write_source("tokenizer_config.json", config.at, config.n);
    if (ech_tokenizer_open(folder, &again) != ECH_OK) abort();
    ech_tokenizer_export(again, &tokens_again, &config_again);
    bool same = tokens.n == tokens_again.n && memcmp(tokens.at, tokens_again.at, tokens.n) == 0;
    if (!same || strcmp(config.at, config_again.at) != 0) abort();
    ech_ids a = encode(tokenizer, bytes, n), b = encode(again, bytes, n);
    if (a.n != b.n || (a.n > 0 && memcmp(a.at, b.at, a.n * sizeof *a.at) != 0)) abort();
    free(a.at);
    free(b.at);
    ech_text_free(&tokens);
    ech_text_free(&config);
    ech_text_free(&tokens_again);
    ech_text_free(&config_again);
    ech_tokenizer_close(again);
}

static inline void remove_source(const char *name)
{
    char *path = ech_file_join(folder, name);
    ech_file_remove_all(path);
    free(path);
}

/* Opens what is in the folder, and tries it. */
static inline void try_folder(const uint8_t *bytes, size_t n)
{
    ech_tokenizer *tokenizer;
    if (ech_tokenizer_open(folder, &tokenizer) != ECH_OK) return;
    try_again(tokenizer, bytes, n < 4096 ? n : 4096);
    ech_tokenizer_close(tokenizer);
}

#endif
