/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing a config.json: what the family says of the model, in the place of what the config.json
 * said with which the run began.
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

/* Whether the carried value of a key of ids stays; it may be that there is none. */
static bool stays(const ech_model_export_options *options, const json_t *was, int32_t id)
{
    if (!options->ends) return true;
    return options->text && (options->came_together || includes(was, id));
}

static void settle_id(const ech_model_export_options *options, const json_t *carried,
                      const char *key, int32_t id, json_t *ours)
{
    json_t *was = json_object_get(carried, key);
    if (!stays(options, was, id)) return;
    if (was)
        json_object_set(ours, key, was);
    else
        json_object_del(ours, key);
}

static void remove_replaced(const ech_family *family, json_t *carried)
{
    const char *key;
    void *next;
    json_t *value;
    json_object_foreach_safe(carried, next, key, value)
    {
        if (ech_text_has_word(family->replaces, key)) json_object_del(carried, key);
    }
}

/* Ours into the carried one, whose order stays. */
static void merge(const ech_family *family, const ech_model_export_options *options,
                  ech_model_text_ends ends, json_t *carried, json_t *ours)
{
    settle_id(options, carried, "bos_token_id", ends.begin, ours);
    settle_id(options, carried, "eos_token_id", ends.end, ours);
    remove_replaced(family, carried);
    json_object_update(carried, ours);
}

static ech_status export_over(const ech_family *family, const ech_model_export_options *options,
                              ech_model_text_ends ends, const ech_text *own, ech_text *out)
{
    json_t *carried = NULL, *ours;
    ECH_TRY(ech_family_import_parse("config.json", own->at, own->n, &ours));
    ech_status st =
        options->text ? ech_family_import_parse(options->path, options->text, options->n, &carried)
                      : ECH_OK;
    if (st == ECH_OK) {
        if (!carried) carried = json_object();
        merge(family, options, ends, carried, ours);
        char *text = json_dumps(carried, JSON_INDENT(1) | JSON_ENSURE_ASCII);
        ECH_ASSERT(text != NULL);
        ech_text_append(out, "%s\n", text);
        free(text);
    }
    json_decref(carried);
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
