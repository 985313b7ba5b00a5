/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading a Hugging Face config.json, which is untrusted: size, depth and count are limited before
 * a tree is built; values must be within the bounds of the run file's keys. Writing one: the
 * family's keys, merged into the config.json that the run began with.
 */
#include "model/mapping.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"

enum { LARGEST = 4 << 20 }; /* bytes of a config.json */

/* The prefix of model_type and architecture of models that no other program knows. A program that
 * ignored the two streams of a reversible model, or its shared experts, or chose experts by another
 * gate, would compute something else from the same weights. */
#define OURS       "echelon-"
#define REVERSIBLE "reversible-"
#define SHARED     "shared-"
#define VARIANT    "variant-"

static const struct {
    const char *name, *architecture;
} gates[] = {{"switch", "Switch"},
             {"gshard", "Gshard"},
             {"noisy_topk", "NoisyTopk"},
             {"hierarchical", "Hierarchical"},
             {"bias", "Bias"}};
enum { GATES = sizeof gates / sizeof *gates };

/* Of the gates `bias` and, but for the first, `hierarchical`, under the names that DeepSeek's
 * models have. */
static const ech_family_row group_rows[] = {
    {"routed_scaling_factor", "model.routed_scaling_factor", .initial = NULL},
    {"n_group", "model.n_group", .initial = NULL},
    {"topk_group", "model.topk_group", .initial = NULL},
    {.name = NULL}};
/* Under the name that DeepSeek's models have for it; written where there are any. */
static const ech_family_row shared_rows[] = {
    {"n_shared_experts", "model.moe_shared_experts", .initial = NULL}, {.name = NULL}};

/* Properties of attention that a run file may give any decoder, under the names of their keys. A
 * family whose own config.json cannot say one of them is a variant if the run file sets it. */
static const ech_family_row variant_rows[] = {
    {"model.sliding_window", "model.sliding_window", "0", .use = ECH_ROW_OURS},
    {"model.window_layers", "model.window_layers", "L", .use = ECH_ROW_OURS | ECH_ROW_TEXT},
    {"model.rotary_layers", "model.rotary_layers", "R", .use = ECH_ROW_OURS | ECH_ROW_TEXT},
    {"model.attn_logit_softcapping", "model.attn_logit_softcapping", "0", .use = ECH_ROW_OURS},
    {"model.attention_scale", "model.attention_scale", "0", .use = ECH_ROW_OURS},
    {"model.attention_sinks", "model.attention_sinks", "false", .use = ECH_ROW_OURS},
    {"model.moe_bias", "model.moe_bias", "false", .use = ECH_ROW_OURS},
    {.name = NULL}};
enum { VARIANTS = sizeof variant_rows / sizeof *variant_rows };

/* The rows of variant_rows that the family's own config.json cannot say. */
static void find_variant_rows(const ech_family *family, ech_family_row rows[VARIANTS])
{
    int n = 0;
    for (const ech_family_row *row = variant_rows; row->name; row++) {
        bool own = (family->also && ech_text_has_word(family->also, row->key)) ||
                   ech_windows_own(family, row->key);
        for (const ech_family_row *r = family->rows; r->name && !own; r++)
            own = r->key && strcmp(r->key, row->key) == 0;
        if (!own) rows[n++] = *row;
    }
    rows[n] = (ech_family_row){.name = NULL};
}

static ech_status parse(const char *path, const char *text, size_t n, json_t **out)
{
    const ech_json_limits limits = {.depth = 16, .containers = 4096, .values = 1 << 17};
    return ech_json_parse(path, text, n, limits, out);
}

/* By quant_method what converts such a folder, in Python; %s: the folder. */
#define LOADED(config)                                                                             \
    "from transformers import AutoModelForCausalLM, " config                                       \
    "; AutoModelForCausalLM.from_pretrained(\"%s\", quantization_config=" config                   \
    "(dequantize=True)).save_pretrained(\"NEW\")"
static const struct {
    const char *method, *python;
} quantizers[] = {{"fp8", LOADED("FineGrainedFP8Config")},
                  {"mxfp4", LOADED("Mxfp4Config")},
                  {"gptq", "from gptqmodel.utils.model_dequant import dequantize_model; "
                           "dequantize_model(\"%s\", \"NEW\")"}};

