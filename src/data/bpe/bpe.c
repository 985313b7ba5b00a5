/* SPDX-License-Identifier: Apache-2.0
 *
 * A vocabulary in memory: tokens by id and by bytes, merges by pair.
 */
#include "data/bpe/bpe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

ech_bpe *ech_bpe_create(void)
{
    ech_bpe *bpe = ech_calloc(1, sizeof *bpe);
    bpe->begin_of_text = bpe->end_of_text = ECH_BPE_NONE;
    for (int i = 0; i < ECH_BPE_NAMES; i++) bpe->named[i] = ECH_BPE_NONE;
    return bpe;
}

void ech_bpe_destroy(ech_bpe *bpe)
{
    if (!bpe) return;
    ech_bpe_splitter_destroy(bpe->splitter);
    for (size_t i = 0; i < bpe->own.n; i++) free(bpe->own.at[i].expression);
    free(bpe->own.at);
    free(bpe->name);
    ech_text_free(&bpe->bytes);
    ech_text_free(&bpe->source);
    free(bpe->front.at);
    free(bpe->back.at);
    free(bpe->token.at);
    free(bpe->merge.at);
    free(bpe->added.at);
    free(bpe->raw.child.entry);
    free(bpe->raw.id.at);
    free(bpe->normalized.child.entry);
    free(bpe->normalized.id.at);
    free(bpe->plain.entry);
    free(bpe->pair.entry);
    free(bpe->neighbours.entry);
    free(bpe);
}

/* ---- tokens by their bytes ---- */

static bool is_token(const ech_bpe *bpe, uint64_t id, const void *bytes, size_t n)
{
    const ech_bpe_token *token = &bpe->token.at[id];
    return token->n == n && memcmp(bpe->bytes.at + token->at, bytes, n) == 0;
}

/* The key of a plain token, or the free one that it would have: its hash, or the next where others
 * have that. */
static uint64_t key_of(const ech_bpe *bpe, const void *bytes, size_t n)
{
    uint64_t key = XXH3_64bits(bytes, n), id;
    while ((id = ech_bpe_table_get(&bpe->plain, key)) != ECH_BPE_NO_VALUE &&
           !is_token(bpe, id, bytes, n))
        key++;
    return key;
}

int32_t ech_bpe_find(const ech_bpe *bpe, const void *bytes, size_t n)
{
    return (int32_t)ech_bpe_table_get(&bpe->plain, key_of(bpe, bytes, n));
}

bool ech_bpe_put(ech_bpe *bpe, int32_t id, const void *bytes, size_t n, bool plain)
{
    size_t at = (size_t)id;
    ECH_ASSERT(id >= 0 && n > 0);
    if (at < bpe->token.n && bpe->token.at[at].n > 0) return false;
    if (plain && ech_bpe_find(bpe, bytes, n) != ECH_BPE_NONE) return false;
    if (plain) *ech_bpe_table_put(&bpe->plain, key_of(bpe, bytes, n)) = at;
    if (at >= bpe->token.n) {
        bpe->token.at =
            ech_grow(bpe->token.at, &bpe->token.capacity, at + 1, sizeof *bpe->token.at);
        bpe->token.n = at + 1;
    }
    bpe->token.at[at] = (ech_bpe_token){.at = bpe->bytes.n, .n = n, .plain = plain};
    ech_text_append_bytes(&bpe->bytes, bytes, n);
    return true;
}

void ech_bpe_put_end(ech_bpe *bpe, int32_t id)
{
    ech_bpe_put(bpe, id, ECH_BPE_END, strlen(ECH_BPE_END), true);
    ECH_PUSH(bpe->added, (ech_bpe_added){.id = id, .stated = id, .special = true});
    bpe->begin_of_text = bpe->end_of_text = id;
}

/* ---- merges by their pair ---- */

bool ech_bpe_put_merge(ech_bpe *bpe, int32_t left, int32_t right, bool adds)
{
    const ech_bpe_token *a = &bpe->token.at[left], *b = &bpe->token.at[right];
    ECH_FREED_TEXT both = {0};
    ech_text_append_bytes(&both, bpe->bytes.at + a->at, a->n);
    ech_text_append_bytes(&both, bpe->bytes.at + b->at, b->n);
    int32_t made = ech_bpe_find(bpe, both.at, both.n), rank = (int32_t)bpe->merge.n;
    if (made == ECH_BPE_NONE && !adds) return false;
    if (made == ECH_BPE_NONE) {
        made = (int32_t)bpe->token.n;
        ech_bpe_put(bpe, made, both.at, both.n, true);
    }
    ECH_PUSH(bpe->merge, (ech_bpe_merge){left, right, made, rank});
    return true;
}

