/* SPDX-License-Identifier: Apache-2.0
 *
 * A vocabulary as Hugging Face's tokenizer.json and tokenizer_config.json: the file that it was
 * read from as it is, else a text that is the same for equal vocabularies over bytes.
 */
#include <jansson.h>
#include <string.h>

#include "data/bpe/bpe.h"

static void append_string(ech_text *out, const char *bytes, size_t n)
{
    json_auto_t *string = json_stringn(bytes, n);
    ECH_FREED char *quoted = json_dumps(string, JSON_ENCODE_ANY);
    ech_text_append(out, "%s", quoted);
}

/* A token's name in the file: visible characters if it is of the model, else what it is. */
static void append_name(ech_text *out, const ech_bpe *bpe, int32_t id)
{
    const ech_bpe_token *token = &bpe->token.at[id];
    ECH_FREED_TEXT name = {0};
    if (token->plain)
        ech_bpe_show(bpe->bytes.at + token->at, token->n, &name);
    else
        ech_text_append_bytes(&name, bpe->bytes.at + token->at, token->n);
    append_string(out, name.at, name.n);
}

static const char *truth(bool value)
{
    return value ? "true" : "false";
}

/* An added token without its id, the brace open. */
static void append_flags(ech_text *out, const ech_bpe *bpe, const ech_bpe_added *added)
{
    const ech_bpe_token *token = &bpe->token.at[added->id];
    ech_text_append(out, "\"content\": ");
    append_string(out, bpe->bytes.at + (added->apart ? added->at : token->at),
                  added->apart ? added->n : token->n);
    ech_text_append(out,
                    ", \"single_word\": %s, \"lstrip\": %s, \"rstrip\": %s, \"normalized\": %s, "
                    "\"special\": %s}",
                    truth(added->single_word), truth(added->lstrip), truth(added->rstrip),
                    truth(added->normalized), truth(added->special));
}

static void append_added(ech_text *out, const ech_bpe *bpe)
{
    ech_text_append(out, "  \"added_tokens\": [");
    for (size_t i = 0; i < bpe->added.n; i++) {
        ech_text_append(out, "%s\n    {\"id\": %d, ", i ? "," : "", (int)bpe->added.at[i].id);
        append_flags(out, bpe, &bpe->added.at[i]);
    }
    ech_text_append(out, "\n  ],\n");
}

/* Where tokenizer_config.json had them, so that what is written says the same. */
static void append_decoder(ech_text *out, const ech_bpe *bpe)
{
    const char *comma = "";
    if (!bpe->relisted || bpe->sentencepiece) return;
    ech_text_append(out, "  \"added_tokens_decoder\": {");
    for (size_t i = 0; i < bpe->added.n; i++) {
        const ech_bpe_added *added = &bpe->added.at[i];
        if (added->unlisted) continue;
        int32_t id = bpe->source.n ? added->stated : added->id; /* as the other file says it */
        ech_text_append(out, "%s\n    \"%d\": {", comma, (int)id);
        append_flags(out, bpe, added);
        comma = ",";
    }
    ech_text_append(out, "\n  },\n");
}

static void append_byte_level(ech_text *out, bool prefix, bool use_regex)
{
    ech_text_append(out,
                    "{\"type\": \"ByteLevel\", \"add_prefix_space\": %s, "
                    "\"trim_offsets\": true, \"use_regex\": %s}",
                    truth(prefix), truth(use_regex));
}

static void append_split(ech_text *out, const char *expression)
{
    ech_text_append(out, "{\"type\": \"Split\", \"pattern\": {\"Regex\": ");
    append_string(out, expression, strlen(expression));
    ech_text_append(out, "}, \"behavior\": \"Isolated\", \"invert\": false},\n    ");
}

