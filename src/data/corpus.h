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
    int64_t samples;         /* S, of one epoch */
    ech_token_file *file;    /* of texts and features, owned by the corpus; otherwise NULL */
    bool document_mask;      /* as the corpus was opened */
    ech_documents documents; /* of a corpus of whole documents */
    int64_t apart;           /* 1: samples share no token (ech_corpus_of_items); else 0 */
    void *records;           /* of kinds with a file of their own: the file, which `close` closes */
    int64_t first;           /* record of sample 0 */
} ech_source;

struct ech_corpus {
    ECH_LIST(ech_source) source;
    ech_blend blend;
    int64_t sequence_length;
    bool document_mask;
    bool whole; /* samples are whole documents */
    const struct ech_data_kind *kind;
};

/* ---- kinds of samples ---- */

/* What one epoch of a source has. */
typedef struct ech_source_counts {
    int64_t units;            /* of work, without padding (samples.def) */
    int64_t targets;          /* of weight 1 */
    int64_t documents;        /* 0: their boundaries are not needed */
    int64_t longer, left_out; /* as in ech_corpus_counts */
} ech_source_counts;

/* How samples of a kind (layer/samples.def) are read: ech_data_kind_NAME in the file kind_NAME.c. A
 * missing function means that a sample is one unit with one target. */
typedef struct ech_data_kind {
    /* Opens the source at `path`: sets its samples, at least 1, and the kind's own fields. */
    ech_status (*open)(const ech_corpus_options *options, const char *path, ech_source *source);
    /* Closes source->records, which may be NULL. Needed if `open` sets that. */
    void (*close)(ech_source *source);
    void (*measure)(const ech_source *source, ech_source_counts *out);
    /* The number of targets of sample s with weight 1. Does not read it. */
    int64_t (*count)(const ech_source *source, const ech_loader_options *options, int64_t s);
    /* Bytes of working memory for `read`. */
    size_t (*scratch)(const ech_loader_options *options);
    /* `read` writes whole rows. If false, rows are padding before it is called. */
    bool fills;
    /* Reads sample s, at that position of the run, into a row of a batch. */
    ech_status (*read)(const ech_source *source, const ech_loader_options *options,
                       int64_t position, int64_t s, void *scratch, const ech_batch *batch,
                       int64_t row);
    /* Hints that sample s will be read soon; NULL: nothing is gained by that. */
    void (*prefetch)(const ech_source *source, int64_t s);
    /* The number of units in the source's files, and bytes that are equal for equal data, whatever
     * the files are called. */
    ech_status (*identify)(const ech_source *source, int64_t *units, ech_text *out);
} ech_data_kind;

const ech_data_kind *ech_data_kind_of(ech_sample_kind kind);

/* The part of `all` of a source's `what` ("documents") that options->split gives: [*first, *end).
 * Errors: a split that is none; an empty part. */
ech_status ech_source_split(const ech_corpus_options *options, const char *path, const char *what,
                            int64_t all, int64_t *first, int64_t *end);
/* For kinds in token files: opens the file, with the split's documents. */
ech_status ech_source_open_tokens(const ech_corpus_options *options, const char *path, bool values,
                                  ech_source *source);
/* The same as ech_data_kind.identify. */
ech_status ech_source_identify_tokens(const ech_source *source, int64_t *units, ech_text *out);

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
