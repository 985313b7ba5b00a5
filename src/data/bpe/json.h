/* SPDX-License-Identifier: Apache-2.0
 *
 * For data alone: JSON files from strangers, and what is said of them.
 */
#ifndef ECH_DATA_BPE_JSON_H
#define ECH_DATA_BPE_JSON_H

#include <jansson.h>

#include "data/bpe/bpe.h"

/* Reads a file of at most `most` bytes, with bounds on its values (base/json.h). reals: whole numbers
 * become reals, since tokenizer_config.json may have some of 30 digits. `source`, unless it is NULL, gets
 * the file's text. */
ech_status ech_bpe_load_json(const char *path, size_t most, bool reals, ech_text *source,
                             json_t **out);

/* Tokens of a model by their visible characters: "vocab" of tokenizer.json, encoder.json. Names that
 * are `added` need no visible characters. */
ech_status ech_bpe_take_vocabulary(const json_t *vocabulary, const json_t *added, const char *file,
                                   const char *key, ech_bpe *bpe);
/* One merge, of two tokens by their visible characters; `place`: "model.merges[3]", "line 4". */
ech_status ech_bpe_take_merge(const char *left, size_t left_n, const char *right, size_t right_n,
                              const char *file, const char *place, ech_bpe *bpe);
/* "pre_tokenizer", "normalizer", "decoder", and whether the model is over characters; comes first. */
ech_status ech_bpe_take_pattern(const json_t *root, const char *file, ech_bpe *bpe);
/* "post_processor", when all tokens are there. */
ech_status ech_bpe_take_around(const json_t *root, const char *file, ech_bpe *bpe);
/* "added_tokens" */
ech_status ech_bpe_take_added(const json_t *root, const char *file, ech_bpe *bpe);

#endif
