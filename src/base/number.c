/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers in text: parsing, strictly, of numbers, bytes, weights and durations, and byte counts for
 * people.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

static size_t count_digits(const char *text)
{
    return strspn(text, "0123456789");
}

bool ech_text_to_int(const char *text, int64_t *out)
{
    const char *digits = text + (*text == '-');
    size_t n = count_digits(digits);
    if (n == 0 || digits[n] != '\0') return false;
    errno = 0;
    long long value = strtoll(text, NULL, 10);
    if (errno != 0) return false;
    *out = value;
    return true;
}

/* -?digits[.digits][(e|E)[+-]digits], with at least one digit before or after the point: strtod
 * alone would take blanks, hexadecimals, nan and inf. */
static bool is_decimal(const char *text)
{
    text += *text == '-';
    size_t n = count_digits(text);
    text += n;
    if (*text == '.') {
        size_t fraction = count_digits(++text);
        text += fraction;
        n += fraction;
    }
    if (n == 0) return false;
    if (*text == 'e' || *text == 'E') {
        text++;
        text += *text == '-' || *text == '+';
        n = count_digits(text);
        if (n == 0) return false;
        text += n;
    }
    return *text == '\0';
}

bool ech_text_to_real(const char *text, double *out)
{
    if (!is_decimal(text)) return false;
    errno = 0;
    char *end;
    double value = ech_text_number(text, &end);
    if (*end != '\0' || !isfinite(value)) return false;
    /* Denormal results raise ERANGE too and are fine; a number that vanished is not. */
    if (errno == ERANGE && fpclassify(value) == FP_ZERO) return false;
    *out = value;
    return true;
}

static const struct {
    const char *name;
    int64_t bytes;
} byte_units[] = {
    {"B", 1},
    {"KiB", INT64_C(1) << 10},
    {"MiB", INT64_C(1) << 20},
    {"GiB", INT64_C(1) << 30},
    {"TiB", INT64_C(1) << 40},
    {"PiB", INT64_C(1) << 50},
    {"kB", 1000},
    {"KB", 1000},
    {"MB", 1000000},
    {"GB", 1000000000},
    {"TB", INT64_C(1000000000000)},
    {"PB", INT64_C(1000000000000000)},
};

static bool find_unit(const char *name, int64_t *bytes)
{
    for (size_t u = 0; u < sizeof byte_units / sizeof byte_units[0]; u++)
        if (strcmp(byte_units[u].name, name) == 0) {
            *bytes = byte_units[u].bytes;
            return true;
        }
    return false;
}

bool ech_text_to_bytes(const char *text, int64_t *out)
{
    size_t whole = count_digits(text);
    const char *fraction = text + whole + (text[whole] == '.');
    size_t decimals = text[whole] == '.' ? count_digits(fraction) : 0;
    const char *unit = fraction + decimals;
    bool has_point = fraction != text + whole;
    if (whole == 0 || (has_point && decimals == 0)) return false;
    if (*unit == '\0') return !has_point && ech_text_to_int(text, out);

    /* In whole numbers, digit by digit, so that 1.1GB is 1,100,000,000 and not a byte less. */
    int64_t scale, total = 0;
    if (!find_unit(unit, &scale) || (has_point && scale == 1)) return false;
    for (size_t i = 0; i < whole; i++)
        if (__builtin_mul_overflow(total, INT64_C(10), &total) ||
            __builtin_add_overflow(total, (int64_t)(text[i] - '0'), &total))
            return false;
    if (__builtin_mul_overflow(total, scale, &total)) return false;
    /* floor(0.d1d2d3... x scale), last digit first: floors of nested tenths compose. */
    int64_t part = 0;
    for (size_t i = decimals; i-- > 0;) part = (part + (fraction[i] - '0') * scale) / 10;
    if (__builtin_add_overflow(total, part, &total)) return false;
    *out = total;
    return true;
}

/* ---- weights: decimals that are added without rounding ---- */

enum { DIGITS = 9 };
static const int64_t ONE = 1000000000; /* 10^DIGITS */

