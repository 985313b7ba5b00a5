/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of Hugging Face's tokenizer files: vocabulary, merges, added tokens.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "data/bpe/json.h"

enum { SPARE_IDS = 1000, LONGEST_SHOWN = 80 };

/* Ids may leave holes, but not so many that a table by id is larger than the file's own content. */
static ech_status check_id(const json_t *id, size_t entries, const char *what, const char *name,
                           const ech_bpe *bpe)
{
    json_int_t most = 2 * (json_int_t)entries + SPARE_IDS;
    if (!json_is_integer(id))
        ECH_FAIL(ECH_EINPUT, "%s: %s: the id of \"%.*s\" is no whole number" ECH_BPE_AGAIN,
                 bpe->file, what, LONGEST_SHOWN, name);
    if (json_integer_value(id) < 0 || json_integer_value(id) >= most)
        ECH_FAIL(ECH_EINPUT,
                 "%s: %s: \"%.*s\" has id %lld; with %zu tokens ids are 0 and above, below "
                 "%lld" ECH_BPE_AGAIN,
                 bpe->file, what, LONGEST_SHOWN, name, (long long)json_integer_value(id), entries,
                 (long long)most);
    return ECH_OK;
}

/* The ids of the added tokens by their contents. */
static json_t *index_contents(const json_t *added)
{
    json_t *ids = json_object();
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *token = json_array_get(added, i);
        const char *content = json_string_value(json_object_get(token, "content"));
        if (content) json_object_set(ids, content, json_object_get(token, "id"));
    }
    return ids;
}

/* The bytes of a name: over characters itself, else of visible characters. False: it has others. */
static bool append_named(const ech_bpe *bpe, const char *name, size_t n, ech_text *out)
{
    if (!bpe->characters) return ech_bpe_unshow(name, n, out);
    if (n > 0) ech_text_append_bytes(out, name, n);
    return true;
}

static ech_status take_token(const char *name, const json_t *id, const json_t *added,
                             const char *key, ech_bpe *bpe)
{
    ECH_FREED_TEXT bytes = {0};
    int32_t number = (int32_t)json_integer_value(id);
    bool shown = append_named(bpe, name, strlen(name), &bytes) && bytes.n > 0;
    bool put = shown && ech_bpe_put(bpe, number, bytes.at, bytes.n, true);
    if (put) return ECH_OK;
    if (shown)
        ECH_FAIL(ECH_EINPUT, "%s: %s: \"%.*s\" has id %d, which another token has" ECH_BPE_AGAIN,
                 bpe->file, key, LONGEST_SHOWN, name, (int)number);
    /* Added tokens may have any characters; they are put with the others of their kind. */
    if (json_equal(id, json_object_get(added, name))) return ECH_OK;
    ECH_FAIL(ECH_EUNSUPPORTED,
             "%s: %s: \"%.*s\" is not written in byte-level characters; only byte-level BPE is "
             "read" ECH_BPE_OTHERWISE,
             bpe->file, key, LONGEST_SHOWN, name);
}

ech_status ech_bpe_take_vocabulary(const json_t *vocabulary, const json_t *added, const char *key,
                                   ech_bpe *bpe)
{
    if (!json_is_object(vocabulary))
        ECH_FAIL(ECH_EINPUT, "%s: %s: must be an object" ECH_BPE_AGAIN, bpe->file, key);
    json_auto_t *contents = index_contents(added);
    size_t entries = json_object_size(vocabulary) + json_array_size(added);
    bpe->vocabulary = json_object_size(vocabulary);
    const char *name;
    json_t *id;
    json_object_foreach((json_t *)(uintptr_t)vocabulary, name, id)
    {
        ECH_TRY(check_id(id, entries, key, name, bpe));
        ECH_TRY(take_token(name, id, contents, key, bpe));
    }
    return ECH_OK;
}

