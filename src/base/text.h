/* SPDX-License-Identifier: Apache-2.0
 *
 * Text: growing strings, strict parsing of numbers, readable byte counts, and the nearest known
 * name.
 */
#ifndef ECH_BASE_TEXT_H
#define ECH_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A growing string. {0} is empty; `at` ends in a NUL after the first append. */
typedef struct ech_text {
    char *at;
    size_t n, capacity;
} ech_text;

/* Numbers have a decimal point here, whatever locale the process has set: strtod, and snprintf. */
double ech_text_number(const char *text, char **end);
int ech_text_print(char *buffer, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Likewise. */
void ech_text_append(ech_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints a finite number as %.*g with the fewest significant digits, at least `precision`, that
 * parse back to the same bits. Returns `buffer`, which has `size` >= 40 bytes. */
char *ech_text_from_real(double value, int precision, char *buffer, size_t size);
/* The value to print for `value`: a NaN with a sign, which printf shows as "-nan", becomes one
 * without. */
double ech_unsigned_nan(double value);
void ech_text_append_bytes(ech_text *text, const void *bytes, size_t n);
void ech_text_free(ech_text *text); /* `text` is empty afterwards */
/* Declares a local text, which must be initialized ({0}) and is freed whenever its block is
 * left. */
#define ECH_FREED_TEXT __attribute__((cleanup(ech_text_free))) ech_text

/* Parse a string that is entirely a number: no blanks, no trailing characters ("4x"), no
 * underscores, no nan or inf. False, *out unchanged: it is not, or the number is out of range. */
bool ech_text_to_int(const char *text, int64_t *out);
bool ech_text_to_real(const char *text, double *out);
/* Parses bytes with an optional unit: "4096", "64KiB", "8MiB", "8GiB", "1TiB", "25MB" (10^6),
 * "1.5GiB". */
bool ech_text_to_bytes(const char *text, int64_t *out);

/* Parses a weight of n characters: a decimal below 10^9 with at most 9 digits after the point. *out
 * is in units of 10^-9. */
bool ech_text_to_weight(const char *text, size_t n, int64_t *out);
/* Parses up to three comma-separated weights, "969,30,1"; missing ones are 0. Writes their
 * cumulative sums: bound[0] = 0, weight i = bound[i + 1] - bound[i]. False: another form, or all
 * are 0. */
bool ech_text_to_bounds(const char *text, int64_t bound[4]);

/* Parses a duration in seconds: "90", "0.5", with a unit "90s", "1.5h", "2d", "15m"; "MM:SS",
 * "H:MM:SS", "D-H", "D-H:MM", "D-H:MM:SS". */
bool ech_text_to_seconds(const char *text, double *out);

/* 1536 -> "1.5 KiB". Returns `buffer`. */
char *ech_text_from_bytes(int64_t bytes, char *buffer, size_t size);
/* The same in a buffer that lives as long as the enclosing block. */
#define ECH_BYTES(n) ech_text_from_bytes((n), (char[32]){0}, 32)

/* "1 layer", "3 layers". Returns `buffer`. */
char *ech_text_from_count(int64_t n, const char *noun, char *buffer, size_t size);
/* The same in a buffer that lives as long as the enclosing block. */
#define ECH_COUNT(n, noun) ech_text_from_count((n), (noun), (char[64]){0}, 64)

/* True for a text that ends in `ending` and is longer. */
bool ech_text_ends_in(const char *text, const char *ending);
/* For qsort and bsearch: strcmp of texts whose pointers, or structs that begin with them, are at a
 * and b. */
int ech_text_compare(const void *a, const void *b);

/* For "did you mean": the only candidate that begins with `name`; else the closest one by edit
 * distance; else the shortest one that `name` abbreviates ("num_layers" for num_hidden_layers);
 * NULL if none is close. */
const char *ech_text_nearest(const char *name, const char *const *candidates, size_t n);

/* The index of `word` among the blank-separated words in `words`; -1: not found. */
int ech_text_find_word(const char *words, const char *word);
bool ech_text_has_word(const char *words, const char *word);
/* The value that blank-separated assignments "key=value" give to the key of `bytes` bytes: *n bytes
 * at the returned place; NULL: none sets it. */
const char *ech_text_find_value(const char *assignments, const char *key, size_t bytes, size_t *n);

/* The words of a text, which blanks, tabs and newlines separate:
 * for (ECH_FREED_WORDS word = ech_words_in(text); ech_words_next(&word);) use(word.at); */
typedef struct ech_words {
    char *at; /* the word; may be changed */
    char *copy, *rest;
} ech_words;
ech_words ech_words_in(const char *text); /* copies it; NULL: no words */
bool ech_words_next(ech_words *words);    /* false: there is no further word */
void ech_words_free(ech_words *words);
#define ECH_FREED_WORDS __attribute__((cleanup(ech_words_free))) ech_words

#endif
