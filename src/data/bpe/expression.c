/* SPDX-License-Identifier: Apache-2.0
 *
 * From Oniguruma's syntax to PCRE2's, construct by construct: what is not in here is refused.
 * Differences that matter:
 *
 *   \s           Perl's has U+180E besides Unicode's White_Space
 *   ^ $ .        lines end at U+000A alone; $ is before each newline
 *   X{n,m}+      is X{n,m} repeated, and not possessive
 *   [a[bc]]      nested classes are a union
 *   \p{Han}      a script, without its extensions
 *   \v           is U+000B
 *
 * Refused for what differs, or may: \w \W \b \B \h \H (other characters), (?i) (another reach),
 * {n}? and {,n}, options, named groups, references, and multi-letter case folding ("ss" and
 * U+00DF).
 * */
#include "data/bpe/expression.h"

#include <stdint.h>
#include <string.h>

#include "base/memory.h"
#include "base/utf8.h"

#define WHITE "\\t-\\r\\x{20}\\x{85}\\p{Z}"

enum { DEEPEST = 32 };

typedef struct translation {
    const char *at; /* what is left of the expression */
    ech_text *out, *why;
    size_t atom;             /* where the last atom begins in `out` */
    bool has_atom;           /* there is one that may be repeated */
    size_t open[DEEPEST];    /* where groups begin in `out` */
    bool folds[DEEPEST + 1]; /* whether letters match in both cases, by depth */
    int depth;
} translation;

static bool refuse(translation *t, const char *construct, size_t n, const char *reason)
{
    ech_text_append(t->why, "%.*s: %s", (int)n, construct, reason);
    return false;
}

