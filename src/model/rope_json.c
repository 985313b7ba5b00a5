/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotary positions in config.json, of transformers 4 and 5.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/family.h"

#define ORIGINAL "original_max_position_embeddings"

/* What a kind of scaling has in the file. */
#define TYPE(name)   ECH_ROW("rope_type", .initial = name, .use = ECH_ROW_UNREAD)
#define FACTOR       ECH_ROW("factor", "model.rope_scaling_factor", .initial = NULL)
#define ORIGINAL_ROW ECH_ROW(ORIGINAL, "model.rope_scaling_" ORIGINAL, .use = ECH_ROW_UNREAD)
#define OPTIONAL(key, otherwise)                                                                   \
    ECH_ROW(#key, "model.rope_scaling_" #key, otherwise, .use = ECH_ROW_OURS)
static const ech_family_row linear_rows[] = {TYPE("linear"), FACTOR, {.name = NULL}};
static const ech_family_row dynamic_rows[] = {TYPE("dynamic"), FACTOR, {.name = NULL}};
static const ech_family_row llama3_rows[] = {
    TYPE("llama3"),
    FACTOR,
    {"low_freq_factor", "model.rope_scaling_low_freq_factor", .initial = NULL},
    {"high_freq_factor", "model.rope_scaling_high_freq_factor", .initial = NULL},
    ORIGINAL_ROW,
    {.name = NULL}};
static const ech_family_row yarn_rows[] = {TYPE("yarn"),
                                           FACTOR,
                                           OPTIONAL(beta_fast, "32"),
                                           OPTIONAL(beta_slow, "1"),
                                           OPTIONAL(truncate, "true"),
                                           OPTIONAL(mscale, "0"),
                                           OPTIONAL(mscale_all_dim, "0"),
                                           OPTIONAL(attention_factor, "0"),
                                           ORIGINAL_ROW,
                                           {.name = NULL}};
static const ech_family_row longrope_rows[] = {
    TYPE("longrope"), FACTOR, OPTIONAL(attention_factor, "0"), ORIGINAL_ROW, {.name = NULL}};

static const struct kind {
    const char *name;
    const ech_family_row *rows;
} kinds[] = {[ECH_ROPE_SCALING_NONE] = {"default", NULL},
             [ECH_ROPE_SCALING_LINEAR] = {"linear", linear_rows},
             [ECH_ROPE_SCALING_DYNAMIC] = {"dynamic", dynamic_rows},
             [ECH_ROPE_SCALING_LLAMA3] = {"llama3", llama3_rows},
             [ECH_ROPE_SCALING_YARN] = {"yarn", yarn_rows},
             [ECH_ROPE_SCALING_LONGROPE] = {"longrope", longrope_rows}};
enum { KINDS = sizeof kinds / sizeof *kinds };

const ech_rope_names ech_rope_usual = {.theta = NULL};

/* ---- LongRoPE's lists ---- */

static json_t *list_of(const char *text)
{
    json_t *list = json_array();
    for (char *end; *text; text = end) {
        double number = ech_text_number(text, &end);
        if (end == text) break;
        json_array_append_new(list, json_real(number));
    }
    return list;
}

static ech_status import_list(const ech_family_import *in, const char *name, const char *key)
{
    const json_t *list = ech_family_import_get(in, name);
    ECH_FREED_TEXT text = {0};
    if (!json_is_array(list)) ECH_FAIL(ECH_EINPUT, "%s: %s: must be a list", in->path, name);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *number = json_array_get(list, i);
        if (!json_is_number(number))
            ECH_FAIL(ECH_EINPUT, "%s: %s: must be numbers", in->path, name);
        ech_text_append(&text, "%s%.17g", i ? " " : "", json_number_value(number));
    }
    return ech_family_import_set(in, key, text.at ? text.at : "");
}

