/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a long text can be split without changing ids: without a pattern, between symbols that are
 * adjacent in no token; with one, at ends of words that are ends of words whatever comes before or
 * after.
 *
 * In all patterns a word's last characters after a letter or number are letters or numbers, so such
 * a word ends before any other character, and what follows does not change it. White space joins
 * what is before and after it (\s+(?!\S), \s*[\r\n]+), and punctuation joins newlines; so a text is
 * not split there, except before a blank after punctuation, which begins the next word. Composition
 * (NFC, NFKC) does not cross these boundaries, and maps letters to letters.
 */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "data/bpe/coder.h"

static bool is_digit(uint32_t c)
{
    return c >= '0' && c <= '9';
}

static bool is_ascii_letter(uint32_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Letters beyond ASCII that have been letters in every version of Unicode: the commonest will
 * do. */
static const struct {
    uint32_t first, last;
} letters[] = {
    {0xc0, 0xd6},     {0xd8, 0xf6},     {0xf8, 0x24f},    {0x391, 0x3a1},   {0x3a3, 0x3ce},
    {0x400, 0x481},   {0x5d0, 0x5ea},   {0x620, 0x64a},   {0x904, 0x939},   {0xe01, 0xe30},
    {0x1e00, 0x1e99}, {0x3041, 0x3096}, {0x30a1, 0x30fa}, {0x4e00, 0x9fa5}, {0xac00, 0xd7a3},
};

static bool is_letter(uint32_t c)
{
    for (size_t i = 0; i < sizeof letters / sizeof letters[0]; i++)
        if (c >= letters[i].first && c <= letters[i].last) return true;
    return is_ascii_letter(c);
}

/* The length of the character that ends before `at` > 0; 0: none such. */
static size_t character_before(const char *text, size_t at, uint32_t *code)
{
    size_t length = 1;
    while (length < 4 && length < at && ((unsigned char)text[at - length] & 0xc0) == 0x80) length++;
    return ech_utf8_next(text + at - length, length, code) == length ? length : 0;
}

/* CJK commas and ends of sentences: whole texts have no blank. */
static bool is_cjk_stop(const char *text, size_t n, size_t at)
{
    static const char *const stops[] = {"\u3001", "\u3002", "\uff0c", "\uff01", "\uff1f"};
    for (size_t i = 0; i < sizeof stops / sizeof stops[0]; i++)
        if (n - at >= 3 && memcmp(text + at, stops[i], 3) == 0) return true;
    return false;
}

static bool ends_word(const char *text, size_t n, size_t at)
{
    unsigned next = (unsigned char)text[at];
    uint32_t before = 0;
    if (next >= 0x80 ? !is_cjk_stop(text, n, at) : is_digit(next) || is_ascii_letter(next))
        return false;
    if (next == '\'') return false; /* o200k: don't is one word */
    character_before(text, at, &before);
    if (is_digit(before) || is_letter(before)) return true;
    return next == ' ' && before > ' ' && before < 0x7f;
}

/* Whether `at` lies between two characters that no token has next to each other (neighbours.c).
 * What normalization does not change are ASCII's characters. */
static bool parts_symbols(const ech_bpe *bpe, const char *text, size_t n, size_t at)
{
    uint32_t left, right;
    size_t length = character_before(text, at, &left);
    if (length == 0) return false;
    if (ech_utf8_next(text + at, n - at, &right) == 0) return false;
    if (bpe->form != ECH_BPE_AS_IS && (left >= 0x80 || right >= 0x80)) return false;
    ech_bpe_symbol(bpe, text + at - (bpe->characters ? length : 1), length, &left);
    ech_bpe_symbol(bpe, text + at, n - at, &right);
    return !ech_bpe_are_neighbours(bpe, left, right);
}

static bool may_split(const ech_bpe *bpe, const char *text, size_t n, size_t at)
{
    return bpe->pattern == ECH_BPE_whole ? parts_symbols(bpe, text, n, at) : ends_word(text, n, at);
}

size_t ech_bpe_split(const ech_bpe *bpe, const void *bytes, size_t n)
{
    const char *text = bytes;
    /* A word that is the whole text may be a token; composition may make an added token of what is
     * none. */
    if (n == 0 || (bpe->pattern == ECH_BPE_whole && bpe->ignore_merges)) return 0;
    if (bpe->form != ECH_BPE_AS_IS && bpe->normalized.id.n > 0) return 0;
    if (bpe->pattern == ECH_BPE_OWN) return 0; /* whose words may reach any distance */
    if (bpe->bytes_alone) return n;
    for (size_t at = n - 1; at > 0; at--)
        if (may_split(bpe, text, n, at) && ech_bpe_may_split(bpe, text, n, at)) return at;
    return 0;
}

/* ---- runs ----
 *
 * Splitting a text into runs. What is no UTF-8 is split into single bytes, each a run and a word;
 * what lies between is a run, normalized if need be. */

/* Where the valid UTF-8 that begins at `at` ends; *plain: the form leaves it as it is, since it is
 * below U+0300, for NFKC below U+0080. */
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
        ECH_FAIL(ECH_ENOMEM,
                 "%zu bytes of text cannot be normalized: %s; split the text into smaller files", n,
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
    ECH_FREED_TEXT formed = {0}, text = {0};
    ECH_TRY(ech_bpe_each_run(bpe->form, bpe->bytes.at + added->at, added->n, append_run, &formed));
    if (bpe->prefix == ECH_BPE_PREFIX_ALWAYS) ech_text_append(&text, ECH_BPE_BLANK);
    if (bpe->normal_blanks)
        ech_bpe_mark_blanks(formed.at, formed.n, &text);
    else
        ech_text_append_bytes(&text, formed.at, formed.n);
    bool same = text.n == added->n && memcmp(text.at, bpe->bytes.at + added->at, text.n) == 0;
    if (!same) {
        added->at = bpe->bytes.n;
        added->n = text.n;
        ech_text_append_bytes(&bpe->bytes, text.at, text.n);
    }
    return ECH_OK;
}
