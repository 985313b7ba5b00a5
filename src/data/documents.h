/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data: whole documents as samples (data.packing = documents). A document of more than
 * T tokens is truncated. They are packed into samples of T tokens by best fit.
 */
#ifndef ECH_DATA_DOCUMENTS_H
#define ECH_DATA_DOCUMENTS_H

#include "base/memory.h"
#include "data/token_file.h"

typedef struct ech_document {
    int64_t first; /* index in the stream of its first token */
    int64_t n;     /* tokens */
} ech_document;

typedef struct ech_documents {
    ECH_LIST(ech_document) document; /* by sample, and in a sample in the order of the stream */
    ECH_LIST(int64_t) begin;         /* sample s has documents begin[s] .. begin[s + 1] - 1 */
    int64_t tokens;                  /* of all documents */
    int64_t targets;           /* of weight 1, in one epoch */
    int64_t longer;            /* number of documents with more than T tokens */
} ech_documents;

/* Packs the documents of runs that have been found with ech_token_options.documents. drop_longer: a
 * document with more than T tokens is left out, instead of truncated. Samples are ordered by their
 * first documents. The result depends only on the runs, T and drop_longer. */
void ech_documents_pack(const ech_token_runs *runs, int64_t T, bool drop_longer,
                        ech_documents *out);
void ech_documents_free(ech_documents *documents); /* accepts {0} */

/* Bin packing by best-fit decreasing, as Ding et al. 2024 pack documents ("Fewer Truncations
 * Improve Language Modeling"): packs n items of 1 .. capacity places each into bins of `capacity`
 * places. Items are placed by descending length, items of equal length in their order, each into
 * the bin with the fewest free places that suffice; of several such bins, the one that got its last
 * item first. *bin: the bin of each item; bins are numbered by their first item. Returns the number
 * of bins. The time is O(n log capacity). */
int64_t ech_best_fit(const int32_t *length, int64_t n, int32_t capacity, int64_t *bin);

/* The number of samples. */
static inline int64_t ech_documents_samples(const ech_documents *documents)
{
    return (int64_t)documents->begin.n - 1;
}

#endif
