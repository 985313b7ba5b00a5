/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotary positions in config.json, of transformers 4 and 5.
 */
#include <string.h>

#include "model/family.h"

#define ORIGINAL "original_max_position_embeddings"

static const ech_family_row scaling_rows[] = {
    {"rope_type", .initial = "llama3", .use = ECH_ROW_UNREAD},
    {"factor", "model.rope_scaling_factor", .initial = NULL},
    {"low_freq_factor", "model.rope_scaling_low_freq_factor", .initial = NULL},
    {"high_freq_factor", "model.rope_scaling_high_freq_factor", .initial = NULL},
    {ORIGINAL, "model.rope_scaling_" ORIGINAL, .use = ECH_ROW_UNREAD},
    {.name = NULL}};

void ech_rope_export(const ech_config *config, json_t *json)
{
    if (config->model.rope_scaling == ECH_ROPE_SCALING_LLAMA3)
        json_object_set_new(json, "rope_scaling", ech_family_export_rows(config, scaling_rows));
}

/* transformers 4 has rope_theta and rope_scaling, 5 has both as rope_parameters. The older versions
 * of 4 call the type "type". */
static ech_status import_rope_from(const ech_family_import *in, const ech_family_import *inner,
                                   const char *otherwise)
{
    const char *key = ech_family_import_get(inner, "rope_type") ? "rope_type" : "type";
    const bool has = ech_family_import_get(inner, ORIGINAL) != NULL;
    const ech_family_row theta = {"rope_theta", "model.rope_theta", .initial = otherwise},
                         part = {"partial_rotary_factor", .initial = "1"},
                         type = {key, .initial = "default llama3"},
                         original = {has ? ORIGINAL : "max_position_embeddings",
                                     "model.rope_scaling_" ORIGINAL, .initial = NULL};
    ECH_TRY(ech_family_import_row(inner, &part));
    ECH_TRY(ech_family_import_row(ech_family_import_get(inner, theta.name) ? inner : in, &theta));
    ECH_TRY(ech_family_import_row(inner, &type));
    const char *name = json_string_value(ech_family_import_get(inner, key));
    if (!name || strcmp(name, "llama3") != 0)
        return ech_family_import_set(in, "model.rope_scaling", "none");
    ECH_TRY(ech_family_import_set(in, "model.rope_scaling", "llama3"));
    ECH_TRY(ech_family_import_rows(inner, scaling_rows));
    return ech_family_import_row(has ? inner : in, &original);
}

ech_status ech_rope_import(const ech_family_import *in, const char *theta)
{
    const char *name =
        ech_family_import_get(in, "rope_scaling") ? "rope_scaling" : "rope_parameters";
    const json_t *rope = ech_family_import_get(in, name);
    if (rope && !json_is_object(rope))
        ECH_FAIL(ECH_EINPUT, "%s: %s: must be an object, or null", in->path, name);
    ECH_FREED_TEXT path = {0};
    ech_text_append(&path, "%s: %s", in->path, name);
    return import_rope_from(in, &(ech_family_import){in->config, path.at, rope}, theta);
}

ech_status ech_family_import_rotary(const ech_family_import *in)
{
    return ech_rope_import(in, "10000");
}