static ech_status index_pairs(ech_bpe *bpe)
{
    for (size_t i = 0; i < bpe->merge.n; i++) {
        const ech_bpe_merge *merge = &bpe->merge.at[i];
        if (bpe->token.at[merge->left].byte || bpe->token.at[merge->right].byte)
            ECH_FAIL(ECH_EUNSUPPORTED,
                     "%s: merge %zu joins the token of a byte, which no merge may "
                     "join" ECH_BPE_OTHERWISE,
                     bpe->file, i);
        uint64_t *pair = ech_bpe_table_put(
            &bpe->pair, ech_bpe_pair_key((uint32_t)merge->left, (uint32_t)merge->right));
        if (*pair != ECH_BPE_NO_VALUE)
            ECH_FAIL(ECH_EINPUT, "%s: merge %zu is merge %d again; remove it", bpe->file, i,
                     (int)(*pair >> 32));
        *pair = ech_bpe_pair_key((uint32_t)merge->rank, (uint32_t)merge->made);
    }
    return ECH_OK;
}

/* ---- the whole ---- */

/* The token of a byte; over characters it has a name. */
static int32_t find_byte(const ech_bpe *bpe, unsigned char byte)
{
    char name[8];
    if (!bpe->characters) return ech_bpe_find(bpe, &byte, 1);
    snprintf(name, sizeof name, ECH_BPE_BYTE_NAME, (unsigned)byte);
    return ech_bpe_find(bpe, name, strlen(name));
}

static ech_status complain_of_byte(const ech_bpe *bpe, unsigned char byte)
{
    ECH_FREED_TEXT shown = {0};
    if (bpe->characters)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: the vocabulary has no token " ECH_BPE_BYTE_NAME
                 "; with byte fallback it needs one for each of 256 bytes" ECH_BPE_OTHERWISE,
                 bpe->file, (unsigned)byte);
    ech_bpe_show(&byte, 1, &shown);
    return ech_fail_at(__FILE__, __LINE__, ECH_EINPUT,
                       "%s: the vocabulary has no token for byte 0x%02x (\"%s\"); "
                       "train it with all 256 bytes as its alphabet",
                       bpe->file, (unsigned)byte, shown.at);
}

static ech_status index_bytes(ech_bpe *bpe)
{
    for (int i = 0; i < 256; i++) {
        unsigned char byte = (unsigned char)i;
        bpe->byte[i] = find_byte(bpe, byte);
        if (bpe->byte[i] == ECH_BPE_NONE) return complain_of_byte(bpe, byte);
        bpe->token.at[bpe->byte[i]].byte = bpe->characters;
    }
    return ECH_OK;
}

static ech_status index_added(ech_bpe *bpe)
{
    for (size_t i = 0; i < bpe->added.n; i++) {
        ech_bpe_added *added = &bpe->added.at[i];
        ech_bpe_token *token = &bpe->token.at[added->id];
        if (added->hidden) continue;
        if (!added->apart) {
            added->at = token->at;
            added->n = token->n;
        }
        if (added->normalized && !added->verbatim) ECH_TRY(ech_bpe_normalize_added(bpe, added));
        token->altered = !added->apart && added->at != token->at;
        token->added = (int32_t)i + 1;
        bpe->strips_around |= added->lstrip || added->rstrip;
        bpe->single_words |= added->single_word;
        const char *bytes = bpe->bytes.at + added->at;
        if (!ech_bpe_trie_put(added->normalized ? &bpe->normalized : &bpe->raw, bytes, added->n,
                              added->id))
            ECH_FAIL(ECH_EINPUT, "%s: added_tokens[%zu]: \"%.*s\" comes twice; remove one",
                     bpe->file, i, (int)added->n, bytes);
        if (added->n > bpe->longest_added) bpe->longest_added = added->n;
    }
    return ECH_OK;
}

ech_status ech_bpe_finish(ech_bpe *bpe)
{
    ECH_TRY(index_bytes(bpe));
    ECH_TRY(index_pairs(bpe));
    ECH_TRY(index_added(bpe));
    ech_bpe_find_neighbours(bpe);
    bpe->bytes_alone = bpe->pattern == ECH_BPE_whole && !bpe->characters && !bpe->ignore_merges &&
                       bpe->form == ECH_BPE_AS_IS && bpe->prefix == ECH_BPE_NO_PREFIX &&
                       bpe->neighbours.n + bpe->raw.id.n + bpe->normalized.id.n == 0;
    bpe->name = ech_strdup(bpe->file);
    return ech_bpe_splitter_create(bpe->name, bpe->pattern, bpe->own.at, (int)bpe->own.n,
                                   &bpe->splitter);
}
