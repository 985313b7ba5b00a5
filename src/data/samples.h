/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data: from positions g to samples, and reading samples. Letters as in data.h.
 */
#ifndef ECH_DATA_SAMPLES_H
#define ECH_DATA_SAMPLES_H

#include "data/corpus.h"

/* m: this rank's micro-batches of a step. */
int64_t ech_sample_micro_batches(const ech_loader_options *options);

/* The index i < M b, among all samples of a step, of this rank's sample `row` < m b. */
int64_t ech_sample_index(const ech_loader_options *options, int64_t row);

/* *out: the position g of sample i of a step. ECH_EUSAGE: it is 2^63 or more. */
ech_status ech_sample_position(const ech_loader_options *options, int64_t step, int64_t i,
                               int64_t *out);

/* The source of the sample at `position`, borrowed from the corpus; *s: the sample's index in the
 * source. */
const ech_source *ech_sample_at(const ech_corpus *corpus, const ech_loader_options *options,
                                int64_t position, int64_t *s);

/* The number of targets of sample s of a stream of `tokens` tokens: T, or fewer in the last
 * sample. */
int64_t ech_sample_pairs(int64_t tokens, int64_t sequence_length, int64_t s);

/* The number of targets of sample s with weight 1. Does not read tokens. */
int64_t ech_sample_count(const ech_source *source, const ech_loader_options *options, int64_t s);

/* Bytes of a row of the slot; 0: batches do not have the slot. */
size_t ech_sample_bytes(const ech_loader_options *options, ech_slot slot);

/* Reads sample s, at that position of the run, into row `row` < m b of a batch's arrays. scratch:
 * ech_data_kind.scratch bytes of working memory. */
ech_status ech_sample_read(const ech_source *source, const ech_loader_options *options,
                           int64_t position, int64_t s, void *scratch, const ech_batch *batch,
                           int64_t row);
/* Fills a row with padding. */
void ech_sample_clear(const ech_loader_options *options, const ech_batch *batch, int64_t row);

#endif
