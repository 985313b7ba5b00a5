/* SPDX-License-Identifier: Apache-2.0
 *
 * Hugging Face's tokenizer.json. What is neither byte-level BPE with a known pattern nor BPE with
 * byte fallback is refused by name, as is what would make ids differ from the library's.
 */
#include "data/bpe/json.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"

enum { MOST_BYTES = 256 << 20 };

/* jansson takes some 100 bytes for a value. Merges are arrays of two. */
static const ech_json_limits limits = {.depth = 64, .containers = 2000000, .values = 6000000};

ech_status ech_bpe_load_json(const char *path, size_t most, bool reals, ech_text *source,
                             json_t **out)
{
    ECH_FREED_TEXT text = {0};
    ech_json_limits most_values = limits;
    most_values.reals = reals;
    ECH_TRY(ech_file_read(path, most, &text.at, &text.n));
    ECH_TRY(ech_json_parse(path, text.at, text.n, most_values, out));
    if (!source) return ECH_OK;
    *source = (ech_text){.at = text.at, .n = text.n, .capacity = text.n + 1};
    text.at = NULL;
    return ECH_OK;
}

static bool is_blank(const json_t *value)
{
    return !value || json_is_null(value) || (json_is_string(value) && !json_string_length(value));
}

/* Refuses options of a model that change ids and are not implemented here. */
static ech_status check_model(const json_t *model, const char *file)
{
    const char *type = json_string_value(json_object_get(model, "type"));
    const json_t *dropout = json_object_get(model, "dropout");
    if (!json_is_object(model))
        ECH_FAIL(ECH_EINPUT, "%s: has no object \"model\"; name a tokenizer.json", file);
    if (type && strcmp(type, "BPE") != 0)
        ECH_FAIL(ECH_EUNSUPPORTED, "%s: model.type is %s; only BPE is read" ECH_BPE_OTHERWISE, file,
                 type);
    if (dropout && !json_is_null(dropout) && json_number_value(dropout) != 0)
        ECH_FAIL(ECH_EUNSUPPORTED, "%s: model.dropout: ids would be random; set it to null", file);
    const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (int i = 0; i < 2; i++)
        if (!is_blank(json_object_get(model, affixes[i])))
            ECH_FAIL(ECH_EUNSUPPORTED, "%s: model.%s is not supported" ECH_BPE_OTHERWISE, file,
                     affixes[i]);
    return ECH_OK;
}

static ech_status take_merge(const json_t *merge, size_t i, ech_bpe *bpe)
{
    char place[64];
    snprintf(place, sizeof place, "model.merges[%zu]", i);
    const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
    if (json_is_string(merge)) {
        const char *both = json_string_value(merge), *gap = strchr(both, ' ');
        if (gap && !strchr(gap + 1, ' '))
            return ech_bpe_take_merge(both, (size_t)(gap - both), gap + 1, strlen(gap + 1), place,
                                      bpe);
    } else if (json_array_size(merge) == 2 && json_is_string(left) && json_is_string(right)) {
        return ech_bpe_take_merge(json_string_value(left), json_string_length(left),
                                  json_string_value(right), json_string_length(right), place, bpe);
    }
    ECH_FAIL(ECH_EINPUT, "%s: %s: must be \"left right\" or [\"left\", \"right\"]" ECH_BPE_AGAIN,
             bpe->file, place);
}

static ech_status take_model(const json_t *root, ech_bpe *bpe)
{
    const json_t *model = json_object_get(root, "model");
    ECH_TRY(check_model(model, bpe->file));
    const json_t *merges = json_object_get(model, "merges");
    ECH_TRY(ech_bpe_take_vocabulary(json_object_get(model, "vocab"),
                                    json_object_get(root, "added_tokens"), "model.vocab", bpe));
    if (!json_is_array(merges))
        ECH_FAIL(ECH_EINPUT, "%s: model.merges: must be an array" ECH_BPE_AGAIN, bpe->file);
    for (size_t i = 0; i < json_array_size(merges); i++)
        ECH_TRY(take_merge(json_array_get(merges, i), i, bpe));
    bpe->ignore_merges = json_is_true(json_object_get(model, "ignore_merges"));
    return ECH_OK;
}

ech_status ech_bpe_read_json(const char *path, ech_bpe *bpe)
{
    json_auto_t *root = NULL;
    bpe->file = path;
    ECH_TRY(ech_bpe_load_json(path, MOST_BYTES, false, &bpe->source, &root));
    ECH_TRY(ech_bpe_take_pattern(root, bpe));
    ECH_TRY(take_model(root, bpe));
    ECH_TRY(ech_bpe_take_added(root, bpe));
    return ech_bpe_take_around(root, bpe);
}
