/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights: decimals that are added without rounding.
 */
#include <string.h>

#include "base/text.h"

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
