/* SPDX-License-Identifier: Apache-2.0
 *
 * Text: strings that grow, strict numbers, byte counts for people, and the nearest known name.
 */
#ifndef ECH_BASE_TEXT_H
#define ECH_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A string that grows. Start with {0}; `at` is always terminated once something was appended. */
typedef struct ech_text {
    char *at;
    size_t n, capacity;
} ech_text;

void ech_text_append(ech_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The shortest decimal digits of a finite number that read back to the same bits, of at least
 * `precision` significant ones where it needs them. Returns `buffer`, of at least 40 bytes. */
char *ech_text_from_real(double value, int precision, char *buffer, size_t size);
void ech_text_append_bytes(ech_text *text, const void *bytes, size_t n);
void ech_text_free(ech_text *text);
/* Declares a text, which must begin with {0} and is freed wherever its block is left. */
#define ECH_FREED_TEXT __attribute__((cleanup(ech_text_free))) ech_text

/* Whole-string numbers: no blanks, no trailing characters ("4x"), no underscores, no nan or inf.
 * Return false and leave *out alone if the text is anything else or out of range. */
bool ech_text_to_int(const char *text, int64_t *out);
bool ech_text_to_real(const char *text, double *out);
/* Bytes with an optional unit: "4096", "64KiB", "8MiB", "8GiB", "1TiB", "25MB" (10^6), "1.5GiB". */
bool ech_text_to_bytes(const char *text, int64_t *out);

/* A weight: a decimal below 10^9 with at most 9 digits behind the point, n characters, in units of 10^-9. */
bool ech_text_to_weight(const char *text, size_t n, int64_t *out);
/* Up to three weights with commas between, "969,30,1", missing ones 0, not all 0: share i is from bound[i] to
 * bound[i + 1], of bound[3]. */
bool ech_text_to_bounds(const char *text, int64_t bound[4]);

/* Seconds: "90", "0.5", with a unit "90s", "1.5h", "2d", "15m"; "MM:SS", "H:MM:SS", "D-H",
 * "D-H:MM", "D-H:MM:SS". */
bool ech_text_to_seconds(const char *text, double *out);

/* 1536 -> "1.5 KiB". Returns `buffer`. */
char *ech_text_from_bytes(int64_t bytes, char *buffer, size_t size);

/* "1 layer", "3 layers". Returns `buffer`. */
char *ech_text_from_count(int64_t n, const char *noun, char *buffer, size_t size);
/* The same for as long as the block that it stands in. */
#define ECH_COUNT(n, noun) ech_text_from_count((n), (noun), (char[64]){0}, 64)

/* The candidate closest to `name` by edit distance, else the shortest one that it abbreviates
 * ("num_layers"), or NULL if none is close enough to be meant. */
const char *ech_text_nearest(const char *name, const char *const *candidates, size_t n);

/* Whether `word` is one of the blank-separated words in `words`. */
bool ech_text_has_word(const char *words, const char *word);

#endif
