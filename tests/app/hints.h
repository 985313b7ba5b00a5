/* SPDX-License-Identifier: Apache-2.0
 *
 * Run files as words, and doing as an error says that refuses one.
 */
#ifndef ECH_TESTS_APP_HINTS_H
#define ECH_TESTS_APP_HINTS_H

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

enum { HINTS_MOST_RANKS = 16 }; /* more are not tried */

typedef struct random_run {
    ech_text words;
    int ranks, hints;
    int64_t steps, layers;
} random_run;

/* Whether a word is "section.key=value", of which `key` gets what is before the sign. */
static inline bool is_assignment(const char *word, size_t n)
{
    const char *sign = memchr(word, '=', n), *dot = memchr(word, '.', n);
    bool complained_of = word[n - 1] == ':';
    return sign && dot && dot < sign && sign + 1 < word + n && islower((unsigned char)word[0]) &&
           !complained_of;
}

/* The assignment again, in place of what was there before. */
static inline void set(random_run *r, const char *assignment)
{
    ech_text kept = {0};
    char *words = strdup(r->words.at), *rest = NULL;
    size_t key = strcspn(assignment, "=") + 1;
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        if (strncmp(word, assignment, key) != 0)
            ech_text_append(&kept, "%s%s", kept.n ? " " : "", word);
    ech_text_append(&kept, " %s", assignment);
    free(words);
    ech_text_free(&r->words);
    r->words = kept;
    if (strncmp(assignment, "training.steps=", 15) == 0) r->steps = atoll(assignment + 15);
}

/* "section.key=value" of a hint; also where it is written with blanks around the sign. */
static inline bool follow_assignments(random_run *r, const char *hint)
{
    bool found = false;
    ech_text line = {0};
    for (const char *at = hint; *at; at++) {
        if (strncmp(at, " = ", 3) == 0) {
            ech_text_append(&line, "=");
            at += 2;
        } else {
            ech_text_append(&line, "%c", *at);
        }
    }
    for (char *at = line.at; at && *at; at += strspn(at, " ,;()\"")) {
        size_t n = strcspn(at, " ,;()\"");
        if (n && is_assignment(at, n)) {
            char word[200];
            snprintf(word, sizeof word, "%.*s", (int)n, at);
            set(r, word);
            found = true;
            if (at[n] != ' ') break; /* the next is another offer */
        } else if (found) {
            break;
        }
        at += n;
    }
    ech_text_free(&line);
    return found;
}

/* What the run has for a key, or 1. */
static inline int64_t number_of(const random_run *r, const char *key)
{
    const char *at = strstr(r->words.at, key);
    return at ? atoll(at + strlen(key)) : 1;
}

/* "parallel.stage_replicas x context 1 x tensor 2, ...", of which the first is taken. */
static inline bool follow_listed(random_run *r, const char *hint)
{
    int context, tensor, ranks = 0;
    char word[60];
    hint = strstr(hint, "parallel.stage_replicas x ");
    if (!hint ||
        sscanf(hint, "parallel.stage_replicas x context %d x tensor %d", &context, &tensor) != 2)
        return false;
    const char *list = strstr(r->words.at, "parallel.stage_replicas=[");
    if (!list) return false;
    for (list = strchr(list, '['); *list && *list != ']'; list += 1 + strcspn(list + 1, ",]"))
        ranks += atoi(list + 1);
    snprintf(word, sizeof word, "parallel.context=%d", context);
    set(r, word);
    snprintf(word, sizeof word, "parallel.tensor=%d", tensor);
    set(r, word);
    r->ranks = ranks * context * tensor;
    return r->ranks <= HINTS_MOST_RANKS;
}

