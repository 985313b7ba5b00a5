/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing a config.json: the family's keys, merged into the config.json that the run began with.
 */
#include <stdlib.h>
#include <string.h>

#include "model/family.h"

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

static const char *torch_dtype(ech_dtype dtype)
{
    static const char *const names[ECH_DTYPES] = {[ECH_F32] = "float32",
                                                  [ECH_F64] = "float64",
                                                  [ECH_BF16] = "bfloat16",
                                                  [ECH_F16] = "float16"};
    ECH_ASSERT(dtype < ECH_DTYPES && names[dtype]);
    return names[dtype];
}

static json_t *write_all(const ech_config *config, ech_model_text_ends ends, ech_dtype dtype)
{
    const ech_family *family = ech_family_of(config);
    json_auto_t *rows = ech_family_export_rows(config, family->rows);
    json_auto_t *last = json_pack("{s:i, s:i, s:s}", "bos_token_id", ends.begin, "eos_token_id",
                                  ends.end, "torch_dtype", torch_dtype(dtype));
    json_t *ours = json_pack("{s:[s], s:s}", "architectures", family->architecture, "model_type",
                             family->name);
    ECH_ASSERT(rows && last && ours);
    if (family->export_more) family->export_more(config, rows);
    json_object_update(ours, rows);
    json_object_update(ours, last);
    return ours;
}

ech_status ech_model_export(const ech_config *config, const ech_model_export_options *options,
                            ech_text *out)
{
    ech_model_text_ends ends = options->ends ? *options->ends : (ech_model_text_ends){0};
    json_auto_t *original = NULL;
    if (options->text)
        ECH_TRY(ech_family_import_parse(options->path, options->text, options->n, &original));
    else
        original = json_object();
    json_auto_t *ours = write_all(config, ends, options->dtype);
    merge(ech_family_of(config), options, ends, original, ours);
    ECH_FREED char *text = json_dumps(original, JSON_INDENT(1) | JSON_ENSURE_ASCII);
    ECH_ASSERT(text != NULL);
    ech_text_append(out, "%s\n", text);
    return ECH_OK;
}
