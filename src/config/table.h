/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to src/config: keys.def as data, the origin of each key's value, and conversion of a
 * value from and to text.
 */
#ifndef ECH_CONFIG_TABLE_H
#define ECH_CONFIG_TABLE_H

#include "base/memory.h"
#include "config/config.h"

typedef enum ech_config_type {
    ECH_CONFIG_INT,
    ECH_CONFIG_SIZE,
    ECH_CONFIG_REAL,
    ECH_CONFIG_TIME,
    ECH_CONFIG_BOOL,
    ECH_CONFIG_TEXT,
    ECH_CONFIG_PATH,
    ECH_CONFIG_PATHS,
    ECH_CONFIG_NAME,
    ECH_CONFIG_LIST
} ech_config_type;

typedef struct ech_config_key {
    const char *section, *name;
    ech_config_type type;
    size_t offset;       /* bytes from the start of ech_config */
    const char *initial; /* the default as text; "required": there is none */
    double low, high;    /* bounds of numbers, inclusive */
    const char *choices; /* of NAME, LIST and INT; of TEXT: suggestions; NULL: none */
    bool fixed;          /* may not change on resume */
    const char *alone;   /* the value on one rank without parallelism; NULL: the same */
    const char *help;    /* at most 120 characters */
    const char *more;    /* sentences that complete it; NULL: none */
} ech_config_key;

typedef struct ech_config_section {
    const char *name, *help;
    size_t first, end; /* its keys are ech_config_keys[first .. end - 1] */
} ech_config_section;

enum {
#define SECTION(section, help) ECH_CONFIG_SECTION_##section,
#define KEY(section, ...)
#define END(section)
#include "config/keys.def"
    ECH_CONFIG_SECTIONS
};

/* The indexes of keys, and of each section's first key and end. */
enum {
#define SECTION(section, ...)                                                                      \
    ECH_CONFIG_FIRST_##section, ECH_CONFIG_BEFORE_##section = ECH_CONFIG_FIRST_##section - 1,
#define KEY(section, key, ...) ECH_CONFIG_KEY_##section##_##key,
#define END(section)                                                                               \
    ECH_CONFIG_END_##section, ECH_CONFIG_LAST_##section = ECH_CONFIG_END_##section - 1,
#include "config/keys.def"
    ECH_CONFIG_KEYS
};

extern const ech_config_key ech_config_keys[ECH_CONFIG_KEYS];
extern const ech_config_section ech_config_sections[ECH_CONFIG_SECTIONS];

typedef struct ech_config_origin {
    char *place; /* where the key was set: "run.yaml:3:5", "command line"; NULL: it was not */
    char *text;  /* the value's text; NULL if not set */
    char *names; /* of a NAME or LIST key: its choices, one NUL-terminated string after the other */
    char *cause; /* "optimizer.name = muon": the choice that the value follows; NULL: none */
    bool unread; /* ech_config_check_read found that this run does not read it */
    bool hidden; /* ech_config_print omits it */
    bool tried;  /* a refused input named it or probably meant it: it is not reported as missing */
} ech_config_origin;

struct ech_config_source {
    ech_pool *pool; /* of the names */
    ech_config_names *names;
    size_t n;
    bool raw_paths; /* while reading a text whose paths are not expanded */
    ech_config_origin keys[ECH_CONFIG_KEYS];
};

/* NULL if there is none. */
const ech_config_section *ech_config_find_section(const char *name);
const ech_config_key *ech_config_find_key(const ech_config_section *section, const char *name);
/* "section.key"; NULL if there is none. */
const ech_config_key *ech_config_find_path(const char *path);

/* A key of older versions that another key replaced: run files and checkpoints still have it. */
typedef struct ech_config_replaced {
    const char *section, *before, *now;
    /* Appends the value of `now`. Errors name `place`: no value of the old key. */
    ech_status (*translate)(const char *text, const char *place, ech_text *out);
} ech_config_replaced;
/* NULL: none of that name. */
const ech_config_replaced *ech_config_find_replaced(const char *section, const char *name);

/* Append the hint for an unknown name, to follow a semicolon: never empty. Keys that may have been
 * meant are marked as tried. */
void ech_config_hint_section(ech_config *config, const char *name, ech_text *out);
void ech_config_hint_key(ech_config *config, const ech_config_section *section, const char *name,
                         ech_text *out);

static inline void *ech_config_field(const ech_config *config, const ech_config_key *key)
{
    return (char *)config + key->offset;
}

/* `key` is not NULL. */
static inline ech_config_origin *ech_config_origin_of(const ech_config *config,
                                                      const ech_config_key *key)
{
    ECH_ASSERT(key);
    return &config->source->keys[key - ech_config_keys];
}

/* True if the key's field is a text: char *, owned. */
static inline bool ech_config_is_text(const ech_config_key *key)
{
    return key->type == ECH_CONFIG_TEXT || key->type == ECH_CONFIG_PATH ||
           key->type == ECH_CONFIG_PATHS;
}

/* The choices of a NAME or LIST key, blank-separated; NULL if the application passed none for its
 * table. */
const char *ech_config_choices(const ech_config *config, const ech_config_key *key);

/* Sets the key to its default, which is not checked. */
void ech_config_set_default(ech_config *config, const ech_config_key *key);
/* True for a required number that has a value, as ech_config_choose sets it. Numbers are zero until
 * they are set. */
bool ech_config_is_chosen(const ech_config *config, const ech_config_key *key);
/* Checks `text` and sets the key to it; `place` is named in this and later errors. */
ech_status ech_config_set_value(ech_config *config, const ech_config_key *key, const char *text,
                                const char *place);
/* Reads one entry of a LIST key's list. */
ech_status ech_config_read_entry(const ech_config_key *key, const char *text, const char *place,
                                 int64_t *out);
/* Finds the index of `text` in a NAME key's choices. */
ech_status ech_config_read_name(const ech_config *config, const ech_config_key *key,
                                const char *text, const char *place, int *out);

/* Appends the key's value as a user would write it on the command line. */
void ech_config_format_value(const ech_config *config, const ech_config_key *key, ech_text *out);
/* Appends "1 to 64", the key's bounds in the same form. */
void ech_config_format_bounds(const ech_config_key *key, ech_text *out);
/* True if the key's values differ, as texts that read back to the same bits. Appends both texts. */
bool ech_config_is_changed(const ech_config *before, const ech_config *after,
                           const ech_config_key *key, ech_text *value_before,
                           ech_text *value_after);

#endif
