/* SPDX-License-Identifier: Apache-2.0
 *
 * Creation and destruction of the struct, assignments of the command line, the place where each key
 * was set, and checks once all keys are read.
 */
#include "config/config.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/about.h"
#include "config/about.h"
#include "config/alias.h"
#include "config/table.h"

/* Splits the choices of a NAME or LIST key. */
static void split_choices(ech_config *config, const ech_config_key *key)
{
    ech_config_source *source = config->source;
    const char *choices = key->choices ? ech_config_choices(config, key) : NULL;
    if (!choices) return;
    char *split = ech_pool_format(source->pool, "%s", choices);
    source->keys[key - ech_config_keys].names = split;
    for (char *blank = split; (blank = strchr(blank, ' ')); blank++) *blank = '\0';
}

/* Copies the names, and splits the choices of all keys. */
static void take_names(ech_config *config, const ech_config_names *names, size_t n)
{
    ech_config_source *source = config->source = ech_calloc(1, sizeof *source);
    source->pool = ech_pool_create();
    source->names = ech_pool_alloc(source->pool, n * sizeof *names);
    source->n = n;
    for (size_t t = 0; t < n; t++) {
        source->names[t].table = ech_pool_format(source->pool, "%s", names[t].table);
        source->names[t].names = ech_pool_format(source->pool, "%s", names[t].names);
    }
    for (size_t k = 0; k < ECH_CONFIG_KEYS; k++) split_choices(config, &ech_config_keys[k]);
}

void ech_config_set_names(ech_config *config, const char *table, const char *names)
{
    ech_config_source *source = config->source;
    for (size_t t = 0; t < source->n; t++) {
        ech_config_names *row = &source->names[t];
        if (strcmp(row->table, table) != 0 || strlen(row->names) >= strlen(names)) continue;
        row->names = ech_pool_format(source->pool, "%s", names);
        for (size_t k = 0; k < ECH_CONFIG_KEYS; k++) split_choices(config, &ech_config_keys[k]);
    }
}

ech_status ech_config_create(const ech_config_names *names, size_t n, ech_config **out)
{
    ech_config *config = ech_calloc(1, sizeof *config);
    take_names(config, names, n);
    for (size_t k = 0; k < ECH_CONFIG_KEYS; k++)
        ech_config_set_default(config, &ech_config_keys[k]);
    *out = config;
    return ECH_OK;
}

void ech_config_destroy(ech_config *config)
{
    if (!config) return;
    for (size_t k = 0; k < ECH_CONFIG_KEYS; k++) {
        const ech_config_key *key = &ech_config_keys[k];
        if (ech_config_is_text(key)) free(*(char **)ech_config_field(config, key));
        if (key->type == ECH_CONFIG_LIST)
            free(((ech_config_list *)ech_config_field(config, key))->at);
        free(config->source->keys[k].place);
        free(config->source->keys[k].text);
        free(config->source->keys[k].cause);
    }
    ech_pool_destroy(config->source->pool);
    free(config->source);
    free(config);
}

/* A field that is as the original's yet gets memory of its own. */
static void copy_field(ech_config *copy, const ech_config_key *key)
{
    void *field = ech_config_field(copy, key);
    if (ech_config_is_text(key)) *(char **)field = ech_strdup(*(char **)field);
    if (key->type == ECH_CONFIG_LIST) {
        ech_config_list list = *(ech_config_list *)field;
        *(ech_config_list *)field = (ech_config_list){0};
        ech_config_replace_list(field, list.word, list.at, list.n);
    }
}

ech_config *ech_config_copy(const ech_config *config)
{
    ech_config *copy = ech_calloc(1, sizeof *copy);
    *copy = *config;
    take_names(copy, config->source->names, config->source->n);
    for (size_t k = 0; k < ECH_CONFIG_KEYS; k++) {
        const ech_config_key *key = &ech_config_keys[k];
        const ech_config_origin *origin = ech_config_origin_of(config, key);
        copy_field(copy, key);
        copy->source->keys[k].unread = origin->unread;
        copy->source->keys[k].hidden = origin->hidden;
        if (origin->cause) copy->source->keys[k].cause = ech_strdup(origin->cause);
        if (!origin->place) continue;
        copy->source->keys[k].place = ech_strdup(origin->place);
        copy->source->keys[k].text = ech_strdup(origin->text);
    }
    return copy;
}

