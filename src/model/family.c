/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of families, and what a family says of the model section: the keys that it reads, its
 * constants, its defaults.
 */
#include "model/family.h"

#include <string.h>

#include "base/text.h"

static const ech_family *const families[] = {
#define X(name, help) &ech_family_row_##name,
#include "model/models.def"
#undef X
};
enum { FAMILIES = sizeof families / sizeof *families };

const ech_family *ech_family_find(const char *name)
{
    for (size_t i = 0; i < FAMILIES; i++)
        if (strcmp(families[i]->name, name) == 0) return families[i];
    return NULL;
}

const ech_family *ech_family_of(const ech_config *config)
{
    return families[config->model.architecture];
}

const char *ech_family_names(void)
{
    return
#define X(name, help) #name " "
#include "model/models.def"
#undef X
        ;
}

ech_names ech_names_of(const ech_family *family)
{
    ech_names names = family->names ? *family->names : (ech_names){0};
#define ROLE(name, otherwise, meaning)                                                             \
    if (!names.name) names.name = otherwise;
#include "model/roles.def"
    return names;
}

static char *weight(const char *role)
{
    ECH_FREED_TEXT name = {0};
    ech_text_append(&name, "%s.weight", role);
    return ech_strdup(name.at);
}

char *ech_family_table(const ech_family *family)
{
    return weight(ech_names_of(family).tokens);
}

char *ech_family_head(const ech_family *family)
{
    return weight(ech_names_of(family).head);
}

/* ---- keys ---- */

static bool has_row_of(const ech_family *family, const char *key)
{
    for (const ech_family_row *row = family->rows; row->name; row++)
        if (row->key && strcmp(row->key, key) == 0) return true;
    return false;
}

/* Keys that all families read. */
static bool is_of_all(const char *key)
{
    return ech_text_has_word("model.vocab_size model.max_position_embeddings", key);
}

void ech_family_append_reads(const ech_family *family, ech_text *out)
{
    ech_text_append(out, "%s", family->reads);
    for (const ech_family_row *row = family->rows; row->name; row++)
        if (row->key && !is_of_all(row->key) && !ech_text_has_word(out->at, row->key))
            ech_text_append(out, "%s%s", out->n ? " " : "", row->key);
}

bool ech_family_reads(const ech_config *config, const char *key)
{
    const ech_family *family = ech_family_of(config);
    return ech_text_has_word(family->reads, key) || (has_row_of(family, key) && !is_of_all(key));
}

/* Keys of "key=value key=value". */
static void append_keys(const char *words, ech_text *out)
{
    for (const char *at = words; at && *at; at += strcspn(at, " "), at += *at == ' ')
        ech_text_append(out, "%.*s ", (int)strcspn(at, "="), at);
}

/* Keys that some families read, and properties that are constants of families. */
static void append_owned(ech_text *out)
{
    for (size_t i = 0; i < FAMILIES; i++) {
        ech_family_append_reads(families[i], out);
        ech_text_append(out, " ");
        append_keys(families[i]->constants, out);
    }
}

void ech_model_mark_keys(const ech_config *config)
{
    ECH_FREED_TEXT owned = {0}, read = {0};
    append_owned(&owned);
    ech_family_append_reads(ech_family_of(config), &read);
    ech_config_mark_unread(config, owned.at, read.at);
}

ech_status ech_family_check_keys(const ech_config *config)
{
    const ech_family *family = ech_family_of(config);
    ECH_FREED_TEXT owned = {0}, read = {0};
    append_owned(&owned);
    ech_family_append_reads(family, &read);
    return ech_config_check_read(config, owned.at, read.at, family->name);
}

/* "key=value key=value": each key that the run file leaves open gets its value. */
static void choose_all(ech_config *config, const char *words)
{
    if (!words) return;
    ECH_FREED char *copy = ech_strdup(words);
    char *rest = NULL;
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(word, '=');
        ECH_ASSERT(value);
        *value++ = '\0';
        ech_config_choose(config, word, value);
    }
}