static void export_scaling(const ech_config *config, const ech_rope_names *names, json_t *json)
{
    int kind = config->model.rope_scaling;
    if (kind == ECH_ROPE_SCALING_NONE && names->scaling)
        json_object_set_new(json, "rope_scaling", json_pack("{s:s}", "rope_type", "default"));
    if (kind == ECH_ROPE_SCALING_NONE) return;
    json_t *rope = ech_family_export_rows(config, kinds[kind].rows);
    if (kind == ECH_ROPE_SCALING_LONGROPE) {
        json_object_set_new(rope, "short_factor", list_of(config->model.rope_scaling_short_factor));
        json_object_set_new(rope, "long_factor", list_of(config->model.rope_scaling_long_factor));
    }
    json_object_set_new(json, "rope_scaling", rope);
    if (!names->original) return; /* other programs read it outside of rope_scaling */
    json_object_set_new(json, ORIGINAL,
                        json_integer(config->model.rope_scaling_original_max_position_embeddings));
}

static int64_t positions(const ech_config *config)
{
    return config->model.max_position_embeddings;
}

/* The positions before scaling. Where they are inside of the parameters and outside, both are the
 * same: not all versions of other programs prefer the same one. */
static ech_status import_original(const ech_family_import *in, const ech_family_import *inner,
                                  const ech_rope_names *names, int kind)
{
    const json_t *own = ech_family_import_get(inner, ORIGINAL);
    const json_t *outer = ech_family_import_get(in, ORIGINAL);
    bool reads = kind != ECH_ROPE_SCALING_DYNAMIC, outside = outer || names->original;
    const ech_family_row row = {reads && (own || outside) ? ORIGINAL : "max_position_embeddings",
                                "model.rope_scaling_" ORIGINAL, .initial = names->original,
                                .derived = names->original ? NULL : positions};
    ECH_TRY(ech_family_import_row(reads && own && !outside ? inner : in, &row));
    double is = (double)in->config->model.rope_scaling_original_max_position_embeddings;
    if (!reads || !own || json_number_value(own) == is) return ECH_OK;
    ECH_FAIL(ECH_EINPUT,
             "%s: " ORIGINAL " is %.10g, but %.10g outside of it%s; set both to the same number",
             inner->path, json_number_value(own), is, outer ? "" : ", by default");
}

/* The factor of a file that says only the positions before and after scaling. */
static ech_status import_factor(const ech_family_import *in, const ech_family_import *inner,
                                const ech_rope_names *names)
{
    double before = (double)in->config->model.rope_scaling_original_max_position_embeddings;
    double after = (double)in->config->model.max_position_embeddings;
    char text[32];
    if (!ech_family_import_get(inner, ORIGINAL) && !ech_family_import_get(in, ORIGINAL) &&
        !names->original)
        ECH_FAIL(ECH_EINPUT, "%s: needs factor, or " ORIGINAL "; add one of them", inner->path);
    ech_text_print(text, sizeof text, "%.17g", after > before ? after / before : 1);
    return ech_family_import_set(in, "model.rope_scaling_factor", text);
}

/* transformers 4 has rope_theta and rope_scaling, 5 has both as rope_parameters. The older versions
 * of 4 call the type "type". */