static ech_status find_part(const char *name, size_t n, const char *where, const ech_bpe *bpe,
                            int32_t *id)
{
    ECH_FREED_TEXT bytes = {0};
    *id = ECH_BPE_NONE;
    if (append_named(bpe, name, n, &bytes) && bytes.n > 0)
        *id = ech_bpe_find(bpe, bytes.at, bytes.n);
    if (*id == ECH_BPE_NONE)
        ECH_FAIL(ECH_EINPUT, "%s: %s: \"%.*s\" is not in the vocabulary" ECH_BPE_AGAIN, bpe->file,
                 where, n < LONGEST_SHOWN ? (int)n : LONGEST_SHOWN, name);
    return ECH_OK;
}

ech_status ech_bpe_take_merge(const char *left, size_t left_n, const char *right, size_t right_n,
                              const char *where, ech_bpe *bpe)
{
    int32_t a, b;
    ECH_TRY(find_part(left, left_n, where, bpe, &a));
    ECH_TRY(find_part(right, right_n, where, bpe, &b));
    if (!ech_bpe_put_merge(bpe, a, b, false))
        ECH_FAIL(ECH_EINPUT, "%s: %s: the token it makes is not in the vocabulary" ECH_BPE_AGAIN,
                 bpe->file, where);
    return ECH_OK;
}

/* What lists an added token, for errors, and its text. */
typedef struct listing {
    const char *file, *where, *text;
    size_t n;
} listing;

/* The id that Hugging Face's library gives to an added token that the model does not have: from the
 * size of the vocabulary on, whatever its file says. */
static int32_t next_id(const ech_bpe *bpe)
{
    int32_t next = (int32_t)bpe->vocabulary;
    for (size_t i = 0; i < bpe->added.n; i++)
        if (bpe->added.at[i].id >= next) next = bpe->added.at[i].id + 1;
    return next;
}

/* A token that the model has as well, by this name: then it has the same id. Its name may stand for
 * other bytes, as "\u00e9" does over bytes: then it is searched as it is written, and decodes to
 * these bytes. */
static ech_status put_known(const listing *l, int32_t known, ech_bpe *bpe, ech_bpe_added *added)
{
    if (known != added->stated)
        ECH_FAIL(ECH_EINPUT, "%s: %s\"%.*s\" has id %d here and %d in the vocabulary" ECH_BPE_AGAIN,
                 l->file, l->where, LONGEST_SHOWN, l->text, (int)added->stated, (int)known);
    added->id = known;
    const ech_bpe_token *token = (size_t)known < bpe->token.n ? &bpe->token.at[known] : NULL;
    if (!token || token->n == 0) {
        ech_bpe_put(bpe, known, l->text, l->n, false);
        return ECH_OK;
    }
    added->apart = token->n != l->n || memcmp(bpe->bytes.at + token->at, l->text, l->n) != 0;
    if (!added->apart) return ECH_OK;
    added->at = bpe->bytes.n;
    added->n = l->n;
    ech_text_append_bytes(&bpe->bytes, l->text, l->n);
    return ECH_OK;
}

static ech_status put_new(const listing *l, ech_bpe *bpe, ech_bpe_added *added)
{
    size_t stated = (size_t)added->stated;
    added->id = next_id(bpe);
    if (stated < bpe->token.n && bpe->token.at[stated].n > 0)
        ECH_FAIL(ECH_EINPUT, "%s: %s\"%.*s\" has id %d, which another token has" ECH_BPE_AGAIN,
                 l->file, l->where, LONGEST_SHOWN, l->text, (int)added->stated);
    if (!ech_bpe_put(bpe, added->id, l->text, l->n, false))
        ECH_FAIL(ECH_EINPUT,
                 "%s: %s\"%.*s\" would get id %d in Hugging Face's library, which "
                 "numbers added tokens from the vocabulary's size on, and another token has that; "
                 "give it a place in model.vocab",
                 l->file, l->where, LONGEST_SHOWN, l->text, (int)added->id);
    if (added->id != added->stated)
        ech_log_warn("%s: %s\"%.*s\" gets id %d, as in Hugging Face's library, and "
                     "not %d, as it says there",
                     l->file, l->where, LONGEST_SHOWN, l->text, (int)added->id,
                     (int)added->stated);
    return ECH_OK;
}