bool ech_config_is_auto(const char *value)
{
    return strcmp(value, "auto") == 0;
}

void ech_config_replace_text(char **field, const char *value)
{
    char *copy = ech_strdup(value); /* first: the value may be the field's own */
    free(*field);
    *field = copy;
}

void ech_config_replace_list(ech_config_list *field, int word, const int64_t *at, int n)
{
    int64_t *copy = NULL; /* first: the numbers may be the field's own */
    if (n) {
        copy = ech_calloc((size_t)n, sizeof *copy);
        memcpy(copy, at, (size_t)n * sizeof *copy);
    }
    free(field->at);
    *field = (ech_config_list){.word = n ? -1 : word, .n = n, .at = copy};
}

/* The error for "section.key" that does not exist. */
static ech_status fail_unknown(ech_config *config, const char *path)
{
    ECH_FREED_TEXT hint = {0};
    ECH_FREED char *name = ech_strdup(path); /* of the section */
    char *dot = strchr(name, '.');
    if (dot) *dot = '\0';
    const ech_config_section *section = ech_config_find_section(name);
    if (section && !dot)
        ECH_FAIL(ECH_EUSAGE,
                 "command line: %s: a section, not a key; write %s.KEY=value: `echelon help keys "
                 "%s` lists its keys, the first is %s.%s",
                 name, name, name, name, ech_config_keys[section->first].name);
    if (section && dot)
        ech_config_hint_key(config, section, dot + 1, &hint);
    else
        ech_config_hint_section(config, ech_alias_find(path) ? path : name, &hint);
    const char *what = dot ? (section ? "key" : "section") : "key; write section.key=value";
    ECH_FAIL(ECH_EUSAGE, "command line: %.120s: no such %s; %s", path, what, hint.at);
}

ech_status ech_config_set(ech_config *config, const char *assignment)
{
    const char *equals = strchr(assignment, '=');
    if (!equals)
        ECH_FAIL(ECH_EUSAGE, "command line: %.120s: not understood; write section.key=value",
                 assignment);
    ECH_FREED char *path = ech_strdup(assignment);
    path[equals - assignment] = '\0';
    const ech_config_key *key = ech_config_find_path(path);
    if (!key) return fail_unknown(config, path);
    ech_config_origin_of(config, key)->tried = true;
    return ech_config_set_value(config, key, equals + 1, "command line");
}

/* ---- keys from files beside the run file ---- */

static bool is_open(const ech_config_origin *origin)
{
    return !origin->place || strcmp(origin->text, "auto") == 0;
}

ech_status ech_config_fill(ech_config *config, const char *path, const char *text,
                           const char *place, bool may_differ)
{
    const ech_config_key *key = ech_config_find_path(path);
    if (is_open(ech_config_origin_of(config, key)))
        return ech_config_set_value(config, key, text, place);
    ECH_CLEANUP(ech_config_destroy_at) ech_config *filled = ech_config_copy(config);
    ECH_FREED_TEXT ours = {0}, theirs = {0};
    ECH_TRY(ech_config_set_value(filled, key, text, place));
    if (may_differ || !ech_config_is_changed(config, filled, key, &ours, &theirs)) return ECH_OK;
    return ech_config_complain(config, path, "%s says %s; remove this key to use that value", place,
                               theirs.at);
}