static ech_status import_unquantized(const ech_family_import *in)
{
    const json_t *how = ech_family_import_get(in, "quantization_config");
    const char *method = json_string_value(json_object_get(how, "quant_method"));
    ECH_FREED char *folder = ech_file_parent(in->path);
    ECH_FREED_TEXT python = {0};
    if (!how) return ECH_OK;
    for (size_t i = 0; method && i < sizeof quantizers / sizeof *quantizers; i++)
        if (strcmp(quantizers[i].method, method) == 0)
            ech_text_append(&python, quantizers[i].python, folder);
    ECH_FAIL(ECH_EUNSUPPORTED,
             "%s: quantization_config: quantized weights%s%.40s%s are not read; name the folder of "
             "the model in fp32, bf16 or fp16 that they were made from%s%s",
             in->path, method ? " (" : "", method ? method : "", method ? ")" : "",
             python.n ? ", or convert them, in Python: " : "", python.n ? python.at : "");
}

/* True if the text begins with that; *text is then moved past it. */
static bool skip(const char *prefix, const char **text)
{
    size_t n = strlen(prefix);
    if (strncmp(*text, prefix, n) != 0) return false;
    *text += n;
    return true;
}

/* The name of the gate with which the text begins, followed by a hyphen; NULL: none. */
static const char *skip_gate(const char **text)
{
    for (int i = 0; i < GATES; i++) {
        const char *rest = *text;
        if (!skip(gates[i].name, &rest) || !skip("-", &rest)) continue;
        *text = rest;
        return gates[i].name;
    }
    return NULL;
}

/* NULL: the gate has no numbers that only we know. */
static const ech_family_row *gate_rows(const ech_config *config)
{
    if (!ech_family_reads(config, "model.moe_gate")) return NULL;
    if (config->model.moe_gate == ECH_GATE_bias) return group_rows;
    return config->model.moe_gate == ECH_GATE_hierarchical ? group_rows + 1 : NULL;
}

/* The error for a model_type that no family has. */
static ech_status refuse_family(const ech_family_import *in, const char *type)
{
    static const struct {
        const char *type, *lacks;
    } unbuilt[] = {
#define X(type, property, nearest) {#type, property "; the nearest family is " #nearest},
#include "model/unbuilt.def"
    };
    ECH_FREED_TEXT nearest = {0}, lacks = {0};
    bool near = ech_mapping_nearest(type, ech_family_names(), &nearest);
    ech_text_append(&lacks,
                    "family of that name;%s%s%s if its layers are like theirs, describe it in a "
                    "mapping file (model.mapping, docs/mapping.md)",
                    near ? " the nearest name is " : "", near ? nearest.at : "", near ? ";" : "");
    ech_family_row family = {
        .name = "model_type", .initial = ech_family_names(), .property = lacks.at};
    for (size_t i = 0; i < sizeof unbuilt / sizeof *unbuilt; i++)
        if (strcmp(unbuilt[i].type, type) == 0) family.property = unbuilt[i].lacks;
    return ech_family_import_refuse(in, &family, family.initial);
}

/* A family that is stated in the folder of the config.json. */
static ech_status map_beside(const ech_family_import *in, const char *type, const ech_family **out)
{
    ECH_FREED char *path = ech_file_join(in->folder, ECH_MAPPING_FILE);
    const ech_family *family;
    if (!ech_file_exists(path)) return ECH_OK;
    ECH_TRY(ech_family_map(path, &family));
    if (strcmp(family->name, type) != 0)
        ECH_FAIL(ECH_EINPUT, "%s: family: %s, but %s has model_type = %.60s; state that family",
                 path, family->name, in->path, type);
    *out = family;
    return ECH_OK;
}