static void begin_atom(translation *t)
{
    t->atom = t->out->n;
    t->has_atom = true;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* A code point, as a member of a class or as an atom. */
static void put_code(translation *t, uint32_t code)
{
    ech_text_append(t->out, "\\x{%x}", (unsigned)code);
}

/* \xHH, \x{H...} and \uHHHH, with `at` at the x or u. */
static bool put_hex(translation *t)
{
    const char *begin = t->at - 1;
    bool braces = t->at[0] == 'x' && t->at[1] == '{';
    size_t digits = 0, most = braces ? 6 : t->at[0] == 'x' ? 2 : 4;
    uint32_t code = 0;
    t->at += braces ? 2 : 1;
    for (; digits < most; digits++, t->at++) {
        const char *hex = "0123456789abcdef", *lower = strchr(hex, *t->at | 0x20);
        if (!*t->at || !lower || (!is_digit(*t->at) && !is_letter(*t->at))) break;
        code = code << 4 | (uint32_t)(lower - hex);
    }
    bool whole = braces ? digits > 0 && *t->at == '}' : digits == most;
    bool byte = most == 2 && code >= 0x80; /* of UTF-8, in Oniguruma */
    if (!whole || byte || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return refuse(t, begin, (size_t)(t->at - begin), "no character; write \\x{...}");
    t->at += braces;
    put_code(t, code);
    return true;
}

/* \p{NAME} and \P{NAME}: general categories are the same; other names are scripts. */
static bool put_property(translation *t)
{
    const char *begin = t->at - 1, *name = t->at + 2;
    size_t n =
        t->at[1] == '{' ? strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_") : 0;
    if (n == 0 || name[n] != '}')
        return refuse(t, begin, (size_t)(name - begin) + (n > 0 ? n : 0),
                      "only \\p{Name} and \\P{Name} are read");
    if (t->folds[t->depth]) return refuse(t, "(?i:", 4, "with \\p{...}");
    bool category = (n == 1 && strchr("CLMNPSZ", name[0])) ||
                    (n == 2 && strchr("CLMNPSZ", name[0]) && strchr("acdefiklmnopstu", name[1]));
    static const char *const scripts[] = {
        "Arabic",  "Armenian", "Bengali",  "Bopomofo", "Cyrillic", "Devanagari", "Georgian",
        "Greek",   "Gujarati", "Gurmukhi", "Han",      "Hangul",   "Hebrew",     "Hiragana",
        "Kannada", "Katakana", "Khmer",    "Lao",      "Latin",    "Malayalam",  "Myanmar",
        "Sinhala", "Tamil",    "Telugu",   "Thai",     "Tibetan"};
    bool script = false;
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
        script |= strlen(scripts[i]) == n && memcmp(scripts[i], name, n) == 0;
    if (!category && !script)
        return refuse(t, begin, (size_t)(name - begin) + n + 1,
                      "neither a general category, as \\p{Lu}, nor a known script, as \\p{Han}");
    ech_text_append(t->out, "\\%c{%s%.*s}", t->at[0], script ? "sc:" : "", (int)n, name);
    t->at = name + n + 1;
    return true;
}

/* What follows a backslash, at `at`; in a class or not. */
static bool put_escape(translation *t, bool in_class)
{
    char c = *t->at;
    const char *begin = t->at - 1;
    if (c == 'p' || c == 'P') return put_property(t);
    if (c == 'x' || c == 'u') return put_hex(t);
    t->at += c != '\0';
    switch (c) {
    case 's':
        ech_text_append(t->out, in_class ? WHITE : "[" WHITE "]");
        return true;
    case 'S':
        if (in_class) return refuse(t, begin, 2, "not read within []");
        ech_text_append(t->out, "[^" WHITE "]");
        return true;
    case 'd':
    case 'D':
        ech_text_append(t->out, "\\%c{Nd}", c == 'd' ? 'p' : 'P');
        return true;
    case 'v':
        put_code(t, 0x0b);
        return true;
    case 't':
    case 'n':
    case 'r':
    case 'f':
    case 'a':
    case 'e':
        ech_text_append(t->out, "\\%c", c);
        return true;
    default:
        break;
    }
    if (c <= ' ' || c >= 0x7f || is_letter(c) || is_digit(c) || c == '_')
        return refuse(t, begin, c ? 2 : 1, "not read, or not the same everywhere");
    ech_text_append(t->out, "\\%c", c);
    return true;
}

/* A character as it is. */
static bool put_character(translation *t)
{
    uint32_t code;
    size_t n = ech_utf8_first(t->at, &code);
    if (n == 0) return refuse(t, "", 0, "no UTF-8");
    if (code < 0x80 && !is_letter(*t->at) && !is_digit(*t->at) &&
        !strchr(" '\"/,:;<>=@%&`~!_-#", *t->at))
        put_code(t, code);
    else
        ech_text_append_bytes(t->out, t->at, n);
    t->at += n;
    return true;
}

/* Where letters fold, these match one character besides in Oniguruma. */
static bool check_fold(translation *t)
{
    static const char *const pairs[] = {"ss", "ff", "fi", "fl", "st"};
    const char *last = t->out->at + t->out->n;
    if (!t->folds[t->depth]) return true;
    if ((unsigned char)last[-1] >= 0x80) return refuse(t, "(?i:", 4, "with letters beyond ASCII");
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs && t->out->n >= 2; i++)
        if ((last[-2] | 0x20) == pairs[i][0] && (last[-1] | 0x20) == pairs[i][1])
            return refuse(t, "(?i:", 4,
                          "with two letters that a ligature folds to, as ss, ff, fi, fl and st");
    return true;
}

/* The members of a class up to its bracket; nested ones are added to it. */
static bool put_members(translation *t, int depth)
{
    for (bool first = true;; first = false) {
        char c = *t->at;
        if (c == '\0') return refuse(t, "[", 1, "does not end");
        if (c == ']' && first) return refuse(t, "[]", 2, "a class that begins with ]");
        if (c == ']') {
            t->at++;
            return true;
        }
        if (c == '&' && t->at[1] == '&') return refuse(t, "&&", 2, "intersections are not read");
        if (c == '[') {
            if (t->at[1] == ':') return refuse(t, "[:", 2, "named classes are not read");
            if (t->at[1] == '^') return refuse(t, "[^", 2, "negated within another class");
            if (depth == DEEPEST) return refuse(t, "[", 1, "nested too deep");
            t->at++;
            if (!put_members(t, depth + 1)) return false;
        } else if (c == '\\') {
            t->at++;
            if (!put_escape(t, true)) return false;
        } else if (c == '-' && (t->at[1] == ']' || first)) {
            ech_text_append(t->out, "\\-");
            t->at++;
        } else if (c == '-') {
            bool to_class = t->at[1] == '\\' && t->at[2] && strchr("sSdDpP", t->at[2]);
            if (t->at[1] == '[' || t->at[1] == '-' || to_class)
                return refuse(t, t->at, 2, "no range");
            ech_text_append(t->out, "-");
            t->at++;
        } else if (!put_character(t)) {
            return false;
        }
    }
}

static bool put_class(translation *t)
{
    begin_atom(t);
    size_t begin = t->out->n;
    bool negated = t->at[1] == '^';
    if (negated && t->folds[t->depth]) return refuse(t, "(?i:[^", 6, "negated where letters fold");
    ech_text_append(t->out, negated ? "[^" : "[");
    t->at += negated ? 2 : 1;
    if (!put_members(t, 0)) return false;
    for (size_t i = begin; i < t->out->n && t->folds[t->depth]; i++)
        if ((unsigned char)t->out->at[i] >= 0x80)
            return refuse(t, "(?i:", 4, "with letters beyond ASCII");
    ech_text_append(t->out, "]");
    return true;
}

static bool open_group(translation *t)
{
    static const struct {
        const char *begin;
        bool folds;
    } kinds[] = {{"(?:", false},  {"(?i:", true},  {"(?=", false}, {"(?!", false},
                 {"(?<=", false}, {"(?<!", false}, {"(?>", false}};
    size_t at = t->out->n, n = 0;
    bool folds = t->folds[t->depth];
    if (t->depth == DEEPEST) return refuse(t, "(", 1, "nested too deep");
    if (t->at[1] != '?') { /* who captures does not matter */
        ech_text_append(t->out, "(?:");
        n = 1;
    }
    for (size_t i = 0; n == 0 && i < sizeof kinds / sizeof *kinds; i++) {
        if (strncmp(t->at, kinds[i].begin, strlen(kinds[i].begin)) != 0) continue;
        n = strlen(kinds[i].begin);
        folds = folds || kinds[i].folds;
        ech_text_append_bytes(t->out, t->at, n);
    }
    if (n == 0) return refuse(t, t->at, strnlen(t->at, 4), "an option or group that is not read");
    t->at += n;
    t->open[t->depth++] = at;
    t->folds[t->depth] = folds;
    t->has_atom = false;
    return true;
}

static bool close_group(translation *t)
{
    if (t->depth == 0) return refuse(t, ")", 1, "closes no group");
    ech_text_append(t->out, ")");
    t->at++;
    t->atom = t->open[--t->depth];
    t->has_atom = true;
    return true;
}

/* {n}, {n,} and {n,m}; *n: its bytes. */
static bool is_interval(const char *at, size_t *n)
{
    size_t low = strspn(at + 1, "0123456789"), end = 1 + low;
    if (at[end] == ',') end += 1 + strspn(at + end + 1, "0123456789");
    *n = end + 1;
    return low > 0 && low < 5 && at[end] == '}' && end < 12;
}

/* The atom before is repeated. After an interval ? and + are not what they are in PCRE2. */
static bool put_repetition(translation *t)
{
    size_t n = 1;
    bool interval = *t->at == '{';
    if (interval && !is_interval(t->at, &n)) return refuse(t, "{", 1, "no interval as {1,3}");
    if (!t->has_atom) return refuse(t, t->at, n, "repeats nothing");
    ech_text_append_bytes(t->out, t->at, n);
    t->at += n;
    if (!interval && (*t->at == '?' || *t->at == '+')) ech_text_append(t->out, "%c", *t->at++);
    if (interval && *t->at == '?') return refuse(t, t->at - n, n + 1, "not the same everywhere");
    if (interval && *t->at == '+') {
        ECH_FREED_TEXT whole = {0};
        ech_text_append(&whole, "(?:%s)+", t->out->at + t->atom);
        t->out->n = t->atom;
        ech_text_append_bytes(t->out, whole.at, whole.n);
        t->at++;
    }
    t->has_atom = false;
    if (*t->at && strchr("*+?{", *t->at))
        return refuse(t, t->at, 1, "a repetition of a repetition");
    return true;
}

static bool put_next(translation *t)
{
    switch (*t->at) {
    case '[':
        return put_class(t);
    case '(':
        return open_group(t);
    case ')':
        return close_group(t);
    case '*':
    case '+':
    case '?':
    case '{':
        return put_repetition(t);
    case '|':
        ech_text_append(t->out, "|");
        t->has_atom = false;
        t->at++;
        return true;
    case '^':
        ech_text_append(t->out, "(?:\\A|(?<=\\n)(?!\\z))");
        t->has_atom = false;
        t->at++;
        return true;
    case '$':
        ech_text_append(t->out, "(?=\\n|\\z)");
        t->has_atom = false;
        t->at++;
        return true;
    case '.':
        begin_atom(t);
        ech_text_append(t->out, "[^\\n]");
        t->at++;
        return true;
    case '\\':
        begin_atom(t);
        t->at++;
        return put_escape(t, false);
    default:
        begin_atom(t);
        return put_character(t) && check_fold(t);
    }
}

bool ech_expression_translate(const char *expression, ech_text *out, ech_text *why)
{
    translation t = {.at = expression, .out = out, .why = why};
    if (strlen(expression) > ECH_EXPRESSION_LONGEST) {
        ech_text_append(why, "it has %zu bytes; at most %d are read", strlen(expression),
                        (int)ECH_EXPRESSION_LONGEST);
        return false;
    }
    ech_text_append(out, "%s", "");
    while (*t.at)
        if (!put_next(&t)) return false;
    return t.depth == 0 || refuse(&t, "(", 1, "does not end");
}
