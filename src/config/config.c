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

/* The choices of each NAME and LIST key, taken apart. */
static void split_choices(ech_config *config)
{
    for (size_t k = 0; k < ECH_CONFIG_KEYS; k++) {
        const ech_config_key *key = &ech_config_keys[k];
        const char *choices = key->choices ? ech_config_choices(config, key) : NULL;
        if (!choices) continue;
        char *to = config->source->keys[k].names = ech_calloc(strlen(choices) + 2, 1);
        for (const char *at = choices; *at; at += strspn(at, " ")) {
            size_t n = strcspn(at, " ");
            memcpy(to, at, n);
            to += n + 1;
            at += n;
        }
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

void ech_config_mark_tried(ech_config *config, const bool meant[ECH_CONFIG_KEYS])
{
    for (size_t k = 0; k < ECH_CONFIG_KEYS; k++) config->source->keys[k].tried |= meant[k];
}

/* The error for "section.key" that does not exist. */
static ech_status fail_unknown(ech_config *config, const char *path)
{
    bool meant[ECH_CONFIG_KEYS] = {false};
    const char *dot = strchr(path, '.');
    char *section_name = ech_strdup(path);
    if (dot) section_name[dot - path] = '\0';
    const ech_config_section *section = ech_config_find_section(section_name);
    ech_text hint = {0};
    if (section && dot)
        ech_config_hint_key(section, dot + 1, &hint, meant);
    else
        ech_config_hint_section(section_name, &hint, meant);
    ech_config_mark_tried(config, meant);
    const char *what = dot ? (section ? "key" : "section") : "key; write section.key=value";
    ech_status st = ech_fail_at(__FILE__, __LINE__, ECH_EUSAGE,
                                "command line: %.120s: no such %s; %s", path, what, hint.at);
    ech_text_free(&hint);
    free(section_name);
    return st;
}

ech_status ech_config_set(ech_config *config, const char *assignment)
{
    const char *equals = strchr(assignment, '=');
    if (!equals)
        ECH_FAIL(ECH_EUSAGE, "command line: %.120s: not understood; write section.key=value",
                 assignment);
    char *path = ech_strdup(assignment);
    path[equals - assignment] = '\0';
    const ech_config_key *key = ech_config_find_path(path);
    ech_status st = key ? ech_config_set_value(config, key, equals + 1, "command line")
                        : fail_unknown(config, path);
    if (key) ech_config_origin_of(config, key)->tried = true;
    free(path);
    return st;
}

bool ech_config_is_set(const ech_config *config, const char *key)
{
    const ech_config_key *found = ech_config_find_path(key);
    ECH_ASSERT(found);
    return ech_config_origin_of(config, found)->place;
}

bool ech_config_is_named(const ech_config *config, const char *key)
{
    const ech_config_key *found = ech_config_find_path(key);
    ECH_ASSERT(found);
    const ech_config_origin *origin = ech_config_origin_of(config, found);
    return origin->place || origin->tried;
}

ech_status ech_config_complain(const ech_config *config, const char *key, const char *format, ...)
{
    const ech_config_key *found = ech_config_find_path(key);
    ECH_ASSERT(found);
    const ech_config_origin *origin = ech_config_origin_of(config, found);
    ech_text value = {0};
    if (!origin->place) ech_config_format_value(config, found, &value);
    char message[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    ech_status st = ech_fail_at(__FILE__, __LINE__, ECH_EUSAGE, "%s%s%s = %.120s%s: %s",
                                origin->place ? origin->place : "", origin->place ? ": " : "", key,
                                origin->place ? origin->text : value.at,
                                origin->place ? "" : " (default)", message);
    ech_text_free(&value);
    return st;
}
