/* SPDX-License-Identifier: Apache-2.0
 *
 * For data alone: cutting text into the words that merges do not cross.
 */
#ifndef ECH_DATA_BPE_PATTERN_H
#define ECH_DATA_BPE_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef enum ech_bpe_pattern {
#define X(name, expression, help) ECH_BPE_##name,
#include "data/bpe/pattern.def"
#undef X
    ECH_BPE_PATTERNS
} ech_bpe_pattern;

const char *ech_bpe_pattern_expression(ech_bpe_pattern pattern); /* as Hugging Face writes it */
const char *ech_bpe_pattern_names(void);                         /* blank-separated */
/* By name, or by expression. False, and *out as it was: not known. */
bool ech_bpe_pattern_find(const char *name, ech_bpe_pattern *out);
bool ech_bpe_pattern_match(const char *expression, ech_bpe_pattern *out);

/* A compiled pattern; may be used by many threads. */
typedef struct ech_bpe_splitter ech_bpe_splitter;
ech_status ech_bpe_splitter_create(ech_bpe_pattern pattern, ech_bpe_splitter **out);
void ech_bpe_splitter_destroy(ech_bpe_splitter *splitter); /* accepts NULL */

/* What one thread needs to use it. */
typedef struct ech_bpe_words ech_bpe_words;
ech_bpe_words *ech_bpe_words_create(const ech_bpe_splitter *splitter);
void ech_bpe_words_destroy(ech_bpe_words *words); /* accepts NULL */
/* The word of a valid UTF-8 text of n bytes that begins at `at` < n ends before *end. */
ech_status ech_bpe_words_next(ech_bpe_words *words, const char *text, size_t n, size_t at,
                              size_t *end);

#endif