static ech_status import_family(const ech_family_import *in)
{
    const char *type = json_string_value(ech_family_import_get(in, "model_type"));
    if (!type)
        ECH_FAIL(ECH_EINPUT,
                 "%s: has no model_type: not a Hugging Face model's config.json; add model_type, "
                 "or name another folder",
                 in->path);
    bool ours = skip(OURS, &type), reversible = ours && skip(REVERSIBLE, &type);
    const char *gate = ours ? skip_gate(&type) : NULL;
    bool shared = ours && skip(SHARED, &type), variant = ours && skip(VARIANT, &type);
    bool changed = reversible || gate || shared || variant;
    const ech_family *named = ech_family_find(type);
    if (!named && in->folder) ECH_TRY(map_beside(in, type, &named));
    if (!named || (named->ours ? !ours || gate : ours && !changed)) return refuse_family(in, type);
    ech_config_set_names(in->config, "models", ech_family_names());
    ECH_TRY(ech_family_import_set(in, "model.architecture", type));
    if ((shared && named->shares) ||
        (variant && !ech_family_reads(in->config, variant_rows->key)) ||
        ((gate || shared) && !ech_family_reads(in->config, "model.moe_gate")))
        return refuse_family(in, type);
    bool may_reverse = ech_family_reads(in->config, "model.reversible");
    if (reversible && !may_reverse) return refuse_family(in, type);
    if (may_reverse)
        ECH_TRY(ech_family_import_set(in, "model.reversible", reversible ? "true" : "false"));
    if (gate) ECH_TRY(ech_family_import_set(in, "model.moe_gate", gate));
    if (shared)
        ECH_TRY(ech_family_import_rows(in, shared_rows));
    else if (ech_family_reads(in->config, shared_rows->key) && !named->shares)
        ECH_TRY(ech_family_import_set(in, shared_rows->key, "0"));
    ech_family_row variants[VARIANTS];
    find_variant_rows(named, variants);
    if (variant) ECH_TRY(ech_family_import_rows(in, variants));
    ECH_TRY(import_unquantized(in));
    const ech_family *found = ech_family_of(in->config);
    ECH_TRY(ech_family_import_rows(in, found->rows));
    if (gate_rows(in->config)) ECH_TRY(ech_family_import_rows(in, gate_rows(in->config)));
    if (found->import_more) ECH_TRY(found->import_more(in));
    if (found->rope) ECH_TRY(ech_rope_import(in));
    ECH_TRY(ech_windows_import(in));
    return found->mapping ? ech_mapping_check_keys(found->mapping, in) : ECH_OK;
}

/* One id, or the first of several; `otherwise` where there is none. */
static int32_t token_id(const ech_family_import *in, const char *name, int64_t vocabulary,
                        int32_t otherwise)
{
    int64_t id;
    const json_t *value = ech_family_import_get(in, name);
    if (json_is_array(value)) value = json_array_get(value, 0);
    return ech_json_to_int(value, 0, vocabulary - 1, &id) ? (int32_t)id : otherwise;
}

static ech_model_text_ends read_ends(const ech_family_import *in)
{
    int64_t V = in->config->model.vocab_size;
    int32_t end = token_id(in, "eos_token_id", V, (int32_t)(V - 1));
    return (ech_model_text_ends){.begin = token_id(in, "bos_token_id", V, end), .end = end};
}

static void add_stop(const json_t *value, int64_t vocabulary, ech_stops *stops)
{
    int64_t id;
    bool known = false;
    if (!ech_json_to_int(value, 0, vocabulary - 1, &id)) return;
    for (size_t i = 0; i < stops->n; i++) known = known || stops->at[i] == id;
    if (!known) ECH_PUSH(*stops, (int32_t)id);
}

ech_status ech_model_read_stops(const char *path, const char *text, size_t n, int64_t vocabulary,
                                ech_stops *stops)
{
    json_auto_t *json = NULL;
    ECH_TRY(parse(path, text, n, &json));
    const json_t *value = json_object_get(json, "eos_token_id");
    size_t ids = json_is_array(value) ? json_array_size(value) : 0;
    for (size_t i = 0; i < ids; i++) add_stop(json_array_get(value, i), vocabulary, stops);
    if (value && !json_is_array(value)) add_stop(value, vocabulary, stops);
    return ECH_OK;
}

/* folder: where a mapping file may be; NULL: nowhere. */
static ech_status import(ech_config *config, const char *path, const char *folder, const char *text,
                         size_t n, ech_model_text_ends *ends)
{
    json_auto_t *json = NULL, *seen = json_object();
    ECH_TRY(parse(path, text, n, &json));
    const ech_family_import in = {config, path, json, seen, folder};
    ECH_TRY(import_family(&in));
    if (ends) *ends = read_ends(&in);
    return ECH_OK;
}

ech_status ech_model_import_text(ech_config *config, const char *path, const char *text, size_t n,
                                 ech_model_text_ends *ends)
{
    return import(config, path, NULL, text, n, ends);
}

ech_status ech_model_import(ech_config *config, const char *path, ech_model_text_ends *ends)
{
    ECH_FREED char *text = NULL, *folder = ech_file_parent(path);
    size_t n;
    ECH_TRY(ech_file_read(path, LARGEST, &text, &n));
    return import(config, path, folder, text, n, ends);
}

/* ---- writing ---- */

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

