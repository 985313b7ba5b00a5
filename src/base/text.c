/* SPDX-License-Identifier: Apache-2.0
 *
 * Strings that grow, and names among names.
 */
#include "base/text.h"

#include <ctype.h>
#include <float.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"

/* ---- numbers in any locale ---- */

static locale_t with_points;

static void make_locale(void)
{
    with_points = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
}

/* Sets the locale of this thread, and returns the one that it had. */
static locale_t use_points(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_locale);
    return uselocale(with_points);
}

double ech_text_number(const char *text, char **end)
{
    locale_t had = use_points();
    double number = strtod(text, end);
    uselocale(had);
    return number;
}

int ech_text_print(char *buffer, size_t size, const char *format, ...)
{
    va_list arguments;
    locale_t had = use_points();
    va_start(arguments, format);
    int n = vsnprintf(buffer, size, format, arguments);
    va_end(arguments);
    uselocale(had);
    return n;
}

void ech_text_append(ech_text *text, const char *format, ...)
{
    va_list arguments, again;
    locale_t had = use_points();
    va_start(arguments, format);
    va_copy(again, arguments);
    int n = vsnprintf(NULL, 0, format, arguments);
    size_t added = n < 0 ? 0 : (size_t)n;
    text->at = ech_grow(text->at, &text->capacity, text->n + added + 1, 1);
    vsnprintf(text->at + text->n, added + 1, format, again);
    text->n += added;
    uselocale(had);
    va_end(again);
    va_end(arguments);
}

double ech_unsigned_nan(double value)
{
    return isnan(value) ? (double)NAN : value;
}

void ech_text_append_bytes(ech_text *text, const void *bytes, size_t n)
{
    text->at = ech_grow(text->at, &text->capacity, text->n + n + 1, 1);
    if (n > 0) memcpy(text->at + text->n, bytes, n);
    text->n += n;
    text->at[text->n] = '\0';
}

void ech_text_free(ech_text *text)
{
    free(text->at);
    *text = (ech_text){0};
}

static const char blanks[] = " \t\n";

int ech_text_find_word(const char *words, const char *word)
{
    size_t n = strlen(word);
    words += strspn(words, blanks);
    for (int i = 0; *words; i++) {
        size_t length = strcspn(words, blanks);
        if (length == n && memcmp(words, word, n) == 0) return i;
        words += length + strspn(words + length, blanks);
    }
    return -1;
}

static bool ends_word(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\0';
}

bool ech_text_has_word(const char *words, const char *word)
{
    size_t n = strcspn(word, blanks);
    if (n == 0 || word[n]) return false;
    for (const char *at = strstr(words, word); at; at = strstr(at + n, word))
        if ((at == words || ends_word(at[-1])) && ends_word(at[n])) return true;
    return false;
}

const char *ech_text_find_value(const char *assignments, const char *key, size_t bytes, size_t *n)
{
    for (const char *at = assignments; *at; at += strspn(at, blanks)) {
        size_t length = strcspn(at, blanks);
        if (length > bytes && memcmp(at, key, bytes) == 0 && at[bytes] == '=') {
            *n = length - bytes - 1;
            return at + bytes + 1;
        }
        at += length;
    }
    return NULL;
}

enum { LONGEST_NAME = 64 };

ech_words ech_words_in(const char *text)
{
    char *copy = ech_strdup(text ? text : "");
    return (ech_words){.copy = copy, .rest = copy};
}

bool ech_words_next(ech_words *words)
{
    words->at = strtok_r(words->rest, " \t\n", &words->rest);
    return words->at != NULL;
}

void ech_words_free(ech_words *words)
{
    free(words->copy);
}

bool ech_text_ends_in(const char *text, const char *ending)
{
    size_t n = strlen(text), m = strlen(ending);
    return n > m && strcmp(text + n - m, ending) == 0;
}

int ech_text_compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Insertions, deletions, changes and swaps of neighbours (optimal string alignment), letter case
 * ignored. Both strings have at most LONGEST_NAME bytes. */
