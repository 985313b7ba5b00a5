/* SPDX-License-Identifier: Apache-2.0
 *
 * One token per byte; id 256 ends a text. Any file has a tokenization, and nothing is to be learnt
 * or downloaded before training can begin.
 */
#include <string.h>

#include "data/bpe/bpe.h"
#include "data/tokenizer.h"

enum { BYTES = 256, END_OF_TEXT = 256, VOCABULARY = 257 };
#define END_OF_TEXT_NAME "<|endoftext|>"

static bool takes(const char *source)
{
    return strcmp(source, "bytes") == 0;
}

static ech_status open_bytes(const char *source, ech_tokenizer *out)
{
    (void)source;
    out->file = "tokenizer.json";
    out->vocabulary = VOCABULARY;
    out->begin_of_text = out->end_of_text = END_OF_TEXT;
    return ECH_OK;
}

static ech_status encode(ech_coder *coder, const void *bytes, size_t n, bool begins, ech_ids *out)
{
    (void)coder, (void)begins;
    const unsigned char *from = bytes;
    out->at = ech_grow(out->at, &out->capacity, out->n + n, sizeof *out->at);
    for (size_t i = 0; i < n; i++) out->at[out->n + i] = from[i];
    out->n += n;
    return ECH_OK;
}

static void decode(const ech_tokenizer *tokenizer, int32_t id, bool first, ech_text *out)
{
    (void)tokenizer, (void)first;
    unsigned char byte = (unsigned char)id;
    if (id == END_OF_TEXT) /* as in the exported files */
        ech_text_append(out, "%s", END_OF_TEXT_NAME);
    else
        ech_text_append_bytes(out, &byte, 1);
}

/* Byte-level BPE without merges. The one difference from `encode`: where a text spells out
 * <|endoftext|>, Hugging Face takes it for id 256, and so does who opens these files. */
static void export_files(const ech_tokenizer *tokenizer, ech_text *tokenizer_json,
                         ech_text *config_json)
{
    ech_bpe *bpe = ech_bpe_create();
    (void)tokenizer;
    for (int i = 0; i < BYTES; i++)
        ech_bpe_put(bpe, i, &(unsigned char){(unsigned char)i}, 1, true);
    ech_bpe_put(bpe, END_OF_TEXT, END_OF_TEXT_NAME, strlen(END_OF_TEXT_NAME), true);
    ech_bpe_put_added(bpe, (ech_bpe_added){.id = END_OF_TEXT, .special = true});
    bpe->begin_of_text = bpe->end_of_text = END_OF_TEXT;
    ech_bpe_export(bpe, tokenizer_json, config_json);
    ech_bpe_destroy(bpe);
}

static size_t split(const ech_tokenizer *tokenizer, const void *bytes, size_t n)
{
    (void)tokenizer, (void)bytes;
    return n;
}

const ech_tokenizer_kind ech_tokenizer_bytes = {
    .name = "bytes",
    .built_in = true,
    .takes = takes,
    .open = open_bytes,
    .encode = encode,
    .decode = decode,
    .export_files = export_files,
    .split = split,
};
