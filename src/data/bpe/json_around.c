/* SPDX-License-Identifier: Apache-2.0
 *
 * "post_processor" of tokenizer.json: which tokens stand in front of a text, and behind it.
 */
#include <stdlib.h>
#include <string.h>

#include "data/bpe/json.h"

enum { MOST_AROUND = 64, MOST_STEPS = 4 };

static ech_status put_around(const json_t *id, const char *file, const ech_bpe *bpe,
                             ech_bpe_around *list)
{
    json_int_t number = json_integer_value(id);
    bool known = json_is_integer(id) && number >= 0 && number < (json_int_t)bpe->token.n &&
                 bpe->token.at[number].n > 0;
    if (!known) ECH_FAIL(ECH_EINPUT, "%s: post_processor: an id that no token has", file);
    if (list->n == MOST_AROUND)
        ECH_FAIL(ECH_EUNSUPPORTED, "%s: post_processor: more than %d tokens around a text", file,
                 MOST_AROUND);
    ECH_PUSH(*list, (int32_t)number);
    return ECH_OK;
}

/* {"SpecialToken": {"id": NAME}} of a template: the ids that special_tokens has for the name. */
static ech_status put_special(const json_t *template, const json_t *special, const char *file,
                              const ech_bpe *bpe, ech_bpe_around *list)
{
    const char *name = json_string_value(json_object_get(special, "id"));
    const json_t *tokens = json_object_get(template, "special_tokens");
    const json_t *ids = json_object_get(name ? json_object_get(tokens, name) : NULL, "ids");
    if (!json_is_array(ids))
        ECH_FAIL(ECH_EINPUT,
                 "%s: post_processor: \"single\" has a token that is none of "
                 "\"special_tokens\"",
                 file);
    for (size_t i = 0; i < json_array_size(ids); i++)
        ECH_TRY(put_around(json_array_get(ids, i), file, bpe, list));
    return ECH_OK;
}

/* "single" is the text, A, and tokens before and behind it. */
static ech_status take_template(const json_t *template, const char *file, const ech_bpe *bpe,
                                ech_bpe_around *front, ech_bpe_around *back)
{
    const json_t *single = json_object_get(template, "single");
    int texts = 0;
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *piece = json_array_get(single, i);
        const json_t *special = json_object_get(piece, "SpecialToken");
        if (special)
            ECH_TRY(put_special(template, special, file, bpe, texts ? back : front));
        else
            texts++;
    }
    if (texts != 1)
        ECH_FAIL(ECH_EUNSUPPORTED, "%s: post_processor: \"single\" must have the text once", file);
    return ECH_OK;
}

/* "cls": [NAME, ID], "sep": [NAME, ID] */
static ech_status take_pair(const json_t *part, const char *file, const ech_bpe *bpe,
                            ech_bpe_around *front, ech_bpe_around *back)
{
    ECH_TRY(put_around(json_array_get(json_object_get(part, "cls"), 1), file, bpe, front));
    return put_around(json_array_get(json_object_get(part, "sep"), 1), file, bpe, back);
}

static ech_status take_step(const json_t *part, const char *file, const ech_bpe *bpe,
                            ech_bpe_around *front, ech_bpe_around *back)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    if (type && strcmp(type, "ByteLevel") == 0) return ECH_OK; /* is about offsets */
    if (type && strcmp(type, "TemplateProcessing") == 0)
        return take_template(part, file, bpe, front, back);
    if (type && (strcmp(type, "RobertaProcessing") == 0 || strcmp(type, "BertProcessing") == 0))
        return take_pair(part, file, bpe, front, back);
    ECH_FAIL(ECH_EUNSUPPORTED,
             "%s: post_processor: %s; TemplateProcessing, ByteLevel, RobertaProcessing, "
             "BertProcessing and a Sequence of these work",
             file, type ? type : "without a type");
}

/* What a later step puts goes around what an earlier one has put. */
static ech_status take_around(const json_t *part, const char *file, ech_bpe *bpe)
{
    ech_bpe_around front = {0}, back = {0};
    ech_status status = take_step(part, file, bpe, &front, &back);
    for (size_t i = 0; i < bpe->front.n && status == ECH_OK; i++) ECH_PUSH(front, bpe->front.at[i]);
    for (size_t i = 0; i < back.n && status == ECH_OK; i++) ECH_PUSH(bpe->back, back.at[i]);
    free(back.at);
    free(status == ECH_OK ? bpe->front.at : front.at);
    if (status == ECH_OK) bpe->front = front;
    return status;
}

ech_status ech_bpe_take_around(const json_t *root, const char *file, ech_bpe *bpe)
{
    const json_t *part = json_object_get(root, "post_processor");
    const char *type = json_string_value(json_object_get(part, "type"));
    const json_t *steps = json_object_get(part, "processors");
    if (!part || json_is_null(part)) return ECH_OK;
    if (!type || strcmp(type, "Sequence") != 0 || !json_is_array(steps))
        return take_around(part, file, bpe);
    if (json_array_size(steps) > MOST_STEPS)
        ECH_FAIL(ECH_EUNSUPPORTED, "%s: post_processor: more than %d steps", file, MOST_STEPS);
    for (size_t i = 0; i < json_array_size(steps); i++)
        ECH_TRY(take_around(json_array_get(steps, i), file, bpe));
    return ECH_OK;
}
