/* SPDX-License-Identifier: Apache-2.0
 *
 * echelon data --train-bpe.
 */
#ifndef ECH_APP_LEARN_TOKENS_H
#define ECH_APP_LEARN_TOKENS_H

#include <stdint.h>

#include "data/data.h"

/* Learns a vocabulary from the texts, writes it into the folder `out`, and says what follows.
 * `pattern` NULL: gpt2. */
ech_status ech_learn_tokens(const ech_text_source *texts, const char *out, int64_t vocabulary,
                            const char *pattern);

#endif
