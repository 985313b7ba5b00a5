/* SPDX-License-Identifier: Apache-2.0
 *
 * Mapping files: what they state is what a built-in family states, and what is wrong in one is
 * reported with file, line, key and the nearest valid name.
 */
#include "base/file.h"
#include "base/log.h"
#include "model/import_names.h"
#include "model/mapping.h"
#include "unit.h"

static const char head[] = "family: fam\narchitecture: FamForCausalLM\n";

static ech_status parse(const char *more, ech_mapping **out)
{
    ECH_FREED_TEXT text = {0};
    ech_text_append(&text, "%s%s", head, more);
    return ech_mapping_parse("fam.yaml", text.at, text.n, out);
}

/* Lines after `head`, which has two. */
static const struct refusal {
    const char *more, *said;
} refusals[] = {
    {"nams: {}\n", "fam.yaml:3:1: mapping file: nams: not known; did you mean names?"},
    {"base: lama\n", "fam.yaml:3:1: base: lama: not known; did you mean llama?"},
    {"base: logistic\n", "fam.yaml:3:1: base: logistic is no decoder"},
    {"keys: []\n", "fam.yaml:3:1: keys: must be a map"},
    {"keys: {n_embd: model.hidden_siz}\n",
     "fam.yaml:3:8: key of the run file: model.hidden_siz: not known; did you mean "
     "model.hidden_size?"},
    {"keys: {n_embd: hidden_size}\n", "did you mean model.hidden_size?"},
    {"keys: {x: model.mapping}\n", "model.mapping: not known"},
    {"keys: {a: data.train}\n", "data.train: not known"},
    {"keys:\n  n: model.hidden_size\n  n: model.head_dim\n",
     "fam.yaml:5:3: n: given twice, first in line 4"},
    {"keys:\n  n: model.head_dim\n  m: model.head_dim\n",
     "fam.yaml:5:3: keys.m: model.head_dim is mapped from n in line 4 already"},
    {"keys: {n: {key: model.head_dim, defalt: 3}}\n",
     "n: defalt: not known; did you mean default?"},
    {"keys: {n: {key: model.head_dim, default: many}}\n",
     "fam.yaml:3:8: model.head_dim = many: not a whole number"},
    {"keys: {n: {key: model.hidden_act, values: {a: swigloo}}}\n", "did you mean swiglu?"},
    {"keys: {n: {key: model.hidden_act, values: {a: swiglu}}}\n",
     "keys.n: its default silu is none of values; add default: NAME"},
    {"keys: {n: {key: model.head_dim, values: {a: b}}}\n", "model.head_dim has no names"},
    {"keys: {n: {}}\n", "keys.n: needs key (of the run file), or one of only and each"},
    {"keys: {n: {only: 2}}\n", "keys.n: 2: must be true, false, 0, 1, null, or words"},
    {"keys: {model_type: model.head_dim}\n", "keys.model_type: Echelon reads and writes it itself"},
    {"keys: {f: model.rope_scaling_factor}\n", "is read from rope_scaling; remove this line"},
    {"base: gemma2\nkeys: {w: model.window_layers}\n",
     "the base gemma2 reads model.window_layers in its own way"},
    {"base: glm4\nkeys: {w: model.rope_theta}\n", "the base glm4 reads model.rope_theta"},
    {"ignored: [n]\nkeys: {n: model.head_dim}\n", "keys.n: in ignored, too; remove one"},
    {"ignored: {a: b}\n", "ignored: must be a list"},
    {"constants: {model.qkv_bias: 3}\n",
     "fam.yaml:3:13: model.qkv_bias = 3: neither true nor false"},
    {"constants: {model.qkv_bais: true}\n", "did you mean model.qkv_bias?"},
    {"constants: {model.norm: [rmsnorm]}\n", "model.norm: needs a single value"},
    {"constants: {model.norm: layrnorm}\n", "did you mean layernorm?"},
    {"constants: {model.vocab_size: 30}\n", "model.vocab_size: every model has its own"},
    {"constants: {model.window_layers: \"L G\"}\n", "must be one word without blanks"},
    {"keys: {a: {key: model.hidden_act, values: {\"s\\tu\": swiglu}}}\n", "must be one word"},
    {"keys: {a: {key: model.hidden_act, values: {\"s\\nu\": swiglu}}}\n", "must be one word"},
    {"constants: {model.qkv_bias: true}\nkeys: {b: model.qkv_bias}\n",
     "model.qkv_bias: a constant, but mapped from a key of config.json, too"},
    {"constants: {model.rope_theta: 700}\n",
     "fam.yaml:3:13: model.rope_theta: a constant, but the base llama reads it from config.json; "
     "map it in keys, with a default, instead"},
    {"base: gemma2\nconstants: {model.attention_scale: 2}\n",
     "the base gemma2 reads it from config.json; use another base"},
    {"base: gemma2\nconstants: {model.window_layers: L}\n", "the base gemma2 reads it"},
    {"constants: {model.rope_scaling_factor: 2}\n", "the base llama reads it"},
    {"constants: {model.norm: rmsnorm}\ndefaults: {model.norm: layernorm}\n",
     "model.norm: a default, but a constant, too"},
    {"constants: {model.position_encoding: learned}\n",
     "fam.yaml: names: no name for positions, which model.position_encoding = learned needs"},
    {"names: {q: a, tokenz: b}\n", "role: tokenz: not known; did you mean tokens?"},
    {"names: {quux: b}\n", "role: quux: not known; use one of: tokens positions layers"},
    {"names:\n  q: a\n  q: b\n", "fam.yaml:5:3: q: given twice, first in line 4"},
    {"names:\n  q: attn.w\n  k: attn.w\n",
     "fam.yaml:5:3: names.k: attn.w is the name of q in line 4 already"},
    {"names: {q: [a]}\n", "q: needs a single value"},
    {"names: {q: \"a b\"}\n", "q: a b: must be at most 120 letters, digits and characters of"},
    {"names: {q: a.}\n", "q: a.: begins or ends with a dot"},
    {"names: {q: a%s}\n", "names.q: a%s: only names of experts have a %"},
    {"names: {q: \"a%d\"}\n", "names.q: a%d: only names of experts have a %"},
    {"names: {expert_up: experts.up}\n", "names.expert_up: experts.up: needs %d once, for the "
                                         "number of an expert, as in mlp.experts.%d"},
    {"names: {expert_up: \"%d.%s\"}\n", "names.expert_up: %d.%s: needs %d once"},
    {"names: {qkv: attn.c}\n", "names.qkv: one product makes queries, keys and values only with"},
    {"base: phi3\nnames: {q: attn.q}\n",
     "names.q: files of the base phi3 have it in the tensor self_attn.qkv_proj; state fused"},
    {"fused: [{parts: [q, k]}]\n", "fused: needs tensor: NAME"},
    {"fused: [{tensor: a}]\n", "fused: needs parts: [ROLE, ROLE]"},
    {"fused: [{tensor: a, parts: [q]}]\n", "parts: a fused tensor has two parts or more"},
    {"fused: [{tensor: a, parts: [q, kk]}]\n", "parts: kk: not known; did you mean k?"},
    {"fused: [{tensor: a, parts: [q, q]}]\n", "parts: q is in a fused tensor already"},
    {"fused: [{tensor: a, parts: [q, k], order: head}]\n", "did you mean heads?"},
    {"fused: [{tensor: a, parts: [q, k], transposed: 1}]\n", "transposed: 1: neither true nor"},
    {"fused: [{tensor: mlp.up_proj, parts: [q, k]}]\n", "mlp.up_proj is the name of up, too"},
    {"fused: [{tensor: a, parts: [q, k]}, {tensor: a, parts: [gate, up]}]\n", "a: given twice"},
    {"fused: [{tensor: \"a%s\", parts: [q, k]}]\n",
     "tensor: a%s: may have %d once, and no other %"},
    {"fused: [{tensor: \"a%d\", parts: [q, k]}]\n", "tensor: a%d: only names of experts have a %"},
    {"prefix: [a]\n", "prefix: needs a single value"},
    {"in_first: 1\n", "in_first: 1: neither true nor false"},
    {"in_first: true\nfused: [{tensor: a, parts: [q, k, v]}]\n", "fused: not with in_first"},
    {"x: &a 1\n", "anchor &a: not supported"},
    {"x: {a: {b: {c: {d: {e: {f: {g: {h: 1}}}}}}}}\n", "too deep; a mapping file has keys"},
    {"---\nfamily: b\n", "a second document"},
};

