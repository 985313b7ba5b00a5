/* SPDX-License-Identifier: Apache-2.0
 *
 * From bytes to ids: added tokens first, then runs, words and merges. Most words of a text come again
 * and again, so the ids of short ones are kept, as many as there are places.
 */
#include "data/bpe/coder.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { PLACES = 1 << 15, KEPT_BYTES = 26, KEPT_IDS = 9 };

/* A cache line: a word and its ids. */
typedef struct kept {
    int32_t id[KEPT_IDS];
    unsigned char n, ids; /* n = 0: free */
    char word[KEPT_BYTES];
} kept;

struct ech_bpe_coder {
    const ech_bpe *bpe;
    ech_bpe_words *words;
    ech_bpe_merger *merger;
    kept *kept; /* PLACES of them, aligned to cache lines */
    ech_ids *out;
};

ech_bpe_coder *ech_bpe_coder_create(const ech_bpe *bpe)
{
    ech_bpe_coder *coder = ech_calloc(1, sizeof *coder);
    coder->bpe = bpe;
    coder->words = ech_bpe_words_create(bpe->splitter);
    coder->merger = ech_bpe_merger_create(bpe);
    coder->kept = ech_calloc(PLACES, sizeof *coder->kept);
    return coder;
}

void ech_bpe_coder_destroy(ech_bpe_coder *coder)
{
    if (!coder) return;
    ech_bpe_words_destroy(coder->words);
    ech_bpe_merger_destroy(coder->merger);
    free(coder->kept);
    free(coder);
}

static void add_ids(ech_ids *out, const int32_t *ids, size_t n)
{
    if (out->n + n > out->capacity)
        out->at = ech_grow(out->at, &out->capacity, out->n + n, sizeof *out->at);
    for (size_t i = 0; i < n; i++) out->at[out->n + i] = ids[i];
    out->n += n;
}

static ech_status merge(ech_bpe_coder *coder, const char *word, size_t n, kept *place)
{
    const int32_t *ids;
    size_t count;
    ECH_TRY(ech_bpe_merger_run(coder->merger, (const unsigned char *)word, n, &ids, &count));
    add_ids(coder->out, ids, count);
    if (!place || count > KEPT_IDS) return ECH_OK;
    place->n = (unsigned char)n;
    place->ids = (unsigned char)count;
    memcpy(place->word, word, n);
    memcpy(place->id, ids, count * sizeof *ids);
    return ECH_OK;
}

static ech_status encode_word(const char *word, size_t n, void *context)
{
    ech_bpe_coder *coder = context;
    if (n == 1) {
        add_ids(coder->out, &coder->bpe->byte[(unsigned char)word[0]], 1);
        return ECH_OK;
    }
    if (n > KEPT_BYTES) return merge(coder, word, n, NULL);
    kept *place = &coder->kept[XXH3_64bits(word, n) % PLACES];
    if (place->n != n || memcmp(place->word, word, n) != 0) return merge(coder, word, n, place);
    add_ids(coder->out, place->id, place->ids);
    return ECH_OK;
}

/* A normalized run, with the added tokens that are looked for in such. */
static ech_status encode_run(const char *run, size_t n, void *context)
{
    ech_bpe_coder *coder = context;
    size_t begin, end;
    int32_t id;
    for (size_t at = 0; at < n; at = end) {
        bool found = ech_bpe_trie_find(&coder->bpe->normalized, run, n, at, &begin, &end, &id);
        if (!found) begin = end = n;
        if (begin > at)
            ECH_TRY(ech_bpe_each_word(coder->words, run + at, begin - at, encode_word, coder));
        if (found) add_ids(coder->out, &id, 1);
    }
    return ECH_OK;
}

ech_status ech_bpe_coder_encode(ech_bpe_coder *coder, const void *bytes, size_t n, ech_ids *out)
{
    const char *text = bytes;
    size_t begin, end;
    int32_t id;
    coder->out = out;
    for (size_t at = 0; at < n; at = end) {
        bool found = ech_bpe_trie_find(&coder->bpe->raw, text, n, at, &begin, &end, &id);
        if (!found) begin = end = n;
        ECH_TRY(ech_bpe_each_run(coder->bpe->nfc, text + at, begin - at, encode_run, coder));
        if (found) add_ids(out, &id, 1);
    }
    return ECH_OK;
}
