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
    return bpe;
}

void ech_bpe_destroy(ech_bpe *bpe)
{
    if (!bpe) return;
    ech_bpe_splitter_destroy(bpe->splitter);
    ech_text_free(&bpe->bytes);
    ech_text_free(&bpe->source);
    free(bpe->front.at);
    free(bpe->back.at);
    free(bpe->token.at);
    free(bpe->merge.at);
    free(bpe->added.at);
    free(bpe->raw.node.at);
    free(bpe->normalized.node.at);
    free(bpe->word);
    free(bpe->pair);
    free(bpe->neighbours.pair);
    free(bpe);
}

/* ---- tokens by their bytes ---- */

/* The slot of a token in the table, or the free one where it would be. */
static size_t find_slot(const ech_bpe *bpe, const void *bytes, size_t n)
{
    size_t mask = bpe->word_slots - 1, slot = (size_t)XXH3_64bits(bytes, n) & mask;
    for (;; slot = (slot + 1) & mask) {
        int32_t id = bpe->word[slot];
        if (id == ECH_BPE_NONE) return slot;
        const ech_bpe_token *token = &bpe->token.at[id];
        if (token->n == n && memcmp(bpe->bytes.at + token->at, bytes, n) == 0) return slot;
    }
}

static void make_room(ech_bpe *bpe)
{
    if (2 * (bpe->words + 1) <= bpe->word_slots) return;
    ECH_FREED int32_t *old = bpe->word;
    size_t slots = bpe->word_slots;
    bpe->word_slots = slots ? 2 * slots : 1024;
    bpe->word = ech_calloc(bpe->word_slots, sizeof *bpe->word);
    memset(bpe->word, 0xff, bpe->word_slots * sizeof *bpe->word); /* ECH_BPE_NONE everywhere */
    for (size_t i = 0; i < slots; i++) {
        if (old[i] == ECH_BPE_NONE) continue;
        const ech_bpe_token *token = &bpe->token.at[old[i]];
        bpe->word[find_slot(bpe, bpe->bytes.at + token->at, token->n)] = old[i];
    }
}

int32_t ech_bpe_find(const ech_bpe *bpe, const void *bytes, size_t n)
{
    return bpe->word_slots ? bpe->word[find_slot(bpe, bytes, n)] : ECH_BPE_NONE;
}

bool ech_bpe_put(ech_bpe *bpe, int32_t id, const void *bytes, size_t n, bool plain)
{
    size_t at = (size_t)id;
    ECH_ASSERT(id >= 0 && n > 0);
    if (at < bpe->token.n && bpe->token.at[at].n > 0) return false;
    if (plain && ech_bpe_find(bpe, bytes, n) != ECH_BPE_NONE) return false;
    if (at >= bpe->token.n) {
        bpe->token.at =
            ech_grow(bpe->token.at, &bpe->token.capacity, at + 1, sizeof *bpe->token.at);
        bpe->token.n = at + 1;
    }
    bpe->token.at[at] = (ech_bpe_token){.at = bpe->bytes.n, .n = n, .plain = plain};
    ech_text_append_bytes(&bpe->bytes, bytes, n);
    if (!plain) return true;
    make_room(bpe);
    bpe->word[find_slot(bpe, bytes, n)] = id;
    bpe->words++;
    return true;
}

void ech_bpe_put_added(ech_bpe *bpe, ech_bpe_added added)
{
    ECH_PUSH(bpe->added, added);
}

int32_t ech_bpe_find_added(const ech_bpe *bpe, const void *bytes, size_t n)
{
    for (size_t i = 0; i < bpe->token.n; i++) {
        const ech_bpe_token *token = &bpe->token.at[i];
        if (!token->plain && token->n == n && memcmp(bpe->bytes.at + token->at, bytes, n) == 0)
            return (int32_t)i;
    }
    return ECH_BPE_NONE;
}

/* ---- merges by their pair ---- */

bool ech_bpe_put_merge(ech_bpe *bpe, int32_t left, int32_t right)
{
    const ech_bpe_token *a = &bpe->token.at[left], *b = &bpe->token.at[right];
    ECH_FREED_TEXT both = {0};
    ech_text_append_bytes(&both, bpe->bytes.at + a->at, a->n);
    ech_text_append_bytes(&both, bpe->bytes.at + b->at, b->n);
    int32_t made = ech_bpe_find(bpe, both.at, both.n);
    if (made == ECH_BPE_NONE) return false;
    int32_t rank = (int32_t)bpe->merge.n;
    ECH_PUSH(bpe->merge, (ech_bpe_merge){left, right, made, rank});
    return true;
}

