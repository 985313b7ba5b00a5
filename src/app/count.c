/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers and spans of time as text.
 */
#include "app/count.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

char *ech_count_text(int64_t n, char *buffer)
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%" PRIu64, n < 0 ? -(uint64_t)n : (uint64_t)n);
    char *at = buffer;
    if (n < 0) *at++ = '-';
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) *at++ = ',';
        *at++ = digits[i];
    }
    *at = '\0';
    return buffer;
}

char *ech_count_noun(int64_t n, const char *noun, char *buffer)
{
    char plain[2 * ECH_COUNT_BYTES];
    ech_text_from_count(n, noun, plain, sizeof plain);
    ech_text_print(buffer, sizeof plain, "%s%s", ECH_DIGITS(n), strchr(plain, ' '));
    return buffer;
}

char *ech_count_scaled(double value, const char *unit, char *buffer)
{
    static const char *const prefixes[] = {"", "k", "M", "G", "T", "P", "E"};
    size_t p = 0;
    for (; value >= 999.95 && p + 1 < sizeof prefixes / sizeof *prefixes; p++) value /= 1000;
    ech_text_print(buffer, ECH_COUNT_BYTES, "%.1f %s%s", value, prefixes[p], unit);
    return buffer;
}

char *ech_count_words(int64_t n, char *buffer)
{
    static const char *const words[] = {"thousand", "million", "billion", "trillion"};
    size_t w = 0;
    double value = (double)n / 1000;
    if (n < 10000) return ech_count_text(n, buffer);
    for (; value >= 999.5 && w + 1 < sizeof words / sizeof *words; w++) value /= 1000;
    snprintf(buffer, ECH_COUNT_BYTES, "%.*f %s",
             value < 9.995   ? 2
             : value < 99.95 ? 1
                             : 0,
             value, words[w]);
    return buffer;
}

char *ech_count_span(double seconds, char *buffer)
{
    const double longest = 1e6 * 86400;
    if (!(seconds >= 0) || seconds > longest) {
        strcpy(buffer, "?");
        return buffer;
    }
    long long s = llround(seconds), m = s / 60, h = m / 60, d = h / 24;
    if (d > 0)
        snprintf(buffer, ECH_COUNT_BYTES, "%lldd %02lld:%02lld", d, h % 24, m % 60);
    else if (h > 0)
        snprintf(buffer, ECH_COUNT_BYTES, "%lld:%02lld:%02lld", h, m % 60, s % 60);
    else
        snprintf(buffer, ECH_COUNT_BYTES, "%lld:%02lld", m, s % 60);
    return buffer;
}

/* ---- medians and quartiles ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double ech_quartile(ech_numbers *numbers, int quarters)
{
    if (numbers->n == 0) return 0;
    qsort(numbers->at, numbers->n, sizeof *numbers->at, by_value);
    return numbers->at[numbers->n * (size_t)quarters / 4];
}

double ech_median(ech_numbers *numbers)
{
    return ech_quartile(numbers, 2);
}