static ech_status import_rope_from(const ech_family_import *in, const ech_family_import *inner,
                                   const ech_rope_names *names)
{
    const char *key = ech_family_import_get(inner, "rope_type") ? "rope_type" : "type";
    bool own_theta = ech_family_import_get(inner, "rope_theta");
    bool own_part = ech_family_import_get(inner, "partial_rotary_factor");
    const ech_family_row theta = {own_theta ? "rope_theta" : names->theta, "model.rope_theta",
                                  .initial = names->theta_initial},
                         whole = {"partial_rotary_factor", .initial = "1"},
                         part = {own_part ? "partial_rotary_factor" : names->part,
                                 "model.partial_rotary_factor", .initial = names->part_initial},
                         type = {key, .initial = "default linear dynamic llama3 yarn longrope"};
    bool parts = ech_family_reads(in->config, part.key);
    ECH_TRY(ech_family_import_row(parts && !own_part ? in : inner, parts ? &part : &whole));
    ECH_TRY(ech_family_import_row(own_theta ? inner : in, &theta));
    ECH_TRY(ech_family_import_row(inner, &type));
    const char *name = json_string_value(ech_family_import_get(inner, key));
    int kind = ECH_ROPE_SCALING_NONE;
    for (int i = 0; i < KINDS; i++)
        if (name && strcmp(name, kinds[i].name) == 0) kind = i;
    if (kind == ECH_ROPE_SCALING_NONE)
        return ech_family_import_set(in, "model.rope_scaling", "none");
    ECH_TRY(ech_family_import_set(in, "model.rope_scaling", name));
    if (kind != ECH_ROPE_SCALING_LINEAR) ECH_TRY(import_original(in, inner, names, kind));
    for (const ech_family_row *row = kinds[kind].rows; row->name; row++) {
        bool factor = strcmp(row->name, "factor") == 0;
        if (factor && !ech_family_import_get(inner, "factor") &&
            (kind == ECH_ROPE_SCALING_YARN || kind == ECH_ROPE_SCALING_LONGROPE))
            ECH_TRY(import_factor(in, inner, names));
        else if (row->key && !(row->use & ECH_ROW_UNREAD))
            ECH_TRY(ech_family_import_row(inner, row));
    }
    if (kind != ECH_ROPE_SCALING_LONGROPE) return ECH_OK;
    ECH_TRY(import_list(inner, "short_factor", "model.rope_scaling_short_factor"));
    return import_list(inner, "long_factor", "model.rope_scaling_long_factor");
}

/* ---- a base of its own for layers with a window ---- */

#define LOCAL  "model.rope_local_base_freq"
#define FULL   "full_attention"
#define WINDOW "sliding_attention"

static bool is_by_type(const json_t *rope)
{
    return json_object_get(rope, FULL) || json_object_get(rope, WINDOW);
}

/* transformers 5.24 reads truncate beside the types of layers, where no published file has it, and
 * not in a type's own parameters, where vLLM reads it. */
static ech_status check_rounding(const ech_family_import *in, const char *name, const json_t *rope)
{
    const json_t *truncate = json_object_get(rope, "truncate");
    if (!truncate || json_is_null(truncate) || json_is_true(truncate)) return ECH_OK;
    ECH_FAIL(ECH_EUNSUPPORTED,
             "%s: %s: truncate: transformers does not read it in %s, whose layers of each type "
             "have their own parameters, and other programs do; remove it, or set it to true",
             in->path, name, ech_family_of(in->config)->name);
}

/* Parameters of each type, and nothing else. */
static ech_status check_types(const ech_family_import *in, const char *name, const json_t *rope)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)rope, key, value)
    {
        if (strcmp(key, FULL) != 0 && strcmp(key, WINDOW) != 0)
            ECH_FAIL(ECH_EUNSUPPORTED,
                     "%s: %s: %s: not a type of layers; move it into the entries of " FULL
                     " and " WINDOW,
                     in->path, name, key);
        if (!json_is_object(value) && !json_is_null(value))
            ECH_FAIL(ECH_EINPUT, "%s: %s: of each type of layers it must be an object", in->path,
                     name);
    }
    return ECH_OK;
}

/* transformers 4 has names->local, and 5 rope_parameters of each type of layers. *rope: the
 * parameters; returns the parameters of layers without a window. */
