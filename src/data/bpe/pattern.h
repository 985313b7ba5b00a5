/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data: pre-tokenization: splitting text into words, which merges do not cross.
 */
#ifndef ECH_DATA_BPE_PATTERN_H
#define ECH_DATA_BPE_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Ends of errors: of what is not supported, and of what is inconsistent. */
#define ECH_BPE_OTHERWISE                                                                          \
    "; use another tokenizer, or token files of Megatron-LM's preprocess_data.py"
#define ECH_BPE_AGAIN "; download the tokenizer again, or save it again with save_pretrained"

typedef enum ech_bpe_pattern {
#define X(name, help, ...) ECH_BPE_##name,
#include "data/bpe/pattern.def"
#undef X
    ECH_BPE_PATTERNS,
    ECH_BPE_OWN = ECH_BPE_PATTERNS /* expressions of a tokenizer.json, none of these */
} ech_bpe_pattern;

enum { ECH_BPE_STAGES = 8 }; /* most expressions of a pattern, one applied after the other */

typedef struct ech_bpe_stage {
    char *expression; /* owned */
    bool bytes;       /* it is applied to bytes, not to characters */
} ech_bpe_stage;

/* Gets n bytes of a text, valid during the call. */
typedef ech_status (*ech_bpe_use)(const char *text, size_t n, void *context);

/* Expression `stage`, from 0, of a pattern, in Hugging Face's syntax; NULL: it has no more. */
const char *ech_bpe_pattern_expression(ech_bpe_pattern pattern, int stage);
/* The expressions of Hugging Face's ByteLevel with use_regex, of Digits with and without
 * individual_digits, and of Punctuation, of one character. */
extern const char ech_bpe_gpt2_expression[], ech_bpe_digit_expression[],
    ech_bpe_digits_expression[], ech_bpe_punctuation_expression[];
/* Digits without individual_digits on bytes that ByteLevel has made visible: \u00b2, \u00b3, \u00b9
 * and fractions are then bytes and numbers. */
extern const char ech_bpe_digit_bytes_expression[];
const char *ech_bpe_pattern_names(void); /* blank-separated */
/* Finds a pattern by its name. False, *out unchanged: unknown. */
bool ech_bpe_pattern_find(const char *name, ech_bpe_pattern *out);
/* The same by its n expressions, in which carriage return and newline may be escaped or not. */
bool ech_bpe_pattern_match(const char *const *expressions, int n, ech_bpe_pattern *out);

/* A compiled pattern; for any number of threads. */
typedef struct ech_bpe_splitter ech_bpe_splitter;
/* own: the n expressions of ECH_BPE_OWN, which is untrusted: it is translated (bpe/expression.h),
 * and matching is limited. `file`: its name in errors, also later ones; borrowed. Errors: a
 * construct that is not read; an expression that matches nothing at all; one that PCRE2 refuses. */
ech_status ech_bpe_splitter_create(const char *file, ech_bpe_pattern pattern,
                                   const ech_bpe_stage *own, int n, ech_bpe_splitter **out);
void ech_bpe_splitter_destroy(ech_bpe_splitter *splitter); /* accepts NULL */
ECH_DESTROY_AT(ech_bpe_splitter, ech_bpe_splitter_destroy)
/* Error: ECH_EINPUT, an untrusted expression takes more than its limit of steps on this text.
 * Calls `use` with each word of `run` (n bytes, coder.h): a word is valid UTF-8. */
ech_status ech_bpe_each_word(const ech_bpe_splitter *splitter, const char *run, size_t n,
                             ech_bpe_use use, void *context);

#endif