ech_status ech_config_fill_section(ech_config *config, const ech_config *from, const char *name,
                                   const char *place)
{
    const ech_config_section *section = ech_config_find_section(name);
    ECH_ASSERT(section);
    for (size_t t = 0; t < from->source->n; t++)
        ech_config_set_names(config, from->source->names[t].table, from->source->names[t].names);
    for (size_t k = section->first; k < section->end; k++) {
        const ech_config_key *key = &ech_config_keys[k];
        if (!ech_config_origin_of(from, key)->place) continue;
        if (!is_open(ech_config_origin_of(config, key))) continue;
        ECH_FREED_TEXT text = {0};
        ech_config_format_value(from, key, &text);
        ECH_TRY(ech_config_set_value(config, key, text.at, place));
    }
    return ECH_OK;
}

static const char *type_name(ech_config_type type)
{
    static const char *const names[] = {
        [ECH_CONFIG_INT] = "INT",   [ECH_CONFIG_SIZE] = "SIZE",   [ECH_CONFIG_REAL] = "REAL",
        [ECH_CONFIG_TIME] = "TIME", [ECH_CONFIG_BOOL] = "BOOL",   [ECH_CONFIG_TEXT] = "TEXT",
        [ECH_CONFIG_PATH] = "PATH", [ECH_CONFIG_PATHS] = "PATHS", [ECH_CONFIG_NAME] = "NAME",
        [ECH_CONFIG_LIST] = "LIST"};
    return names[type];
}

const char *ech_config_type_name(const char *key)
{
    const ech_config_key *found = ech_config_find_path(key);
    return found ? type_name(found->type) : NULL;
}

bool ech_config_about_key(int index, ech_config_about *out)
{
    if (index < 0 || index >= (int)ECH_CONFIG_KEYS) return false;
    const ech_config_key *key = &ech_config_keys[index];
    *out = (ech_config_about){.section = key->section,
                              .name = key->name,
                              .type = type_name(key->type),
                              .fallback = key->initial,
                              .help = key->help,
                              .more = key->more};
    return true;
}

const char *ech_config_key_choices(const ech_config *config, const char *key)
{
    const ech_config_key *found = ech_config_find_path(key);
    const char *choices = found->choices ? ech_config_choices(config, found) : NULL;
    return choices ? choices : "";
}

const char *ech_config_default(const char *key)
{
    return ech_config_find_path(key)->initial;
}

/* ---- what was set ---- */

bool ech_config_is_set(const ech_config *config, const char *key)
{
    return ech_config_origin_of(config, ech_config_find_path(key))->place;
}

bool ech_config_is_named(const ech_config *config, const char *key)
{
    return ech_config_is_set(config, key) ||
           ech_config_origin_of(config, ech_config_find_path(key))->tried;
}

void ech_config_describe(const ech_config *config, const char *key, ech_text *out)
{
    const ech_config_key *found = ech_config_find_path(key);
    const ech_config_origin *origin = ech_config_origin_of(config, found);
    ECH_FREED_TEXT value = {0};
    if (origin->place) {
        ech_text_append(out, "%s: %s = %.120s", origin->place, key, origin->text);
        return;
    }
    ech_config_format_value(config, found, &value);
    ech_text_append(out, "%s = %.120s (default%s%s)", key, value.at, origin->cause ? " with " : "",
                    origin->cause ? origin->cause : "");
}

