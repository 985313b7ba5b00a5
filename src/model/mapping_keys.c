/* SPDX-License-Identifier: Apache-2.0
 *
 * `keys` of a mapping file: rows between config.json and the model section.
 */
#include <stdlib.h>
#include <string.h>

#include "model/mapping_reader.h"

#define FAIL_AT ECH_MAPPING_FAIL
#define THETA   "model.rope_theta"
#define PART    "model.partial_rotary_factor"

bool ech_mapping_maps(const ech_mapping_reader *r, const char *key)
{
    for (size_t i = 0; i < r->entry.n; i++)
        if (r->entry.at[i].key && strcmp(r->entry.at[i].key, key) == 0) return true;
    return false;
}

static bool states(const ech_mapping_reader *r, const char *name)
{
    for (size_t i = 0; i < r->entry.n; i++)
        if (strcmp(r->entry.at[i].name, name) == 0) return true;
    return false;
}

/* ---- entries ---- */

static bool is_rotary(const char *key)
{
    return strcmp(key, THETA) == 0 || strcmp(key, PART) == 0;
}

static bool is_of_scaling(const ech_family *base, const char *key)
{
    return base->rope && ech_text_has_word(ECH_ROPE_SCALING_KEYS " model.rope_scaling", key);
}

/* Whether a mapping may give keys of the base's rotary positions other names. */
static bool may_rename_rotary(const ech_family *base)
{
    return base->rope == &ech_rope_usual && !base->import_more;
}

/* Whether code of the base reads the key from config.json, and none of its rows. */
static bool reads_itself(const ech_family *base, const char *key)
{
    return (base->also && ech_text_has_word(base->also, key)) || ech_windows_own(base, key) ||
           (base->rope && is_rotary(key)) || is_of_scaling(base, key);
}

ech_status ech_mapping_check_constant(const ech_mapping_reader *r, const ech_yaml_node *at)
{
    if (!reads_itself(r->base, at->key)) return ECH_OK;
    bool rotary = is_rotary(at->key) && may_rename_rotary(r->base);
    FAIL_AT(r, at, "%s: a constant, but the base %s reads it from config.json; %s", at->key,
            r->base->name, rotary ? "map it in keys, with a default, instead" : "use another base");
}

/* The file's entry for a model key. */
static ech_status add_key(ech_mapping_reader *r, const ech_yaml_node *at, ech_mapping_entry entry)
{
    ECH_TRY(ech_mapping_scalar(r, at, entry.name, &entry.key));
    ECH_TRY(ech_mapping_model_key(r, at, entry.key));
    for (size_t i = 0; i < r->entry.n; i++)
        if (r->entry.at[i].key && strcmp(r->entry.at[i].key, entry.key) == 0)
            FAIL_AT(r, at, "keys.%s: %s is mapped from %s in line %zu already; remove one",
                    entry.name, entry.key, r->entry.at[i].name, r->entry.at[i].node->line);
    if (is_of_scaling(r->base, entry.key))
        FAIL_AT(r, at, "keys.%s: %s is read from rope_scaling; remove this line", entry.name,
                entry.key);
    if (reads_itself(r->base, entry.key) && !(is_rotary(entry.key) && may_rename_rotary(r->base)))
        FAIL_AT(r, at, "keys.%s: the base %s reads %s in its own way; use another base, as llama",
                entry.name, r->base->name, entry.key);
    ECH_PUSH(r->entry, entry);
    return ECH_OK;
}

static ech_status read_targets(ech_mapping_reader *r, const ech_yaml_node *at,
                               ech_mapping_entry entry)
{
    if (at->kind != ECH_YAML_LIST) return add_key(r, at, entry);
    for (const ech_yaml_node *key = at->first; key; key = key->next)
        ECH_TRY(add_key(r, key, entry));
    return ECH_OK;
}

/* {silu: swiglu} -> "silu=swiglu" */
static ech_status read_values(const ech_mapping_reader *r, const ech_yaml_node *map,
                              const char *name, const char **out)
{
    const char *value;
    ECH_FREED_TEXT pairs = {0};
    ECH_TRY(ech_mapping_kind(r, map, name, ECH_YAML_MAP));
    for (const ech_yaml_node *at = map->first; at; at = at->next) {
        ECH_TRY(ech_mapping_word(r, at, at->key, "_-.", &value));
        if (!*at->key || strpbrk(at->key, " \t\n="))
            FAIL_AT(r, at, "%s: %.60s: must be one word", name, at->key);
        ech_text_append(&pairs, "%s%s=%s", pairs.n ? " " : "", at->key, value);
    }
    if (!pairs.n) FAIL_AT(r, map, "%s: needs at least one name: {silu: swiglu}", name);
    *out = ech_pool_format(r->to->pool, "%s", pairs.at);
    return ECH_OK;
}

