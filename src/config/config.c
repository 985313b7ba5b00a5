/* SPDX-License-Identifier: Apache-2.0
 *
 * Creation and destruction of the struct, assignments of the command line, and the place where each key was set.
 */
#include "config/config.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "config/table.h"

static void copy_names(ech_config_source *source, const ech_config_names *names, size_t n)
{
    source->names = ech_calloc(n, sizeof *names);
    source->n = n;
    for (size_t t = 0; t < n; t++) {
        source->names[t].table = ech_strdup(names[t].table);
        source->names[t].names = ech_strdup(names[t].names);
    }
}

/* Splits the choices of each NAME and LIST key. */
static void split_choices(ech_config *config)
{
    for (size_t k = 0; k < ECH_CONFIG_KEYS; k++) {
        const ech_config_key *key = &ech_config_keys[k];
        const char *choices = key->choices ? ech_config_choices(config, key) : NULL;
        if (!choices) continue;
        char *names = config->source->keys[k].names = ech_strdup(choices);
        for (char *blank = names; (blank = strchr(blank, ' ')); blank++) *blank = '\0';
    }
}

ech_status ech_config_create(const ech_config_names *names, size_t n, ech_config **out)
{
    ech_config *config = ech_calloc(1, sizeof *config);
    config->source = ech_calloc(1, sizeof *config->source);
    copy_names(config->source, names, n);
    split_choices(config);
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
        if (key->type == ECH_CONFIG_TEXT) free(*(char **)ech_config_field(config, key));
        if (key->type == ECH_CONFIG_LIST)
            free(((ech_config_list *)ech_config_field(config, key))->at);
        free(config->source->keys[k].place);
        free(config->source->keys[k].text);
        free(config->source->keys[k].names);
    }
    for (size_t t = 0; t < config->source->n; t++) {
        free((char *)config->source->names[t].table);
        free((char *)config->source->names[t].names);
    }
    free(config->source->names);
    free(config->source);
    free(config);
}

/* A field that is as the original's yet gets memory of its own. */
static void copy_field(ech_config *copy, const ech_config_key *key)
{
    void *field = ech_config_field(copy, key);
    if (key->type == ECH_CONFIG_TEXT) *(char **)field = ech_strdup(*(char **)field);
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
    copy->source = ech_calloc(1, sizeof *copy->source);
    copy_names(copy->source, config->source->names, config->source->n);
    split_choices(copy);
    for (size_t k = 0; k < ECH_CONFIG_KEYS; k++) {
        const ech_config_key *key = &ech_config_keys[k];
        const ech_config_origin *origin = ech_config_origin_of(config, key);
        copy_field(copy, key);
        copy->source->keys[k].unread = origin->unread;
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
    if (section && dot)
        ech_config_hint_key(config, section, dot + 1, &hint);
    else
        ech_config_hint_section(config, name, &hint);
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
    ech_config *filled = ech_config_copy(config);
    ECH_FREED_TEXT ours = {0}, theirs = {0};
    ech_status st = ech_config_set_value(filled, key, text, place);
    if (st == ECH_OK && ech_config_is_changed(config, filled, key, &ours, &theirs) && !may_differ)
        st = ech_config_complain(config, path, "%s says %s; leave the key out to take that", place,
                                 theirs.at);
    ech_config_destroy(filled);
    return st;
}

ech_status ech_config_fill_section(ech_config *config, const ech_config *from, const char *name,
                                   const char *place)
{
    const ech_config_section *section = ech_config_find_section(name);
    ECH_ASSERT(section);
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

ech_status ech_config_complain(const ech_config *config, const char *key, const char *format, ...)
{
    const ech_config_key *found = ech_config_find_path(key);
    const ech_config_origin *origin = ech_config_origin_of(config, found);
    ECH_FREED_TEXT value = {0};
    if (!origin->place) ech_config_format_value(config, found, &value);
    char message[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    if (!origin->place) ECH_FAIL(ECH_EUSAGE, "%s = %.120s (default): %s", key, value.at, message);
    ECH_FAIL(ECH_EUSAGE, "%s: %s = %.120s: %s", origin->place, key, origin->text, message);
}
