/* SPDX-License-Identifier: Apache-2.0
 *
 * GPT-2's own pair of files: encoder.json (or vocab.json), tokens by their printable characters,
 * and vocab.bpe (or merges.txt), a merge per line after "#version: 0.2". Neither has the pattern of
 * words: it is GPT-2's.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "data/bpe/json.h"

enum { MOST_BYTES = 64 << 20 };

static ech_status take_line(const char *line, size_t n, size_t number, ech_bpe *bpe)
{
    char place[64];
    const char *gap = memchr(line, ' ', n);
    snprintf(place, sizeof place, "line %zu", number);
    size_t left = gap ? (size_t)(gap - line) : 0;
    if (!gap || memchr(gap + 1, ' ', n - left - 1))
        ECH_FAIL(ECH_EINPUT, "%s: %s: must be two tokens with a blank between" ECH_BPE_AGAIN,
                 bpe->file, place);
    return ech_bpe_take_merge(line, left, gap + 1, n - left - 1, place, bpe);
}

static ech_status take_vocabulary(ech_bpe *bpe)
{
    json_auto_t *root = NULL;
    ECH_TRY(ech_bpe_load_json(bpe->file, MOST_BYTES, false, NULL, &root));
    ECH_TRY(ech_bpe_take_vocabulary(root, NULL, "the vocabulary", bpe));
    int32_t end = ech_bpe_find(bpe, ECH_BPE_END, strlen(ECH_BPE_END));
    if (end != ECH_BPE_NONE) ECH_PUSH(bpe->added, (ech_bpe_added){.id = end, .special = true});
    return ECH_OK;
}

static ech_status take_merges(ech_bpe *bpe)
{
    ECH_FREED char *text = NULL;
    size_t n, number = 1;
    ECH_TRY(ech_file_read(bpe->file, MOST_BYTES, &text, &n));
    for (size_t at = 0; at < n; number++) {
        const char *line = text + at, *newline = memchr(line, '\n', n - at);
        size_t length = newline ? (size_t)(newline - line) : n - at;
        at += length + 1;
        if (length > 0 && line[length - 1] == '\r') length--;
        bool version = number == 1 && length >= 8 && memcmp(line, "#version", 8) == 0;
        if (length > 0 && !version) ECH_TRY(take_line(line, length, number, bpe));
    }
    return ECH_OK;
}

ech_status ech_bpe_read_gpt2(const char *vocabulary, const char *merges, ech_bpe *bpe)
{
    bpe->pattern = ECH_BPE_gpt2;
    bpe->file = vocabulary;
    ECH_TRY(take_vocabulary(bpe));
    bpe->file = merges;
    ECH_TRY(take_merges(bpe));
    bpe->file = vocabulary;
    return ECH_OK;
}
