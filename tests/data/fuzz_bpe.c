/* SPDX-License-Identifier: Apache-2.0
 *
 * Any text with any merges: ids equal the naive coder's, decode to the text, and are the same when
 * the text is cut where it may be. The input: pattern, or characters; count of merges m, m pairs of
 * tokens, then the text.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "data/bpe/coder.h"
#include "data/bpe_naive.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { MOST_TEXT = 2048 };

typedef struct naive_coder {
    const ech_bpe *bpe;
    ech_ids ids;
} naive_coder;

static ech_status encode_word(const char *word, size_t n, void *context)
{
    naive_coder *coder = context;
    int32_t ids[3 * MOST_TEXT]; /* a blank is three bytes */
    size_t count = naive_merge(coder->bpe, (const unsigned char *)word, n, ids);
    for (size_t i = 0; i < count; i++) ECH_PUSH(coder->ids, ids[i]);
    return ECH_OK;
}

static ech_status encode_run(const char *run, size_t n, void *context)
{
    naive_coder *coder = context;
    if (coder->bpe->characters) {
        ech_text marked = {0};
        ech_bpe_mark_blanks(run, n, &marked);
        ech_status status = encode_word(marked.at, marked.n, coder);
        ech_text_free(&marked);
        return status;
    }
    return ech_bpe_each_word(coder->bpe->splitter, run, n, encode_word, coder);
}

/* Words by the pattern, end-of-text by strstr. */
static void encode_naively(naive_coder *coder, const char *text, size_t n)
{
    static const char end[] = "<|endoftext|>";
    while (n > 0) {
        const char *found = memmem(text, n, end, strlen(end));
        size_t before = found ? (size_t)(found - text) : n;
        if (ech_bpe_each_run(ECH_BPE_AS_IS, text, before, encode_run, coder) != ECH_OK) abort();
        if (found) ECH_PUSH(coder->ids, 256);
        if (found) before += strlen(end);
        text += before;
        n -= before;
    }
}

static void encode_pieces(ech_bpe *bpe, const char *text, size_t n, size_t most, ech_ids *ids)
{
    ech_coder *coder = ech_coder_create(&(ech_tokenizer){.bpe = bpe});
    for (bool begins = true; n > 0; begins = false) {
        size_t piece = n > most ? ech_bpe_split(bpe, text, most) : n;
        if (piece == 0) piece = n;
        if (ech_coder_encode(coder, text, piece, begins, ids) != ECH_OK) abort();
        text += piece;
        n -= piece;
    }
    ech_coder_destroy(coder);
}

static void compare(ech_bpe *bpe, const char *text, size_t n, size_t most)
{
    naive_coder naive = {.bpe = bpe};
    ech_ids ids = {0};
    ech_text back = {0};
    encode_naively(&naive, text, n);
    encode_pieces(bpe, text, n, most, &ids);
    if (ids.n != naive.ids.n) abort();
    if (ids.n > 0 && memcmp(ids.at, naive.ids.at, ids.n * sizeof *ids.at) != 0) abort();
    for (size_t i = 0; i < ids.n; i++) ech_bpe_decode(bpe, ids.at[i], i == 0, &back);
    /* What is written U+2581 comes back as a blank. */
    bool exact = !bpe->characters || !memmem(text, n, ECH_BPE_BLANK, strlen(ECH_BPE_BLANK));
    if (!exact) back.n = n;
    if (back.n != n || (exact && n > 0 && memcmp(back.at, text, n) != 0)) abort();
    ech_text_free(&back);
    free(ids.at);
    free(naive.ids.at);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (n < 2) return 0;
    ech_log_set_quiet(true);
    int kind = bytes[0] % (ECH_BPE_PATTERNS + 1);
    ech_bpe *bpe =
        kind < ECH_BPE_PATTERNS ? naive_bytes((ech_bpe_pattern)kind) : naive_characters();
    size_t merges = bytes[1] % 64, at = 2;
    for (size_t i = 0; i < merges && at + 4 <= n; i++, at += 4)
        naive_add(bpe, (uint32_t)bytes[at] | (uint32_t)bytes[at + 1] << 8,
                  (uint32_t)bytes[at + 2] | (uint32_t)bytes[at + 3] << 8);
    if (ech_bpe_finish(bpe) != ECH_OK) abort();
    size_t left = n - at < MOST_TEXT ? n - at : MOST_TEXT;
    const char *text = (const char *)bytes + at;
    const size_t windows[] = {SIZE_MAX, 8, 50};
    for (int i = 0; i < 3; i++) compare(bpe, text, left, windows[i]);
    ech_bpe_destroy(bpe);
    return 0;
}