TEST(says_what_is_wrong)
{
    ech_log_set_quiet(true);
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        ech_mapping *mapping = NULL;
        ech_status status = parse(refusals[i].more, &mapping);
        if (status == ECH_OK || !strstr(ech_last_error(), refusals[i].said))
            fail_msg("%s is refused with: %s", refusals[i].more, ech_last_error());
    }
    ech_log_set_quiet(false);
}

TEST(names_a_family_of_its_own)
{
    static const struct refusal texts[] = {
        {"", "fam.yaml: an empty file; state a family"},
        {"a\n", "mapping file: must be a map of keys"},
        {"architecture: A\n", "fam.yaml:1:1: family: missing; add family: NAME"},
        {"family: f\n", "architecture: missing; add architecture: NAME"},
        {"family: llama\narchitecture: A\n", "family: llama is a family of Echelon's"},
        {"family: echelon-x\narchitecture: A\n", "names with echelon- are Echelon's own"},
        {"family: a b\narchitecture: A\n", "family: a b: must be at most 120 letters"},
        {"family: f\narchitecture: A/B\n", "architecture: A/B: must be"},
    };
    ech_log_set_quiet(true);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        ech_mapping *mapping = NULL;
        const char *text = texts[i].more;
        ech_status status = ech_mapping_parse("fam.yaml", text, strlen(text), &mapping);
        if (status == ECH_OK || !strstr(ech_last_error(), texts[i].said))
            fail_msg("%s is refused with: %s", text, ech_last_error());
    }
    ech_log_set_quiet(false);
}

