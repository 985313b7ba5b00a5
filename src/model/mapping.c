/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading mapping files (docs/mapping.md). What a file does not state is the base family's. Texts
 * of the file never become formats: names are checked, and copied with "%s".
 */
#include "model/mapping.h"

#include <stdlib.h>
#include <string.h>

#include "config/yaml_tree.h"
#include "model/mapping_reader.h"

#define FAIL_AT ECH_MAPPING_FAIL

/* Keys of config.json that every family has, or that describe no model. */
#define FAMILIAR                                                                                   \
    "architectures model_type torch_dtype dtype transformers_version _name_or_path name_or_path "  \
    "auto_map use_cache bos_token_id eos_token_id pad_token_id unk_token_id tokenizer_class "      \
    "return_dict output_hidden_states output_attentions torchscript quantization_config "          \
    "_attn_implementation pretraining_tp is_decoder is_encoder_decoder id2label label2id "         \
    "problem_type chunk_size_feed_forward finetuning_task task_specific_params "                   \
    "classifier_dropout output_router_logits router_aux_loss_coef"

/* ---- texts ---- */

ech_status ech_mapping_scalar(const ech_mapping_reader *r, const ech_yaml_node *node,
                              const char *what, const char **out)
{
    if (node->kind != ECH_YAML_SCALAR || node->is_null)
        FAIL_AT(r, node, "%s: needs a single value", what);
    *out = node->text;
    return ECH_OK;
}

/* Letters, digits and the characters of `more`; not empty, at most 120. */
static bool is_plain(const char *text, const char *more)
{
    size_t n = strlen(text);
    for (const char *at = text; *at; at++) {
        bool letter = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z');
        if (!letter && !(*at >= '0' && *at <= '9') && !strchr(more, *at)) return false;
    }
    return n > 0 && n <= 120;
}

ech_status ech_mapping_word(const ech_mapping_reader *r, const ech_yaml_node *node,
                            const char *what, const char *more, const char **out)
{
    ECH_TRY(ech_mapping_scalar(r, node, what, out));
    if (!is_plain(*out, more))
        FAIL_AT(r, node, "%s: %.60s: must be at most 120 letters, digits and characters of %s",
                what, *out, more);
    return ECH_OK;
}

ech_status ech_mapping_bool(const ech_mapping_reader *r, const ech_yaml_node *node,
                            const char *what, bool *out)
{
    const char *text;
    ECH_TRY(ech_mapping_scalar(r, node, what, &text));
    *out = strcmp(text, "true") == 0;
    if (!*out && strcmp(text, "false") != 0)
        FAIL_AT(r, node, "%s: %.60s: neither true nor false", what, text);
    return ECH_OK;
}

ech_status ech_mapping_kind(const ech_mapping_reader *r, const ech_yaml_node *node,
                            const char *what, ech_yaml_kind kind)
{
    if (node->kind == kind) return ECH_OK;
    FAIL_AT(r, node, "%s: must be a %s", what, kind == ECH_YAML_MAP ? "map of keys" : "list");
}

bool ech_mapping_nearest(const char *name, const char *words, ech_text *out)
{
    ECH_LIST(const char *) known = {0};
    ECH_FREED_WORDS word = ech_words_in(words);
    while (ech_words_next(&word)) ECH_PUSH(known, word.at);
    const char *nearest = ech_text_nearest(name, known.at, known.n);
    out->n = 0;
    if (nearest) ech_text_append(out, "%s", nearest);
    free(known.at);
    return nearest != NULL;
}

ech_status ech_mapping_unknown(const ech_mapping_reader *r, const ech_yaml_node *node,
                               const char *what, const char *name, const char *words)
{
    ECH_FREED_TEXT nearest = {0};
    if (ech_mapping_nearest(name, words, &nearest))
        FAIL_AT(r, node, "%s: %.60s: not known; did you mean %s?", what, name, nearest.at);
    FAIL_AT(r, node, "%s: %.60s: not known; use one of: %s", what, name, words);
}

