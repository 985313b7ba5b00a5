/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data: reading tokenizer.json and the JSON files next to it, which are untrusted.
 */
#ifndef ECH_DATA_BPE_JSON_H
#define ECH_DATA_BPE_JSON_H

#include <jansson.h>

#include "data/bpe/bpe.h"

/* Reads a file of at most `most` bytes, within limits (base/json.h). reals: as ech_json_limits.reals, since
 * tokenizer_config.json may have integers of 30 digits. source (NULL: not wanted): the file's content. */
ech_status ech_bpe_load_json(const char *path, size_t most, bool reals, ech_text *source,
                             json_t **out);

/* A new array: the steps of a Sequence, else the part itself; empty if there is none. */
json_t *ech_bpe_steps(const json_t *part, const char *key);

/* The following read parts of a vocabulary; bpe->file is the file's name in errors. */

/* Takes tokens by their printable characters (ech_bpe_show): "vocab" of tokenizer.json, or encoder.json. Names of
 * `added` tokens may have other characters. */
ech_status ech_bpe_take_vocabulary(const json_t *vocabulary, const json_t *added, const char *key,
                                   ech_bpe *bpe);
/* Takes a merge of two tokens by their printable characters; `where`, for errors: "model.merges[3]", "line 4". */
ech_status ech_bpe_take_merge(const char *left, size_t left_n, const char *right, size_t right_n,
                              const char *where, ech_bpe *bpe);
/* Takes "pre_tokenizer", "normalizer", "decoder", and whether the model is over characters. To be called first. */
ech_status ech_bpe_take_pattern(const json_t *root, ech_bpe *bpe);
/* Takes "added_tokens". To be called after the model's tokens. */
ech_status ech_bpe_take_added(const json_t *root, ech_bpe *bpe);
/* Takes "post_processor". To be called after all tokens. */
ech_status ech_bpe_take_around(const json_t *root, ech_bpe *bpe);

#endif