/* ---- families that were added ---- */

static ech_status add(const char *family, const char *more)
{
    ECH_FREED_TEXT text = {0};
    const ech_family *out;
    ech_mapping *mapping;
    ech_text_append(&text, "family: %s\narchitecture: F\n%s", family, more);
    ECH_TRY(ech_mapping_parse("added.yaml", text.at, text.n, &mapping));
    return ech_family_add(mapping, &out);
}

static ech_status import(const char *json, ech_config *config)
{
    return ech_model_import_text(config, "config.json", json, strlen(json), NULL);
}

static const char mapped[] =
    "keys:\n"
    "  n_embd: model.hidden_size\n"
    "  act: {key: model.hidden_act, default: a, values: {a: swiglu, b: geglu}}\n"
    "  bias: [model.qkv_bias, model.o_bias]\n"
    "  base: {key: model.rope_theta, default: 700}\n"
    "  alibi: {only: false, lacks: ALiBi positions}\n"
    "  kinds: {each: full}\n"
    "constants: {model.mlp_bias: true}\n"
    "ignored: [color]\n";

#define SIZES                                                                                      \
    "\"vocab_size\": 30, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "                   \
    "\"intermediate_size\": 24"

TEST(imports_and_exports_its_keys)
{
    static const char json[] = "{\"model_type\": \"imp\", \"n_embd\": 16, \"act\": \"b\", "
                               "\"bias\": true, \"color\": 3, \"kinds\": [\"full\", \"full\"], "
                               "\"use_cache\": true, \"unset\": null, " SIZES "}";
    assert_int_equal(add("imp", mapped), ECH_OK);
    ech_config *config = import_config(), *back = import_config();
    ech_text out = {0};
    ech_model_export_options options = {.dtype = ECH_F32, .path = "config.json"};
    assert_int_equal(import(json, config), ECH_OK);
    assert_int_equal(config->model.hidden_size, 16);
    assert_true(config->model.qkv_bias && config->model.o_bias);
    assert_string_equal(ech_config_name(config, "model.hidden_act"), "geglu");
    assert_true(config->model.rope_theta > 699 && config->model.rope_theta < 701);
    assert_int_equal(ech_model_resolve(config, 1), ECH_OK);
    assert_int_equal(config->model.mlp_bias, true);
    assert_int_equal(config->model.num_key_value_heads, 4);
    assert_int_equal(ech_model_export(config, &options, &out), ECH_OK);
    static const char *const parts[] = {"\"model_type\": \"imp\"", "\"n_embd\": 16",
                                        "\"act\": \"b\"", "\"base\": 700", "\"bias\": true"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(out.at, parts[i])) fail_msg("no %s in %s", parts[i], out.at);
    assert_null(strstr(out.at, "hidden_size"));
    assert_null(strstr(out.at, "mlp_bias"));
    assert_int_equal(import(out.at, back), ECH_OK);
    ech_text_free(&out);
    ech_config_destroy(back);
    ech_config_destroy(config);
}