ech_status ech_mapping_entries(const ech_mapping_reader *r, const ech_yaml_node *map,
                               const char *what, const char *words)
{
    ECH_TRY(ech_mapping_kind(r, map, what, ECH_YAML_MAP));
    for (const ech_yaml_node *at = map->first; at; at = at->next)
        if (!ech_text_has_word(words, at->key))
            return ech_mapping_unknown(r, at, what, at->key, words);
    return ECH_OK;
}

/* ---- keys of the model section ---- */

/* Those that some decoder reads, but no property that other programs lack. */
static void append_model_keys(ech_text *out)
{
    ECH_FREED_TEXT owned = {0};
    ech_family_append_of_decoders(&owned);
    ech_text_append(out, "model.vocab_size model.max_position_embeddings");
    for (ECH_FREED_WORDS word = ech_words_in(owned.at); ech_words_next(&word);)
        if (strncmp(word.at, "model.", strlen("model.")) == 0 &&
            strcmp(word.at, "model.reversible") != 0 && !ech_text_has_word(out->at, word.at))
            ech_text_append(out, " %s", word.at);
}

ech_status ech_mapping_model_key(const ech_mapping_reader *r, const ech_yaml_node *node,
                                 const char *name)
{
    if (ech_text_has_word(r->model_keys.at, name)) return ECH_OK;
    return ech_mapping_unknown(r, node, "key of the run file", name, r->model_keys.at);
}

ech_status ech_mapping_check_value(const ech_mapping_reader *r, const ech_yaml_node *node,
                                   const char *key, const char *text)
{
    ECH_FREED_TEXT place = {0};
    ech_text_append(&place, "%s:%zu:%zu", r->to->path, node->line, node->column);
    return ech_config_fill(r->config, key, text, place.at, true);
}

/* "key=value key=value" of the base, without keys that `stated` or the file's constants have, then
 * the file's. */
static const char *join(const ech_mapping_reader *r, const char *base, const ech_yaml_node *stated)
{
    ECH_FREED_TEXT all = {0};
    const ech_yaml_node *constants = ech_yaml_find(r->root, "constants");
    for (ECH_FREED_WORDS word = ech_words_in(base); ech_words_next(&word);) {
        ECH_FREED_TEXT key = {0};
        ech_text_append(&key, "%.*s", (int)strcspn(word.at, "="), word.at);
        if (ech_yaml_find(stated, key.at) || ech_yaml_find(constants, key.at) ||
            ech_mapping_maps(r, key.at))
            continue;
        ech_text_append(&all, "%s%s", all.n ? " " : "", word.at);
    }
    for (const ech_yaml_node *at = stated ? stated->first : NULL; at; at = at->next)
        ech_text_append(&all, "%s%s=%s", all.n ? " " : "", at->key, at->text);
    return all.n ? ech_pool_format(r->to->pool, "%s", all.at) : NULL;
}

/* Values of `constants`, or of `defaults`. */
static ech_status check_values(const ech_mapping_reader *r, const ech_yaml_node *map,
                               const char *what)
{
    const char *text;
    bool constants = strcmp(what, "constants") == 0;
    if (!map) return ECH_OK;
    ECH_TRY(ech_mapping_kind(r, map, what, ECH_YAML_MAP));
    for (const ech_yaml_node *at = map->first; at; at = at->next) {
        ECH_TRY(ech_mapping_model_key(r, at, at->key));
        ECH_TRY(ech_mapping_scalar(r, at, at->key, &text));
        if (constants && ech_mapping_maps(r, at->key))
            FAIL_AT(r, at, "%s: a constant, but mapped from a key of config.json, too; remove one",
                    at->key);
        if (constants) ECH_TRY(ech_mapping_check_constant(r, at));
        if (!constants && ech_yaml_find(ech_yaml_find(r->root, "constants"), at->key))
            FAIL_AT(r, at, "%s: a default, but a constant, too; remove one", at->key);
        if (constants &&
            (ech_text_has_word("model.vocab_size model.max_position_embeddings", at->key)))
            FAIL_AT(r, at, "%s: every model has its own; map it from a key of config.json",
                    at->key);
        if (!*text || strpbrk(text, " \t\n"))
            FAIL_AT(r, at, "%s: must be one word without blanks", at->key);
        ECH_TRY(ech_mapping_check_value(r, at, at->key, text));
    }
    return ECH_OK;
}

