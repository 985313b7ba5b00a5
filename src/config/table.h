/* SPDX-License-Identifier: Apache-2.0
 *
 * For config alone: keys.def as data, where each key was set, and one key's value from and to text.
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
    const char *choices; /* NULL, or for NAME and LIST; of TEXT some of those that may be */
    bool fixed;          /* may not change on resume */
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
    char *names; /* of a NAME or LIST key: its choices, one string behind the other */
    bool unread; /* ech_config_check_read found that this run does not read it */
    bool tried;  /* named, or probably meant, by what was refused: nobody misses it */
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

/* What to say, after a semicolon, about a name that nothing has. Never empty. The keys that may have
 * been meant are marked in `meant`. */
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

/* The names that a NAME or LIST key may have; NULL if the application handed none in for its table. */
const char *ech_config_choices(const ech_config *config, const ech_config_key *key);

/* Gives the key a default's value, which is not checked. */
void ech_config_set_default(ech_config *config, const ech_config_key *key);
/* Checks `text` and gives it to the key, with the place for this and later errors. */
ech_status ech_config_set_value(ech_config *config, const ech_config_key *key, const char *text,
                                const char *place);
/* Logs "place: section.key = text: reason", the reason freed; ECH_EUSAGE. */
ech_status ech_config_refuse_value(const ech_config_key *key, const char *text, const char *place,
                                   ech_text *reason);
/* The word of `choices` nearest to `name` is appended as a question, if there is one. */
void ech_config_suggest_choice(const char *name, const char *choices, ech_text *out);
/* One entry of a LIST key's list. */
ech_status ech_config_read_entry(const ech_config_key *key, const char *text, const char *place,
                                 int64_t *out);
/* The whole value of a LIST key; *out is replaced by it. */
ech_status ech_config_read_list(const ech_config *config, const ech_config_key *key,
                                const char *text, const char *place, ech_config_list *out);
/* Which of the blank-separated choices it is; -1: none. */
int ech_config_find_choice(const char *choices, const char *text);
/* Which of a NAME key's choices the text is; `place` as above. */
ech_status ech_config_read_name(const ech_config *config, const ech_config_key *key,
                                const char *text, const char *place, int *out);

/* The present value as a user would write it on the command line. */
void ech_config_format_value(const ech_config *config, const ech_config_key *key, ech_text *out);
/* A bound of the key in the same form. */
void ech_config_format_bound(const ech_config_key *key, double bound, ech_text *out);
/* The shortest decimal that reads back to the same bits. */
void ech_config_format_real(double value, ech_text *out);

#endif