TEST(reads_every_key_or_refuses_it)
{
    static const struct refusal files[] = {
        {"\"n_embd\": 16, \"n_emb\": 3", "config.json: n_emb: not a key of added.yaml; add it to "
                                         "keys there, or to ignored if no result depends on it; "
                                         "the nearest key is n_embd"},
        {"\"n_embd\": 16, \"alibi\": true", "Echelon has no ALiBi positions"},
        {"\"n_embd\": 16, \"act\": \"silu\"", "only: a b"},
        {"\"n_embd\": 16, \"kinds\": [\"full\", \"half\"]", "kinds"},
        {"\"n_emb\": 16",
         "config.json: has no n_embd, which added.yaml maps to model.hidden_size; map its own key, "
         "or add a default; the nearest key is n_emb"},
    };
    ech_log_set_quiet(true);
    assert_int_equal(add("whole", mapped), ECH_OK);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        ECH_FREED_TEXT json = {0};
        ech_config *config = import_config();
        ech_text_append(&json, "{\"model_type\": \"whole\", %s, " SIZES "}", files[i].more);
        ech_status status = import(json.at, config);
        if (status == ECH_OK || !strstr(ech_last_error(), files[i].said))
            fail_msg("%s: %s", json.at, ech_last_error());
        ech_config_destroy(config);
    }
    ech_log_set_quiet(false);
}

/* Two roles of which the file names one, and the base the other. */
TEST(has_a_tensor_for_each_role)
{
    static const struct refusal texts[] = {
        {"constants: {model.norm_placement: both}\n",
         "added.yaml: names: two roles of this model have the tensor "
         "model.layers.0.post_attention_layernorm.weight"},
        {"names: {q: self_attn.k_proj}\n", "two roles of this model have the tensor"},
        {"fused: [{tensor: mlp.c_fc, parts: [gate, up]}]\n"
         "defaults: {model.hidden_act: gelu}\n"
         "keys: {hidden_act: {key: model.hidden_act, default: g, values: {g: gelu}}}\n",
         "no parameter 'model.layers.0.mlp.gate_proj.weight'"},
    };
    ech_log_set_quiet(true);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char name[32];
        ech_model *model;
        ECH_FREED_TEXT json = {0};
        snprintf(name, sizeof name, "twins%zu", i);
        if (add(name, texts[i].more) != ECH_OK) fail_msg("%s", ech_last_error());
        ech_config *config = import_config();
        ech_text_append(&json, "{\"model_type\": \"%s\", \"hidden_size\": 16, " SIZES "}", name);
        if (import(json.at, config) != ECH_OK) fail_msg("%s", ech_last_error());
        assert_int_equal(ech_model_resolve(config, 1), ECH_OK);
        assert_int_equal(ech_model_create_whole(config, &model), ECH_EINPUT);
        if (!strstr(ech_last_error(), texts[i].said)) fail_msg("%s", ech_last_error());
        ech_config_destroy(config);
    }
    ech_log_set_quiet(false);
}