/* The base's keys, without the file's constants, and all of experts if there are some. */
static const char *join_reads(const ech_mapping_reader *r)
{
    ECH_FREED_TEXT all = {0};
    const ech_yaml_node *constants = ech_yaml_find(r->root, "constants");
    bool experts = ech_mapping_maps(r, "model.num_local_experts") &&
                   !ech_text_has_word(r->base->reads, "model.moe_gate");
    for (ECH_FREED_WORDS word = ech_words_in(r->base->reads); ech_words_next(&word);)
        if (!ech_yaml_find(constants, word.at))
            ech_text_append(&all, "%s%s", all.n ? " " : "", word.at);
    return ech_pool_format(r->to->pool, "%s%s", all.n ? all.at : "",
                           experts ? ECH_EXPERT_KEYS : "");
}

/* ---- other entries ---- */

/* Blank-separated words of a list; NULL: the file has no such entry. */
static ech_status read_words(const ech_mapping_reader *r, const char *what, const char *more,
                             const char **out)
{
    const ech_yaml_node *list = ech_yaml_find(r->root, what);
    const char *text;
    ECH_FREED_TEXT words = {0};
    *out = NULL;
    if (!list) return ECH_OK;
    ECH_TRY(ech_mapping_kind(r, list, what, ECH_YAML_LIST));
    for (const ech_yaml_node *at = list->first; at; at = at->next) {
        ECH_TRY(ech_mapping_word(r, at, what, more, &text));
        ech_text_append(&words, "%s%s", words.n ? " " : "", text);
    }
    *out = ech_pool_format(r->to->pool, "%s", words.n ? words.at : "");
    return ECH_OK;
}

static ech_status demand(const ech_mapping_reader *r, const char *key, const char *more,
                         const char **out)
{
    const ech_yaml_node *node = ech_yaml_find(r->root, key);
    if (!node) FAIL_AT(r, r->root, "%s: missing; add %s: NAME", key, key);
    return ech_mapping_word(r, node, key, more, out);
}

/* The family that the file builds on. */
static ech_status read_base(ech_mapping_reader *r)
{
    const ech_yaml_node *node = ech_yaml_find(r->root, "base");
    const char *name = "llama";
    if (node) ECH_TRY(ech_mapping_scalar(r, node, "base", &name));
    r->base = ech_family_find(name);
    if (!r->base || r->base->mapping)
        return ech_mapping_unknown(r, node, "base", name, ech_family_names());
    if (r->base->build) FAIL_AT(r, node, "base: %s is no decoder; use llama", name);
    return ECH_OK;
}

static ech_status read_family_name(const ech_mapping_reader *r)
{
    const char *name;
    ech_family *family = &r->to->family;
    const ech_yaml_node *node = ech_yaml_find(r->root, "family");
    ECH_TRY(demand(r, "family", "_-.", &name));
    const ech_family *twin = ech_family_find(name);
    if (twin && !twin->mapping)
        FAIL_AT(r, node,
                "family: %s is a family of Echelon's; use another name, and set model_type "
                "in config.json to it",
                name);
    if (strncmp(name, "echelon-", strlen("echelon-")) == 0)
        FAIL_AT(r, node, "family: %s: names with echelon- are Echelon's own; use another one",
                name);
    family->name = name;
    return demand(r, "architecture", "_", &family->architecture);
}

