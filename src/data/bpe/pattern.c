/* SPDX-License-Identifier: Apache-2.0
 *
 * Patterns, run by PCRE2. PCRE2 10.42 knows the letters and numbers of Unicode 14; later ones are
 * split as if they were punctuation.
 */
#include "data/bpe/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "data/bpe/expression.h"

#define ECH_GPT2                                                                                   \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
/* Words that end in small letters, and words of capitals. */
#define ECH_CASED_1                                                                                \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
#define ECH_CASED_2                                                                                \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*"

const char ech_bpe_gpt2_expression[] = ECH_GPT2;
const char ech_bpe_digit_expression[] = "\\p{N}", ech_bpe_digits_expression[] = "\\p{N}+";
const char ech_bpe_punctuation_expression[] = "[!-/:-@\\[-`{-~\\p{P}]";
const char ech_bpe_digit_bytes_expression[] = "[0-9\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}]+";

static const struct {
    const char *name, *expression[ECH_BPE_STAGES];
} patterns[] = {
#define X(name, help, ...) {#name, {__VA_ARGS__}},
#include "data/bpe/pattern.def"
#undef X
};

const char *ech_bpe_pattern_expression(ech_bpe_pattern pattern, int stage)
{
    bool known = pattern < ECH_BPE_PATTERNS && stage < ECH_BPE_STAGES;
    return known ? patterns[pattern].expression[stage] : NULL;
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

/* Escapes and their characters: some files have \r and \n as plain characters. */
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

/* Of an untrusted expression: steps of a match, KiB of memory. */
enum { MOST_STEPS = 1000000, MOST_HEAP = 64 << 10 };

struct ech_bpe_splitter {
    const char *file;
    pcre2_code *code[ECH_BPE_STAGES]; /* NULL: there are no more */
    pcre2_match_context *limits;
};

static ech_status refuse(const char *file, const char *expression, const char *why)
{
    enum { LONGEST_SHOWN = 120 };
    ECH_FAIL(ECH_EUNSUPPORTED, "%s: pre_tokenizer: the pattern %.*s: %s" ECH_BPE_OTHERWISE, file,
             LONGEST_SHOWN, expression, why);
}

static ech_status compile(const char *file, const ech_bpe_stage *stage, pcre2_code **out)
{
    ECH_FREED_TEXT translated = {0}, why = {0};
    int error;
    uint32_t empty = 0, options = stage->bytes ? 0 : PCRE2_UTF | PCRE2_UCP;
    PCRE2_SIZE place;
    if (!ech_expression_translate(stage->expression, &translated, &why))
        return refuse(file, stage->expression, why.at);
    *out = pcre2_compile((PCRE2_SPTR)translated.at, translated.n, options, &error, &place, NULL);
    if (!*out) {
        unsigned char text[256];
        pcre2_get_error_message(error, text, sizeof text);
        return refuse(file, stage->expression, (const char *)text);
    }
    pcre2_pattern_info(*out, PCRE2_INFO_MATCHEMPTY, &empty);
    if (empty) return refuse(file, stage->expression, "it matches nothing, too, which is no word");
    /* Where the system allows no new code, PCRE2 interprets the pattern: slower, same words. */
    pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE);
    return ECH_OK;
}

ech_status ech_bpe_splitter_create(const char *file, ech_bpe_pattern pattern,
                                   const ech_bpe_stage *own, int n, ech_bpe_splitter **out)
{
    ECH_CLEANUP(ech_bpe_splitter_destroy_at)
    ech_bpe_splitter *splitter = ech_calloc(1, sizeof *splitter);
    bool known = pattern != ECH_BPE_OWN;
    splitter->file = file;
    splitter->limits = pcre2_match_context_create(NULL);
    /* Known patterns go back over white space or capitals alone, once: no limit is needed. */
    pcre2_set_match_limit(splitter->limits, known ? UINT32_MAX : MOST_STEPS);
    if (!known) pcre2_set_heap_limit(splitter->limits, MOST_HEAP);
    ECH_ASSERT(known || n <= ECH_BPE_STAGES);
    for (int i = 0; known ? ech_bpe_pattern_expression(pattern, i) != NULL : i < n; i++) {
        const char *expression = ech_bpe_pattern_expression(pattern, i);
        const ech_bpe_stage stage = {.expression = (char *)(uintptr_t)expression};
        ECH_TRY(compile(file, known ? &stage : &own[i], &splitter->code[i]));
    }
    *out = splitter;
    splitter = NULL;
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
    const pcre2_match_context *limits = w->splitter->limits;
    int found = pcre2_match(code, (PCRE2_SPTR)text, n, at, PCRE2_NO_UTF_CHECK, w->match,
                            (pcre2_match_context *)(uintptr_t)limits);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) /* which the interpreter has not */
        found = pcre2_match(code, (PCRE2_SPTR)text, n, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                            w->match, (pcre2_match_context *)(uintptr_t)limits);
    const PCRE2_SIZE *place = pcre2_get_ovector_pointer(w->match);
    if (found == PCRE2_ERROR_MATCHLIMIT || found == PCRE2_ERROR_HEAPLIMIT ||
        found == PCRE2_ERROR_DEPTHLIMIT)
        ECH_FAIL(
            ECH_EINPUT,
            "%s: the pattern of pre_tokenizer backtracks too often (more than %d steps) at byte "
            "%zu of a text of %zu bytes; simplify the pattern, or split very long runs "
            "without spaces in the text",
            w->splitter->file, (int)MOST_STEPS, at, n);
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