static void choose_id(const ech_model_export_options *options, const json_t *original,
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
    choose_id(options, original, "bos_token_id", ends.begin, ours);
    choose_id(options, original, "eos_token_id", ends.end, ours);
    remove_replaced(family, original);
    if (options->text) json_object_del(ours, "pad_token_id");
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

/* A gate of the model's experts that only we know, in `gates`; GATES: none. */
static int find_gate(const ech_config *config)
{
    const char *name = ech_config_name(config, "model.moe_gate");
    int i = 0;
    if (!ech_family_reads(config, "model.moe_gate")) return GATES;
    while (i < GATES && strcmp(gates[i].name, name) != 0) i++;
    return i;
}

/* Shared experts that only we know. */
static bool has_shared(const ech_config *config)
{
    return ech_family_reads(config, shared_rows->key) && config->model.moe_shared_experts > 0 &&
           !ech_family_of(config)->shares;
}

/* The values of properties that the family's own config.json cannot say; NULL: there are none.
 * Release with json_decref. */
static json_t *write_variant(const ech_config *config)
{
    ech_family_row rows[VARIANTS];
    if (!ech_family_reads(config, variant_rows->key)) return NULL;
    find_variant_rows(ech_family_of(config), rows);
    json_t *values = ech_family_export_rows(config, rows);
    if (json_object_size(values)) return values;
    json_decref(values);
    return NULL;
}

/* What the model is called: as others call it, unless it is of a kind that only we know. */
static void name_type(const ech_config *config, bool variant, ech_text *type,
                      ech_text *architecture)
{
    const ech_family *family = ech_family_of(config);
    bool reversible = config->model.reversible == 1 && ech_family_reads(config, "model.reversible");
    int gate = find_gate(config);
    bool gated = gate < GATES && !family->ours, shared = has_shared(config);
    bool ours = family->ours || reversible || gated || shared || variant;
    ech_text_append(type, "%s%s%s%s%s%s%s", ours ? OURS : "", reversible ? REVERSIBLE : "",
                    gated ? gates[gate].name : "", gated ? "-" : "", shared ? SHARED : "",
                    variant ? VARIANT : "", family->name);
    ech_text_append(architecture, "%s%s%s%s%s%s", ours ? "Echelon" : "",
                    reversible ? "Reversible" : "", gated ? gates[gate].architecture : "",
                    shared ? "Shared" : "", variant ? "Variant" : "", family->architecture);
}

static json_t *write_all(const ech_config *config, ech_model_text_ends ends, ech_dtype dtype)
{
    const ech_family *family = ech_family_of(config);
    json_auto_t *rows = ech_family_export_rows(config, family->rows);
    const ech_family_row *of_gate = gate_rows(config);
    json_auto_t *groups = of_gate ? ech_family_export_rows(config, of_gate) : NULL;
    json_auto_t *shared = has_shared(config) ? ech_family_export_rows(config, shared_rows) : NULL;
    json_auto_t *last = json_pack("{s:i, s:i, s:s}", "bos_token_id", ends.begin, "eos_token_id",
                                  ends.end, "torch_dtype", torch_dtype(dtype));
    ECH_FREED_TEXT type = {0}, architecture = {0};
    json_auto_t *variant = write_variant(config);
    name_type(config, variant != NULL, &type, &architecture);
    json_t *ours =
        json_pack("{s:[s], s:s}", "architectures", architecture.at, "model_type", type.at);
    ECH_ASSERT(rows && last && ours);
    ech_windows_export(config, rows);
    if (family->export_more) family->export_more(config, rows);
    if (family->rope) ech_rope_export(config, rows);
    json_object_update(ours, rows);
    if (groups) json_object_update(ours, groups);
    if (shared) json_object_update(ours, shared);
    if (variant) json_object_update(ours, variant);
    json_object_update(ours, last);
    return ours;
}

ech_status ech_model_export(const ech_config *config, const ech_model_export_options *options,
                            ech_text *out)
{
    ech_model_text_ends ends = options->ends ? *options->ends : (ech_model_text_ends){0};
    json_auto_t *original = NULL;
    if (options->text)
        ECH_TRY(parse(options->path, options->text, options->n, &original));
    else
        original = json_object();
    json_auto_t *ours = write_all(config, ends, options->dtype);
    merge(ech_family_of(config), options, ends, original, ours);
    ECH_FREED char *text = json_dumps(original, JSON_INDENT(1) | JSON_ENSURE_ASCII);
    ECH_ASSERT(text != NULL);
    ech_text_append(out, "%s\n", text);
    return ECH_OK;
}