static uint64_t key_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static size_t pair_slot(const ech_bpe *bpe, uint64_t key)
{
    size_t slot = (size_t)((key * 0x9e3779b97f4a7c15u) >> 20) & bpe->pair_mask;
    while (bpe->pair[slot].rank >= 0 && bpe->pair[slot].key != key)
        slot = (slot + 1) & bpe->pair_mask;
    return slot;
}

const ech_bpe_pair *ech_bpe_find_pair(const ech_bpe *bpe, int32_t left, int32_t right)
{
    const ech_bpe_pair *pair = &bpe->pair[pair_slot(bpe, key_of(left, right))];
    return pair->rank >= 0 ? pair : NULL;
}

static ech_status index_pairs(ech_bpe *bpe, const char *file)
{
    size_t slots = 1024;
    while (slots < 4 * bpe->merge.n) slots *= 2;
    bpe->pair = ech_calloc(slots, sizeof *bpe->pair);
    bpe->pair_mask = slots - 1;
    for (size_t i = 0; i < slots; i++) bpe->pair[i].rank = -1;
    for (size_t i = 0; i < bpe->merge.n; i++) {
        const ech_bpe_merge *merge = &bpe->merge.at[i];
        if (bpe->token.at[merge->left].byte || bpe->token.at[merge->right].byte)
            ECH_FAIL(ECH_EUNSUPPORTED,
                     "%s: merge %zu is of a byte's token, which no merge may take", file, i);
        uint64_t key = key_of(merge->left, merge->right);
        ech_bpe_pair *pair = &bpe->pair[pair_slot(bpe, key)];
        if (pair->rank >= 0)
            ECH_FAIL(ECH_EINPUT, "%s: merge %zu is merge %d again; each may come once", file, i,
                     (int)pair->rank);
        *pair = (ech_bpe_pair){key, merge->rank, merge->made};
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

static ech_status complain_of_byte(const ech_bpe *bpe, unsigned char byte, const char *file)
{
    ECH_FREED_TEXT shown = {0};
    if (bpe->characters)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: the vocabulary has no token " ECH_BPE_BYTE_NAME
                 "; with byte fallback it needs one for each of 256 bytes",
                 file, (unsigned)byte);
    ech_bpe_show(&byte, 1, &shown);
    return ech_fail_at(__FILE__, __LINE__, ECH_EINPUT,
                       "%s: the vocabulary has no token for byte 0x%02x (\"%s\"); "
                       "train it with all 256 bytes as its alphabet",
                       file, (unsigned)byte, shown.at);
}

static ech_status index_bytes(ech_bpe *bpe, const char *file)
{
    for (int i = 0; i < 256; i++) {
        unsigned char byte = (unsigned char)i;
        bpe->byte[i] = find_byte(bpe, byte);
        if (bpe->byte[i] == ECH_BPE_NONE) return complain_of_byte(bpe, byte, file);
        bpe->token.at[bpe->byte[i]].byte = bpe->characters;
    }
    return ECH_OK;
}

static ech_status index_added(ech_bpe *bpe, const char *file)
{
    for (size_t i = 0; i < bpe->added.n; i++) {
        ech_bpe_added *added = &bpe->added.at[i];
        ech_bpe_token *token = &bpe->token.at[added->id];
        added->at = token->at;
        added->n = token->n;
        if (added->normalized && !added->verbatim) ECH_TRY(ech_bpe_normalize_added(bpe, added));
        token->searched = added->at != token->at;
        const char *bytes = bpe->bytes.at + added->at;
        if (!ech_bpe_trie_put(added->normalized ? &bpe->normalized : &bpe->raw, bytes, added->n,
                              added->id))
            ECH_FAIL(ECH_EINPUT, "%s: added_tokens[%zu]: \"%.*s\" comes twice", file, i,
                     (int)added->n, bytes);
        if (added->n > bpe->longest_added) bpe->longest_added = added->n;
    }
    return ECH_OK;
}

ech_status ech_bpe_finish(ech_bpe *bpe, const char *file)
{
    ECH_TRY(index_bytes(bpe, file));
    ECH_TRY(index_pairs(bpe, file));
    ECH_TRY(index_added(bpe, file));
    ech_bpe_find_neighbours(bpe);
    return ech_bpe_splitter_create(bpe->pattern, &bpe->splitter);
}