bool ech_text_to_weight(const char *text, size_t n, int64_t *out)
{
    int64_t value = 0;
    int before = 0, after = 0;
    size_t i = 0;
    for (; i < n && text[i] >= '0' && text[i] <= '9' && value < ONE; i++, before++)
        value = value * 10 + (text[i] - '0');
    if (value >= ONE) return false;
    if (i < n && text[i] == '.')
        for (i++; i < n && text[i] >= '0' && text[i] <= '9' && after < DIGITS; i++, after++)
            value = value * 10 + (text[i] - '0');
    if (i < n || before + after == 0) return false;
    for (; after < DIGITS; after++) value *= 10;
    *out = value;
    return true;
}

bool ech_text_to_bounds(const char *text, int64_t bound[4])
{
    int64_t at[4] = {0};
    for (int i = 0; i < 3; i++) {
        int64_t weight = 0;
        size_t n = strcspn(text, ",");
        if ((n > 0 || *text == ',' || i == 0) && !ech_text_to_weight(text, n, &weight))
            return false;
        text += n;
        if (*text == ',' && i < 2 && text[1] != '\0') text++;
        at[i + 1] = at[i] + weight;
    }
    if (*text != '\0' || at[3] == 0) return false;
    memcpy(bound, at, sizeof at);
    return true;
}

/* ---- durations: with a unit, or as clocks and Slurm write them ---- */

enum { LONGEST_PART = 9 }; /* digits of a part; sums then stay exact */

static const struct {
    char name;
    double seconds;
} time_units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};

/* "1.5h": a number and one letter. */
static bool read_unit(const char *text, double *out)
{
    char number[40];
    size_t n = strlen(text);
    if (n < 2 || n > sizeof number) return false;
    memcpy(number, text, n - 1);
    number[n - 1] = '\0';
    for (size_t u = 0; u < sizeof time_units / sizeof time_units[0]; u++) {
        double value;
        if (time_units[u].name != text[n - 1] || !ech_text_to_real(number, &value)) continue;
        *out = value * time_units[u].seconds;
        return true;
    }
    return false;
}

/* Digits; what follows goes to *rest. */
static bool read_part(const char *text, long *out, const char **rest)
{
    size_t n = count_digits(text);
    if (n == 0 || n > LONGEST_PART) return false;
    *out = strtol(text, NULL, 10);
    *rest = text + n;
    return true;
}

/* [D-]H:MM:SS or MM:SS, and D-H or D-H:MM. After a larger part hours are below 24, minutes and
 * seconds below 60. */
static bool read_clock(const char *text, double *out)
{
    long days = 0, part[3] = {0};
    int n = 0;
    if (!read_part(text, &part[0], &text)) return false;
    bool has_days = *text == '-';
    if (has_days) {
        days = part[0];
        text++;
        if (!read_part(text, &part[0], &text)) return false;
    }
    for (n = 1; n < 3 && *text == ':'; n++)
        if (!read_part(text + 1, &part[n], &text) || part[n] >= 60) return false;
    if (*text != '\0' || (!has_days && n == 1) || (has_days && part[0] >= 24)) return false;
    double first = has_days || n == 3 ? 3600 : 60; /* what part[0] counts */
    *out = (double)days * 86400 + (double)part[0] * first + (double)part[1] * (first / 60) +
           (double)part[2];
    return true;
}

bool ech_text_to_seconds(const char *text, double *out)
{
    return ech_text_to_real(text, out) || read_unit(text, out) || read_clock(text, out);
}

/* ---- for people ---- */

char *ech_text_from_count(int64_t n, const char *noun, char *buffer, size_t size)
{
    size_t length = strlen(noun);
    const char *several = length > 2 && strcmp(noun + length - 2, "ch") == 0 ? "es" : "s";
    snprintf(buffer, size, "%lld %s%s", (long long)n, noun, n == 1 ? "" : several);
    return buffer;
}

char *ech_text_from_bytes(int64_t bytes, char *buffer, size_t size)
{
    static const char *const names[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    if (fabs(value) < 1024) {
        snprintf(buffer, size, "%d B", (int)bytes);
        return buffer;
    }
    size_t u = 0;
    /* 1023.95 would print as 1024.0 of the smaller unit. */
    for (value /= 1024; fabs(value) >= 1023.95 && u + 1 < sizeof names / sizeof names[0]; u++)
        value /= 1024;
    ech_text_print(buffer, size, "%.1f %s", value, names[u]);
    return buffer;
}
