/* SPDX-License-Identifier: Apache-2.0
 *
 * A text, cut into runs and words. What is no UTF-8 is cut into single bytes, each a run and a word;
 * what lies between is a run, normalized if need be, and cut into words by the pattern.
 */
#include <stdlib.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "data/bpe/coder.h"

/* Where the valid UTF-8 that begins at `at` ends; *plain: all of it is below U+0300, and so the same
 * in every normalization. */
static size_t valid_run(const char *text, size_t n, size_t at, bool *plain)
{
    enum { FIRST_MARK = 0xcc };
    unsigned char most = 0;
    uint32_t code;
    while (at < n) {
        size_t length = 1;
        if ((unsigned char)text[at] >= 0x80) length = ech_utf8_next(text + at, n - at, &code);
        if (length == 0) break;
        if ((unsigned char)text[at] > most) most = (unsigned char)text[at];
        at += length;
    }
    *plain = most < FIRST_MARK;
    return at;
}

static ech_status normalize(const char *text, size_t n, ech_bpe_use use, void *context)
{
    utf8proc_uint8_t *composed = NULL;
    utf8proc_ssize_t length = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n,
                                           &composed, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (length < 0)
        ECH_FAIL(ECH_ENOMEM, "%zu bytes of text cannot be normalized: %s", n,
                 utf8proc_errmsg(length));
    ech_status status = use((const char *)composed, (size_t)length, context);
    free(composed);
    return status;
}

ech_status ech_bpe_each_run(bool nfc, const char *text, size_t n, ech_bpe_use use, void *context)
{
    for (size_t at = 0; at < n;) {
        bool plain;
        size_t end = valid_run(text, n, at, &plain);
        if (end == at) end++;
        if (nfc && !plain)
            ECH_TRY(normalize(text + at, end - at, use, context));
        else
            ECH_TRY(use(text + at, end - at, context));
        at = end;
    }
    return ECH_OK;
}

ech_status ech_bpe_each_word(ech_bpe_words *words, const char *run, size_t n, ech_bpe_use use,
                             void *context)
{
    if (n == 1) return use(run, n, context);
    for (size_t at = 0; at < n;) {
        size_t end;
        ECH_TRY(ech_bpe_words_next(words, run, n, at, &end));
        ECH_TRY(use(run + at, end - at, context));
        at = end;
    }
    return ECH_OK;
}
