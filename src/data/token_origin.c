/* SPDX-License-Identifier: Apache-2.0
 *
 * Which tokenizer made a token file. Ids alone do not tell: a model trains on wrong ones without
 * an error.
 */
#include "data/token_origin.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "data/token_index.h"

enum { VERSION = 1, KEYS = 6, MOST_BYTES = 64 << 10 };
static const char FORMAT[] = "echelon tokens";

void ech_token_origin_print(const ech_tokenizer *tokenizer, int64_t tokens, ech_text *out)
{
    char hash[ECH_TOKENIZER_HASH];
    ech_tokenizer_hash(tokenizer, hash);
    ech_text_append(out, "{\"format\": \"%s\",\n \"version\": %d,\n \"tokenizer\": ", FORMAT,
                    (int)VERSION);
    if (!ech_json_append_string(out, tokenizer->name)) ech_text_append(out, "\"\"");
    ech_text_append(
        out, ",\n \"vocabulary\": %" PRId64 ",\n \"tokens\": %" PRId64 ",\n \"hash\": \"%s\"}\n",
        tokenizer->vocabulary, tokens, hash);
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
                 "%s: 'format' is not \"%s\"; where it is something else of yours, it "
                 "cannot have that name beside a token file",
                 path, FORMAT);
    if (!ech_json_to_int(json_object_get(root, "version"), VERSION, VERSION, &version))
        ECH_FAIL(ECH_EUNSUPPORTED, "%s: 'version' is not %d: a newer program wrote it", path,
                 (int)VERSION);
    if (json_object_size(root) != KEYS || !name || !is_hash(hash) ||
        !ech_json_to_int(json_object_get(root, "vocabulary"), 1, INT32_MAX, &out->vocabulary) ||
        !ech_json_to_int(json_object_get(root, "tokens"), 0, INT64_MAX, &out->tokens))
        ECH_FAIL(ECH_EINPUT,
                 "%s: is damaged: version %d has exactly format, version, tokenizer, vocabulary, "
                 "tokens and hash; make the tokens again",
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
            "%s%s: tells of %lld tokens, and %s.bin has %lld: it is about another file; remove "
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

ech_status ech_token_origin_check(const ech_corpus_options *options, const char *prefix,
                                  int64_t tokens)
{
    ECH_FREED char *path = ech_token_path(prefix, ECH_TOKEN_ORIGIN), *text = NULL;
    ECH_CLEANUP(ech_token_origin_free) ech_token_origin origin = {0};
    size_t n;
    if (!ech_file_exists(path)) return ECH_OK;
    ECH_TRY(ech_file_read(path, MOST_BYTES, &text, &n));
    ECH_TRY(ech_token_origin_parse(path, text, n, &origin));
    return compare(options, prefix, tokens, &origin);
}