/* A default of the file goes before its base's, also on import; config.json goes before both. */
TEST(defaults_hold_for_what_config_json_lacks)
{
    ech_log_set_quiet(true);
    if (add("usual", "defaults: {model.rms_norm_eps: 1e-3, model.rope_theta: 500000, "
                     "model.hidden_act: geglu}\n") != ECH_OK)
        fail_msg("%s", ech_last_error());
    static const char *const files[] = {
        "{\"model_type\": \"usual\", \"hidden_size\": 16, " SIZES "}",
        "{\"model_type\": \"usual\", \"hidden_size\": 16, \"rms_norm_eps\": 0.5, "
        "\"rope_theta\": 7.0, \"hidden_act\": \"silu\", " SIZES "}"};
    for (int i = 0; i < 2; i++) {
        ech_config *config = import_config();
        if (import(files[i], config) != ECH_OK) fail_msg("%s", ech_last_error());
        assert_int_equal(ech_model_resolve(config, 1), ECH_OK);
        assert_true(config->model.rms_norm_eps == (i ? 0.5 : 1e-3));
        assert_true(config->model.rope_theta == (i ? 7 : 500000));
        assert_string_equal(ech_config_name(config, "model.hidden_act"), i ? "swiglu" : "geglu");
        ech_config_destroy(config);
    }
    ech_log_set_quiet(false);
}

/* Rows from which others follow. */
TEST(needs_no_row_to_end_well)
{
    static const char *const files[] = {"ignored: [num_attention_heads]\n",
                                        "base: smollm3\nignored: [num_hidden_layers]\n",
                                        "base: gemma2\nignored: [num_hidden_layers]\n"};
    ech_log_set_quiet(true);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char name[32];
        ECH_FREED_TEXT json = {0};
        snprintf(name, sizeof name, "lacks%zu", i);
        if (add(name, files[i]) != ECH_OK) fail_msg("%s", ech_last_error());
        ech_config *config = import_config();
        ech_text_append(&json, "{\"model_type\": \"%s\", \"hidden_size\": 16, " SIZES "}", name);
        bool made = import(json.at, config) == ECH_OK && ech_model_resolve(config, 1) == ECH_OK;
        assert_false(made);
        assert_true(ech_last_error()[0] != '\0');
        ech_config_destroy(config);
    }
    ech_log_set_quiet(false);
}

/* Biases of parts have one dimension, which no file transposes. */
TEST(transposes_no_bias)
{
    ech_model *model;
    ech_log_set_quiet(true);
    if (add("biased", "fused: [{tensor: self_attn.qkv_proj, parts: [q, k, v], transposed: true}]\n"
                      "constants: {model.qkv_bias: true}\n") != ECH_OK)
        fail_msg("%s", ech_last_error());
    ech_config *config = import_config();
    if (import("{\"model_type\": \"biased\", \"hidden_size\": 16, " SIZES "}", config) != ECH_OK)
        fail_msg("%s", ech_last_error());
    assert_int_equal(ech_model_resolve(config, 1), ECH_OK);
    if (ech_model_create_whole(config, &model) != ECH_OK) fail_msg("%s", ech_last_error());
    int biases = 0;
    for (size_t i = 0; i < model->param.n; i++) {
        const ech_param *param = &model->param.at[i];
        if (!param->file_name || !strstr(param->file_name, "qkv_proj")) continue;
        assert_true(param->place.transposed == (param->shape.dims > 1));
        biases += param->shape.dims == 1;
    }
    assert_int_equal(biases, 3 * config->model.num_hidden_layers);
    ech_model_destroy(model);
    ech_config_destroy(config);
    ech_log_set_quiet(false);
}

TEST(states_a_family_once)
{
    ech_log_set_quiet(true);
    assert_int_equal(add("once", "prefix: a.\n"), ECH_OK);
    const ech_family *first = ech_family_find("once");
    assert_int_equal(add("once", "# the same\nprefix:    a.\n"), ECH_OK);
    assert_ptr_equal(ech_family_find("once"), first);
    assert_true(ech_text_has_word(ech_family_names(), "once"));
    assert_int_equal(add("once", "prefix: b.\n"), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "states the family once otherwise than added.yaml"));
    ech_log_set_quiet(false);
}
