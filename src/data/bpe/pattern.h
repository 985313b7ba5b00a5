/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data: pre-tokenization: splitting text into words, which merges do not cross.
 */
#ifndef ECH_DATA_BPE_PATTERN_H
#define ECH_DATA_BPE_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef enum ech_bpe_pattern {
#define X(name, help, ...) ECH_BPE_##name,
#include "data/bpe/pattern.def"
#undef X
    ECH_BPE_PATTERNS
} ech_bpe_pattern;

enum { ECH_BPE_STAGES = 3 }; /* most expressions of a pattern, one applied after the other */

/* Gets n bytes of a text, valid during the call. */
typedef ech_status (*ech_bpe_use)(const char *text, size_t n, void *context);

/* Expression `stage`, from 0, of a pattern, in Hugging Face's syntax; NULL: it has no more. */
const char *ech_bpe_pattern_expression(ech_bpe_pattern pattern, int stage);
/* The expressions of Hugging Face's ByteLevel with use_regex, and of Digits with and without individual_digits. */
extern const char ech_bpe_gpt2_expression[], ech_bpe_digit_expression[],
    ech_bpe_digits_expression[];
const char *ech_bpe_pattern_names(void); /* blank-separated */
/* Finds a pattern by its name. False, *out unchanged: unknown. */
bool ech_bpe_pattern_find(const char *name, ech_bpe_pattern *out);
/* The same by its n expressions, in which carriage return and newline may be escaped or not. */
bool ech_bpe_pattern_match(const char *const *expressions, int n, ech_bpe_pattern *out);

/* A compiled pattern; for any number of threads. */
typedef struct ech_bpe_splitter ech_bpe_splitter;
ech_status ech_bpe_splitter_create(ech_bpe_pattern pattern, ech_bpe_splitter **out);
void ech_bpe_splitter_destroy(ech_bpe_splitter *splitter); /* accepts NULL */
/* Calls `use` with each word of n bytes: a run (coder.h), or a part of one that is valid UTF-8. */
ech_status ech_bpe_each_word(const ech_bpe_splitter *splitter, const char *run, size_t n,
                             ech_bpe_use use, void *context);

#endif
