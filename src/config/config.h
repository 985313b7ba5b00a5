/* SPDX-License-Identifier: Apache-2.0
 *
 * The run file: one table of keys (keys.def) becomes one checked struct.
 *
 *     ech_config *config;
 *     ech_config_names names[] = {{"models", "gpt2 llama"}, ...};
 *     ECH_TRY(ech_config_create(names, n, &config));
 *     ECH_TRY(ech_config_read_file(config, "run.yaml"));         // YAML, file:line in errors
 *     ECH_TRY(ech_config_set(config, "training.steps=10"));      // command line overrides
 *     ECH_TRY(ech_config_check(config));                         // required keys are there
 *     config->training.steps ...
 *
 * This room knows types, bounds and names, not meanings. Other rooms resolve "auto": they write its value into the
 * struct, which then prints as a resolved run file.
 */
#ifndef ECH_CONFIG_CONFIG_H
#define ECH_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "config/choices.h"

/* The value of INT, SIZE and BOOL keys that are "auto", until it is resolved. (REAL and TIME keys have no auto; TEXT
 * keys hold the text "auto"; NAME and LIST keys have it as a choice.) */
enum { ECH_AUTO = -1 };

#define ECH_CONFIG_FIELD_INT  int64_t
#define ECH_CONFIG_FIELD_SIZE int64_t
#define ECH_CONFIG_FIELD_REAL double
#define ECH_CONFIG_FIELD_TIME double /* seconds */
#define ECH_CONFIG_FIELD_BOOL int
#define ECH_CONFIG_FIELD_TEXT char *
#define ECH_CONFIG_FIELD_NAME int /* which of its choices, from 0; -1: none of them */
#define ECH_CONFIG_FIELD_LIST ech_config_list

enum { ECH_CONFIG_LONGEST_LIST = 4096 };

/* Whole numbers, or instead one of the key's choices. */
typedef struct ech_config_list {
    int word;    /* which of the choices; -1: it is a list */
    int n;       /* 0: it is a word */
    int64_t *at; /* [n] */
} ech_config_list;

typedef struct ech_config_source ech_config_source; /* where each key was set; private */

typedef struct ech_config {
#define SECTION(section, help)       struct {
#define KEY(section, key, type, ...) ECH_CONFIG_FIELD_##type key;
#define END(section)                                                                               \
    }                                                                                              \
    section;
#include "config/keys.def"
    ech_config_source *source;
} ech_config;

/* The names that a choice "@table" stands for: blank-separated, in the order of the table's rows; the application
 * passes them. */
typedef struct ech_config_names {
    const char *table; /* "models" */
    const char *names; /* "gpt2 llama" */
} ech_config_names;

/* A configuration of defaults. The names are copied. */
ech_status ech_config_create(const ech_config_names *names, size_t n, ech_config **out);
void ech_config_destroy(ech_config *config); /* accepts NULL */
ECH_DESTROY_AT(ech_config, ech_config_destroy)
/* An independent copy (verify makes one per layout). */
ech_config *ech_config_copy(const ech_config *config);

/* Reads YAML: a mapping of sections to mappings of keys to scalars, or for LIST keys sequences of
 * scalars. Errors (unknown section or key with the nearest known one, duplicate key, wrong type or
 * unit, out of bounds, bad YAML, a list where a value is due) name file:line:column. All errors
 * of a file are logged, a line each, and nothing is set. */
ech_status ech_config_read_file(ech_config *config, const char *path);
/* The same from memory; `name` stands for the file in errors. */
ech_status ech_config_read_text(ech_config *config, const char *text, size_t n, const char *name);
/* "section.key=value", as on the command line. */
ech_status ech_config_set(ech_config *config, const char *assignment);

/* Checks that required keys are set. A key that a refused file or assignment named is not reported as missing, so
 * that this call after an error reports only what else is wrong. */
ech_status ech_config_check(const ech_config *config);

/* Whether the user set the key ("model.rope_theta") in a file or on the command line. */
bool ech_config_is_set(const ech_config *config, const char *key);
/* The same, or a refused file or assignment named it. */
bool ech_config_is_named(const ech_config *config, const char *key);
/* An error about a key, with the place where it was set ("run.yaml:7:16: model.hidden_size = 100:
 * ..." or "command line: ..."). The message has a hint. Logged; returns ECH_EUSAGE. */
ech_status ech_config_complain(const ech_config *config, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* For keys that belong to some rows of a table (a model's, an optimizer's), of which only the
 * chosen row, `reader`, reads its own: an error for each key that is set, listed in `owned`
 * (blank-separated "section.key" words), and not in `read`. Others not in `read` are left out of
 * prints from then on, so that a resolved run file can be run. */
ech_status ech_config_check_read(const ech_config *config, const char *owned, const char *read,
                                 const char *reader);

/* Takes a key's value ("model.hidden_size"), as text, from a file beside the run file, `place` in errors. A key that
 * is not set, or set to auto, gets it. A key that is set to another value is an error that names both, unless
 * may_differ. */
ech_status ech_config_fill(ech_config *config, const char *key, const char *text, const char *place,
                           bool may_differ);
/* Likewise all keys that `from` sets in a section; keys that are set already do not change. */
ech_status ech_config_fill_section(ech_config *config, const ech_config *from, const char *section,
                                   const char *place);

/* The name of a NAME key's choice ("model.architecture"), for messages. */
const char *ech_config_name(const ech_config *config, const char *key);

/* Appends a key's value ("model.rope_theta") as ech_config_print prints it. */
void ech_config_format(const ech_config *config, const char *key, ech_text *out);

/* Whether a TEXT key's value is "auto". */
bool ech_config_is_auto(const char *value);
/* Replaces a TEXT key's value (copied), as resolved. */
void ech_config_replace_text(char **field, const char *value);
/* Likewise a LIST key; n 0: the word. */
void ech_config_replace_list(ech_config_list *field, int word, const int64_t *at, int n);

/* The whole configuration as YAML that reads back to the same struct; sections and keys in the
 * table's order, floats printed so that they read back to the same bits. Required keys without a
 * value and unread keys (see above) are left out. */
void ech_config_print(const ech_config *config, ech_text *out);
/* Help for all keys: name, type or choices, default, meaning. */
void ech_config_help(const ech_config *config, ech_text *out);
/* Refuses a resume that changes fixed keys: logs all of them in one line, with both values and the place where each
 * was set; ECH_EUSAGE. `also`: further keys that may not change, blank-separated "section.key" words. A key whose
 * "auto" followed from other keys is left out if those differ. */
ech_status ech_config_check_resume(const ech_config *saved, const ech_config *now,
                                   const char *also);

#endif
