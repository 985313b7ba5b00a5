/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data: reading tokenizer.json and the JSON files next to it, which are untrusted.
 */
#ifndef ECH_DATA_BPE_JSON_H
#define ECH_DATA_BPE_JSON_H

#include <jansson.h>

#include "data/bpe/bpe.h"

/* Reads a file of at most `most` bytes, within limits (base/json.h); release *out with json_decref.
 * reals: as in ech_json_limits, for tokenizer_config.json with integers of 30 digits. source (or
 * NULL): the content. */
ech_status ech_bpe_load_json(const char *path, size_t most, bool reals, ech_text *source,
                             json_t **out);

/* The steps of `part`, as a new array: if `part` is a "Sequence" those that its `key` lists, else
 * `part` alone; empty if it is NULL or null. Release it with json_decref. */
json_t *ech_bpe_steps(const json_t *part, const char *key);

/* The following read parts of a vocabulary; bpe->file is the file's name in errors. */

/* Puts the tokens of `vocabulary`, "vocab" of tokenizer.json or all of encoder.json. Over bytes
 * their names are spelt in the characters of ech_bpe_show; names that "added_tokens" (`added`, may
 * be NULL) has as well may have others. `key`: what the object is called in errors. */
ech_status ech_bpe_take_vocabulary(const json_t *vocabulary, const json_t *added, const char *key,
                                   ech_bpe *bpe);
/* Puts a merge of two tokens that are named likewise; `where`, for errors: "model.merges[3]", "line
 * 4". */
ech_status ech_bpe_take_merge(const char *left, size_t left_n, const char *right, size_t right_n,
                              const char *where, ech_bpe *bpe);
/* The next three read keys of tokenizer.json's root object.
 *
 * "pre_tokenizer", "normalizer", "decoder", and whether the model is over characters. To be called
 * first. */
ech_status ech_bpe_take_pattern(const json_t *root, ech_bpe *bpe);
/* "added_tokens". Call it after the model's tokens. */
ech_status ech_bpe_take_added(const json_t *root, ech_bpe *bpe);
/* An added token of n bytes of text. For errors: `file` lists it at `where`, "added_tokens[3]: ".
 * Sets added->id and appends it; its stated id and flags are set already. A token that the model's
 * vocabulary has, by this spelling, has its id there, which must be the stated one; another token
 * gets the next id, as in Hugging Face's library, which is logged if another one is stated. */
ech_status ech_bpe_put_added(const char *file, const char *where, const char *text, size_t n,
                             ech_bpe *bpe, ech_bpe_added *added);
/* The flags of an added token, here or in tokenizer_config.json. */
void ech_bpe_take_flags(const json_t *token, ech_bpe_added *added);
/* "post_processor", which sets front and back. Call it after all tokens. */
ech_status ech_bpe_take_around(const json_t *root, ech_bpe *bpe);

#endif
