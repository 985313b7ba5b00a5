/* SPDX-License-Identifier: Apache-2.0
 *
 * Added tokens in a text, with the flags of Hugging Face's library (tokenizers,
 * added_vocabulary.rs): a match may be dropped where it is no single word, and take white space
 * around it.
 * */
#include <utf8proc.h>

#include "base/utf8.h"
#include "data/bpe/bpe.h"

/* The character that ends before `at`; 0 bytes: there is none, or it is no UTF-8. */
static size_t character_before(const char *text, size_t at, uint32_t *code)
{
    for (size_t length = 1; length <= 4 && length <= at; length++) {
        if (((unsigned char)text[at - length] & 0xc0) == 0x80) continue;
        return ech_utf8_next(text + at - length, length, code) == length ? length : 0;
    }
    return 0;
}

static size_t character_at(const char *text, size_t n, size_t at, uint32_t *code)
{
    return at < n ? ech_utf8_next(text + at, n - at, code) : 0;
}

/* Unicode's White_Space, as \s. */
static bool is_space(uint32_t c)
{
    if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
           c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

/* \w: Alphabetic, Mark, decimal digits, connector punctuation, Join_Control (UTS 18, annex C). */
static bool is_word(uint32_t c)
{
    bool joins = c == 0x200c || c == 0x200d, circled = c >= 0x24b6 && c <= 0x24e9;
    bool boxed = (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
                 (c >= 0x1f170 && c <= 0x1f189);
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    bool letter = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
    bool mark = category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
    return letter || mark || category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
           category == UTF8PROC_CATEGORY_PC || joins || circled || boxed;
}

static bool is_single(const char *text, size_t n, size_t begin, size_t end)
{
    uint32_t c;
    if (character_before(text, begin, &c) > 0 && is_word(c)) return false;
    return character_at(text, n, end, &c) == 0 || !is_word(c);
}

static size_t skip_back(const char *text, size_t at)
{
    uint32_t c;
    for (size_t length; (length = character_before(text, at, &c)) > 0 && is_space(c);) at -= length;
    return at;
}

static size_t skip_on(const char *text, size_t n, size_t at)
{
    uint32_t c;
    for (size_t length; (length = character_at(text, n, at, &c)) > 0 && is_space(c);) at += length;
    return at;
}

bool ech_bpe_next_added(const ech_bpe *bpe, const ech_bpe_trie *trie, const char *text, size_t n,
                        bool special, ech_bpe_place *place)
{
    size_t before = place->end, begin, end;
    while (ech_bpe_trie_find(trie, text, n, place->search, &begin, &end, &place->id)) {
        const ech_bpe_added *added = &bpe->added.at[bpe->token.at[place->id].added - 1];
        place->search = end;
        if (added->single_word && !is_single(text, n, begin, end)) continue;
        if (added->special && !special) {
            place->kept++;
            place->kept_id = place->id;
            continue;
        }
        if (added->lstrip) begin = skip_back(text, begin);
        place->begin = added->lstrip && begin < before ? before : begin;
        place->end = added->rstrip ? skip_on(text, n, end) : end;
        return true;
    }
    return false;
}

bool ech_bpe_may_split(const ech_bpe *bpe, const char *text, size_t n, size_t at)
{
    uint32_t before = 0;
    bool known = character_before(text, at, &before) > 0 && at < n;
    unsigned char next = at < n ? (unsigned char)text[at] : 0;
    bool begins = bpe->raw.begins[next] || bpe->normalized.begins[next];
    if (bpe->strips_around && (!known || is_space(before))) return false;
    if (bpe->single_words && (!known || (is_word(before) && begins))) return false;
    return !ech_bpe_trie_reaches(&bpe->raw, text, at, bpe->longest_added) &&
           !ech_bpe_trie_reaches(&bpe->normalized, text, at, bpe->longest_added);
}