/* A constant that Echelon supports: true, false, 0, 1, null, or words. */
static ech_status read_only(const ech_mapping_reader *r, const ech_yaml_node *only,
                            const char *name, const char **out)
{
    ECH_FREED_TEXT words = {0};
    const ech_yaml_node *first = only->kind == ECH_YAML_LIST ? only->first : only;
    if (only->kind == ECH_YAML_SCALAR && only->is_null) {
        *out = "null";
        return ECH_OK;
    }
    if (!first) FAIL_AT(r, only, "keys.%s: needs a value", name);
    for (const ech_yaml_node *at = first; at; at = only == first ? NULL : at->next) {
        const char *text;
        double number;
        ECH_TRY(ech_mapping_word(r, at, name, "_-.", &text));
        if (ech_text_to_real(text, &number) && strcmp(text, "0") != 0 && strcmp(text, "1") != 0)
            FAIL_AT(r, at, "keys.%s: %s: must be true, false, 0, 1, null, or words", name, text);
        ech_text_append(&words, "%s%s", words.n ? " " : "", text);
    }
    *out = ech_pool_format(r->to->pool, "%s", words.at);
    return ECH_OK;
}

static ech_status read_optional(const ech_mapping_reader *r, const ech_yaml_node *map,
                                const char *key, const char **out)
{
    const ech_yaml_node *node = ech_yaml_find(map, key);
    return node ? ech_mapping_scalar(r, node, key, out) : ECH_OK;
}

/* {key: ..., default: ..., values: {...}}, or {only: ..., lacks: ...}. */
static ech_status read_long(ech_mapping_reader *r, const ech_yaml_node *at, ech_mapping_entry entry)
{
    const ech_yaml_node *key = ech_yaml_find(at, "key"), *only = ech_yaml_find(at, "only"),
                        *each = ech_yaml_find(at, "each"), *values = ech_yaml_find(at, "values");
    ECH_TRY(ech_mapping_entries(r, at, entry.name,
                                key ? "key default null values" : "only each lacks key"));
    if (key) {
        ECH_TRY(read_optional(r, at, "default", &entry.initial));
        ECH_TRY(read_optional(r, at, "null", &entry.null));
        if (values) ECH_TRY(read_values(r, values, entry.name, &entry.values));
        return read_targets(r, key, entry);
    }
    if (!only == !each)
        FAIL_AT(r, at, "keys.%s: needs key (of the run file), or one of only and each (a constant)",
                entry.name);
    entry.lists = each != NULL;
    ECH_TRY(read_only(r, only ? only : each, entry.name, &entry.initial));
    ECH_TRY(read_optional(r, at, "lacks", &entry.property));
    ECH_PUSH(r->entry, entry);
    return ECH_OK;
}

static ech_status read_entry(ech_mapping_reader *r, const ech_yaml_node *at)
{
    ech_mapping_entry entry = {.node = at, .name = at->key};
    if (!*at->key || strlen(at->key) > 120 || strpbrk(at->key, " \t\n"))
        FAIL_AT(r, at, "keys.%.60s: must be one word without blanks", at->key);
    if (ech_text_has_word("model_type architectures torch_dtype dtype bos_token_id eos_token_id "
                          "rope_scaling rope_parameters quantization_config",
                          at->key))
        FAIL_AT(r, at, "keys.%s: Echelon reads and writes it itself; remove this line", at->key);
    if (ech_text_has_word(r->to->ignored, at->key))
        FAIL_AT(r, at, "keys.%s: in ignored, too; remove one", at->key);
    return at->kind == ECH_YAML_MAP ? read_long(r, at, entry) : read_targets(r, at, entry);
}

/* ---- rows ---- */

/* Whether the left side of one of the pairs is that word; its right side. */
static bool find_value(const char *pairs, const char *word, ech_text *out)
{
    for (ECH_FREED_WORDS pair = ech_words_in(pairs); ech_words_next(&pair);) {
        char *right = strchr(pair.at, '=');
        *right++ = '\0';
        if (out && strcmp(pair.at, word) == 0) ech_text_append(out, "%s", right);
        if (strcmp(pair.at, word) == 0) return true;
    }
    return false;
}

/* The values in the file's words are values of the key; so is the default. */
static ech_status check_row(const ech_mapping_reader *r, const ech_mapping_entry *entry,
                            const ech_family_row *row)
{
    bool named = strcmp(ech_config_type_name(row->key), "NAME") == 0;
    ECH_FREED_TEXT ours = {0};
    if (entry->values && !named)
        FAIL_AT(r, entry->node, "keys.%s: %s has no names; remove values", row->name, row->key);
    if (entry->values) {
        for (ECH_FREED_WORDS pair = ech_words_in(entry->values); ech_words_next(&pair);)
            ECH_TRY(ech_mapping_check_value(r, entry->node, row->key, strchr(pair.at, '=') + 1));
    }
    if (row->null) ECH_TRY(ech_mapping_check_value(r, entry->node, row->key, row->null));
    if (!row->initial) return ECH_OK;
    if (row->values && !find_value(row->values, row->initial, &ours))
        FAIL_AT(r, entry->node, "keys.%s: its default %s is none of values; add default: NAME",
                row->name, row->initial);
    return ech_mapping_check_value(r, entry->node, row->key, ours.n ? ours.at : row->initial);
}

