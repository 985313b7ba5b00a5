/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading and writing PEFT's adapter_config.json. Options that PEFT has and Echelon does not are
 * refused by name: a key that is not in a table below must be off.
 */
#include "checkpoint/peft.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"

enum { ENTRY_BYTES = 4, MOST_RANK = 1000000 }; /* of the shortest value of an array: "", */

#define DAMAGED ": damaged; save the adapters again"

/* Keys that say nothing of how adapters are computed, or which the tensors say, too. */
static const char unread[] =
    "peft_type r lora_alpha lora_dropout use_rslora base_model_name_or_path init_lora_weights "
    "auto_mapping task_type inference_mode revision peft_version fan_in_fan_out target_modules "
    "exclude_modules layers_to_transform layers_pattern eva_config megatron_core "
    "qalora_group_size";
/* Values of init_lora_weights that leave the base's weights as they are. */
static const char initial[] = "gaussian orthogonal eva";

void ech_peft_settings_free(ech_peft_settings *config)
{
    free(config->base);
    config->base = NULL;
}

/* ---- reading ---- */

/* Whether an option of PEFT is not used. */
static bool is_off(const json_t *value)
{
    if (json_is_object(value)) return json_object_size(value) == 0;
    if (json_is_array(value)) return json_array_size(value) == 0;
    if (json_is_string(value)) return strcmp(json_string_value(value), "none") == 0;
    return json_is_null(value) || json_is_false(value);
}

static ech_status refuse(const char *path, const char *key, const json_t *value, const char *hint)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    ech_fail_at(__FILE__, __LINE__, ECH_EUNSUPPORTED, "%s: %s = %.80s: not supported%s", path, key,
                text ? text : "", hint);
    free(text);
    return ECH_EUNSUPPORTED;
}

static ech_status check_options(const char *path, json_t *root)
{
    const char *key;
    json_t *value;
    json_object_foreach(root, key, value)
    {
        if (ech_text_has_word(unread, key) || is_off(value)) continue;
        return refuse(path, key, value,
                      "; merge the adapters with PEFT: merge_and_unload().save_pretrained()");
    }
    value = json_object_get(root, "init_lora_weights");
    if (!value || json_is_boolean(value) ||
        (json_is_string(value) && ech_text_has_word(initial, json_string_value(value))))
        return ECH_OK;
    return refuse(path, "init_lora_weights", value,
                  ", since it changes the base's weights; merge the adapters with PEFT: "
                  "merge_and_unload().save_pretrained()");
}

static ech_status take_real(const char *path, const json_t *root, const char *key, double most,
                            double *out)
{
    const json_t *value = json_object_get(root, key);
    double number = json_number_value(value);
    if (!json_is_number(value) || !isfinite(number) || number < 0 || number > most)
        ECH_FAIL(ECH_EINPUT, "%s: %s is no number from 0 to %g" DAMAGED, path, key, most);
    *out = number;
    return ECH_OK;
}

static ech_status take_all(const char *path, json_t *root, ech_peft_settings *out)
{
    const json_t *type = json_object_get(root, "peft_type");
    const json_t *base = json_object_get(root, "base_model_name_or_path");
    if (!json_is_string(type) || strcmp(json_string_value(type), "LORA") != 0)
        return refuse(path, "peft_type", type ? type : json_null(), "; only LORA is");
    ECH_TRY(check_options(path, root));
    if (!ech_json_to_int(json_object_get(root, "r"), 1, MOST_RANK, &out->rank))
        ECH_FAIL(ECH_EINPUT, "%s: r is no integer from 1 to %d" DAMAGED, path, MOST_RANK);
    ECH_TRY(take_real(path, root, "lora_alpha", 1e6, &out->alpha));
    ECH_TRY(take_real(path, root, "lora_dropout", 1, &out->dropout));
    /* alpha / sqrt(rank) (Kalajdzievski 2023, arXiv:2312.03732) */
    if (json_is_true(json_object_get(root, "use_rslora"))) out->alpha *= sqrt((double)out->rank);
    out->base = ech_strdup(json_is_string(base) ? json_string_value(base) : "");
    return ECH_OK;
}

