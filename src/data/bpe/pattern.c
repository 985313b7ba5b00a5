/* SPDX-License-Identifier: Apache-2.0
 *
 * The known patterns, run by PCRE2. Its \s is Perl's, which has U+180E besides Unicode's white space;
 * Hugging Face's engine has not, so \s and \S are spelt out. Letters and numbers are those of
 * Unicode 14 with PCRE2 10.42: later ones are cut as if they were punctuation.
 */
#include "data/bpe/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"

#define WHITE "\\t-\\r\\x{20}\\x{85}\\p{Z}"

static const struct {
    const char *name, *expression;
} patterns[] = {
#define X(name, expression, help) {#name, expression},
#include "data/bpe/pattern.def"
#undef X
};

const char *ech_bpe_pattern_expression(ech_bpe_pattern pattern)
{
    return patterns[pattern].expression;
}

const char *ech_bpe_pattern_names(void)
{
#define X(name, expression, help) " " #name
    static const char names[] =
#include "data/bpe/pattern.def"
        ;
#undef X
    return names + 1;
}

bool ech_bpe_pattern_find(const char *name, ech_bpe_pattern *out)
{
    for (int i = 0; i < ECH_BPE_PATTERNS; i++) {
        if (strcmp(patterns[i].name, name) != 0) continue;
        *out = (ech_bpe_pattern)i;
        return true;
    }
    return false;
}

bool ech_bpe_pattern_match(const char *expression, ech_bpe_pattern *out)
{
    for (int i = 0; i < ECH_BPE_PATTERNS; i++) {
        if (!expression[0] || strcmp(patterns[i].expression, expression) != 0) continue;
        *out = (ech_bpe_pattern)i;
        return true;
    }
    return false;
}

struct ech_bpe_splitter {
    pcre2_code *code; /* NULL: no cuts */
};

struct ech_bpe_words {
    const ech_bpe_splitter *splitter;
    pcre2_match_data *match;
    pcre2_match_context *limits;
};

/* \s and \S of our own patterns, within [] and without. */
static void spell_out(const char *expression, ech_text *out)
{
    bool in_class = false;
    for (const char *at = expression; *at; at++) {
        if (at[0] == '\\' && at[1] == 's')
            ech_text_append(out, "%s", in_class ? WHITE : "[" WHITE "]");
        else if (at[0] == '\\' && at[1] == 'S')
            ech_text_append(out, "[^" WHITE "]");
        else if (at[0] == '\\')
            ech_text_append(out, "\\%c", at[1]);
        else
            ech_text_append(out, "%c", at[0]);
        if (at[0] == '[') in_class = true;
        if (at[0] == ']') in_class = false;
        at += at[0] == '\\';
    }
}

ech_status ech_bpe_splitter_create(ech_bpe_pattern pattern, ech_bpe_splitter **out)
{
    pcre2_code *code = NULL;
    if (patterns[pattern].expression[0]) {
        ech_text expression = {0};
        int error;
        PCRE2_SIZE place;
        spell_out(patterns[pattern].expression, &expression);
        code = pcre2_compile((PCRE2_SPTR)expression.at, expression.n, PCRE2_UTF | PCRE2_UCP, &error,
                             &place, NULL);
        ech_text_free(&expression);
        if (!code)
            ECH_FAIL(ECH_EINTERNAL, "pattern %s: PCRE2 refuses it at byte %zu (error %d)",
                     patterns[pattern].name, place, error);
        /* Where the system allows no new code, PCRE2 interprets the pattern: slower, same words. */
        pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    }
    *out = ech_calloc(1, sizeof **out);
    (*out)->code = code;
    return ECH_OK;
}

void ech_bpe_splitter_destroy(ech_bpe_splitter *splitter)
{
    if (!splitter) return;
    pcre2_code_free(splitter->code);
    free(splitter);
}

ech_bpe_words *ech_bpe_words_create(const ech_bpe_splitter *splitter)
{
    ech_bpe_words *words = ech_calloc(1, sizeof *words);
    words->splitter = splitter;
    words->match = pcre2_match_data_create(1, NULL);
    words->limits = pcre2_match_context_create(NULL);
    /* The patterns go back over white space alone, once: no limit is needed. */
    pcre2_set_match_limit(words->limits, UINT32_MAX);
    return words;
}

void ech_bpe_words_destroy(ech_bpe_words *words)
{
    if (!words) return;
    pcre2_match_data_free(words->match);
    pcre2_match_context_free(words->limits);
    free(words);
}

ech_status ech_bpe_words_next(ech_bpe_words *words, const char *text, size_t n, size_t at,
                              size_t *end)
{
    if (!words->splitter->code) {
        *end = n;
        return ECH_OK;
    }
    int found = pcre2_match(words->splitter->code, (PCRE2_SPTR)text, n, at, PCRE2_NO_UTF_CHECK,
                            words->match, words->limits);
    const PCRE2_SIZE *place = pcre2_get_ovector_pointer(words->match);
    if (found < 0 || place[0] != at || place[1] <= at)
        ECH_FAIL(ECH_EINTERNAL, "PCRE2 finds no word at byte %zu of %zu (error %d)", at, n, found);
    *end = place[1];
    return ECH_OK;
}
