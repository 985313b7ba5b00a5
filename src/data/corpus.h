/* SPDX-License-Identifier: Apache-2.0
 *
 * For data alone: what a corpus consists of, and the words that describe it.
 */
#ifndef ECH_DATA_CORPUS_H
#define ECH_DATA_CORPUS_H

#include "base/memory.h"
#include "data/blend.h"
#include "data/data.h"
#include "data/token_file.h"

typedef struct ech_source {
    ech_token_file *file;
    int64_t samples;
} ech_source;

struct ech_corpus {
    ECH_LIST(ech_source) source;
    ech_blend blend;
    int64_t sequence_length;
    bool document_mask;
};

/* ---- corpus_text.c ---- */

typedef struct ech_corpus_words {
    ECH_LIST(char *) path;
    ECH_LIST(int64_t) weight; /* one a path, in units of 10^-9, or none at all */
} ech_corpus_words;

ech_status ech_corpus_read_words(const char *key, const char *text, ech_corpus_words *out);
void ech_corpus_words_free(ech_corpus_words *words);

#endif