ech_status ech_peft_settings_parse(const char *path, const char *text, size_t n,
                                   ech_peft_settings *out)
{
    const ech_json_limits limits = {.depth = 6, .containers = 256, .values = n / ENTRY_BYTES + 64};
    json_auto_t *root = NULL;
    *out = (ech_peft_settings){0};
    ECH_TRY(ech_json_parse(path, text, n, limits, &root));
    return take_all(path, root, out);
}

/* ---- writing ---- */

/* The parameter's module, if it has the ending: n characters of its name; 0: it does not. */
static size_t module_of(const ech_param *param, const char *ending)
{
    size_t n = strlen(param->name), end = strlen(ending);
    return n > end && strcmp(param->name + n - end, ending) == 0 ? n - end : 0;
}

/* The module's last part. */
static const char *part_of(const char *name, size_t n)
{
    while (n > 0 && name[n - 1] != '.') n--;
    return name + n;
}

static bool is_adapted(const ech_model *model, const char *module, size_t n)
{
    for (size_t i = 0; i < model->param.n; i++) {
        const ech_param *p = &model->param.at[i];
        if (p->adapter == ECH_ADAPTER_A && module_of(p, ".lora_A.weight") == n &&
            strncmp(p->name, module, n) == 0)
            return true;
    }
    return false;
}

/* Whether all matrices of modules with this last part have adapters. */
static bool are_all_adapted(const ech_model *model, const char *part)
{
    for (size_t i = 0; i < model->param.n; i++) {
        const ech_param *p = &model->param.at[i];
        size_t n = p->adapter ? 0 : module_of(p, ".weight");
        if (n == 0 || p->shape.dims < 2) continue;
        const char *own = part_of(p->name, n);
        bool same = strncmp(own, part, strlen(part)) == 0 && own + strlen(part) == p->name + n;
        if (same && !is_adapted(model, p->name, n)) return false;
    }
    return true;
}

/* A last part where all modules of that name are adapted, otherwise whole names: PEFT takes a name
 * for a whole one, or for what one ends in after a dot. */
static json_t *targets_of(const ech_model *model)
{
    json_t *list = json_array();
    json_auto_t *listed = json_object();
    for (size_t i = 0; i < model->param.n; i++) {
        const ech_param *p = &model->param.at[i];
        size_t n = p->adapter == ECH_ADAPTER_A ? module_of(p, ".lora_A.weight") : 0;
        if (n == 0) continue;
        ECH_FREED_TEXT module = {0};
        ech_text_append(&module, "%.*s", (int)n, p->name);
        const char *part = part_of(module.at, n);
        const char *target = are_all_adapted(model, part) ? part : module.at;
        if (json_object_get(listed, target)) continue;
        json_object_set_new(listed, target, json_true());
        json_array_append_new(list, json_string(target));
    }
    return list;
}

static json_t *number(double value)
{
    bool whole = value == floor(value) && value < 1e15;
    return whole ? json_integer((json_int_t)value) : json_real(value);
}

ech_status ech_peft_settings_print(const ech_peft_settings *config, const ech_model *model,
                                   ech_text *out)
{
    json_t *base = config->base && *config->base ? json_string(config->base) : json_null();
    if (!base)
        ECH_FAIL(ECH_EINPUT,
                 "model.init_from = %s is not UTF-8, so adapters cannot name their base",
                 config->base);
    json_auto_t *root =
        json_pack("{s:s, s:s, s:o, s:I, s:o, s:f, s:o, s:s, s:b, s:b, s:b, s:b, s:n}", "peft_type",
                  "LORA", "task_type", "CAUSAL_LM", "base_model_name_or_path", base, "r",
                  (json_int_t)config->rank, "lora_alpha", number(config->alpha), "lora_dropout",
                  config->dropout, "target_modules", targets_of(model), "bias", "none",
                  "fan_in_fan_out", (int)ech_names_of(model->family).in_first, "init_lora_weights",
                  1, "inference_mode", 1, "use_rslora", 0, "modules_to_save");
    ECH_ASSERT(root);
    char *text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    ech_text_append(out, "%s\n", text);
    free(text);
    return ECH_OK;
}