/* ByteLevel has an expression of its own, GPT-2's, which comes last. */
static void append_pre_tokenizer(ech_text *out, const ech_bpe *bpe)
{
    ech_bpe_pattern pattern = bpe->pattern;
    const char *expression;
    bool own = false;
    int splits = 0;
    for (int i = 0; (expression = ech_bpe_pattern_expression(pattern, i)) != NULL; i++) {
        own = strcmp(expression, ech_bpe_gpt2_expression) == 0;
        if (own) break;
        if (splits++ == 0)
            ech_text_append(out, "{\"type\": \"Sequence\", \"pretokenizers\": [\n    ");
        append_split(out, expression);
    }
    append_byte_level(out, bpe->prefix != ECH_BPE_NO_PREFIX, own);
    if (splits > 0) ech_text_append(out, "\n  ]}");
}

static void append_model(ech_text *out, const ech_bpe *bpe)
{
    const char *comma = "";
    ech_text_append(out,
                    "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n"
                    "    \"unk_token\": null,\n    \"continuing_subword_prefix\": null,\n"
                    "    \"end_of_word_suffix\": null,\n    \"fuse_unk\": false,\n"
                    "    \"byte_fallback\": false,\n    \"ignore_merges\": %s,\n"
                    "    \"vocab\": {",
                    bpe->ignore_merges ? "true" : "false");
    for (size_t id = 0; id < bpe->token.n; id++) {
        if (!bpe->token.at[id].plain) continue;
        ech_text_append(out, "%s\n      ", comma);
        append_name(out, bpe, (int32_t)id);
        ech_text_append(out, ": %zu", id);
        comma = ",";
    }
    ech_text_append(out, "\n    },\n    \"merges\": [");
    for (size_t i = 0; i < bpe->merge.n; i++) {
        ech_text_append(out, "%s\n      [", i ? "," : "");
        append_name(out, bpe, bpe->merge.at[i].left);
        ech_text_append(out, ", ");
        append_name(out, bpe, bpe->merge.at[i].right);
        ech_text_append(out, "]");
    }
    ech_text_append(out, "%s]\n  }\n", bpe->merge.n ? "\n    " : "");
}

static void append_end(ech_text *out, const ech_bpe *bpe, const char *key, int32_t id)
{
    const ech_bpe_token *token = &bpe->token.at[id];
    const ech_bpe_added *added = token->added ? &bpe->added.at[token->added - 1] : NULL;
    bool apart = added && added->apart;
    ech_text_append(out, "  \"%s\": ", key);
    append_string(out, bpe->bytes.at + (apart ? added->at : token->at),
                  apart ? added->n : token->n);
    ech_text_append(out, ",\n");
}

static void append_config(ech_text *out, const ech_bpe *bpe)
{
    ech_text_append(out, "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n");
    append_end(out, bpe, "bos_token", bpe->begin_of_text);
    append_end(out, bpe, "eos_token", bpe->end_of_text);
    for (int i = 0; i < ECH_BPE_NAMES; i++)
        if (bpe->named[i] != ECH_BPE_NONE) append_end(out, bpe, ech_bpe_names[i], bpe->named[i]);
    append_decoder(out, bpe);
    ech_text_append(out, "  \"clean_up_tokenization_spaces\": false\n}\n");
}

void ech_bpe_export(const ech_bpe *bpe, ech_text *tokenizer_json, ech_text *config_json)
{
    append_config(config_json, bpe);
    ech_text *out = tokenizer_json;
    if (bpe->source.n > 0) {
        ech_text_append_bytes(out, bpe->source.at, bpe->source.n);
        return;
    }
    ech_text_append(out, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n"
                         "  \"padding\": null,\n");
    append_added(out, bpe);
    ech_text_append(out, "  \"normalizer\": null,\n  \"pre_tokenizer\": ");
    append_pre_tokenizer(out, bpe);
    ech_text_append(out, ",\n  \"post_processor\": null,\n  \"decoder\": ");
    append_byte_level(out, false, bpe->pattern == ECH_BPE_gpt2);
    ech_text_append(out, ",\n");
    append_model(out, bpe);
    ech_text_append(out, "}\n");
}
