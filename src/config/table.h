/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to this room: keys.def as data, the place where each key was set, and the value of one key from and to
 * text.
 */
#ifndef ECH_CONFIG_TABLE_H
#define ECH_CONFIG_TABLE_H

#include "config/config.h"

typedef enum ech_config_type {
    ECH_CONFIG_INT,
    ECH_CONFIG_SIZE,
    ECH_CONFIG_REAL,
    ECH_CONFIG_TIME,
    ECH_CONFIG_BOOL,
    ECH_CONFIG_TEXT,
    ECH_CONFIG_NAME,
    ECH_CONFIG_LIST
} ech_config_type;

typedef struct ech_config_key {
    const char *section, *name;
    ech_config_type type;
    size_t offset; /* bytes from the start of ech_config */
    const char *initial;
    double low, high;
    const char
        *choices; /* of NAME and LIST; of TEXT: suggestions, other values are valid; NULL: none */
    bool fixed;   /* may not change on resume */
    const char *help;
} ech_config_key;

typedef struct ech_config_section {
    const char *name, *help;
    size_t first, end; /* its keys in ech_config_keys */
} ech_config_section;

enum {
#define SECTION(section, ...)
#define KEY(section, key, ...) ECH_CONFIG_KEY_##section##_##key,
#define END(section)
#include "config/keys.def"
#undef SECTION
#undef KEY
#undef END
    ECH_CONFIG_KEYS
};

enum {
#define SECTION(section, help) ECH_CONFIG_SECTION_##section,
#define KEY(section, ...)
#define END(section)
#include "config/keys.def"
#undef SECTION
#undef KEY
#undef END
    ECH_CONFIG_SECTIONS
};

extern const ech_config_key ech_config_keys[ECH_CONFIG_KEYS];
extern const ech_config_section ech_config_sections[ECH_CONFIG_SECTIONS];

/* Where a key was set ("run.yaml:3:5", "command line") and as what; NULL both if it was not. */
typedef struct ech_config_origin {
    char *place, *text;
    char *names; /* of a NAME or LIST key: its choices, one string after the other */
    bool unread; /* ech_config_check_read found that this run does not read it */
    bool tried;  /* a refused input named it or probably meant it: it is not reported as missing */
} ech_config_origin;

struct ech_config_source {
    ech_config_names *names;
    size_t n;
    ech_config_origin keys[ECH_CONFIG_KEYS];
};

/* NULL if there is none. */
const ech_config_section *ech_config_find_section(const char *name);
const ech_config_key *ech_config_find_key(const ech_config_section *section, const char *name);
/* "section.key"; NULL if there is none. */
const ech_config_key *ech_config_find_path(const char *path);

/* Appends the hint for an unknown name, to stand after a semicolon: never empty. Marks in `meant` the keys that may
 * have been meant. */
void ech_config_hint_section(const char *name, ech_text *out, bool meant[ECH_CONFIG_KEYS]);
void ech_config_hint_key(const ech_config_section *section, const char *name, ech_text *out,
                         bool meant[ECH_CONFIG_KEYS]);
/* Marks the keys as tried. */
void ech_config_mark_tried(ech_config *config, const bool meant[ECH_CONFIG_KEYS]);

static inline void *ech_config_field(const ech_config *config, const ech_config_key *key)
{
    return (char *)config + key->offset;
}

static inline ech_config_origin *ech_config_origin_of(const ech_config *config,
                                                      const ech_config_key *key)
{
    return &config->source->keys[key - ech_config_keys];
}

/* The choices of a NAME or LIST key, blank-separated; NULL if the application passed none for its table. */
const char *ech_config_choices(const ech_config *config, const ech_config_key *key);

/* Sets the key to its default, which is not checked. */
void ech_config_set_default(ech_config *config, const ech_config_key *key);
/* Checks `text` and sets the key to it; `place` is named in this and later errors. */
ech_status ech_config_set_value(ech_config *config, const ech_config_key *key, const char *text,
                                const char *place);
/* Logs "place: section.key = text: reason" and frees the reason. Returns ECH_EUSAGE. */
ech_status ech_config_refuse_value(const ech_config_key *key, const char *text, const char *place,
                                   ech_text *reason);
/* Appends the word of `choices` nearest to `name` as a question, if one is near. */
void ech_config_suggest_choice(const char *name, const char *choices, ech_text *out);
/* One entry of a LIST key's list. */
ech_status ech_config_read_entry(const ech_config_key *key, const char *text, const char *place,
                                 int64_t *out);
/* The whole value of a LIST key; replaces *out. */
ech_status ech_config_read_list(const ech_config *config, const ech_config_key *key,
                                const char *text, const char *place, ech_config_list *out);
/* The index of `text` in the blank-separated choices; -1: none. */
int ech_config_find_choice(const char *choices, const char *text);
/* The index of the text in a NAME key's choices; `place` as above. */
ech_status ech_config_read_name(const ech_config *config, const ech_config_key *key,
                                const char *text, const char *place, int *out);

/* Appends the key's value as a user would write it on the command line. */
void ech_config_format_value(const ech_config *config, const ech_config_key *key, ech_text *out);
/* Appends a bound of the key in the same form. */
void ech_config_format_bound(const ech_config_key *key, double bound, ech_text *out);
/* Appends the shortest decimal that reads back to the same bits. */
void ech_config_format_real(double value, ech_text *out);

#endif
