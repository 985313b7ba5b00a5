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

/* Numbers of blends and splits are decimal, below 10^9 with up to 9 digits behind the point; they are
 * kept as whole multiples of 10^-9. */

typedef struct ech_corpus_words {
    ECH_LIST(char *) path;
    ECH_LIST(int64_t) weight; /* one a path, or none at all */
} ech_corpus_words;

ech_status ech_corpus_read_words(const char *key, const char *text, ech_corpus_words *out);
void ech_corpus_words_free(ech_corpus_words *words);

/* The bounds of a split: share i is from bound[i] to bound[i + 1], of bound[3]. */
ech_status ech_corpus_read_split(const char *text, int64_t bound[4]);

#endif
