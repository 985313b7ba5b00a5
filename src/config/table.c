/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of keys, look-ups in it, and hints for unknown names.
 */
#include "config/table.h"

#include <string.h>

#define FIXED true
#define FREE  false

const ech_config_key ech_config_keys[ECH_CONFIG_KEYS] = {
#define SECTION(section, help)
#define KEY(section, key, type, initial, low, high, choices, resume, help)                         \
    {#section,                                                                                     \
     #key,                                                                                         \
     ECH_CONFIG_##type,                                                                            \
     offsetof(ech_config, section.key),                                                            \
     initial,                                                                                      \
     low,                                                                                          \
     high,                                                                                         \
     choices,                                                                                      \
     resume,                                                                                       \
     help},
#define END(section)
#include "config/keys.def"
#undef SECTION
#undef KEY
#undef END
};

/* A section's first key is the number of keys before it: one more than the last key of the section
 * before. Counted in an enum so that the table is constant. */
enum {
#define SECTION(section, ...)  FIRST_##section, BEFORE_##section = FIRST_##section - 1,
#define KEY(section, key, ...) AT_##section##_##key,
#define END(section)           END_##section, LAST_##section = END_##section - 1,
#include "config/keys.def"
#undef SECTION
#undef KEY
#undef END
};

const ech_config_section ech_config_sections[ECH_CONFIG_SECTIONS] = {
#define SECTION(section, help) {#section, help, FIRST_##section, END_##section},
#define KEY(section, ...)
#define END(section)
#include "config/keys.def"
#undef SECTION
#undef KEY
#undef END
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
    for (size_t k = 0; k < ECH_CONFIG_KEYS; k++) {
        const ech_config_key *key = &ech_config_keys[k];
        if (strlen(key->section) == n && memcmp(key->section, path, n) == 0 &&
            strcmp(key->name, dot + 1) == 0)
            return key;
    }
    return NULL;
}

/* The sections that have a key of this name, as "optimizer.name"; false if none has. */
static bool say_where_key_is(const char *name, ech_text *out, bool *meant)
{
    const char *before = "it is ";
    for (size_t k = 0; k < ECH_CONFIG_KEYS; k++) {
        if (strcmp(ech_config_keys[k].name, name) != 0) continue;
        ech_text_append(out, "%s%s.%s", before, ech_config_keys[k].section, name);
        before = " or ";
        meant[k] = true;
    }
    return strcmp(before, "it is ") != 0;
}

void ech_config_hint_section(const char *name, ech_text *out, bool meant[ECH_CONFIG_KEYS])
{
    const char *names[ECH_CONFIG_SECTIONS];
    for (size_t s = 0; s < ECH_CONFIG_SECTIONS; s++) names[s] = ech_config_sections[s].name;
    const char *nearest = ech_text_nearest(name, names, ECH_CONFIG_SECTIONS);
    if (nearest) {
        const ech_config_section *section = ech_config_find_section(nearest);
        for (size_t k = section->first; k < section->end; k++) meant[k] = true;
        ech_text_append(out, "did you mean %s?", nearest);
        return;
    }
    if (say_where_key_is(name, out, meant)) return;
    ech_text_append(out, "the sections are");
    for (size_t s = 0; s < ECH_CONFIG_SECTIONS; s++) ech_text_append(out, " %s", names[s]);
}

void ech_config_hint_key(const ech_config_section *section, const char *name, ech_text *out,
                         bool meant[ECH_CONFIG_KEYS])
{
    if (say_where_key_is(name, out, meant)) return;
    const char *names[ECH_CONFIG_KEYS];
    size_t n = 0;
    for (size_t k = section->first; k < section->end; k++) names[n++] = ech_config_keys[k].name;
    const char *nearest = ech_text_nearest(name, names, n);
    if (nearest) {
        meant[ech_config_find_key(section, nearest) - ech_config_keys] = true;
        ech_text_append(out, "did you mean %s.%s?", section->name, nearest);
        return;
    }
    ech_text_append(out, "the keys of %s are", section->name);
    for (size_t k = 0; k < n; k++) ech_text_append(out, " %s", names[k]);
}
