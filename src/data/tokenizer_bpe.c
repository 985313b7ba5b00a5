/* SPDX-License-Identifier: Apache-2.0
 *
 * BPE from files.
 */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "data/bpe/coder.h"
#include "data/tokenizer.h"

#define CONFIG "tokenizer_config.json"

static bool takes(const char *source)
{
    return source[0] && ech_file_exists(source);
}

/* The pairs of files that GPT-2's tokenizer comes as. */
static const char *const pairs[][2] = {{"encoder.json", "vocab.bpe"}, {"vocab.json", "merges.txt"}};

static ech_status open_pair(const char *folder, int i, ech_bpe **out)
{
    ECH_FREED char *vocabulary = ech_file_join(folder, pairs[i][0]);
    ECH_FREED char *merges = ech_file_join(folder, pairs[i][1]);
    ECH_FREED char *config = ech_file_join(folder, CONFIG);
    ECH_TRY(ech_bpe_check_gpt2(config));
    return ech_bpe_read_gpt2(vocabulary, merges, out);
}

static ech_status open_folder(const char *folder, ech_bpe **out)
{
    if (ech_file_has(folder, "tokenizer.json")) {
        char *path = ech_file_join(folder, "tokenizer.json");
        ech_status status = ech_bpe_read_json(path, out);
        free(path);
        return status;
    }
    for (int i = 0; i < 2; i++)
        if (ech_file_has(folder, pairs[i][0]) && ech_file_has(folder, pairs[i][1]))
            return open_pair(folder, i, out);
    if (ech_file_has(folder, "tokenizer.model")) {
        char *path = ech_file_join(folder, "tokenizer.model");
        ech_status status = ech_bpe_read_sentencepiece(path, out);
        free(path);
        return status;
    }
    ECH_FAIL(ECH_EUSAGE,
             "%s: holds no tokenizer: neither tokenizer.json, nor encoder.json and vocab.bpe, nor "
             "vocab.json and merges.txt, nor tokenizer.model",
             folder);
}

/* tokenizer_config.json of the folder, or beside the file. */
static char *config_path(const char *source)
{
    ECH_FREED char *folder =
        ech_file_is_folder(source) ? ech_strdup(source) : ech_file_parent(source);
    char *path = ech_file_join(folder, CONFIG);
    return path;
}

static ech_status read_ends(const char *source, ech_bpe *bpe)
{
    ECH_FREED char *config = config_path(source);
    return ech_bpe_read_ends(source, config, bpe);
}

static ech_status open_file(const char *path, ech_bpe **out)
{
    size_t n = strlen(path), end = strlen(".model");
    bool pieces = n > end && strcmp(path + n - end, ".model") == 0;
    return pieces ? ech_bpe_read_sentencepiece(path, out) : ech_bpe_read_json(path, out);
}

static ech_status open_bpe(const char *source, ech_tokenizer *out)
{
    ech_bpe *bpe;
    ECH_TRY(ech_file_is_folder(source) ? open_folder(source, &bpe) : open_file(source, &bpe));
    ech_status status = read_ends(source, bpe);
    if (status != ECH_OK) {
        ech_bpe_destroy(bpe);
        return status;
    }
    out->vocabulary = (int64_t)bpe->token.n;
    out->begin_of_text = bpe->begin_of_text;
    out->end_of_text = bpe->end_of_text;
    for (size_t i = 0; i < bpe->front.n; i++) ECH_PUSH(out->front, bpe->front.at[i]);
    for (size_t i = 0; i < bpe->back.n; i++) ECH_PUSH(out->back, bpe->back.at[i]);
    out->file = bpe->sentencepiece ? "tokenizer.model" : "tokenizer.json";
    out->state = bpe;
    return ECH_OK;
}

static void close_bpe(ech_tokenizer *tokenizer)
{
    ech_bpe_destroy(tokenizer->state);
}

static void *begin(const ech_tokenizer *tokenizer)
{
    return ech_bpe_coder_create(tokenizer->state);
}

static void end(void *state)
{
    ech_bpe_coder_destroy(state);
}

static ech_status encode(ech_coder *coder, const void *bytes, size_t n, bool begins, ech_ids *out)
{
    return ech_bpe_coder_encode(coder->state, bytes, n, begins, out);
}

static void decode(const ech_tokenizer *tokenizer, int32_t id, bool first, ech_text *out)
{
    ech_bpe_decode(tokenizer->state, id, first, out);
}

static void export_files(const ech_tokenizer *tokenizer, ech_text *tokenizer_json,
                         ech_text *config_json)
{
    ech_bpe_export(tokenizer->state, tokenizer_json, config_json);
}

static size_t split(const ech_tokenizer *tokenizer, const void *bytes, size_t n)
{
    return ech_bpe_split(tokenizer->state, bytes, n);
}

const ech_tokenizer_kind ech_tokenizer_bpe = {
    .name = "bpe",
    .takes = takes,
    .open = open_bpe,
    .close = close_bpe,
    .begin = begin,
    .end = end,
    .encode = encode,
    .decode = decode,
    .export_files = export_files,
    .split = split,
};