static size_t edit_distance(const char *a, size_t n, const char *b, size_t m)
{
    size_t rows[3][LONGEST_NAME + 1];
    size_t *before = rows[0], *above = rows[1], *row = rows[2];
    for (size_t j = 0; j <= m; j++) above[j] = j;
    for (size_t i = 1; i <= n; i++) {
        int x = tolower((unsigned char)a[i - 1]);
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            int y = tolower((unsigned char)b[j - 1]);
            size_t best = smaller(above[j], row[j - 1]) + 1;
            best = smaller(best, above[j - 1] + (x != y));
            bool swapped = i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) &&
                           y == tolower((unsigned char)a[i - 2]);
            if (swapped) best = smaller(best, before[j - 2] + 1);
            row[j] = best;
        }
        size_t *oldest = before;
        before = above;
        above = row;
        row = oldest;
    }
    return above[m];
}

/* Whether the letters of `name` come in `candidate` in the same order, letter case ignored. */
static bool abbreviates(const char *name, const char *candidate)
{
    for (; *name && *candidate; candidate++)
        name += tolower((unsigned char)*name) == tolower((unsigned char)*candidate);
    return *name == '\0';
}

/* num_layers for num_hidden_layers: the shortest that has all letters, at least a third of its. */
static const char *find_abbreviated(const char *name, const char *const *candidates, size_t n)
{
    size_t length = strlen(name), shortest = 3 * length + 1;
    const char *found = NULL;
    if (length < 3) return NULL;
    for (size_t c = 0; c < n; c++) {
        size_t m = strlen(candidates[c]);
        if (m >= shortest || !abbreviates(name, candidates[c])) continue;
        shortest = m;
        found = candidates[c];
    }
    return found;
}

/* gelu_new for gelu: the only one that begins so. */
static const char *find_beginning(const char *name, const char *const *candidates, size_t n)
{
    const char *found = NULL;
    for (size_t c = 0; c < n; c++) {
        if (strncasecmp(name, candidates[c], strlen(name)) != 0) continue;
        if (found) return NULL;
        found = candidates[c];
    }
    return found;
}

const char *ech_text_nearest(const char *name, const char *const *candidates, size_t n)
{
    size_t length = strlen(name);
    if (length == 0 || length > LONGEST_NAME) return NULL;
    const char *begins = length < 3 ? NULL : find_beginning(name, candidates, n);
    if (begins) return begins;
    /* Meant is what shares about two thirds of the letters. */
    size_t best = (length + 2) / 3 + 1;
    const char *nearest = NULL;
    for (size_t c = 0; c < n; c++) {
        size_t m = strlen(candidates[c]);
        if (m > LONGEST_NAME) continue;
        size_t distance = edit_distance(name, length, candidates[c], m);
        if (distance < best && distance < (length > m ? length : m)) {
            best = distance;
            nearest = candidates[c];
        }
    }
    return nearest ? nearest : find_abbreviated(name, candidates, n);
}

/* Prints `value` with that many significant digits; true if they parse back to the same bits. */
static bool print_digits(double value, int digits, char *buffer, size_t size)
{
    uint64_t printed, wanted;
    ech_text_print(buffer, size, "%.*g", digits, value);
    double back = ech_text_number(buffer, NULL);
    memcpy(&printed, &back, sizeof printed);
    memcpy(&wanted, &value, sizeof wanted);
    return printed == wanted;
}

/* The digits of "-d.ddde+00" without zeros at the end. */
static int significant(const char *text)
{
    int digits = 0, n = 0;
    for (; *text && *text != 'e'; text++) {
        if (!isdigit((unsigned char)*text)) continue;
        n++;
        if (*text != '0') digits = n;
    }
    return digits;
}

/* A decimal of at most DBL_DIG digits is the only one near its double, so if fewer digits than that
 * parse back, then the DBL_DIG digits are these and zeros. A denormal has fewer exact digits. */
char *ech_text_from_real(double value, int precision, char *buffer, size_t size)
{
    if (isnormal(value) && precision < DBL_DIG) {
        if (print_digits(value, DBL_DIG, buffer, size)) {
            ech_text_print(buffer, size, "%.*e", DBL_DIG - 1, value);
            int digits = significant(buffer);
            if (digits > precision) precision = digits;
            ech_text_print(buffer, size, "%.*g", precision, value);
            return buffer;
        }
        precision = DBL_DIG + 1;
    }
    while (!print_digits(value, precision, buffer, size) && precision < DBL_DECIMAL_DIG)
        precision++;
    return buffer;
}
