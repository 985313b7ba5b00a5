/* SPDX-License-Identifier: Apache-2.0
 *
 * What a model reads before it writes, and the next token from logits. Pure.
 */
#ifndef ECH_APP_SAMPLER_H
#define ECH_APP_SAMPLER_H

#include <stdint.h>

#include "base/status.h"
#include "data/data.h"

typedef struct ech_sampler {
    double temperature; /* logits are divided by it; 0: always the most likely token */
    int64_t top_k;      /* only the k most likely; 0, or more than there are: all */
    double top_p;       /* only the fewest most likely whose shares reach p (after top_k); 1: all */
} ech_sampler;

/* The sampler's numbers are what the comments above say. Errors: ECH_EUSAGE. */
ech_status ech_sampler_check(const ech_sampler *sampler);

/* One of V tokens, with the probabilities that remain after temperature, top_k and top_p; `unit`, in
 * (0, 1), decides. Of equally likely tokens the smaller id comes first. -inf is probability 0.
 * Errors: ECH_ENUMERIC for a NaN or +inf, or when no token has a probability. */
ech_status ech_sampler_choose(const ech_sampler *sampler, const double *logits, int64_t V,
                              double unit, int32_t *out);

/* Appends the ids of a prompt: what the tokenizer puts in front of a text, *front ids, then the text's. What
 * it puts behind a text would end it, and is left out. */
ech_status ech_sampler_prompt(const ech_tokenizer *tokenizer, const char *text, ech_ids *out,
                              size_t *front);

#endif