void ech_model_choose(ech_config *config)
{
    ech_model_mark_keys(config);
    const ech_family *family = ech_family_of(config);
    choose_all(config, family->constants);
    choose_all(config, family->defaults);
}

/* The value after KEY= in words; NULL: it is not there. */
static const char *find_value(const char *words, const char *key)
{
    size_t n = strlen(key);
    for (const char *at = words; at && *at; at += strcspn(at, " "), at += *at == ' ')
        if (strncmp(at, key, n) == 0 && at[n] == '=') return at + n + 1;
    return NULL;
}

static bool is_usual(const ech_config *config, const char *key)
{
    ECH_FREED_TEXT value = {0};
    const char *usual = find_value(ech_family_of(config)->defaults, key);
    if (!usual) usual = ech_config_default(key);
    ech_config_format(config, key, &value);
    return strncmp(value.at, usual, value.n) == 0 && (usual[value.n] == ' ' || !usual[value.n]);
}

/* Properties that a run file may set, but sizes. */
static const char *const properties[] = {"model.hidden_act", "model.qkv_bias", "model.o_bias",
                                         "model.mlp_bias", "model.parallel_residual"};

void ech_model_describe(const ech_config *config, ech_text *out)
{
    for (size_t i = 0; i < sizeof properties / sizeof *properties; i++) {
        if (!ech_family_reads(config, properties[i]) || is_usual(config, properties[i])) continue;
        ech_text_append(out, " %s=", strchr(properties[i], '.') + 1);
        ech_config_format(config, properties[i], out);
    }
}

/* ---- what config.json can say ---- */

static ech_status check_name(const ech_config *config, const ech_family_row *row)
{
    ECH_FREED_TEXT names = {0};
    if (ech_family_row_writes(config, row)) return ECH_OK;
    ECH_FREED char *copy = ech_strdup(row->values);
    char *rest = NULL;
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        if (!ech_text_has_word(names.at ? names.at : "", strchr(word, '=') + 1))
            ech_text_append(&names, "%s%s", names.n ? " " : "", strchr(word, '=') + 1);
    return ech_config_complain(config, row->key, "not a property of %s; use one of %s",
                               ech_family_of(config)->name, names.at);
}

/* Rows of one name say the same. */
static ech_status check_alike(const ech_config *config, const ech_family_row *first,
                              const ech_family_row *row)
{
    ECH_FREED_TEXT value = {0}, other = {0};
    ech_config_format(config, first->key, &value);
    ech_config_format(config, row->key, &other);
    if (strcmp(value.at, other.at) == 0) return ECH_OK;
    bool blames = ech_config_is_set(config, row->key) || !ech_config_is_set(config, first->key);
    return ech_config_complain(config, blames ? row->key : first->key,
                               "in %s, this is the same as %s = %s; set both alike",
                               ech_family_of(config)->name, blames ? first->key : row->key,
                               blames ? value.at : other.at);
}

ech_status ech_family_check_rows(const ech_config *config)
{
    const ech_family_row *rows = ech_family_of(config)->rows;
    for (const ech_family_row *row = rows; row->name; row++) {
        if (row->key && row->values) ECH_TRY(check_name(config, row));
        for (const ech_family_row *first = rows; first < row && row->key; first++)
            if (first->key && strcmp(first->name, row->name) == 0)
                ECH_TRY(check_alike(config, first, row));
    }
    return ECH_OK;
}

/* ---- rows of several families ---- */

int64_t ech_rows_heads(const ech_config *config)
{
    return config->model.num_attention_heads;
}

int64_t ech_rows_head_dim(const ech_config *config)
{
    return config->model.hidden_size / config->model.num_attention_heads;
}

int64_t ech_inner_quadruple(const ech_config *config)
{
    return 4 * config->model.hidden_size;
}
