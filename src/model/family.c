/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of families, and what a family says of the model section: the keys that it reads, its
 * constants, its defaults.
 */
#include "model/family.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "model/mapping.h"

enum { MOST_MAPPED = 64, LARGEST = 64 << 10 };

/* Families of mapping files. Some rank may add one while others look one up. */
static struct {
    pthread_mutex_t lock; /* of additions */
    ech_mapping *at[MOST_MAPPED];
    atomic_size_t n;
    _Atomic(const char *) names; /* of all families; NULL: no family was added */
} mapped = {.lock = PTHREAD_MUTEX_INITIALIZER};

static size_t count(void)
{
    return ech_families_count + atomic_load(&mapped.n);
}

static const ech_family *family_at(size_t i)
{
    return i < ech_families_count ? ech_families[i] : &mapped.at[i - ech_families_count]->family;
}

const ech_family *ech_family_built_in(size_t i)
{
    return i < ech_families_count ? ech_families[i] : NULL;
}

const ech_family *ech_family_find(const char *name)
{
    for (size_t i = 0; i < count(); i++)
        if (strcmp(family_at(i)->name, name) == 0) return family_at(i);
    return NULL;
}

const ech_family *ech_family_of(const ech_config *config)
{
    return family_at((size_t)config->model.architecture);
}

const char *ech_family_names(void)
{
    const char *names = atomic_load(&mapped.names);
    return names ? names : ech_families_names;
}

/* ---- families of mapping files ---- */

static ech_status add(ech_mapping *mapping, const ech_family **out)
{
    size_t n = atomic_load(&mapped.n);
    const ech_family *twin = ech_family_find(mapping->family.name);
    *out = twin;
    if (twin && strcmp(twin->mapping->summary, mapping->summary) == 0) return ECH_OK;
    if (twin)
        ECH_FAIL(ECH_EUSAGE,
                 "%s: states the family %s otherwise than %s; use the same mapping for both, or "
                 "give one of the families another name",
                 mapping->path, twin->name, twin->mapping->path);
    if (n == MOST_MAPPED)
        ECH_FAIL(ECH_EUSAGE, "%s: more than %d families of mapping files; use fewer", mapping->path,
                 MOST_MAPPED);
    mapped.at[n] = mapping;
    const char *names =
        ech_pool_format(mapping->pool, "%s%s ", ech_family_names(), mapping->family.name);
    atomic_store(&mapped.names, names);
    atomic_store(&mapped.n, n + 1);
    *out = &mapping->family;
    return ECH_OK;
}

ech_status ech_family_add(ech_mapping *mapping, const ech_family **out)
{
    pthread_mutex_lock(&mapped.lock);
    ech_status status = add(mapping, out);
    pthread_mutex_unlock(&mapped.lock);
    if (status != ECH_OK || *out != &mapping->family) ech_mapping_destroy(mapping);
    return status;
}

ech_status ech_family_map(const char *path, const ech_family **out)
{
    ECH_FREED char *text = NULL;
    size_t n;
    ech_mapping *mapping;
    ECH_TRY(ech_file_read(path, LARGEST, &text, &n));
    ECH_TRY(ech_mapping_parse(path, text, n, &mapping));
    return ech_family_add(mapping, out);
}

ech_status ech_family_map_folder(const char *folder)
{
    const ech_family *family;
    ECH_FREED char *path = ech_file_join(folder, ECH_MAPPING_FILE);
    return ech_file_exists(path) ? ech_family_map(path, &family) : ECH_OK;
}

const char *ech_family_mapping(const ech_family *family, size_t *n)
{
    if (!family->mapping) return NULL;
    *n = family->mapping->n;
    return family->mapping->text;
}

/* ---- names of tensors ---- */

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

const ech_family_row *ech_family_find_row(const ech_family *family, const char *key)
{
    for (const ech_family_row *row = family->rows; row->name; row++)
        if (row->key && strcmp(row->key, key) == 0) return row;
    return NULL;
}

const ech_family_row *ech_family_find_any_row(const char *key)
{
    const ech_family_row *row = NULL;
    for (size_t i = 0; i < ech_families_count && !row; i++)
        row = ech_family_find_row(ech_families[i], key);
    return row;
}

void ech_family_append_reads(const ech_family *family, ech_text *out)
{
    ech_text_append(out, "%s", family->reads);
    for (const ech_family_row *row = family->rows; row->name; row++)
        if (row->key && !ech_text_has_word(out->at, row->key))
            ech_text_append(out, "%s%s", out->n ? " " : "", row->key);
}

