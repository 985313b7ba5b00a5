/* SPDX-License-Identifier: Apache-2.0
 *
 * Encoding: first added tokens, then runs, words and merges. Most words of a text are repeated, so
 * the ids of short ones are cached.
 */
#include "data/bpe/coder.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { SLOTS = 1 << 15, CACHED_BYTES = 26, CACHED_IDS = 9, BLANK = 0x2581 };

/* A cache line: a word and its ids. */
typedef struct cached_word {
    int32_t id[CACHED_IDS];
    unsigned char n, ids; /* n = 0: free */
    char word[CACHED_BYTES];
} cached_word;

struct ech_coder {
    const ech_bpe *bpe;
    ech_bpe_merger *merger;
    cached_word *cache;    /* SLOTS of them, aligned to cache lines */
    ech_text normal, part; /* of a run and a part, where blanks are put in or written otherwise */
    bool due;              /* before the next run */
    bool special;          /* names of special tokens in a text become their ids */
    int64_t kept;          /* names that stayed text, since they were last reported */
    int32_t kept_id;       /* the last one's */
    ech_ids *out;
};

ech_coder *ech_coder_create(const ech_tokenizer *tokenizer)
{
    ech_coder *coder = ech_calloc(1, sizeof *coder);
    coder->bpe = tokenizer->bpe;
    coder->special = true;
    coder->merger = ech_bpe_merger_create(coder->bpe);
    coder->cache = ech_calloc(SLOTS, sizeof *coder->cache);
    return coder;
}

void ech_coder_keep_special(ech_coder *coder, bool keep)
{
    coder->special = !keep;
}

int64_t ech_coder_report_kept(ech_coder *coder, int32_t *id)
{
    int64_t kept = coder->kept;
    *id = coder->kept_id;
    coder->kept = 0;
    return kept;
}

static void note_kept(ech_coder *coder, const ech_bpe_place *place)
{
    if (place->kept) coder->kept_id = place->kept_id;
    coder->kept += place->kept;
}

void ech_coder_destroy(ech_coder *coder)
{
    if (!coder) return;
    ech_bpe_merger_destroy(coder->merger);
    free(coder->cache);
    ech_text_free(&coder->normal);
    ech_text_free(&coder->part);
    free(coder);
}

static void add_ids(ech_ids *out, const int32_t *ids, size_t n)
{
    if (out->n + n > out->capacity)
        out->at = ech_grow(out->at, &out->capacity, out->n + n, sizeof *out->at);
    for (size_t i = 0; i < n; i++) out->at[out->n + i] = ids[i];
    out->n += n;
}

static ech_status merge(ech_coder *coder, const char *word, size_t n, cached_word *slot)
{
    const int32_t *ids;
    size_t count;
    ECH_TRY(ech_bpe_merger_run(coder->merger, (const unsigned char *)word, n, &ids, &count));
    add_ids(coder->out, ids, count);
    if (!slot || count > CACHED_IDS) return ECH_OK;
    slot->n = (unsigned char)n;
    slot->ids = (unsigned char)count;
    memcpy(slot->word, word, n);
    memcpy(slot->id, ids, count * sizeof *ids);
    return ECH_OK;
}

static ech_status encode_word(const char *word, size_t n, void *context)
{
    ech_coder *coder = context;
    if (n == 1 && !coder->bpe->characters) {
        add_ids(coder->out, &coder->bpe->byte[(unsigned char)word[0]], 1);
        return ECH_OK;
    }
    if (n > CACHED_BYTES) return merge(coder, word, n, NULL);
    cached_word *slot = &coder->cache[XXH3_64bits(word, n) % SLOTS];
    if (slot->n != n || memcmp(slot->word, word, n) != 0) return merge(coder, word, n, slot);
    add_ids(coder->out, slot->id, slot->ids);
    return ECH_OK;
}

/* Whether what stands before the symbol and what begins with it have their ids each for itself. */
static bool begins_word(const ech_bpe *bpe, uint32_t left, uint32_t symbol)
{
    if (bpe->splits_at_blanks && symbol == BLANK) return true;
    return !bpe->ignore_merges && !ech_bpe_are_neighbours(bpe, left, symbol);
}

