/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokenizers: bytes alone, or BPE from files.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/file.h"
#include "data/bpe/coder.h"

#define CONFIG "tokenizer_config.json"

static bool is_bytes(const char *source)
{
    return strcmp(source, "bytes") == 0;
}

/* One token per byte; id 256 ends a text. Any file has a tokenization, and nothing is to be learnt
 * or downloaded before training can begin. The exported file differs in one thing: where a text
 * spells out <|endoftext|>, Hugging Face takes it for id 256. */
static ech_status make_bytes(ech_bpe *bpe)
{
    bpe->file = "bytes";
    for (int i = 0; i < 256; i++) ech_bpe_put(bpe, i, &(unsigned char){(unsigned char)i}, 1, true);
    ech_bpe_put_end(bpe, 256);
    bpe->added.at[0].hidden = true;
    return ech_bpe_finish(bpe);
}

/* ---- files ---- */

/* GPT-2's pair: *main is the vocabulary's path. */
static ech_status read_pair(const char *folder, const char *vocabulary_name,
                            const char *merges_name, ech_bpe *bpe, char **main)
{
    ECH_FREED char *merges = ech_file_join(folder, merges_name);
    ECH_FREED char *config = ech_file_join(folder, CONFIG);
    *main = ech_file_join(folder, vocabulary_name);
    ECH_TRY(ech_bpe_check_gpt2(config));
    return ech_bpe_read_gpt2(*main, merges, bpe);
}

/* *main: the path of the file that was read first, in new memory; also after errors. */
static ech_status read_folder(const char *folder, ech_bpe *bpe, char **main)
{
    /* The pairs of files that GPT-2's tokenizer comes as. */
    static const char *const pairs[][2] = {{"encoder.json", "vocab.bpe"},
                                           {"vocab.json", "merges.txt"}};
    *main = ech_file_join(folder, "tokenizer.json");
    if (ech_file_exists(*main)) return ech_bpe_read_json(*main, bpe);
    free(*main);
    *main = NULL;
    for (int i = 0; i < 2; i++)
        if (ech_file_has(folder, pairs[i][0]) && ech_file_has(folder, pairs[i][1]))
            return read_pair(folder, pairs[i][0], pairs[i][1], bpe, main);
    *main = ech_file_join(folder, "tokenizer.model");
    if (ech_file_exists(*main)) return ech_bpe_read_sentencepiece(*main, bpe);
    ECH_FAIL(ECH_EUSAGE,
             "%s: holds no tokenizer: neither tokenizer.json, nor encoder.json and vocab.bpe, nor "
             "vocab.json and merges.txt, nor tokenizer.model",
             folder);
}

static ech_status read_source(const char *source, ech_bpe *bpe)
{
    size_t n = strlen(source), end = strlen(".model");
    bool folder = ech_file_is_folder(source);
    bool pieces = n > end && strcmp(source + n - end, ".model") == 0;
    ECH_FREED char *beside = folder ? ech_strdup(source) : ech_file_parent(source);
    ECH_FREED char *main = folder ? NULL : ech_strdup(source);
    ECH_TRY(folder   ? read_folder(source, bpe, &main)
            : pieces ? ech_bpe_read_sentencepiece(source, bpe)
                     : ech_bpe_read_json(source, bpe));
    bpe->file = main;
    ECH_TRY(ech_bpe_read_sides(main, beside, bpe));
    bpe->file = NULL;
    return ECH_OK;
}

/* ---- all ---- */

ech_status ech_tokenizer_open(const char *source, ech_tokenizer **out)
{
    if (!is_bytes(source) && (!source[0] || !ech_file_exists(source)))
        ECH_FAIL(ECH_EUSAGE,
                 "tokenizer %s: no such tokenizer; say bytes, or name a tokenizer.json, a "
                 "tokenizer.model or a folder that holds one",
                 source);
    ECH_CLEANUP(ech_bpe_destroy_at) ech_bpe *bpe = ech_bpe_create();
    ECH_TRY(is_bytes(source) ? make_bytes(bpe) : read_source(source, bpe));
    ech_tokenizer *tokenizer = ech_calloc(1, sizeof *tokenizer);
    *tokenizer = (ech_tokenizer){.name = ech_strdup(source),
                                 .file = bpe->sentencepiece ? "tokenizer.model" : "tokenizer.json",
                                 .vocabulary = (int64_t)bpe->token.n,
                                 .end_of_text = bpe->end_of_text,
                                 .begin_of_text = bpe->begin_of_text,
                                 .front = bpe->front,
                                 .back = bpe->back,
                                 .bpe = bpe};
    bpe = NULL;
    *out = tokenizer;
    return ECH_OK;
}

void ech_tokenizer_close(ech_tokenizer *tokenizer)
{
    if (!tokenizer) return;
    ech_bpe_destroy(tokenizer->bpe);
    free(tokenizer->name);
    free(tokenizer);
}

void ech_tokenizer_begin(const ech_tokenizer *tokenizer, int wanted, ech_ids *out)
{
    const ech_ids *front = &tokenizer->front;
    for (size_t i = 0; i < front->n && wanted != 0; i++) ECH_PUSH(*out, front->at[i]);
    if (front->n == 0 && wanted == 1) ECH_PUSH(*out, tokenizer->begin_of_text);
}

char *ech_tokenizer_folder(const ech_tokenizer *tokenizer)
{
    if (is_bytes(tokenizer->name)) return NULL;
    bool is = ech_file_is_folder(tokenizer->name);
    return is ? ech_strdup(tokenizer->name) : ech_file_parent(tokenizer->name);
}

void ech_tokenizer_decode(const ech_tokenizer *tokenizer, int32_t id, bool first, ech_text *out)
{
    ECH_ASSERT(id >= 0 && id < tokenizer->vocabulary);
    if (id != tokenizer->end_of_text) ech_bpe_decode(tokenizer->bpe, id, first, out);
}

void ech_tokenizer_export(const ech_tokenizer *tokenizer, ech_text *file, ech_text *config_json)
{
    ech_bpe_export(tokenizer->bpe, file, config_json);
}

void ech_tokenizer_hash(const ech_tokenizer *tokenizer, char hash[ECH_TOKENIZER_HASH])
{
    ECH_FREED_TEXT all = {0}, bytes = {0};
    for (int32_t id = 0; id < tokenizer->vocabulary; id++) {
        bytes.n = 0;
        ech_bpe_decode(tokenizer->bpe, id, false, &bytes);
        uint64_t n = bytes.n; /* so that none runs into the next */
        ech_text_append_bytes(&all, &n, sizeof n);
        ech_text_append_bytes(&all, bytes.at, bytes.n);
    }
    ech_data_hash(&all, hash);
}

void ech_data_hash(const ech_text *text, char hash[ECH_TOKENIZER_HASH])
{
    XXH128_hash_t digest = XXH3_128bits(text->at, text->n);
    snprintf(hash, ECH_TOKENIZER_HASH, "%016" PRIx64 "%016" PRIx64, (uint64_t)digest.high64,
             (uint64_t)digest.low64);
}

size_t ech_tokenizer_split(const ech_tokenizer *tokenizer, const void *bytes, size_t n)
{
    return ech_bpe_split(tokenizer->bpe, bytes, n);
}
