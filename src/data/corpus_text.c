/* SPDX-License-Identifier: Apache-2.0
 *
 * The texts of blends and splits, as Megatron users write them.
 */
#include <stdlib.h>
#include <string.h>

#include "data/corpus.h"

enum { DIGITS = 9 };
static const int64_t ONE = 1000000000; /* 10^DIGITS */

/* A whole word as a number; false if it is none. */
static bool read_number(const char *word, size_t n, int64_t *out)
{
    int64_t value = 0;
    int before = 0, behind = 0;
    size_t i = 0;
    for (; i < n && word[i] >= '0' && word[i] <= '9' && value < ONE; i++, before++)
        value = value * 10 + (word[i] - '0');
    if (value >= ONE) return false;
    if (i < n && word[i] == '.')
        for (i++; i < n && word[i] >= '0' && word[i] <= '9' && behind < DIGITS; i++, behind++)
            value = value * 10 + (word[i] - '0');
    if (i < n || before + behind == 0) return false;
    for (; behind < DIGITS; behind++) value *= 10;
    *out = value;
    return true;
}

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
    if (!read_number(word, strlen(word), &weight))
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
        if (i == 0) weighted = read_number(word, strlen(word), &number);
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

ech_status ech_corpus_read_split(const char *text, int64_t bound[4])
{
    int64_t at[4] = {0};
    const char *from = text;
    for (int i = 0; i < 3; i++) {
        int64_t share = 0;
        size_t n = strcspn(from, ",");
        if (n > 0 || *from == ',' || i == 0) {
            if (!read_number(from, n, &share))
                ECH_FAIL(ECH_EUSAGE,
                         "data.split \"%s\": must be up to three shares for training, validation "
                         "and test, such as 969,30,1",
                         text);
            from += n;
            if (*from == ',' && i < 2 && from[1] != '\0') from++;
        }
        at[i + 1] = at[i] + share;
    }
    if (*from != '\0') ECH_FAIL(ECH_EUSAGE, "data.split \"%s\": more than three shares", text);
    if (at[3] == 0) ECH_FAIL(ECH_EUSAGE, "data.split \"%s\": all shares are 0", text);
    memcpy(bound, at, sizeof at);
    return ECH_OK;
}
