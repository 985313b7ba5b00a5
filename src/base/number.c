/* SPDX-License-Identifier: Apache-2.0
 *
 * Strict numbers in text, and byte counts for people.
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
    double value = strtod(text, &end);
    if (*end != '\0' || !isfinite(value)) return false;
    /* Denormal results raise ERANGE too and are fine; a number that vanished is not. */
    if (errno == ERANGE && fpclassify(value) == FP_ZERO) return false;
    *out = value;
    return true;
}

static const struct {
    const char *name;
    int64_t bytes;
} units[] = {
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
    for (size_t u = 0; u < sizeof units / sizeof units[0]; u++)
        if (strcmp(units[u].name, name) == 0) {
            *bytes = units[u].bytes;
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
    snprintf(buffer, size, "%.1f %s", value, names[u]);
    return buffer;
}