/* A plugin's layer in place of the family's own. */
static ech_status read_layer(const ech_mapping_reader *r, const ech_yaml_node *layers,
                             const char *part, const echelon_layer **out)
{
    const ech_yaml_node *node = ech_yaml_find(layers, part);
    const char *name;
    if (!node) return ECH_OK;
    ECH_TRY(ech_mapping_word(r, node, part, "_-", &name));
    *out = ech_layer_find_plugged(name);
    if (*out) return ECH_OK;
    FAIL_AT(r, node,
            "layers: %s: %s: no plugin of this run adds a layer of this name; name its file, "
            "training.plugins=./%s.so (commands without a run file: --plugins ./%s.so)%s%s",
            part, name, name, name, *ech_layer_plugged_names() ? "; the plugins' layers are: " : "",
            ech_layer_plugged_names());
}

static ech_status read_layers(const ech_mapping_reader *r)
{
    const ech_yaml_node *layers = ech_yaml_find(r->root, "layers");
    ech_family *family = &r->to->family;
    if (!layers) return ECH_OK;
    ECH_TRY(ech_mapping_entries(r, layers, "layers", "attention feed_forward"));
    ECH_TRY(read_layer(r, layers, "attention", &family->attention));
    return read_layer(r, layers, "feed_forward", &family->feed_forward);
}

static ech_status read_prefix(const ech_mapping_reader *r)
{
    const ech_yaml_node *node = ech_yaml_find(r->root, "prefix");
    bool empty = node && node->text && !node->is_null && !*node->text;
    r->to->family.prefix = empty ? "" : r->base->prefix;
    return node && !empty ? ech_mapping_word(r, node, "prefix", "_.-", &r->to->family.prefix)
                          : ECH_OK;
}

/* ---- the whole ---- */

static ech_mapping *begin(const char *path, const char *text, size_t n)
{
    ech_pool *pool = ech_pool_create();
    ech_mapping *mapping = ech_pool_alloc(pool, sizeof *mapping);
    char *copy = ech_pool_alloc(pool, n + 1);
    memcpy(copy, text, n);
    *mapping = (ech_mapping){
        .pool = pool, .path = ech_pool_format(pool, "%s", path), .text = copy, .n = n};
    return mapping;
}

/* What a file states, one value a line. Depth is limited. */
static void summarize(const ech_yaml_node *node, int depth, ech_text *out)
{
    for (; node; node = node->next) {
        ech_text_append(out, "%*s%s=%s%s\n", depth, "", node->key ? node->key : "",
                        node->is_null ? "~" : "", node->text ? node->text : "");
        summarize(node->first, depth + 1, out);
    }
}

static ech_status read_family(ech_mapping_reader *r)
{
    const char *buffers, *ignored;
    ech_family *family = &r->to->family;
    const ech_yaml_node *constants = ech_yaml_find(r->root, "constants"),
                        *defaults = ech_yaml_find(r->root, "defaults");
    ECH_TRY(ech_mapping_entries(r, r->root, "mapping file",
                                "family base architecture keys constants defaults ignored names "
                                "in_first prefix buffers fused layers"));
    ECH_TRY(read_base(r));
    family->reads = r->base->reads;
    ECH_TRY(read_family_name(r));
    ECH_TRY(read_words(r, "ignored", "_-.", &ignored));
    r->to->ignored = ignored ? ignored : "";
    family->rope = r->base->rope;
    ECH_TRY(ech_mapping_read_keys(r));
    ECH_TRY(check_values(r, constants, "constants"));
    ECH_TRY(check_values(r, defaults, "defaults"));
    family->reads = join_reads(r);
    family->constants = join(r, r->base->constants, constants);
    family->defaults = join(r, r->base->defaults, defaults);
    r->to->defaults = join(r, NULL, defaults);
    family->also = r->base->also;
    family->windows = r->base->windows;
    family->inner = r->base->inner;
    family->check = r->base->check;
    family->shares = r->base->shares || ech_mapping_maps(r, "model.moe_shared_experts");
    family->import_more = r->base->import_more;
    family->export_more = r->base->export_more;
    family->replaces = r->base->replaces;
    ECH_TRY(read_words(r, "buffers", "_.-", &buffers));
    family->buffers = buffers ? buffers : r->base->buffers;
    ECH_TRY(read_prefix(r));
    ECH_TRY(read_layers(r));
    return ech_mapping_read_names(r);
}