static ech_status import_local(const ech_family_import *in, const char *name,
                               const ech_rope_names *names, const json_t **rope)
{
    const json_t *full = json_object_get(*rope, FULL), *window = json_object_get(*rope, WINDOW);
    bool flat = !is_by_type(*rope), own = flat && json_object_get(*rope, names->local);
    const ech_family_import inner = {
        .config = in->config, .path = in->path, .json = flat ? *rope : window};
    const ech_family_import *has = flat && !own ? in : &inner;
    const ech_family_row theta = {flat ? names->local : "rope_theta", LOCAL,
                                  .initial = names->local_initial},
                         type = {"rope_type", .initial = "default",
                                 .property = "scaled angles in layers with a window"},
                         whole = {"partial_rotary_factor", .initial = "1"};
    double base = json_number_value(ech_family_import_get(has, theta.name));
    if (!flat) ECH_TRY(check_types(in, name, *rope));
    if (ech_family_import_get(has, theta.name) && base < 1)
        ECH_FAIL(ECH_EINPUT, "%s: %s: must be a number of at least 1", in->path, theta.name);
    if (!flat) ECH_TRY(ech_family_import_row(&inner, &type));
    if (!flat) ECH_TRY(ech_family_import_row(&inner, &whole));
    if (!flat) *rope = full;
    ECH_TRY(check_rounding(in, name, *rope));
    return ech_family_import_row(has, &theta);
}

ech_status ech_rope_check_by_type(const ech_config *config)
{
    if (config->model.rope_scaling != ECH_ROPE_SCALING_YARN || config->model.rope_scaling_truncate)
        return ECH_OK;
    return ech_config_complain(config, "model.rope_scaling_truncate",
                               "files of %s cannot say that, since transformers reads no truncate "
                               "in the parameters of one type of layers; use true",
                               ech_family_of(config)->name);
}

/* As transformers 5 has it, with layers of each type by themselves. */
static void export_by_type(const ech_config *config, json_t *json)
{
    const json_t *scaling = json_object_get(json, "rope_scaling");
    json_t *full = json_is_object(scaling) ? json_copy((json_t *)scaling)
                                           : json_pack("{s:s}", "rope_type", "default");
    json_object_set_new(full, "rope_theta", json_real(config->model.rope_theta));
    json_t *both = json_pack("{s:o, s:{s:s, s:f}}", FULL, full, WINDOW, "rope_type", "default",
                             "rope_theta", config->model.rope_local_base_freq);
    ECH_ASSERT(full && both);
    json_object_set_new(json, "rope_parameters", both);
}

void ech_rope_export(const ech_config *config, json_t *json)
{
    const ech_rope_names *names = ech_family_of(config)->rope;
    double local = config->model.rope_local_base_freq;
    if (names->local && !names->by_type)
        json_object_set_new(json, names->local,
                            json_real(local > 0 ? local : config->model.rope_theta));
    export_scaling(config, names, json);
    if (names->by_type) export_by_type(config, json);
}

static ech_rope_names complete(ech_rope_names names)
{
    if (!names.theta) names.theta = "rope_theta";
    if (!names.theta_initial) names.theta_initial = "10000";
    if (!names.part) names.part = "partial_rotary_factor";
    if (!names.part_initial) names.part_initial = "1";
    return names;
}

ech_status ech_rope_import(const ech_family_import *in)
{
    const ech_rope_names names = complete(*ech_family_of(in->config)->rope);
    const json_t *scaling = ech_family_import_get(in, "rope_scaling");
    const json_t *rope = ech_family_import_get(in, "rope_parameters");
    const char *name = "rope_parameters";
    json_auto_t *otherwise = names.scaling ? json_loads(names.scaling, 0, NULL) : NULL;
    if (!rope && !scaling) scaling = otherwise;
    if (scaling && !is_by_type(rope)) {
        name = "rope_scaling";
        rope = scaling;
    }
    if (rope && !json_is_object(rope))
        ECH_FAIL(ECH_EINPUT, "%s: %s: must be an object, or null", in->path, name);
    if (names.local)
        ECH_TRY(import_local(in, name, &names, &rope));
    else if (is_by_type(rope))
        ECH_FAIL(ECH_EUNSUPPORTED, "%s: %s: must be alike in all layers of %s", in->path, name,
                 ech_family_of(in->config)->name);
    ECH_FREED_TEXT path = {0};
    ech_text_append(&path, "%s: %s", in->path, name);
    const ech_family_import inner = {.config = in->config, .path = path.at, .json = rope};
    return import_rope_from(in, &inner, &names);
}