/* Without a pattern. */
static ech_status encode_symbols(ech_coder *coder, const char *part, size_t n)
{
    size_t begin = 0;
    uint32_t left = 0, symbol;
    for (size_t at = 0, length; at < n; at += length, left = symbol) {
        length = ech_bpe_symbol(coder->bpe, part + at, n - at, &symbol);
        if (at == 0 || !begins_word(coder->bpe, left, symbol)) continue;
        ECH_TRY(encode_word(part + begin, at - begin, coder));
        begin = at;
    }
    return encode_word(part + begin, n - begin, coder);
}

static bool begins_with(const char *text, size_t n, const char *with)
{
    return n >= strlen(with) && memcmp(text, with, strlen(with)) == 0;
}

/* A part between added tokens; `due`: a blank goes before it, if it has none. */
static ech_status encode_part(ech_coder *coder, const char *part, size_t n, bool due)
{
    const ech_bpe *bpe = coder->bpe;
    const char *blank = bpe->characters ? ECH_BPE_BLANK : " ";
    ech_text *text = &coder->part;
    if (due || bpe->word_blanks) {
        text->n = 0;
        if (due && !begins_with(part, n, " ") && !begins_with(part, n, blank))
            ech_text_append_bytes(text, blank, strlen(blank));
        if (bpe->word_blanks)
            ech_bpe_mark_blanks(part, n, text);
        else
            ech_text_append_bytes(text, part, n);
        part = text->at;
        n = text->n;
    }
    if (bpe->pattern == ECH_BPE_whole) return encode_symbols(coder, part, n);
    return ech_bpe_each_word(bpe->splitter, part, n, encode_word, coder);
}

/* A normalized run, with the added tokens that are looked for in such. */
static ech_status encode_normal(ech_coder *coder, const char *run, size_t n, bool due)
{
    const ech_bpe *bpe = coder->bpe;
    ech_bpe_place place = {0};
    for (size_t at = 0; at < n; at = place.end) {
        bool found = ech_bpe_next_added(bpe, &bpe->normalized, run, n, coder->special, &place);
        if (!found) place.begin = place.end = n;
        if (place.begin > at)
            ECH_TRY(encode_part(coder, run + at, place.begin - at,
                                at == 0 ? due : bpe->prefix == ECH_BPE_PREFIX_PARTS));
        if (found) add_ids(coder->out, &place.id, 1);
    }
    note_kept(coder, &place);
    return ECH_OK;
}

/* The first run of a part has the blank before it. */
static ech_status encode_run(const char *run, size_t n, void *context)
{
    ech_coder *coder = context;
    const ech_bpe *bpe = coder->bpe;
    bool due = coder->due, always = due && bpe->prefix == ECH_BPE_PREFIX_ALWAYS;
    ech_text *text = &coder->normal;
    coder->due = false;
    if (n == 1 && (unsigned char)run[0] >= 0x80) { /* no UTF-8 */
        add_ids(coder->out, &bpe->byte[(unsigned char)run[0]], 1);
        return ECH_OK;
    }
    if (!always && !bpe->normal_blanks) return encode_normal(coder, run, n, due);
    text->n = 0;
    if (always) ech_text_append(text, ECH_BPE_BLANK);
    ech_bpe_mark_blanks(run, n, text);
    return encode_normal(coder, text->at, text->n, due && !always);
}

/* Whether a blank goes before a part that begins at `at`. */
static bool is_due(const ech_bpe *bpe, bool begins, size_t at)
{
    if (bpe->prefix == ECH_BPE_NO_PREFIX) return false;
    return at == 0 ? begins : bpe->prefix != ECH_BPE_PREFIX_FIRST;
}

ech_status ech_coder_encode(ech_coder *coder, const void *bytes, size_t n, bool begins,
                            ech_ids *out)
{
    const char *text = bytes;
    ech_bpe_place place = {0};
    coder->out = out;
    if (coder->bpe->bytes_alone) {
        out->at = ech_grow(out->at, &out->capacity, out->n + n, sizeof *out->at);
        for (size_t i = 0; i < n; i++) out->at[out->n++] = coder->bpe->byte[(unsigned char)text[i]];
        return ECH_OK;
    }
    for (size_t at = 0; at < n; at = place.end) {
        bool found =
            ech_bpe_next_added(coder->bpe, &coder->bpe->raw, text, n, coder->special, &place);
        if (!found) place.begin = place.end = n;
        coder->due = is_due(coder->bpe, begins, at);
        if (place.begin > at)
            ECH_TRY(
                ech_bpe_each_run(coder->bpe->form, text + at, place.begin - at, encode_run, coder));
        if (found) add_ids(out, &place.id, 1);
    }
    note_kept(coder, &place);
    return ECH_OK;
}
