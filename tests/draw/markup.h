/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of pictures and pages: a small check that markup is well formed, and counting.
 */
#ifndef ECH_TESTS_SCHEDULE_MARKUP_H
#define ECH_TESTS_SCHEDULE_MARKUP_H

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

static inline int markup_count(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part)) n++;
    return n;
}

/* The end of an entity that begins with &; NULL: it is none. */
static inline const char *markup_entity(const char *at)
{
    static const char *const known[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strncmp(at, known[i], strlen(known[i])) == 0) return at + strlen(known[i]);
    return NULL;
}

/* Past the attributes and the >, or NULL. Each is a name, = and a text in double quotes. */
static inline const char *markup_attributes(const char *at, bool *empty)
{
    for (;;) {
        const char *blank = at;
        while (isspace((unsigned char)*at)) at++;
        *empty = *at == '/';
        if (*empty) at++;
        if (*at == '>') return at + 1;
        if (*empty || at == blank) return NULL;
        while (isalnum((unsigned char)*at) || *at == '-' || *at == ':') at++;
        if (at[0] != '=' || at[1] != '"') return NULL;
        for (at += 2; *at != '"';) {
            if (*at == '\0' || *at == '<') return NULL;
            at = *at == '&' ? markup_entity(at) : at + 1;
            if (!at) return NULL;
        }
        at++;
    }
}

/* Whether tags are balanced, attributes quoted, and & and < escaped. NULL: it is; else what is left
 * of the text from the first fault on. */
static inline const char *markup_fault(const char *text)
{
    enum { DEPTH = 64 };
    struct {
        const char *name;
        size_t n;
    } open[DEPTH];
    int depth = 0;
    const char *at = text;
    if (strncmp(at, "<!doctype html>", 15) == 0) at += 15;
    while (*at) {
        const char *tag = at;
        if (*at == '&') {
            at = markup_entity(at);
            if (!at) return tag;
            continue;
        }
        if (*at++ != '<') continue;
        bool closes = *at == '/', empty = false;
        const char *name = at += closes;
        while (isalnum((unsigned char)*at)) at++;
        size_t n = (size_t)(at - name);
        at = n > 0 ? markup_attributes(at, &empty) : NULL;
        if (!at) return tag;
        if (closes) {
            if (depth == 0 || open[depth - 1].n != n) return tag;
            if (memcmp(open[--depth].name, name, n) != 0) return tag;
        } else if (!empty) {
            if (depth == DEPTH) return tag;
            open[depth].name = name;
            open[depth++].n = n;
        }
    }
    return depth == 0 ? NULL : open[depth - 1].name - 1;
}

#endif
