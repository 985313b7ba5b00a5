/* SPDX-License-Identifier: Apache-2.0
 *
 * Spans of time in text: with a unit, or as clocks and Slurm write them.
 */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

enum { LONGEST_PART = 9 }; /* digits of a part; sums then stay exact */

static const struct {
    char name;
    double seconds;
} units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};

/* "1.5h": a number and one letter. */
static bool read_unit(const char *text, double *out)
{
    char number[40];
    size_t n = strlen(text);
    if (n < 2 || n > sizeof number) return false;
    memcpy(number, text, n - 1);
    number[n - 1] = '\0';
    for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
        double value;
        if (units[u].name != text[n - 1] || !ech_text_to_real(number, &value)) continue;
        *out = value * units[u].seconds;
        return true;
    }
    return false;
}

/* Digits; what follows goes to *rest. */
static bool read_part(const char *text, long *out, const char **rest)
{
    size_t n = strspn(text, "0123456789");
    if (n == 0 || n > LONGEST_PART) return false;
    *out = strtol(text, NULL, 10);
    *rest = text + n;
    return true;
}

/* [D-]H:MM:SS or MM:SS, and D-H or D-H:MM. Behind a larger part hours are below 24, minutes and seconds below 60. */
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
