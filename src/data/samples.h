/* SPDX-License-Identifier: Apache-2.0
 *
 * For data alone: which sample stands at which position, and its tokens.
 */
#ifndef ECH_DATA_SAMPLES_H
#define ECH_DATA_SAMPLES_H

#include "data/corpus.h"

/* m: this rank's own micro-batches of every step. */
int64_t ech_sample_micro_batches(const ech_loader_options *options);

/* The place i < M b, among all samples of a step, of sample `row` < m b of this rank's share. */
int64_t ech_sample_index(const ech_loader_options *options, int64_t row);

/* The position g of place i of a step. Errors: past 2^63. */
ech_status ech_sample_position(const ech_loader_options *options, int64_t step, int64_t i,
                               int64_t *out);

/* The stream that the sample at position g of a run comes from, and which of its samples. */
const ech_token_file *ech_sample_at(const ech_corpus *corpus, const ech_loader_options *options,
                                    int64_t position, int64_t *s);

/* How many targets sample s has in a stream of `tokens`: T, but for the last sample. */
int64_t ech_sample_pairs(int64_t tokens, int64_t sequence_length, int64_t s);

/* How many targets of sample s have weight 1. Reads no token. */
int64_t ech_sample_count(const ech_token_file *file, const ech_loader_options *options, int64_t s);

/* Sample s into row `row` of a batch. `ids` is room for T + 1. */
ech_status ech_sample_read(const ech_token_file *file, const ech_loader_options *options, int64_t s,
                           int32_t *ids, const ech_batch *batch, int64_t row);
/* Padding into a row. */
void ech_sample_clear(const ech_loader_options *options, const ech_batch *batch, int64_t row);

#endif
