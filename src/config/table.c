/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of keys, look-ups in it, and hints for unknown names.
 */
#include "config/table.h"

#include <string.h>

#include "config/alias.h"
#include "config/strategy.h"

#define FIXED true
#define FREE  false
#define SAME  NULL

/* Of a key's help and, if there is one, its longer text. */
#define FIRST(help, ...)        help
#define SECOND(help, more, ...) more

/* The help of a key is a line of a list. */
#define SECTION(section, help)
#define KEY(section, key, type, initial, low, high, choices, resume, alone, ...)                   \
    _Static_assert(sizeof(FIRST(__VA_ARGS__, NULL)) <= 121,                                        \
                   "keys.def: the help of " #section "." #key                                      \
                   " has more than 120 characters; move the rest to its second text");
#define END(section)
#include "config/keys.def"

const ech_config_key ech_config_keys[ECH_CONFIG_KEYS] = {
#define SECTION(section, help)
#define KEY(section, key, type, initial, low, high, choices, resume, alone, ...)                   \
    {#section,                                                                                     \
     #key,                                                                                         \
     ECH_CONFIG_##type,                                                                            \
     offsetof(ech_config, section.key),                                                            \
     initial,                                                                                      \
     low,                                                                                          \
     high,                                                                                         \
     choices,                                                                                      \
     resume,                                                                                       \
     alone,                                                                                        \
     FIRST(__VA_ARGS__, NULL),                                                                     \
     SECOND(__VA_ARGS__, NULL, NULL)},
#define END(section)
#include "config/keys.def"
};

const ech_config_section ech_config_sections[ECH_CONFIG_SECTIONS] = {
#define SECTION(section, help)                                                                     \
    {#section, help, ECH_CONFIG_FIRST_##section, ECH_CONFIG_END_##section},
#define KEY(section, ...)
#define END(section)
#include "config/keys.def"
};

const ech_config_section *ech_config_find_section(const char *name)
{
    for (size_t s = 0; s < ECH_CONFIG_SECTIONS; s++)
        if (strcmp(ech_config_sections[s].name, name) == 0) return &ech_config_sections[s];
    return NULL;
}

const ech_config_key *ech_config_find_key(const ech_config_section *section, const char *name)
{
    for (size_t k = section->first; k < section->end; k++)
        if (strcmp(ech_config_keys[k].name, name) == 0) return &ech_config_keys[k];
    return NULL;
}

const ech_config_key *ech_config_find_path(const char *path)
{
    const char *dot = strchr(path, '.');
    if (!dot) return NULL;
    size_t n = (size_t)(dot - path);
    for (size_t s = 0; s < ECH_CONFIG_SECTIONS; s++) {
        const ech_config_section *section = &ech_config_sections[s];
        if (strncmp(section->name, path, n) == 0 && !section->name[n])
            return ech_config_find_key(section, dot + 1);
    }
    return NULL;
}

/* The sections that have a key of this name, as "optimizer.name"; false if none has. */
static bool say_where_key_is(ech_config *config, const char *name, ech_text *out)
{
    const char *before = "it is ";
    for (size_t k = 0; k < ECH_CONFIG_KEYS; k++) {
        if (strcmp(ech_config_keys[k].name, name) != 0) continue;
        ech_text_append(out, "%s%s.%s", before, ech_config_keys[k].section, name);
        before = " or ";
        config->source->keys[k].tried = true;
    }
    return strcmp(before, "it is ") != 0;
}

/* Our key for another tool's name; false: it is none. */
static bool say_ours(ech_config *config, const char *name, ech_text *out)
{
    const ech_alias *foreign = ech_alias_find(name);
    if (!foreign) return false;
    const ech_config_key *key = ech_config_find_path(foreign->ours);
    if (key) ech_config_origin_of(config, key)->tried = true;
    ech_text_append(out, "here that is ");
    ech_alias_print(foreign, NULL, out);
    return true;
}

void ech_config_hint_section(ech_config *config, const char *name, ech_text *out)
{
    if (say_ours(config, name, out) || say_where_key_is(config, name, out)) return;
    const ech_config_key *dotted = ech_config_find_path(name);
    if (dotted) {
        ech_config_origin_of(config, dotted)->tried = true;
        ech_text_append(out, "write \"%s: VALUE\" below \"%s:\"", dotted->name, dotted->section);
        return;
    }
    const char *names[ECH_CONFIG_SECTIONS];
    for (size_t s = 0; s < ECH_CONFIG_SECTIONS; s++) names[s] = ech_config_sections[s].name;
    const char *nearest = ech_text_nearest(name, names, ECH_CONFIG_SECTIONS);
    if (nearest) {
        const ech_config_section *section = ech_config_find_section(nearest);
        for (size_t k = section->first; k < section->end; k++) config->source->keys[k].tried = true;
        ech_text_append(out, "did you mean %s?", nearest);
        return;
    }
    ech_text_append(out, "the sections are");
    for (size_t s = 0; s < ECH_CONFIG_SECTIONS; s++) ech_text_append(out, " %s", names[s]);
}

void ech_config_hint_key(ech_config *config, const ech_config_section *section, const char *name,
                         ech_text *out)
{
    if (say_ours(config, name, out) || say_where_key_is(config, name, out)) return;
    const char *names[ECH_CONFIG_KEYS];
    size_t n = 0;
    for (size_t k = section->first; k < section->end; k++) names[n++] = ech_config_keys[k].name;
    const char *nearest = ech_text_nearest(name, names, n);
    if (nearest) {
        ech_config_origin_of(config, ech_config_find_key(section, nearest))->tried = true;
        ech_text_append(out, "did you mean %s.%s?", section->name, nearest);
        return;
    }
    enum { MOST_LISTED = 20 };
    if (n > MOST_LISTED) {
        ech_text_append(out, "`echelon help keys` lists the %zu keys of %s", n, section->name);
        return;
    }
    ech_text_append(out, "the keys of %s are", section->name);
    for (size_t k = 0; k < n; k++) ech_text_append(out, " %s", names[k]);
}
