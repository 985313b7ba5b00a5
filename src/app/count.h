/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers and times formatted for people, and medians.
 */
#ifndef ECH_APP_COUNT_H
#define ECH_APP_COUNT_H

#include <stdint.h>

#include "base/memory.h"

enum { ECH_COUNT_BYTES = 32 }; /* room for every text below */

/* 21340 -> "21,340". Returns `buffer`, of ECH_COUNT_BYTES bytes; so do the others. */
char *ech_count_text(int64_t n, char *buffer);
/* 93.1e9 with unit "FLOP/s" -> "93.1 GFLOP/s". */
char *ech_count_scaled(double value, const char *unit, char *buffer);
/* 484311 -> "484 thousand", 1.23e6 -> "1.23 million"; below 10,000 all digits. */
char *ech_count_words(int64_t n, char *buffer);
/* The same in buffers that live as long as the enclosing block, or the statement of an if or a
 * loop. */
#define ECH_DIGITS(n)           ech_count_text((n), (char[ECH_COUNT_BYTES]){0})
#define ECH_WORDS(n)            ech_count_words((n), (char[ECH_COUNT_BYTES]){0})
#define ECH_SCALED(value, unit) ech_count_scaled((value), (unit), (char[ECH_COUNT_BYTES]){0})
/* 21340 and "file" -> "21,340 files" (ech_text_from_count), in such a buffer. */
#define ECH_DIGITS_OF(n, noun) ech_count_noun((n), (noun), (char[2 * ECH_COUNT_BYTES]){0})
char *ech_count_noun(int64_t n, const char *noun, char *buffer);
/* Seconds -> "1:42", "3:05:09", "2d 03:05"; "?" below 0, for NaN, or beyond a million days. */
char *ech_count_span(double seconds, char *buffer);
#define ECH_SPAN(seconds) ech_count_span((seconds), (char[ECH_COUNT_BYTES]){0})

/* ---- medians and quartiles ---- */

typedef ECH_LIST(double) ech_numbers;

/* The quartile `quarters` (0 to 3) of finite numbers: element n * quarters / 4 of the sorted list;
 * 0 if it is empty. Sorts the list. */
double ech_quartile(ech_numbers *numbers, int quarters);
/* The median: quartile 2. */
double ech_median(ech_numbers *numbers);

#endif
