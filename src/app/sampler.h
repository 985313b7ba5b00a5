/* SPDX-License-Identifier: Apache-2.0
 *
 * Sampling: the ids of a prompt, and the choice of the next token from logits. Pure.
 */
#ifndef ECH_APP_SAMPLER_H
#define ECH_APP_SAMPLER_H

#include <stdint.h>

#include "base/status.h"
#include "data/data.h"

typedef struct ech_sampler {
    double temperature; /* logits are divided by it; 0: always the most likely token */
    int64_t top_k;      /* only the k most likely; 0, or more than there are: all */
    double top_p;       /* nucleus, after top_k: the fewest most likely with a sum >= p; 1: all */
} ech_sampler;

/* Errors: ECH_EUSAGE if temperature < 0, top_k < 0 or top_p is not in (0, 1]. */
ech_status ech_sampler_check(const ech_sampler *sampler);

/* Draws one of V tokens from the softmax of logits[V] after temperature, top_k and top_p. `unit`: a
 * uniform random number in (0, 1). Of equally likely tokens the one with the smaller id comes
 * first; a logit of -inf is probability 0. Errors: ECH_ENUMERIC for a NaN or +inf, or if all
 * probabilities are 0. */
ech_status ech_sampler_choose(const ech_sampler *sampler, const double *logits, int64_t V,
                              double unit, int32_t *out);

/* Appends the ids of a prompt: the *front ids that precede it (ech_tokenizer_begin, with `begins`),
 * unless it begins with the last of them itself, then the text's. special: names of special tokens
 * in it become their ids. Tokens that the tokenizer adds after a text are omitted, since they would
 * end it. */
ech_status ech_sampler_prompt(const ech_tokenizer *tokenizer, const char *text, int begins,
                              bool special, ech_ids *out, size_t *front);

#endif