/* "pipeline 1 x data 3 x context 2 x tensor 1, ...": one of the grids that are offered. */
static inline bool follow_grid(random_run *r, const char *hint)
{
    static const char *const keys[] = {"pipeline", "data", "context", "tensor"};
    int offers = 0, taken = -1, ranks = 1;
    for (const char *at = hint; (at = strstr(at, "pipeline ")); at++) offers++;
    if (offers) taken = r->hints % offers;
    for (; taken > 0; taken--) hint = strstr(hint, "pipeline ") + 1;
    hint = taken == 0 ? strstr(hint, "pipeline ") : NULL;
    for (int i = 0; i < 4 && hint; i++) {
        char word[60];
        int degree;
        hint = strstr(hint, keys[i]);
        if (!hint || sscanf(hint + strlen(keys[i]), " %d", &degree) != 1) return false;
        snprintf(word, sizeof word, "parallel.%s=%d", keys[i], degree);
        set(r, word);
        ranks *= degree;
    }
    if (hint) r->ranks = ranks;
    return hint && ranks <= HINTS_MOST_RANKS;
}

/* The key in "KEY = VALUE: ...", its n characters. */
static inline const char *key_of(const char *error, const char *sign, size_t *n)
{
    const char *key = sign;
    while (key > error && key[-1] != ' ') key--;
    *n = (size_t)(sign - key);
    return key;
}

/* "KEY = VALUE: ...; 12 would", or "...; use 12". */
static inline bool follow_number(random_run *r, const char *error, const char *sign)
{
    const char *end = NULL, *number;
    for (const char *at = error; (at = strstr(at, " would")); at++) end = at;
    for (const char *at = error; (at = strstr(at, "; use ")) && !end;) {
        at += strlen("; use ");
        size_t digits = strspn(at, "0123456789");
        if (digits && at[digits] == '\0') end = at + digits;
    }
    if (!end) return false;
    for (number = end; number > error && isdigit((unsigned char)number[-1]);) number--;
    if (number == end || number < sign) return false;
    char word[200];
    size_t n;
    const char *key = key_of(error, sign, &n);
    snprintf(word, sizeof word, "%.*s=%.*s", (int)n, key, (int)(end - number), number);
    set(r, word);
    return true;
}

/* "KEY = VALUE: ...; remove it". */
static inline bool follow_removal(random_run *r, const char *error, const char *sign)
{
    size_t n;
    const char *key = key_of(error, sign, &n);
    char word[200];
    if (!strstr(error, "; remove it")) return false;
    snprintf(word, sizeof word, "%.*s=", (int)n, key);
    if (!strstr(r->words.at, word)) return false;
    set(r, word);
    r->words.n -= strlen(word);
    r->words.at[r->words.n] = '\0';
    return true;
}

/* "use at least 4 x training.micro_batch_size x replicas". */
static inline bool follow_batches(random_run *r, const char *error)
{
    const char *number = strstr(error, " x training.micro_batch_size x replicas");
    if (!number) return false;
    while (number > error && isdigit((unsigned char)number[-1])) number--;
    char word[80];
    int64_t replicas =
        r->ranks / (number_of(r, "parallel.pipeline=") * number_of(r, "parallel.context=") *
                    number_of(r, "parallel.tensor="));
    if (!strstr(r->words.at, "training.micro_batch_size=")) set(r, "training.micro_batch_size=1");
    snprintf(word, sizeof word, "training.global_batch_size=%lld",
             (long long)(atoll(number) * number_of(r, "training.micro_batch_size=") * replicas));
    set(r, word);
    return true;
}

/* Does as the error says. False: it offers nothing that could be written down. */
static inline bool follow_hint(random_run *r, const char *error)
{
    const char *sign = strstr(error, " = "), *use = strstr(error, "use ");
    const char *ranks = strstr(error, "use --ranks ");
    r->hints++;
    if (!sign) return false;
    if (ranks) {
        r->ranks = atoi(ranks + strlen("use --ranks "));
        return r->ranks <= HINTS_MOST_RANKS;
    }
    if (follow_batches(r, error)) return true;
    return follow_grid(r, sign) || follow_listed(r, sign) || follow_number(r, error, sign) ||
           follow_removal(r, error, sign) || follow_assignments(r, use ? use : strchr(sign, ':'));
}

#endif
