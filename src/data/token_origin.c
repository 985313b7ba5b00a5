/* SPDX-License-Identifier: Apache-2.0
 *
 * Records which tokenizer made a token file. Ids alone do not show it: a model would train on wrong
 * ids without an error.
 */
#include "data/token_origin.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "data/corpus.h"
#include "data/token_index.h"

enum { VERSION = 2, KEYS = 7, MOST_BYTES = 64 << 10 };
static const char FORMAT[] = "echelon tokens";

void ech_token_origin_print(const ech_tokenizer *tokenizer, int64_t tokens, bool begins,
                            ech_text *out)
{
    char hash[ECH_TOKENIZER_HASH];
    ech_tokenizer_hash(tokenizer, hash);
    ech_text_append(out, "{\"format\": \"%s\",\n \"version\": %d,\n \"tokenizer\": ", FORMAT,
                    (int)VERSION);
    if (!ech_json_append_string(out, tokenizer->name)) ech_text_append(out, "\"\"");
    ech_text_append(out,
                    ",\n \"vocabulary\": %" PRId64 ",\n \"tokens\": %" PRId64
                    ",\n \"begin_of_text\": %s,\n \"hash\": \"%s\"}\n",
                    tokenizer->vocabulary, tokens, begins ? "true" : "false", hash);
}

static bool is_hash(const json_t *value)
{
    const char *text = json_string_value(value);
    return text && json_string_length(value) == ECH_TOKENIZER_HASH - 1 &&
           strspn(text, "0123456789abcdef") == ECH_TOKENIZER_HASH - 1;
}

static ech_status unpack(const char *path, const json_t *root, ech_token_origin *out)
{
    int64_t version;
    const char *format = json_string_value(json_object_get(root, "format"));
    const char *name = json_string_value(json_object_get(root, "tokenizer"));
    const json_t *hash = json_object_get(root, "hash");
    if (!format || strcmp(format, FORMAT) != 0)
        ECH_FAIL(ECH_EINPUT,
                 "%s: 'format' is not \"%s\"; rename this file: only Echelon's record of a token "
                 "file has that name",
                 path, FORMAT);
    if (!ech_json_to_int(json_object_get(root, "version"), 1, VERSION, &version))
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: 'version' is not %d or less: a newer Echelon wrote it; use that one, or make "
                 "the tokens again",
                 path, (int)VERSION);
    const json_t *begins = json_object_get(root, "begin_of_text");
    bool new = version > 1; /* version 1 is of programs that never put it there */
    out->begins = json_is_true(begins);
    if (json_object_size(root) != (size_t)(KEYS - !new) || json_is_boolean(begins) != new ||
        !name || !is_hash(hash) ||
        !ech_json_to_int(json_object_get(root, "vocabulary"), 1, INT32_MAX, &out->vocabulary) ||
        !ech_json_to_int(json_object_get(root, "tokens"), 0, INT64_MAX, &out->tokens))
        ECH_FAIL(ECH_EINPUT,
                 "%s: is damaged: version %d has exactly format, version, tokenizer, vocabulary, "
                 "tokens, begin_of_text and hash; make the tokens again",
                 path, (int)VERSION);
    memcpy(out->hash, json_string_value(hash), sizeof out->hash);
    out->tokenizer = ech_strdup(name);
    return ECH_OK;
}

ech_status ech_token_origin_parse(const char *path, const char *text, size_t n,
                                  ech_token_origin *out)
{
    const ech_json_limits limits = {.depth = 2, .containers = 4, .values = 16};
    json_auto_t *root = NULL;
    ECH_TRY(ech_json_parse(path, text, n, limits, &root));
    return unpack(path, root, out);
}

void ech_token_origin_free(ech_token_origin *origin)
{
    free(origin->tokenizer);
    *origin = (ech_token_origin){0};
}

/* ---- is it the same tokenizer? ---- */

static ech_status refuse(const ech_corpus_options *options, const char *prefix,
                         const ech_token_origin *origin)
{
    const char *name = options->tokenizer->name;
    bool has_key = strncmp(options->key, "--", 2) != 0;
    const char *other = has_key && origin->tokenizer[0] ? origin->tokenizer : NULL;
    ECH_FAIL(ECH_EUSAGE,
             "%s: %s was made with the tokenizer %s, of %lld ids, and this is %s, of %lld, which "
             "means something else by them; %s%s%smake the tokens again: echelon data IN OUT "
             "--tokenizer %s",
             options->key, prefix, origin->tokenizer, (long long)origin->vocabulary, name,
             (long long)options->tokenizer->vocabulary, other ? "set data.tokenizer=" : "",
             other ? other : "", other ? ", or " : "", name);
}

static ech_status compare(const ech_corpus_options *options, const char *prefix, int64_t tokens,
                          const ech_token_origin *origin)
{
    char hash[ECH_TOKENIZER_HASH];
    if (origin->tokens != tokens)
        ECH_FAIL(
            ECH_EINPUT,
            "%s%s: describes %lld tokens, but %s.bin has %lld: it belongs to another file; remove "
            "it",
            prefix, ECH_TOKEN_ORIGIN, (long long)origin->tokens, prefix, (long long)tokens);
    if (!options->tokenizer) {
        if (origin->vocabulary <= options->vocabulary) return ECH_OK;
        ECH_FAIL(ECH_EUSAGE,
                 "%s: %s was made with the tokenizer %s, of %lld ids, more than the model's %lld; "
                 "make the tokens again with the model's own",
                 options->key, prefix, origin->tokenizer, (long long)origin->vocabulary,
                 (long long)options->vocabulary);
    }
    ech_tokenizer_hash(options->tokenizer, hash);
    return strcmp(hash, origin->hash) == 0 ? ECH_OK : refuse(options, prefix, origin);
}

static ech_status read_origin(const char *prefix, bool *found, ech_token_origin *out)
{
    ECH_FREED char *path = ech_token_path(prefix, ECH_TOKEN_ORIGIN), *text = NULL;
    size_t n;
    *found = ech_file_exists(path);
    if (!*found) return ECH_OK;
    ECH_TRY(ech_file_read(path, MOST_BYTES, &text, &n));
    return ech_token_origin_parse(path, text, n, out);
}

ech_status ech_data_begins(const char *key, const char *sources, int *begins)
{
    static const char *const words_of[] = {"without", "with"};
    ECH_CLEANUP(ech_corpus_words_free) ech_corpus_words words = {0};
    const char *first = NULL;
    ECH_TRY(ech_corpus_read_words(key, sources, &words));
    *begins = -1;
    for (size_t i = 0; i < words.path.n; i++) {
        ECH_CLEANUP(ech_token_origin_free) ech_token_origin origin = {0};
        bool found;
        ECH_TRY(read_origin(words.path.at[i], &found, &origin));
        if (!found) continue;
        if (first && origin.begins != (*begins == 1))
            ECH_FAIL(
                ECH_EUSAGE,
                "%s: %s was made %s begin of text before each document, and %s %s; make one of "
                "them again, with echelon data --begin-of-text",
                key, first, words_of[*begins], words.path.at[i], words_of[origin.begins]);
        *begins = origin.begins;
        first = words.path.at[i];
    }
    return ECH_OK;
}

ech_status ech_token_origin_check(const ech_corpus_options *options, const char *prefix,
                                  int64_t tokens)
{
    ECH_CLEANUP(ech_token_origin_free) ech_token_origin origin = {0};
    bool found;
    ECH_TRY(read_origin(prefix, &found, &origin));
    if (!found) return ECH_OK;
    return compare(options, prefix, tokens, &origin);
}