/* What Echelon knows of the key by the base, or by another family. */
static ech_status make_row(ech_mapping_reader *r, const ech_mapping_entry *entry,
                           ech_family_row *out)
{
    const ech_family_row *base = ech_family_find_row(r->base, entry->key),
                         *any = base ? base : ech_family_find_any_row(entry->key);
    const char *type = ech_config_type_name(entry->key);
    ech_family_row row = {.name = entry->name, .key = entry->key};
    row.use = any ? any->use & (ECH_ROW_MAY_DIFFER | ECH_ROW_REAL | ECH_ROW_NAME | ECH_ROW_TEXT)
              : strcmp(type, "REAL") == 0 ? ECH_ROW_REAL
              : strcmp(type, "TEXT") == 0 ? ECH_ROW_TEXT
                                          : 0;
    row.null = entry->null ? entry->null : any ? any->null : NULL;
    row.values = entry->values ? entry->values : any ? any->values : NULL;
    if (strcmp(type, "NAME") == 0 && !row.values) row.use |= ECH_ROW_NAME;
    row.initial = entry->initial ? entry->initial : base ? base->initial : NULL;
    if (base && !entry->initial) row.derived = base->derived;
    ECH_TRY(check_row(r, entry, &row));
    *out = row;
    if (!is_rotary(entry->key) || !r->base->rope) return ECH_OK;
    /* ech_rope_import reads it, also from rope_parameters. */
    ech_rope_names *rope = &r->to->rope;
    out->use |= ECH_ROW_UNREAD;
    r->to->family.rope = rope;
    bool theta = strcmp(entry->key, THETA) == 0;
    *(theta ? &rope->theta : &rope->part) = entry->name;
    if (entry->initial) *(theta ? &rope->theta_initial : &rope->part_initial) = entry->initial;
    return ECH_OK;
}

/* Rows of the base keep their order, since some follow from rows before them. */
typedef ECH_LIST(ech_family_row) row_list;

static ech_status add_entry(ech_mapping_reader *r, ech_mapping_entry *entry, row_list *rows)
{
    ech_family_row row = {.name = entry->name,
                          .initial = entry->initial,
                          .use = ECH_ROW_UNWRITTEN | (entry->lists ? ECH_ROW_LIST : 0),
                          .property = entry->property};
    if (entry->used) return ECH_OK;
    entry->used = true;
    if (entry->key) ECH_TRY(make_row(r, entry, &row));
    ECH_PUSH(*rows, row);
    return ECH_OK;
}

static ech_status add_base_row(ech_mapping_reader *r, const ech_family_row *row, row_list *rows)
{
    const ech_yaml_node *constants = ech_yaml_find(r->root, "constants");
    if (row->key && ech_yaml_find(constants, row->key)) return ECH_OK;
    for (size_t i = 0; row->key && i < r->entry.n; i++)
        if (r->entry.at[i].key && strcmp(r->entry.at[i].key, row->key) == 0)
            return add_entry(r, &r->entry.at[i], rows);
    if (states(r, row->name) || ech_text_has_word(r->to->ignored, row->name)) return ECH_OK;
    ECH_PUSH(*rows, *row);
    return ECH_OK;
}

static ech_status add_rows(ech_mapping_reader *r, row_list *rows)
{
    for (const ech_family_row *row = r->base->rows; row->name; row++)
        ECH_TRY(add_base_row(r, row, rows));
    for (size_t i = 0; i < r->entry.n; i++) ECH_TRY(add_entry(r, &r->entry.at[i], rows));
    ECH_PUSH(*rows, (ech_family_row){.name = NULL});
    return ECH_OK;
}

ech_status ech_mapping_read_keys(ech_mapping_reader *r)
{
    const ech_yaml_node *map = ech_yaml_find(r->root, "keys");
    row_list rows = {0};
    if (map) ECH_TRY(ech_mapping_kind(r, map, "keys", ECH_YAML_MAP));
    for (const ech_yaml_node *at = map ? map->first : NULL; at; at = at->next)
        ECH_TRY(read_entry(r, at));
    ech_status status = add_rows(r, &rows);
    size_t bytes = rows.n * sizeof *rows.at;
    if (status == ECH_OK)
        r->to->family.rows = memcpy(ech_pool_alloc(r->to->pool, bytes), rows.at, bytes);
    free(rows.at);
    return status;
}
