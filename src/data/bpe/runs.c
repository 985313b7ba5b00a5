/* SPDX-License-Identifier: Apache-2.0
 *
 * A text, cut into runs. What is no UTF-8 is cut into single bytes, each a run and a word; what lies
 * between is a run, normalized if need be.
 */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "data/bpe/coder.h"

/* Where the valid UTF-8 that begins at `at` ends; *plain: the form leaves it as it is, since it is below
 * U+0300, for NFKC below U+0080. */
static size_t valid_run(ech_bpe_form form, const char *text, size_t n, size_t at, bool *plain)
{
    enum { FIRST_MARK = 0xcc, FIRST_BEYOND_ASCII = 0x80 };
    unsigned char most = 0;
    uint32_t code;
    while (at < n) {
        size_t length = 1;
        if ((unsigned char)text[at] >= 0x80) length = ech_utf8_next(text + at, n - at, &code);
        if (length == 0) break;
        if ((unsigned char)text[at] > most) most = (unsigned char)text[at];
        at += length;
    }
    *plain = most < (form == ECH_BPE_NFKC ? FIRST_BEYOND_ASCII : FIRST_MARK);
    return at;
}

static ech_status normalize(ech_bpe_form form, const char *text, size_t n, ech_bpe_use use,
                            void *context)
{
    ECH_FREED utf8proc_uint8_t *composed = NULL;
    utf8proc_option_t options =
        UTF8PROC_STABLE | UTF8PROC_COMPOSE | (form == ECH_BPE_NFKC ? UTF8PROC_COMPAT : 0);
    utf8proc_ssize_t length =
        utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n, &composed, options);
    if (length < 0)
        ECH_FAIL(ECH_ENOMEM, "%zu bytes of text cannot be normalized: %s", n,
                 utf8proc_errmsg(length));
    return use((const char *)composed, (size_t)length, context);
}

ech_status ech_bpe_each_run(ech_bpe_form form, const char *text, size_t n, ech_bpe_use use,
                            void *context)
{
    for (size_t at = 0; at < n;) {
        bool plain;
        size_t end = valid_run(form, text, n, at, &plain);
        if (end == at) end++;
        if (form != ECH_BPE_AS_IS && !plain)
            ECH_TRY(normalize(form, text + at, end - at, use, context));
        else
            ECH_TRY(use(text + at, end - at, context));
        at = end;
    }
    return ECH_OK;
}

static ech_status append_run(const char *run, size_t n, void *text)
{
    ech_text_append_bytes(text, run, n);
    return ECH_OK;
}

ech_status ech_bpe_normalize_added(ech_bpe *bpe, ech_bpe_added *added)
{
    const ech_bpe_token *token = &bpe->token.at[added->id];
    ECH_FREED_TEXT formed = {0}, text = {0};
    ECH_TRY(ech_bpe_each_run(bpe->form, bpe->bytes.at + token->at, token->n, append_run, &formed));
    if (bpe->prefix == ECH_BPE_PREFIX_ALWAYS) ech_text_append(&text, ECH_BPE_BLANK);
    if (bpe->normal_blanks)
        ech_bpe_mark_blanks(formed.at, formed.n, &text);
    else
        ech_text_append_bytes(&text, formed.at, formed.n);
    bool same = text.n == token->n && memcmp(text.at, bpe->bytes.at + token->at, text.n) == 0;
    if (!same) {
        added->at = bpe->bytes.n;
        added->n = text.n;
        ech_text_append_bytes(&bpe->bytes, text.at, text.n);
    }
    return ECH_OK;
}