bool ech_family_reads(const ech_config *config, const char *key)
{
    const ech_family *family = ech_family_of(config);
    return ech_text_has_word(family->reads, key) || ech_family_find_row(family, key);
}

/* Keys of "key=value key=value". */
static void append_keys(const char *words, ech_text *out)
{
    for (const char *at = words; at && *at; at += strcspn(at, " "), at += *at == ' ')
        ech_text_append(out, "%.*s ", (int)strcspn(at, "="), at);
}

static void append_owned(const ech_family *family, ech_text *out)
{
    ech_family_append_reads(family, out);
    ech_text_append(out, " ");
    append_keys(family->constants, out);
}

void ech_family_append_owned(ech_text *out)
{
    for (size_t i = 0; i < count(); i++) append_owned(family_at(i), out);
}

void ech_family_append_of_decoders(ech_text *out)
{
    for (size_t i = 0; i < ech_families_count; i++)
        if (!ech_families[i]->build) append_owned(ech_families[i], out);
}

void ech_model_mark_keys(const ech_config *config)
{
    ECH_FREED_TEXT owned = {0}, read = {0};
    ech_family_append_owned(&owned);
    ech_family_append_reads(ech_family_of(config), &read);
    ech_config_mark_unread(config, owned.at, read.at);
}

void ech_model_mark_unnamed(const ech_config *config)
{
    ech_config_mark_unread(config, ECH_IMAGE_KEYS ECH_CONVOLUTION_KEYS, "");
}

ech_status ech_family_check_keys(const ech_config *config)
{
    const ech_family *family = ech_family_of(config);
    ECH_FREED_TEXT owned = {0}, read = {0};
    ech_family_append_owned(&owned);
    ech_family_append_reads(family, &read);
    return ech_config_check_read(config, owned.at, read.at, family->name);
}

void ech_family_choose(ech_config *config, const char *words)
{
    for (ECH_FREED_WORDS word = ech_words_in(words); ech_words_next(&word);) {
        char *value = strchr(word.at, '=');
        ECH_ASSERT(value);
        *value++ = '\0';
        ech_config_choose(config, word.at, value);
    }
}

/* Keys with rows of one name say the same in files: one that is not set follows the other. */
static void choose_alike(ech_config *config, const ech_family_row *rows)
{
    for (const ech_family_row *row = rows; row->name; row++)
        for (const ech_family_row *other = rows; other->name && row->key; other++) {
            ECH_FREED_TEXT value = {0};
            if (!other->key || strcmp(row->name, other->name) != 0) continue;
            if (!ech_config_is_set(config, row->key)) continue;
            ech_config_format(config, row->key, &value);
            ech_config_choose(config, other->key, value.at);
        }
}

void ech_model_choose(ech_config *config)
{
    ech_model_mark_keys(config);
    const ech_family *family = ech_family_of(config);
    ech_family_choose(config, family->constants);
    ech_family_choose(config, family->defaults);
    choose_alike(config, family->rows);
    /* A sample of other kinds is one position; an image has a class in place of a token. */
    if (!ech_family_reads(config, "data.sequence_length")) config->data.sequence_length = 1;
    if (!ech_family_reads(config, "model.vocab_size"))
        config->model.vocab_size = config->model.num_classes;
}

const char *ech_family_find_value(const char *words, const char *key)
{
    size_t n = strlen(key);
    for (const char *at = words; at && *at; at += strcspn(at, " "), at += *at == ' ')
        if (strncmp(at, key, n) == 0 && at[n] == '=') return at + n + 1;
    return NULL;
}

static bool is_usual(const ech_config *config, const char *key)
{
    ECH_FREED_TEXT value = {0};
    const char *usual = ech_family_find_value(ech_family_of(config)->defaults, key);
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
    for (ECH_FREED_WORDS word = ech_words_in(row->values); ech_words_next(&word);)
        if (!ech_text_has_word(names.at ? names.at : "", strchr(word.at, '=') + 1))
            ech_text_append(&names, "%s%s", names.n ? " " : "", strchr(word.at, '=') + 1);
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
    int64_t heads = config->model.num_attention_heads; /* 0: a mapping file has no row of it */
    return heads > 0 ? config->model.hidden_size / heads : 0;
}

int64_t ech_inner_quadruple(const ech_config *config)
{
    return 4 * config->model.hidden_size;
}
