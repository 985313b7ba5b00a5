/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing a config.json: the family's keys, merged into the config.json that the run began with.
 */
#include <stdlib.h>
#include <string.h>

#include "model/import.h"

static bool includes(const json_t *value, int32_t id)
{
    bool found = json_is_integer(value) && json_integer_value(value) == id;
    for (size_t i = 0; i < json_array_size(value); i++)
        found = found || includes(json_array_get(value, i), id);
    return found;
}

/* Whether the original value of an id's key, which may be absent, is used. */
static bool stays(const ech_model_export_options *options, const json_t *was, int32_t id)
{
    if (!options->ends) return true;
    return options->text && (options->came_together || includes(was, id));
}

static void settle_id(const ech_model_export_options *options, const json_t *original,
                      const char *key, int32_t id, json_t *ours)
{
    json_t *was = json_object_get(original, key);
    if (!stays(options, was, id)) return;
    if (was)
        json_object_set(ours, key, was);
    else
        json_object_del(ours, key);
}

static void remove_replaced(const ech_family *family, json_t *original)
{
    const char *key;
    void *next;
    json_t *value;
    json_object_foreach_safe(original, next, key, value)
    {
        if (ech_text_has_word(family->replaces, key)) json_object_del(original, key);
    }
}

/* Merges ours into the original, whose order of keys stays. */
static void merge(const ech_family *family, const ech_model_export_options *options,
                  ech_model_text_ends ends, json_t *original, json_t *ours)
{
    settle_id(options, original, "bos_token_id", ends.begin, ours);
    settle_id(options, original, "eos_token_id", ends.end, ours);
    remove_replaced(family, original);
    json_object_update(original, ours);
}

static ech_status export_over(const ech_family *family, const ech_model_export_options *options,
                              ech_model_text_ends ends, const ech_text *own, ech_text *out)
{
    json_t *original = NULL, *ours;
    ECH_TRY(ech_family_import_parse("config.json", own->at, own->n, &ours));
    ech_status st =
        options->text ? ech_family_import_parse(options->path, options->text, options->n, &original)
                      : ECH_OK;
    if (st == ECH_OK) {
        if (!original) original = json_object();
        merge(family, options, ends, original, ours);
        char *text = json_dumps(original, JSON_INDENT(1) | JSON_ENSURE_ASCII);
        ECH_ASSERT(text != NULL);
        ech_text_append(out, "%s\n", text);
        free(text);
    }
    json_decref(original);
    json_decref(ours);
    return st;
}

ech_status ech_model_export(const ech_config *config, const ech_model_export_options *options,
                            ech_text *out)
{
    const ech_family *family = ech_family_of(config);
    ech_model_text_ends ends = options->ends ? *options->ends : (ech_model_text_ends){0};
    ech_text own = {0};
    family->export_json(config, ends.begin, ends.end, options->dtype, &own);
    ech_status st = export_over(family, options, ends, &own, out);
    ech_text_free(&own);
    return st;
}
