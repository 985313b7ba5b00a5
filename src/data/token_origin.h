/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data: PREFIX.origin.json, which names the tokenizer that made PREFIX.bin. Token files
 * of other programs have none.
 */
#ifndef ECH_DATA_TOKEN_ORIGIN_H
#define ECH_DATA_TOKEN_ORIGIN_H

#include "data/data.h"

#define ECH_TOKEN_ORIGIN ".origin.json"

typedef struct ech_token_origin {
    char *tokenizer;               /* ech_tokenizer.name, for messages; owned */
    int64_t vocabulary;            /* of the tokenizer */
    int64_t tokens;                /* in PREFIX.bin */
    bool begins;                   /* each document begins with begin of text */
    char hash[ECH_TOKENIZER_HASH]; /* ech_tokenizer_hash */
} ech_token_origin;

/* Appends the file's content. */
void ech_token_origin_print(const ech_tokenizer *tokenizer, int64_t tokens, bool begins,
                            ech_text *out);
/* Parses the file's content, which is untrusted; `path` is its name in errors. Release with
 * ech_token_origin_free. */
ech_status ech_token_origin_parse(const char *path, const char *text, size_t n,
                                  ech_token_origin *out);
void ech_token_origin_free(ech_token_origin *origin);

/* Checks PREFIX.origin.json, if there is one, for a PREFIX.bin with `tokens` tokens. Errors:
 * another hash than options->tokenizer's, or, if that is NULL, a larger vocabulary than
 * options->vocabulary; another number of tokens. */
ech_status ech_token_origin_check(const ech_corpus_options *options, const char *prefix,
                                  int64_t tokens);

#endif
