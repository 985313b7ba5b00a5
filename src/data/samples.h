/* SPDX-License-Identifier: Apache-2.0
 *
 * For data alone: which sample stands at which position, and its tokens.
 */
#ifndef ECH_DATA_SAMPLES_H
#define ECH_DATA_SAMPLES_H

#include "data/data.h"

/* The position g of sample `row` < m b of this rank's share of a step. Errors: past 2^63. */
ech_status ech_sample_position(const ech_loader_options *options, int64_t step, int64_t row,
                               int64_t *out);

/* The sample at position g of a run over `samples` samples. */
int64_t ech_sample_at(const ech_loader_options *options, int64_t samples, int64_t position);

/* Sample s: its T tokens, targets and weights. `ids` is room for T + 1. */
ech_status ech_sample_read(const ech_token_file *file, const ech_loader_options *options, int64_t s,
                           int32_t *ids, int32_t *tokens, int32_t *targets, float *weights);

#endif
