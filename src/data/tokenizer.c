/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of tokenizers, and functions of all kinds.
 */
#include "data/tokenizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#include "base/file.h"

static const ech_tokenizer_kind *const kinds[] = {
#define X(name, help) &ech_tokenizer_##name,
#include "data/tokenizer.def"
#undef X
};

static const ech_tokenizer_kind *find_kind(const char *source)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (kinds[i]->takes(source)) return kinds[i];
    return NULL;
}

ech_status ech_tokenizer_open(const char *source, ech_tokenizer **out)
{
    const ech_tokenizer_kind *kind = find_kind(source);
    if (!kind)
        ECH_FAIL(ECH_EUSAGE,
                 "tokenizer %s: no such tokenizer; say bytes, or name a tokenizer.json, a "
                 "tokenizer.model or a folder that holds one",
                 source);
    ech_tokenizer *tokenizer = ech_calloc(1, sizeof *tokenizer);
    tokenizer->kind = kind;
    ech_status status = kind->open(source, tokenizer);
    if (status != ECH_OK) {
        free(tokenizer);
        return status;
    }
    tokenizer->name = ech_strdup(source);
    *out = tokenizer;
    return ECH_OK;
}

void ech_tokenizer_close(ech_tokenizer *tokenizer)
{
    if (!tokenizer) return;
    if (tokenizer->kind->close) tokenizer->kind->close(tokenizer);
    free(tokenizer->front.at);
    free(tokenizer->back.at);
    free(tokenizer->name);
    free(tokenizer);
}

const char *ech_tokenizer_name(const ech_tokenizer *tokenizer)
{
    return tokenizer->name;
}

char *ech_tokenizer_folder(const ech_tokenizer *tokenizer)
{
    if (tokenizer->kind->built_in) return NULL;
    bool is = ech_file_is_folder(tokenizer->name);
    return is ? ech_strdup(tokenizer->name) : ech_file_parent(tokenizer->name);
}

int64_t ech_tokenizer_vocabulary(const ech_tokenizer *tokenizer)
{
    return tokenizer->vocabulary;
}

int32_t ech_tokenizer_begin_of_text(const ech_tokenizer *tokenizer)
{
    return tokenizer->begin_of_text;
}

int32_t ech_tokenizer_end_of_text(const ech_tokenizer *tokenizer)
{
    return tokenizer->end_of_text;
}

const ech_ids *ech_tokenizer_front(const ech_tokenizer *tokenizer)
{
    return &tokenizer->front;
}

const ech_ids *ech_tokenizer_back(const ech_tokenizer *tokenizer)
{
    return &tokenizer->back;
}

void ech_tokenizer_decode(const ech_tokenizer *tokenizer, int32_t id, bool first, ech_text *out)
{
    ECH_ASSERT(id >= 0 && id < tokenizer->vocabulary);
    if (id != tokenizer->end_of_text) tokenizer->kind->decode(tokenizer, id, first, out);
}

const char *ech_tokenizer_file(const ech_tokenizer *tokenizer)
{
    return tokenizer->file;
}

void ech_tokenizer_export(const ech_tokenizer *tokenizer, ech_text *file, ech_text *config_json)
{
    tokenizer->kind->export_files(tokenizer, file, config_json);
}

void ech_tokenizer_hash(const ech_tokenizer *tokenizer, char hash[ECH_TOKENIZER_HASH])
{
    XXH3_state_t *state = XXH3_createState();
    ECH_FREED_TEXT bytes = {0};
    ECH_ASSERT(state && XXH3_128bits_reset(state) == XXH_OK);
    for (int32_t id = 0; id < tokenizer->vocabulary; id++) {
        bytes.n = 0;
        tokenizer->kind->decode(tokenizer, id, false, &bytes);
        uint64_t n = bytes.n; /* so that none runs into the next */
        XXH3_128bits_update(state, &n, sizeof n);
        if (n > 0) XXH3_128bits_update(state, bytes.at, bytes.n);
    }
    XXH128_hash_t digest = XXH3_128bits_digest(state);
    snprintf(hash, ECH_TOKENIZER_HASH, "%016" PRIx64 "%016" PRIx64, (uint64_t)digest.high64,
             (uint64_t)digest.low64);
    XXH3_freeState(state);
}

size_t ech_tokenizer_split(const ech_tokenizer *tokenizer, const void *bytes, size_t n)
{
    return n > 0 ? tokenizer->kind->split(tokenizer, bytes, n) : 0;
}

ech_coder *ech_coder_create(const ech_tokenizer *tokenizer)
{
    ech_coder *coder = ech_calloc(1, sizeof *coder);
    coder->tokenizer = tokenizer;
    if (tokenizer->kind->begin) coder->state = tokenizer->kind->begin(tokenizer);
    return coder;
}

void ech_coder_destroy(ech_coder *coder)
{
    if (!coder) return;
    if (coder->state) coder->tokenizer->kind->end(coder->state);
    free(coder);
}

ech_status ech_coder_encode(ech_coder *coder, const void *bytes, size_t n, ech_ids *out)
{
    return n > 0 ? coder->tokenizer->kind->encode(coder, bytes, n, true, out) : ECH_OK;
}

ech_status ech_coder_continue(ech_coder *coder, const void *bytes, size_t n, ech_ids *out)
{
    return n > 0 ? coder->tokenizer->kind->encode(coder, bytes, n, false, out) : ECH_OK;
}
