/* SPDX-License-Identifier: Apache-2.0
 *
 * The known patterns, run by PCRE2. Its \s is Perl's, which has U+180E besides Unicode's white space;
 * Hugging Face's engine has not, so \s and \S are spelt out. Letters and numbers are those of
 * Unicode 14 with PCRE2 10.42: later ones are split as if they were punctuation.
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

#define ECH_GPT2                                                                                   \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
/* Words that end in small letters, and words of capitals. */
#define ECH_CASED_1                                                                                \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
#define ECH_CASED_2                                                                                \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*"

const char ech_bpe_gpt2_expression[] = ECH_GPT2;
const char ech_bpe_digit_expression[] = "\\p{N}", ech_bpe_digits_expression[] = "\\p{N}+";

static const struct {
    const char *name, *expression[ECH_BPE_STAGES];
} patterns[] = {
#define X(name, help, ...) {#name, {__VA_ARGS__}},
#include "data/bpe/pattern.def"
#undef X
};

const char *ech_bpe_pattern_expression(ech_bpe_pattern pattern, int stage)
{
    return stage < ECH_BPE_STAGES ? patterns[pattern].expression[stage] : NULL;
}

const char *ech_bpe_pattern_names(void)
{
#define X(name, help, ...) " " #name
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

/* The same characters, of which some files have \r and \n as they are. */
static bool is_same(const char *known, const char *expression)
{
    for (; *expression; known++, expression++) {
        bool control = *expression == '\r' || *expression == '\n';
        if (control && *known++ != '\\') return false;
        if (*known != (control ? (*expression == '\r' ? 'r' : 'n') : *expression)) return false;
    }
    return *known == '\0';
}

static bool has_stages(ech_bpe_pattern pattern, const char *const *expressions, int n)
{
    for (int i = 0; i < n; i++) {
        const char *known = ech_bpe_pattern_expression(pattern, i);
        if (!known || !is_same(known, expressions[i])) return false;
    }
    return !ech_bpe_pattern_expression(pattern, n);
}

bool ech_bpe_pattern_match(const char *const *expressions, int n, ech_bpe_pattern *out)
{
    for (int i = 0; i < ECH_BPE_PATTERNS; i++) {
        if (!has_stages((ech_bpe_pattern)i, expressions, n)) continue;
        *out = (ech_bpe_pattern)i;
        return true;
    }
    return false;
}

struct ech_bpe_splitter {
    pcre2_code *code[ECH_BPE_STAGES]; /* NULL: there are no more */
    pcre2_match_context *limits;
};

/* \s and \S of our own patterns, within [] and without. What is possessive elsewhere Hugging Face's engine
 * takes for a repetition after {}. */
static void spell_out(const char *expression, ech_text *out)
{
    static const char repeated[] = "{1,3}+";
    bool in_class = false;
    for (const char *at = expression; *at; at++) {
        if (at[0] == '\\' && at[1] == 's')
            ech_text_append(out, "%s", in_class ? WHITE : "[" WHITE "]");
        else if (at[0] == '\\' && at[1] == 'S')
            ech_text_append(out, "[^" WHITE "]");
        else if (at[0] == '\\')
            ech_text_append(out, "\\%c", at[1]);
        else if (strncmp(at, repeated, strlen(repeated)) == 0)
            at += strlen(repeated) - 2;
        else
            ech_text_append(out, "%c", at[0]);
        if (at[0] == '[') in_class = true;
        if (at[0] == ']') in_class = false;
        at += at[0] == '\\';
    }
}

static ech_status compile(const char *name, const char *spelt, pcre2_code **out)
{
    ECH_FREED_TEXT expression = {0};
    int error;
    PCRE2_SIZE place;
    spell_out(spelt, &expression);
    *out = pcre2_compile((PCRE2_SPTR)expression.at, expression.n, PCRE2_UTF | PCRE2_UCP, &error,
                         &place, NULL);
    if (!*out)
        ECH_FAIL(ECH_EINTERNAL, "pattern %s: PCRE2 refuses it at byte %zu (error %d)", name, place,
                 error);
    /* Where the system allows no new code, PCRE2 interprets the pattern: slower, same words. */
    pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE);
    return ECH_OK;
}

ech_status ech_bpe_splitter_create(ech_bpe_pattern pattern, ech_bpe_splitter **out)
{
    ech_bpe_splitter *splitter = ech_calloc(1, sizeof *splitter);
    splitter->limits = pcre2_match_context_create(NULL);
    /* The patterns go back over white space or capitals alone, once: no limit is needed. */
    pcre2_set_match_limit(splitter->limits, UINT32_MAX);
    for (int i = 0; ech_bpe_pattern_expression(pattern, i); i++) {
        ech_status status =
            compile(patterns[pattern].name, patterns[pattern].expression[i], &splitter->code[i]);
        if (status == ECH_OK) continue;
        ech_bpe_splitter_destroy(splitter);
        return status;
    }
    *out = splitter;
    return ECH_OK;
}

void ech_bpe_splitter_destroy(ech_bpe_splitter *splitter)
{
    if (!splitter) return;
    for (int i = 0; i < ECH_BPE_STAGES; i++) pcre2_code_free(splitter->code[i]);
    pcre2_match_context_free(splitter->limits);
    free(splitter);
}

/* Whose words, and for what. */
typedef struct walk {
    const ech_bpe_splitter *splitter;
    pcre2_match_data *match;
    ech_bpe_use use;
    void *context;
} walk;

/* Where the first match in text[at, n) lies; *begin = n: nowhere. */
static ech_status find_match(const walk *w, const pcre2_code *code, const char *text, size_t n,
                             size_t at, size_t *begin, size_t *end)
{
    int found = pcre2_match(code, (PCRE2_SPTR)text, n, at, PCRE2_NO_UTF_CHECK, w->match,
                            w->splitter->limits);
    const PCRE2_SIZE *place = pcre2_get_ovector_pointer(w->match);
    if (found != PCRE2_ERROR_NOMATCH && (found < 0 || place[0] < at || place[1] <= place[0]))
        ECH_FAIL(ECH_EINTERNAL, "PCRE2 finds no word at byte %zu of %zu (error %d)", at, n, found);
    *begin = found < 0 ? n : place[0];
    *end = found < 0 ? n : place[1];
    return ECH_OK;
}

/* A word of an earlier stage is the whole text of this stage and the later ones. */
static ech_status split_from(const walk *w, int stage, const char *text, size_t n)
{
    const pcre2_code *code = stage < ECH_BPE_STAGES ? w->splitter->code[stage] : NULL;
    if (!code || n == 1) return w->use(text, n, w->context);
    for (size_t at = 0, begin, end; at < n; at = end) {
        ECH_TRY(find_match(w, code, text, n, at, &begin, &end));
        if (begin > at) ECH_TRY(split_from(w, stage + 1, text + at, begin - at));
        if (end > begin) ECH_TRY(split_from(w, stage + 1, text + begin, end - begin));
    }
    return ECH_OK;
}

ech_status ech_bpe_each_word(const ech_bpe_splitter *splitter, const char *run, size_t n,
                             ech_bpe_use use, void *context)
{
    const walk w = {splitter, pcre2_match_data_create(1, NULL), use, context};
    ech_status status = split_from(&w, 0, run, n);
    pcre2_match_data_free(w.match);
    return status;
}
