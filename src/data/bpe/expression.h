/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data: regular expressions as Hugging Face's tokenizers library reads them (Oniguruma,
 * Ruby's syntax), written for PCRE2.
 * */
#ifndef ECH_DATA_BPE_EXPRESSION_H
#define ECH_DATA_BPE_EXPRESSION_H

#include <stdbool.h>

#include "base/text.h"

enum { ECH_EXPRESSION_LONGEST = 2048 }; /* bytes */

/* Appends an expression for PCRE2 (with UTF and UCP) that matches what `expression` matches in
 * Oniguruma. False: *why names the construct that the two read differently, or that is not known to
 * be the same. */
bool ech_expression_translate(const char *expression, ech_text *out, ech_text *why);

#endif
