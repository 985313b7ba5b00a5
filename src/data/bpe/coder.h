/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data: splitting texts, for encoding them and for learning a vocabulary. A run of a
 * text is a stretch of valid UTF-8, or a single byte that is no UTF-8.
 */
#ifndef ECH_DATA_BPE_CODER_H
#define ECH_DATA_BPE_CODER_H

#include "data/bpe/bpe.h"

/* ech_tokenizer_split of the vocabulary's tokenizer. */
size_t ech_bpe_split(const ech_bpe *bpe, const void *bytes, size_t n);

/* Calls `use` with each run of a text, in order; UTF-8 is normalized to `form`. */
ech_status ech_bpe_each_run(ech_bpe_form form, const char *text, size_t n, ech_bpe_use use,
                            void *context);

#endif