ech_status ech_config_complain(const ech_config *config, const char *key, const char *format, ...)
{
    ECH_FREED_TEXT about = {0};
    ech_config_describe(config, key, &about);
    char message[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    const char *outer = ech_set_about(about.at); /* one key is enough */
    ech_fail_at(__FILE__, __LINE__, ECH_EUSAGE, "%s", message);
    ech_set_about(outer);
    return ECH_EUSAGE;
}

/* ---- checks once all keys are read ---- */

/* One error says all keys that are missing: a new run file is then written in one go. Given names
 * were checked when they were set; a default may name what this build lacks. */
ech_status ech_config_check(const ech_config *config)
{
    ECH_FREED_TEXT missing = {0};
    ech_status names = ECH_OK;
    for (size_t k = 0; k < ECH_CONFIG_KEYS; k++) {
        const ech_config_key *key = &ech_config_keys[k];
        const ech_config_origin *origin = &config->source->keys[k];
        int row;
        if (origin->place) continue;
        if (strcmp(key->initial, "required") == 0) {
            if (!origin->tried && !origin->unread && !ech_config_is_chosen(config, key))
                ech_text_append(&missing, " %s.%s", key->section, key->name);
        } else if (key->type == ECH_CONFIG_NAME) {
            ECH_ALSO(&names, ech_config_read_name(config, key, key->initial, "default", &row));
        }
    }
    if (missing.n == 0) return names;
    ECH_FAIL(ECH_EUSAGE,
             "required but not set:%s; set them in the run file or as section.key=value on the "
             "command line",
             missing.at);
}

void ech_config_hide(const ech_config *config, const char *key)
{
    ech_config_origin_of(config, ech_config_find_path(key))->hidden = true;
}

void ech_config_mark_unread(const ech_config *config, const char *owned, const char *read)
{
    for (ECH_FREED_WORDS path = ech_words_in(owned); ech_words_next(&path);)
        ech_config_origin_of(config, ech_config_find_path(path.at))->unread =
            !ech_text_has_word(read, path.at);
}

bool ech_config_reads(const ech_config *config, const char *key)
{
    return !ech_config_origin_of(config, ech_config_find_path(key))->unread;
}

ech_status ech_config_check_read(const ech_config *config, const char *owned, const char *read,
                                 const char *reader)
{
    ech_status st = ECH_OK;
    bool said[ECH_CONFIG_KEYS] = {false}; /* a key may be several rows' own */
    ech_config_mark_unread(config, owned, read);
    for (ECH_FREED_WORDS path = ech_words_in(owned); ech_words_next(&path);) {
        const ech_config_key *key = ech_config_find_path(path.at);
        const ech_config_origin *origin = ech_config_origin_of(config, key);
        bool *is_said = &said[key - ech_config_keys];
        if (origin->unread && origin->place && !*is_said)
            ECH_ALSO(&st,
                     ech_config_complain(config, path.at, "not read by %s; remove it", reader));
        *is_said = true;
    }
    return st;
}

bool ech_config_is_changed(const ech_config *before, const ech_config *after,
                           const ech_config_key *key, ech_text *value_before, ech_text *value_after)
{
    ech_config_format_value(before, key, value_before);
    ech_config_format_value(after, key, value_after);
    return strcmp(value_before->at, value_after->at) != 0;
}

ech_status ech_config_check_resume(const ech_config *saved, const ech_config *now, const char *also)
{
    /* A value that nobody has set follows from others: those are to blame, if there are any. */
    ECH_FREED_TEXT causes = {0}, effects = {0};
    int n[2] = {0};
    for (size_t k = 0; k < ECH_CONFIG_KEYS; k++) {
        const ech_config_key *key = &ech_config_keys[k];
        const char *place = ech_config_origin_of(now, key)->place;
        ECH_FREED_TEXT before = {0}, after = {0};
        char path[128];
        snprintf(path, sizeof path, "%s.%s", key->section, key->name);
        if (!key->fixed && !ech_text_has_word(also, path)) continue;
        if (!ech_config_is_changed(saved, now, key, &before, &after)) continue;
        bool follows = strcmp(key->initial, "auto") == 0 && !place;
        ech_text *out = follows ? &effects : &causes;
        if (n[follows]++) ech_text_append(out, "; ");
        if (place) ech_text_append(out, "%s: ", place);
        ech_text_append(out, "%s = %.120s%s: %.120s in the checkpoint", path, after.at,
                        place ? "" : " (default)", before.at);
    }
    if (n[0] + n[1] == 0) return ECH_OK;
    ECH_FAIL(ECH_EUSAGE,
             "%s, and may not change on resume; set %s back, or start a run in another directory",
             n[0] ? causes.at : effects.at, (n[0] ? n[0] : n[1]) == 1 ? "it" : "them");
}
