/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding a card's data sheet by its name.
 */
#include "device/card.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *words;
    double tflops[3]; /* of each ech_card_operands */
} cards[] = {
#define X(words, ...) {words, {__VA_ARGS__}},
#include "device/cards.def"
#undef X
};

/* Words end at what is no letter or digit: an A1000 is no A100, and a GH200 no H200. */
static bool has_word(const char *name, const char *word, size_t n)
{
    static const char inside[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    for (const char *at = name; *at; at += strspn(at, inside)) {
        at += strcspn(at, inside);
        if (strspn(at, inside) == n && strncmp(at, word, n) == 0) return true;
    }
    return false;
}

static bool has_words(const char *name, const char *words)
{
    for (size_t n; *words; words += n + (words[n] == ' ')) {
        n = strcspn(words, " ");
        if (!has_word(name, words, n)) return false;
    }
    return true;
}

double ech_card_flops(const char *name, ech_card_operands operands)
{
    if (has_words(name, "MIG")) return 0;
    for (size_t c = 0; c < sizeof cards / sizeof *cards; c++)
        if (has_words(name, cards[c].words)) return 1e12 * cards[c].tflops[operands];
    return 0;
}
