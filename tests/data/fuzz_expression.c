/* SPDX-License-Identifier: Apache-2.0
 *
 * Arbitrary bytes as a regular expression of a tokenizer.json and, after a NUL, as a text: refused
 * by name, stopped after its steps, or words that are the text one after the other.
 * */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/utf8.h"
#include "data/bpe/expression.h"
#include "data/bpe/pattern.h"
#include "base/memory.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

typedef struct words {
    const char *text;
    size_t at;
} words;

static ech_status take_word(const char *word, size_t n, void *context)
{
    words *w = context;
    if (n == 0 || word != w->text + w->at) abort();
    w->at += n;
    return ECH_OK;
}

static void split(const ech_bpe_splitter *splitter, const char *text, size_t n)
{
    words w = {text, 0};
    ech_status status = ech_bpe_each_word(splitter, text, n, take_word, &w);
    if (status == ECH_OK ? w.at != n : status != ECH_EINPUT) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    const uint8_t *end = n > 0 ? memchr(bytes, 0, n) : NULL;
    size_t length = end ? (size_t)(end - bytes) : n;
    ech_log_set_quiet(true);
    if (ech_utf8_valid(bytes, length) != length) return 0; /* JSON has none */
    ech_bpe_stage stage = {.expression = ech_calloc(length + 1, 1)};
    if (length > 0) memcpy(stage.expression, bytes, length);
    char *text = ech_calloc(n + 1, 1);
    size_t rest = end ? n - length - 1 : 0;
    if (rest > 0) memcpy(text, end + 1, rest);
    for (int as_bytes = 0; as_bytes < 2; as_bytes++) {
        ech_bpe_splitter *splitter = NULL;
        stage.bytes = as_bytes == 1;
        if (ech_bpe_splitter_create("FILE", ECH_BPE_OWN, &stage, 1, &splitter) != ECH_OK) {
            if (!strstr(ech_last_error(), "FILE: pre_tokenizer: the pattern ")) abort();
            continue;
        }
        split(splitter, text, as_bytes ? rest : ech_utf8_valid(text, rest));
        ech_bpe_splitter_destroy(splitter);
    }
    free(text);
    free(stage.expression);
    return 0;
}