static ech_status put_added(const listing *l, int32_t known, ech_bpe *bpe, ech_bpe_added *added)
{
    ECH_TRY(known == ECH_BPE_NONE ? put_new(l, bpe, added) : put_known(l, known, bpe, added));
    ECH_PUSH(bpe->added, *added);
    return ECH_OK;
}

static ech_status check_content(const listing *l)
{
    if (l->n == 0 || l->n > ECH_BPE_LONGEST_ADDED)
        ECH_FAIL(ECH_EINPUT, "%s: %scontent: must be a string of 1 to %d bytes", l->file, l->where,
                 ECH_BPE_LONGEST_ADDED);
    return ECH_OK;
}

ech_status ech_bpe_put_added(const char *file, const char *where, const char *text, size_t n,
                             ech_bpe *bpe, ech_bpe_added *added)
{
    const listing l = {file, where, text, n};
    ECH_FREED_TEXT bytes = {0};
    ECH_TRY(check_content(&l));
    bool named = append_named(bpe, text, n, &bytes) && bytes.n > 0;
    return put_added(&l, named ? ech_bpe_find(bpe, bytes.at, bytes.n) : ECH_BPE_NONE, bpe, added);
}

void ech_bpe_take_flags(const json_t *token, ech_bpe_added *added)
{
    const json_t *normalized = json_object_get(token, "normalized");
    added->special = json_is_true(json_object_get(token, "special"));
    added->normalized = json_is_true(normalized);
    added->lstrip = json_is_true(json_object_get(token, "lstrip"));
    added->rstrip = json_is_true(json_object_get(token, "rstrip"));
    added->single_word = json_is_true(json_object_get(token, "single_word"));
}

static ech_status take_added(const json_t *token, size_t i, const json_t *vocabulary,
                             size_t entries, ech_bpe *bpe)
{
    char where[60];
    const json_t *content = json_object_get(token, "content"), *id = json_object_get(token, "id");
    const char *text = json_string_value(content);
    const json_t *known = text ? json_object_get(vocabulary, text) : NULL;
    const listing l = {bpe->file, where, text, json_string_length(content)};
    snprintf(where, sizeof where, "added_tokens[%zu]: ", i);
    ECH_TRY(check_content(&l));
    ECH_TRY(check_id(id, entries, "added_tokens", text, bpe));
    ech_bpe_added added = {.stated = (int32_t)json_integer_value(id)};
    ech_bpe_take_flags(token, &added);
    return put_added(&l, known ? (int32_t)json_integer_value(known) : ECH_BPE_NONE, bpe, &added);
}

ech_status ech_bpe_take_added(const json_t *root, ech_bpe *bpe)
{
    const json_t *added = json_object_get(root, "added_tokens");
    const json_t *vocabulary = json_object_get(json_object_get(root, "model"), "vocab");
    if (added && !json_is_null(added) && !json_is_array(added))
        ECH_FAIL(ECH_EINPUT,
                 "%s: added_tokens must be an array; save the tokenizer again with transformers' "
                 "save_pretrained",
                 bpe->file);
    size_t entries = bpe->token.n + json_array_size(added);
    for (size_t i = 0; i < json_array_size(added); i++)
        ECH_TRY(take_added(json_array_get(added, i), i, vocabulary, entries, bpe));
    return ECH_OK;
}

/* ---- "post_processor" of tokenizer.json: the tokens before and after a text ---- */

enum { MOST_AROUND = 64, MOST_STEPS = 4 };

static ech_status put_around(const json_t *id, const ech_bpe *bpe, ech_ids *list)
{
    json_int_t number = json_integer_value(id);
    bool known = json_is_integer(id) && number >= 0 && number < (json_int_t)bpe->token.n &&
                 bpe->token.at[number].n > 0;
    if (!known)
        ECH_FAIL(ECH_EINPUT, "%s: post_processor: has an id that no token has" ECH_BPE_AGAIN,
                 bpe->file);
    if (list->n == MOST_AROUND)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: post_processor adds more than %d tokens around a text, which is not "
                 "supported" ECH_BPE_OTHERWISE,
                 bpe->file, MOST_AROUND);
    ECH_PUSH(*list, (int32_t)number);
    return ECH_OK;
}

