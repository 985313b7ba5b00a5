/* SPDX-License-Identifier: Apache-2.0
 *
 * "~", "${NAME}", quotes and backslashes, as shells have them.
 */
#include "base/path.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

/* Characters with a backslash before them in a text of several paths. */
static const char escaped[] = " \t\n\\'\"";

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_name(char c)
{
    return is_letter(c) || (c >= '0' && c <= '9');
}

/* The bytes of "s3" in "s3://bucket"; 0: it begins so with no scheme (RFC 3986, section 3.1). */
static size_t scheme_bytes(const char *text)
{
    size_t n = 0;
    if (!is_letter(text[0]) || text[0] == '_') return 0;
    while ((is_name(text[n]) && text[n] != '_') || (text[n] && strchr("+.-", text[n]))) n++;
    return strncmp(text + n, "://", 3) == 0 ? n : 0;
}

static bool append_value(const char *name, const char *value, bool words, ech_text *out,
                         ech_text *why)
{
    if (!value || !*value) {
        ech_text_append(why, "the variable %s is not set", name);
        return false;
    }
    if (strchr(value, '$')) {
        ech_text_append(why, "the value of %s has a $ in it: write the path out", name);
        return false;
    }
    if (words)
        ech_path_append_word(value, out);
    else
        ech_text_append(out, "%s", value);
    return true;
}

/* "${NAME}" at *at, which moves past it. */
static bool append_variable(const char **at, bool words, ech_text *out, ech_text *why)
{
    size_t n = 0;
    const char *name = *at + 2;
    if ((*at)[1] == '{' && is_letter(name[0]))
        while (is_name(name[n])) n++;
    if (n == 0 || name[n] != '}') {
        ech_text_append(why, "a $ in a path: write ${NAME} for the value of a variable");
        return false;
    }
    ECH_FREED char *copy = ech_strdup(name);
    copy[n] = '\0';
    *at = name + n + 1;
    return append_value(copy, getenv(copy), words, out, why);
}

/* What stands at the beginning of a path; *at moves past what is replaced. */
static bool append_begin(const char **at, bool words, ech_text *out, ech_text *why)
{
    size_t scheme = scheme_bytes(*at);
    if (scheme > 0) {
        ech_text_append(why,
                        "%.*s:// is no path on this machine: copy it here, or mount it and "
                        "name the folder",
                        (int)scheme, *at);
        return false;
    }
    if (**at != '~') return true;
    char next = (*at)[1];
    if (next != '\0' && next != '/' && !(words && strchr(" \t\n'\"", next))) {
        ech_text_append(why, "the folder of another user: write the path out (a name that begins "
                             "with ~ is written ./~)");
        return false;
    }
    ++*at;
    return append_value("HOME", getenv("HOME"), words, out, why);
}

bool ech_path_expand(const char *text, bool words, ech_text *out, ech_text *why)
{
    bool begins = true;
    char quote = '\0';
    for (const char *at = text; *at;) {
        if (words && begins && (*at == '\'' || *at == '"')) {
            quote = *at;
            ech_text_append(out, "%c", *at++);
        }
        if (begins && !append_begin(&at, words, out, why)) return false;
        if (*at == '\0') break;
        begins = words && !quote && strchr(" \t\n", *at);
        if (*at == quote) quote = '\0';
        if (*at == '$') {
            if (!append_variable(&at, words, out, why)) return false;
            continue;
        }
        bool escapes = words && *at == '\\' && at[1];
        ech_text_append(out, "%.*s", escapes ? 2 : 1, at);
        at += escapes ? 2 : 1;
    }
    return true;
}

/* ---- words ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n';
}

void ech_path_word_free(ech_path_word *word)
{
    free(word->text);
}

ech_path_word ech_path_next_word(const char **at)
{
    while (is_blank(**at)) ++*at;
    if (**at == '\0') return (ech_path_word){0};
    char quote = **at == '\'' || **at == '"' ? *(*at)++ : '\0';
    ech_path_word w = {.text = ech_calloc(strlen(*at) + 1, 1), .quoted = quote != '\0'};
    for (size_t n = 0; **at != '\0' && (quote ? **at != quote : !is_blank(**at)); ++*at) {
        if (**at == '\\' && (*at)[1] && strchr(escaped, (*at)[1])) ++*at;
        w.text[n++] = **at;
    }
    w.open = quote && **at != quote;
    *at += quote && **at == quote;
    return w;
}

void ech_path_append_word(const char *word, ech_text *out)
{
    for (const char *at = word; *at; at++)
        ech_text_append(out, "%s%c", strchr(escaped, *at) ? "\\" : "", *at);
}

void ech_path_append_typed(const char *word, ech_text *out)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_./=:,+-@%";
    if (*word && word[strspn(word, plain)] == '\0') {
        ech_text_append(out, "%s", word);
        return;
    }
    ech_text_append(out, "'");
    for (const char *at = word; *at; at++)
        if (*at == '\'')
            ech_text_append(out, "'\\''");
        else
            ech_text_append_bytes(out, at, 1);
    ech_text_append(out, "'");
}
