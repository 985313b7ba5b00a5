/* SPDX-License-Identifier: Apache-2.0
 *
 * For data alone: PREFIX.origin.json, which says what tokenizer made PREFIX.bin. Files of other
 * programs have none.
 */
#ifndef ECH_DATA_TOKEN_ORIGIN_H
#define ECH_DATA_TOKEN_ORIGIN_H

#include "data/data.h"

#define ECH_TOKEN_ORIGIN ".origin.json"

typedef struct ech_token_origin {
    char *tokenizer; /* its name for people, as it was given then */
    int64_t vocabulary, tokens;
    char hash[ECH_TOKENIZER_HASH];
} ech_token_origin;

void ech_token_origin_print(const ech_tokenizer *tokenizer, int64_t tokens, ech_text *out);
/* Nothing in the text is trusted; `path` names it in errors. */
ech_status ech_token_origin_parse(const char *path, const char *text, size_t n,
                                  ech_token_origin *out);
void ech_token_origin_free(ech_token_origin *origin);

/* Refuses a file of `tokens` tokens that another tokenizer than options->tokenizer has made, or,
 * where none is known, one of more ids than options->vocabulary; and what is told of another
 * .bin. A file about which nothing is told is taken. */
ech_status ech_token_origin_check(const ech_corpus_options *options, const char *prefix,
                                  int64_t tokens);

#endif