/* {"SpecialToken": {"id": NAME}} of a template: the ids that special_tokens has for the name. */
static ech_status put_special(const json_t *template, const json_t *special, const ech_bpe *bpe,
                              ech_ids *list)
{
    const char *name = json_string_value(json_object_get(special, "id"));
    const json_t *tokens = json_object_get(template, "special_tokens");
    const json_t *ids = json_object_get(name ? json_object_get(tokens, name) : NULL, "ids");
    if (!json_is_array(ids))
        ECH_FAIL(ECH_EINPUT,
                 "%s: post_processor: \"single\" has a token that is not in "
                 "\"special_tokens\"" ECH_BPE_AGAIN,
                 bpe->file);
    for (size_t i = 0; i < json_array_size(ids); i++)
        ECH_TRY(put_around(json_array_get(ids, i), bpe, list));
    return ECH_OK;
}

/* "single" is the text, A, and tokens before and after it. */
static ech_status take_template(const json_t *template, ech_ids *front, ech_bpe *bpe)
{
    const json_t *single = json_object_get(template, "single");
    int texts = 0;
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *piece = json_array_get(single, i);
        const json_t *special = json_object_get(piece, "SpecialToken");
        if (special)
            ECH_TRY(put_special(template, special, bpe, texts ? &bpe->back : front));
        else
            texts++;
    }
    if (texts != 1)
        ECH_FAIL(ECH_EUNSUPPORTED, "%s: post_processor: \"single\" must have the text (A) once",
                 bpe->file);
    return ECH_OK;
}

/* "cls": [NAME, ID], "sep": [NAME, ID] */
static ech_status take_pair(const json_t *part, ech_ids *front, ech_bpe *bpe)
{
    ECH_TRY(put_around(json_array_get(json_object_get(part, "cls"), 1), bpe, front));
    return put_around(json_array_get(json_object_get(part, "sep"), 1), bpe, &bpe->back);
}

static ech_status take_step(const json_t *part, ech_ids *front, ech_bpe *bpe)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    if (type && strcmp(type, "ByteLevel") == 0) return ECH_OK; /* is about offsets */
    if (type && strcmp(type, "TemplateProcessing") == 0) return take_template(part, front, bpe);
    if (type && (strcmp(type, "RobertaProcessing") == 0 || strcmp(type, "BertProcessing") == 0))
        return take_pair(part, front, bpe);
    ECH_FAIL(ECH_EUNSUPPORTED,
             "%s: post_processor: %s is not supported; replace it by TemplateProcessing, "
             "ByteLevel, RobertaProcessing, BertProcessing or a Sequence of these",
             bpe->file, type ? type : "without a type");
}

/* What a later step puts goes around what an earlier one has put. */
static ech_status take_around(const json_t *part, ech_bpe *bpe)
{
    ech_ids front = {0};
    ech_status status = take_step(part, &front, bpe);
    for (size_t i = 0; i < bpe->front.n; i++) ECH_PUSH(front, bpe->front.at[i]);
    free(bpe->front.at);
    bpe->front = front;
    return status;
}

ech_status ech_bpe_take_around(const json_t *root, ech_bpe *bpe)
{
    json_auto_t *steps = ech_bpe_steps(json_object_get(root, "post_processor"), "processors");
    if (json_array_size(steps) > MOST_STEPS)
        ECH_FAIL(ECH_EUNSUPPORTED, "%s: post_processor: more than %d steps" ECH_BPE_OTHERWISE,
                 bpe->file, MOST_STEPS);
    for (size_t i = 0; i < json_array_size(steps); i++)
        ECH_TRY(take_around(json_array_get(steps, i), bpe));
    return ECH_OK;
}
