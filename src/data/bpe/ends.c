/* SPDX-License-Identifier: Apache-2.0
 *
 * Which token ends a text, and which begins one: from tokenizer_config.json, or by their usual names.
 */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "data/bpe/json.h"

enum { MOST_BYTES = 16 << 20 };

/* Begin and end of the families that are known. */
static const char *const usual_ends[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<|eot_id|>"};
static const char *const usual_begins[] = {"<|begin_of_text|>", "<s>"};

/* The id of an added token, else of one of the model. */
static int32_t find_any(const ech_bpe *bpe, const char *name)
{
    size_t n = strlen(name);
    for (size_t id = 0; id < bpe->token.n; id++) {
        const ech_bpe_token *token = &bpe->token.at[id];
        if (!token->plain && token->n == n && memcmp(bpe->bytes.at + token->at, name, n) == 0)
            return (int32_t)id;
    }
    return ech_bpe_find(bpe, name, n);
}

static int32_t find_usual(const ech_bpe *bpe, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int32_t id = find_any(bpe, names[i]);
        if (id != ECH_BPE_NONE) return id;
    }
    return ECH_BPE_NONE;
}

/* "eos_token": a string, or an object with "content"; null or nothing: unknown. */
static ech_status take_end(const json_t *root, const char *key, const char *file,
                           const ech_bpe *bpe, int32_t *id)
{
    const json_t *value = json_object_get(root, key);
    if (json_is_object(value)) value = json_object_get(value, "content");
    if (!value || json_is_null(value)) return ECH_OK;
    const char *name = json_string_value(value);
    if (!name) ECH_FAIL(ECH_EINPUT, "%s: %s: neither a string nor an added token", file, key);
    *id = find_any(bpe, name);
    if (*id == ECH_BPE_NONE)
        ECH_FAIL(ECH_EINPUT, "%s: %s: \"%.80s\" is no token of the tokenizer beside it", file, key,
                 name);
    return ECH_OK;
}

/* "add_bos_token", "add_eos_token": where the class of the tokenizer looks at these, transformers puts them
 * around a text, whatever the post-processor says. */
static void take_around(const json_t *root, ech_bpe *bpe)
{
    const json_t *front = json_object_get(root, "add_bos_token");
    const json_t *back = json_object_get(root, "add_eos_token");
    if (!json_is_boolean(front) && !json_is_boolean(back)) return;
    bpe->front.n = bpe->back.n = 0;
    if (json_is_true(front) && bpe->begin_of_text != ECH_BPE_NONE)
        ECH_PUSH(bpe->front, bpe->begin_of_text);
    if (json_is_true(back) && bpe->end_of_text != ECH_BPE_NONE)
        ECH_PUSH(bpe->back, bpe->end_of_text);
}

static ech_status take_config(const char *path, ech_bpe *bpe)
{
    json_auto_t *root = NULL;
    ECH_TRY(ech_bpe_load_json(path, MOST_BYTES, true, NULL, &root));
    ECH_TRY(take_end(root, "eos_token", path, bpe, &bpe->end_of_text));
    ECH_TRY(take_end(root, "bos_token", path, bpe, &bpe->begin_of_text));
    take_around(root, bpe);
    return ECH_OK;
}

ech_status ech_bpe_read_ends(const char *path, const char *config_path, ech_bpe *bpe)
{
    if (ech_file_exists(config_path)) ECH_TRY(take_config(config_path, bpe));
    if (bpe->end_of_text == ECH_BPE_NONE)
        bpe->end_of_text = find_usual(bpe, usual_ends, sizeof usual_ends / sizeof usual_ends[0]);
    if (bpe->begin_of_text == ECH_BPE_NONE)
        bpe->begin_of_text =
            find_usual(bpe, usual_begins, sizeof usual_begins / sizeof usual_begins[0]);
    if (bpe->begin_of_text == ECH_BPE_NONE) bpe->begin_of_text = bpe->end_of_text;
    if (bpe->end_of_text == ECH_BPE_NONE)
        ECH_FAIL(ECH_EINPUT,
                 "%s: which token ends a text? None is called <|endoftext|>, <|end_of_text|>, </s> "
                 "or <|eot_id|>; name it as \"eos_token\" in %s",
                 path, config_path);
    return ECH_OK;
}

ech_status ech_bpe_check_gpt2(const char *config_path)
{
    json_auto_t *root = NULL;
    if (!ech_file_exists(config_path)) return ECH_OK;
    ECH_TRY(ech_bpe_load_json(config_path, MOST_BYTES, true, NULL, &root));
    char name[64] = "GPT2";
    const char *class = json_string_value(json_object_get(root, "tokenizer_class"));
    if (class) snprintf(name, sizeof name, "%s", class);
    if (strncmp(name, "GPT2", 4) == 0) return ECH_OK;
    ECH_FAIL(
        ECH_EUNSUPPORTED,
        "%s: tokenizer_class is %s, and vocabulary and merges alone do not say how that splits "
        "text; save it as tokenizer.json",
        config_path, name);
}
