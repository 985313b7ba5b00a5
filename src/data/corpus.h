/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data: the parts of a corpus: its sources, and the order of a blend. Letters as in
 * data.h.
 */
#ifndef ECH_DATA_CORPUS_H
#define ECH_DATA_CORPUS_H

#include <stdint.h>

#include "base/memory.h"
#include "base/status.h"
#include "data/data.h"
#include "data/documents.h"
#include "data/token_file.h"

/* ---- the order of a blend (its rules are in data.h) ---- */

enum { ECH_BLEND_MOST = 1024, ECH_BLEND_PERIOD = 1 << 20 }; /* most sources; `longest` of corpora */

typedef struct ech_blend {
    int sources;
    int64_t *count;   /* [sources]: n_k, samples of source k per period */
    int64_t period;   /* P, at most `longest` + sources */
    uint16_t *source; /* [P]: the source of each position of the period */
    uint32_t *before; /* [P]: earlier positions of the period with that source */
} ech_blend;

/* Weights are > 0, their sum is < 2^63; 0 < sources <= ECH_BLEND_MOST; 0 < longest <=
 * ECH_BLEND_PERIOD. Weights are rounded if the exact period is above `longest`. Release with
 * ech_blend_free. */
void ech_blend_create(const int64_t *weights, int sources, int64_t longest, ech_blend *out);
void ech_blend_free(ech_blend *blend); /* accepts {0} */

/* The source k of position g; *sample: j, the number of the source's sample, from 0 over all
 * epochs. */
static inline int ech_blend_at(const ech_blend *blend, int64_t g, int64_t *sample)
{
    int64_t r = g % blend->period;
    int k = blend->source[r];
    *sample = g / blend->period * blend->count[k] + blend->before[r];
    return k;
}

/* The position g at which source k gives its sample j; INT64_MAX if g is above that. */
int64_t ech_blend_position(const ech_blend *blend, int k, int64_t j);

typedef struct ech_source {
    ech_token_file *file;    /* owned by the corpus */
    ech_documents documents; /* of a corpus of whole documents */
    int64_t samples;         /* S, of one epoch */
    int64_t apart;           /* 1: samples share no token (ech_corpus_of_items); else 0 */
} ech_source;

struct ech_corpus {
    ECH_LIST(ech_source) source;
    ech_blend blend;
    int64_t sequence_length;
    bool document_mask;
    bool whole; /* samples are whole documents */
    bool valued;
};

/* ---- corpus.c ---- */

typedef struct ech_corpus_words {
    ECH_LIST(char *) path;
    ECH_LIST(int64_t) weight; /* one per path, in units of 10^-9, or none at all */
} ech_corpus_words;

/* Parses `text`, an ech_corpus_options.sources; `key` is its name in errors. Release with
 * ech_corpus_words_free. */
ech_status ech_corpus_read_words(const char *key, const char *text, ech_corpus_words *out);
void ech_corpus_words_free(ech_corpus_words *words);

#endif
