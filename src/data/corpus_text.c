/* SPDX-License-Identifier: Apache-2.0
 *
 * The texts of blends, as Megatron users write them.
 */
#include <stdlib.h>
#include <string.h>

#include "data/corpus.h"

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n';
}

/* The next word in new memory, NULL if there is none; *at moves behind it. A backslash before a blank
 * or a backslash keeps it. */
static char *next_word(const char **at)
{
    while (is_blank(**at)) ++*at;
    if (**at == '\0') return NULL;
    char *word = ech_calloc(strlen(*at) + 1, 1);
    for (size_t n = 0; **at != '\0' && !is_blank(**at); ++*at) {
        if (**at == '\\' && (is_blank((*at)[1]) || (*at)[1] == '\\')) ++*at;
        word[n++] = **at;
    }
    return word;
}

static ech_status add_weight(const char *key, const char *text, const char *word,
                             ech_corpus_words *words)
{
    int64_t weight;
    if (!ech_text_to_weight(word, strlen(word), &weight))
        ECH_FAIL(ECH_EUSAGE,
                 "%s \"%s\": %s should be a weight: either each path has one before it, as in "
                 "\"0.3 A 0.7 B\", or none has",
                 key, text, word);
    if (weight == 0)
        ECH_FAIL(ECH_EUSAGE, "%s \"%s\": a weight of 0: leave that source out", key, text);
    ECH_PUSH(words->weight, weight);
    return ECH_OK;
}

static ech_status read_words(const char *key, const char *text, ech_corpus_words *words)
{
    const char *at = text;
    bool weighted = false;
    char *word;
    for (int i = 0; (word = next_word(&at)); i++) {
        int64_t number;
        if (i == 0) weighted = ech_text_to_weight(word, strlen(word), &number);
        if (weighted && i % 2 == 0) {
            ech_status st = add_weight(key, text, word, words);
            free(word);
            ECH_TRY(st);
        } else {
            ECH_PUSH(words->path, word);
        }
    }
    if (words->path.n < words->weight.n)
        ECH_FAIL(ECH_EUSAGE,
                 "%s \"%s\": no path behind the last weight (a path that is a number is written "
                 "./1)",
                 key, text);
    if (words->path.n == 0) ECH_FAIL(ECH_EUSAGE, "%s: names no token file", key);
    if (words->path.n > ECH_BLEND_MOST)
        ECH_FAIL(ECH_EUSAGE, "%s: %zu sources; a blend has at most %d", key, words->path.n,
                 (int)ECH_BLEND_MOST);
    return ECH_OK;
}

ech_status ech_corpus_read_words(const char *key, const char *text, ech_corpus_words *out)
{
    ech_corpus_words words = {0};
    ech_status st = read_words(key, text, &words);
    if (st == ECH_OK)
        *out = words;
    else
        ech_corpus_words_free(&words);
    return st;
}

void ech_corpus_words_free(ech_corpus_words *words)
{
    for (size_t i = 0; i < words->path.n; i++) free(words->path.at[i]);
    free(words->path.at);
    free(words->weight.at);
    *words = (ech_corpus_words){0};
}
