/* SPDX-License-Identifier: Apache-2.0
 *
 * For data alone: from any bytes to ids with a byte-level BPE vocabulary.
 */
#ifndef ECH_DATA_BPE_CODER_H
#define ECH_DATA_BPE_CODER_H

#include "data/bpe/bpe.h"
#include "data/data.h"

typedef struct ech_bpe_coder ech_bpe_coder;
ech_bpe_coder *ech_bpe_coder_create(const ech_bpe *bpe);
void ech_bpe_coder_destroy(ech_bpe_coder *coder); /* accepts NULL */
ech_status ech_bpe_coder_encode(ech_bpe_coder *coder, const void *bytes, size_t n, ech_ids *out);
/* See ech_tokenizer_cut. */
size_t ech_bpe_cut(const ech_bpe *bpe, const void *bytes, size_t n);

typedef ech_status (*ech_bpe_use)(const char *text, size_t n, void *context);
/* Calls `use` with each run of a text: valid UTF-8, composed (NFC) if asked for, or one byte that
 * belongs to none. */
ech_status ech_bpe_each_run(bool nfc, const char *text, size_t n, ech_bpe_use use, void *context);
/* Calls `use` with each word of a run, or of a piece of a run that is valid UTF-8. */
ech_status ech_bpe_each_word(ech_bpe_words *words, const char *run, size_t n, ech_bpe_use use,
                             void *context);

#endif