static ech_status read_all(ech_mapping_reader *r)
{
    ECH_FREED_TEXT summary = {0};
    ech_mapping *to = r->to;
    ECH_TRY(ech_yaml_read(to->path, to->text, to->n,
                          "a mapping file has keys, and below some of them maps and lists",
                          to->pool, &r->root));
    if (!r->root) ECH_FAIL(ECH_EINPUT, "%s: an empty file; state a family", to->path);
    ECH_TRY(read_family(r));
    summarize(r->root, 0, &summary);
    to->summary = ech_pool_format(to->pool, "%s", summary.at);
    to->family.mapping = to;
    /* Keys of config.json may set properties, too; then they are checked with the model. */
    ech_family_choose(r->config, to->family.constants);
    ech_family_choose(r->config, to->family.defaults);
    return ech_mapping_check_roles(to, r->config);
}

ech_status ech_mapping_parse(const char *path, const char *text, size_t n, ech_mapping **out)
{
    const ech_config_names names[] = {
        {"models", ech_family_names()}, {"gates", ech_gate_names()}, {"losses", ech_loss_names()}};
    ech_mapping_reader r = {.to = begin(path, text, n)};
    append_model_keys(&r.model_keys);
    ech_status status = ech_config_create(names, sizeof names / sizeof *names, &r.config);
    if (status == ECH_OK) status = read_all(&r);
    ech_config_destroy(r.config);
    ech_text_free(&r.model_keys);
    free(r.entry.at);
    if (status != ECH_OK)
        ech_mapping_destroy(r.to);
    else
        *out = r.to;
    return status;
}

void ech_mapping_destroy(ech_mapping *mapping)
{
    if (mapping) ech_pool_destroy(mapping->pool);
}

/* ---- config.json ---- */

ech_status ech_mapping_check_keys(const ech_mapping *mapping, const ech_family_import *in)
{
    const ech_family *family = &mapping->family;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)in->json, key, value)
    {
        if (json_is_null(value) || json_object_get(in->seen, key)) continue;
        if (ech_text_has_word(FAMILIAR, key) || ech_text_has_word(mapping->ignored, key) ||
            ech_text_has_word(family->replaces, key))
            continue;
        const char *names[256];
        size_t n = 0;
        for (const ech_family_row *row = family->rows; row->name && n < 256; row++)
            names[n++] = row->name;
        const char *nearest = ech_text_nearest(key, names, n);
        ECH_FAIL(ECH_EINPUT,
                 "%s: %.60s: not a key of %s; add it to keys there, or to ignored if no result "
                 "depends on it%s%s",
                 in->path, key, mapping->path, nearest ? "; the nearest key is " : "",
                 nearest ? nearest : "");
    }
    return ECH_OK;
}

ech_status ech_mapping_miss_key(const ech_mapping *mapping, const ech_family_import *in,
                                const ech_family_row *row)
{
    ECH_LIST(const char *) names = {0};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)in->json, key, value)
    {
        ECH_PUSH(names, key);
    }
    const char *nearest = ech_text_nearest(row->name, names.at, names.n);
    free(names.at);
    ECH_FAIL(ECH_EINPUT,
             "%s: has no %s, which %s maps to %s; map its own key, or add a default%s%s", in->path,
             row->name, mapping->path, row->key, nearest ? "; the nearest key is " : "",
             nearest ? nearest : "");
}
