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
 * src/config knows types, bounds and names, not meanings. Other parts resolve keys that are "auto":
 * they write the values into the struct, which then prints as a resolved run file. No call is
 * collective. Errors are ECH_EUSAGE unless stated, and logged. Texts passed in are copied; texts
 * returned belong to the configuration.
 */
#ifndef ECH_CONFIG_CONFIG_H
#define ECH_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "config/choices.h"

/* The value of INT, SIZE and BOOL keys that are "auto", until it is resolved. (REAL and TIME keys
 * have no auto; TEXT and PATH keys hold the text "auto"; NAME and LIST keys have it as a choice.)
 */
enum { ECH_AUTO = -1 };
/* The value of an INT key that is a word, the choice with that number, until it is resolved. */
#define ECH_WORD(choice) (-2 - (choice))

#define ECH_CONFIG_FIELD_INT  int64_t /* or ECH_AUTO, or an ECH_WORD */
#define ECH_CONFIG_FIELD_SIZE int64_t /* bytes */
#define ECH_CONFIG_FIELD_REAL double
#define ECH_CONFIG_FIELD_TIME double /* seconds */
#define ECH_CONFIG_FIELD_BOOL int    /* 0, 1 or ECH_AUTO */
#define ECH_CONFIG_FIELD_TEXT char *
#define ECH_CONFIG_FIELD_PATH  char * /* expanded (base/path.h) */
#define ECH_CONFIG_FIELD_PATHS char * /* the same, word by word */
#define ECH_CONFIG_FIELD_NAME int /* its choice, from 0; -1: none, ech_config_check fails */
#define ECH_CONFIG_FIELD_LIST ech_config_list

enum { ECH_CONFIG_LONGEST_LIST = 4096 }; /* entries */

/* Integers, or instead one of the key's choices. */
typedef struct ech_config_list {
    int word;    /* index of the choice, from 0; -1: it is a list */
    int n;       /* entries of the list; 0: it is a word */
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

/* The names for a choice "@table": blank-separated, in the order of the table's rows; the
 * application passes them. */
typedef struct ech_config_names {
    const char *table; /* "models" */
    const char *names; /* "gpt2 llama" */
} ech_config_names;

/* Makes a configuration with defaults. */
ech_status ech_config_create(const ech_config_names *names, size_t n, ech_config **out);
/* Replaces the names of "@table", if `names` are more. The present ones must come first. */
void ech_config_set_names(ech_config *config, const char *table, const char *names);
void ech_config_destroy(ech_config *config); /* accepts NULL */
ECH_DESTROY_AT(ech_config, ech_config_destroy)
/* An independent copy (verify makes one per layout). */
ech_config *ech_config_copy(const ech_config *config);

/* Reads YAML: a mapping of sections to mappings of keys to scalars, or for LIST keys sequences of
 * scalars. Errors (unknown section or key with the nearest known one, duplicate key, wrong type or
 * unit, out of bounds, bad YAML, a list in place of a value) name file:line:column. All errors of a
 * file are logged, one per line, and nothing is set. A key that was set before gets the file's
 * value. */
ech_status ech_config_read_file(ech_config *config, const char *path);
/* Reads YAML from memory; `name` stands for the file in errors. Paths are not expanded: the text
 * comes from ech_config_print, and may come from an untrusted source that must not see
 * variables. */
ech_status ech_config_read_text(ech_config *config, const char *text, size_t n, const char *name);
/* The same for a text that the user wrote, in which paths are expanded as in a file. */
ech_status ech_config_read_own_text(ech_config *config, const char *text, size_t n,
                                    const char *name);
/* The text that a PATH or TEXT key gets, before the run file is read. `assignments` of a command
 * line take precedence. Otherwise it is from the file `path`, or if `text` is not NULL from this
 * text of a file; only paths are expanded. "" if neither sets it, or if the file cannot be read.
 * Nothing is checked or logged. Release with free(). */
char *ech_config_peek_path(const char *path, const char *text, char *const *assignments, int n,
                           const char *key);
/* Sets a key from "section.key=value", as on the command line. */
ech_status ech_config_set(ech_config *config, const char *assignment);

/* Checks that the required keys that the run reads are set, and that defaults of NAME keys are
 * among their choices. A key named in a refused file or assignment is not reported as missing:
 * after an error, this reports only other problems. */
ech_status ech_config_check(const ech_config *config);

/* True if the key ("model.rope_theta") was set: by a file, the command line or ech_config_fill. */
bool ech_config_is_set(const ech_config *config, const char *key);
/* True if the key was set, or a refused file or assignment named it. */
bool ech_config_is_named(const ech_config *config, const char *key);
/* Logs an error about a key, with its value and origin ("run.yaml:7:16: model.hidden_size = 100:
 * MESSAGE"; "command line: ..."; or "(default)"), and returns ECH_EUSAGE. The caller's MESSAGE says
 * what is wrong, then a hint. */
ech_status ech_config_complain(const ech_config *config, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Checks keys that not every run reads. Each row of a table (a model family, an optimizer) has keys
 * of its own; the run reads the keys of its chosen row. Both lists are blank-separated
 * "section.key" words: `owned` has the keys of all rows, `read` the keys of the chosen row. Errors
 * name the row as `reader`. A key in `owned` and not in `read` is an error if it is set. Otherwise
 * it is marked as unread: ech_config_print then omits it, so that a resolved run file passes this
 * check. */
ech_status ech_config_check_read(const ech_config *config, const char *owned, const char *read,
                                 const char *reader);
/* Only marks them, before required keys are checked (ech_config_check). */
void ech_config_mark_unread(const ech_config *config, const char *owned, const char *read);

/* Whether the run reads the key: it was not marked. */
bool ech_config_reads(const ech_config *config, const char *key);

/* Makes ech_config_print omit the key, although it is set. */
void ech_config_hide(const ech_config *config, const char *key);

/* Completes a key ("model.hidden_size") from a file other than the run file, such as a model's
 * config.json. text: the value there; place: the file, for errors. A key that is not set, or is
 * auto, gets the value. A key with another value keeps its own; that is an error that names both,
 * unless may_differ. */
ech_status ech_config_fill(ech_config *config, const char *key, const char *text, const char *place,
                           bool may_differ);
/* Sets all keys of a section that `from` sets and `config` does not set, or sets to auto. Names of
 * tables that `from` knows are known afterwards. */
ech_status ech_config_fill_section(ech_config *config, const ech_config *from, const char *section,
                                   const char *place);

/* The name of a NAME key's choice ("model.architecture"), for messages. */
const char *ech_config_name(const ech_config *config, const char *key);

/* What keys.def says of a key. Static. */
typedef struct ech_config_about {
    const char *section, *name, *type, *fallback, *help;
    const char *more; /* NULL: there is nothing more to say */
} ech_config_about;
/* The index-th key in the order of keys.def; false: there are fewer. */
bool ech_config_about_key(int index, ech_config_about *out);
/* A key's type ("section.key") as keys.def calls it: "INT", "NAME". NULL: there is no such key. */
const char *ech_config_type_name(const char *key);
/* The choices of a key ("section.key"), blank-separated, as long as the config exists; "": none. */
const char *ech_config_key_choices(const ech_config *config, const char *key);
/* A key's default, as keys.def has it. */
const char *ech_config_default(const char *key);
/* Appends a key's value ("model.rope_theta"), and in quotes where YAML needs them. */
void ech_config_format(const ech_config *config, const char *key, ech_text *out);
void ech_config_format_yaml(const ech_config *config, const char *key, ech_text *out);

/* True if a TEXT key's value is "auto". */
bool ech_config_is_auto(const char *value);
/* Sets all keys to their values on one rank without parallelism (keys.def), whether the
 * configuration is resolved or not. They do not count as set. */
void ech_config_set_alone(ech_config *config);
/* Sets a key that is auto, or whose default is another value and that is not set, to a text of the
 * program's own. The key does not count as set. A key that follows a choice (config/follow.h) keeps
 * its value. */
void ech_config_choose(ech_config *config, const char *key, const char *text);
/* Replaces a TEXT key's value, to resolve "auto". The key does not count as set. */
void ech_config_replace_text(char **field, const char *value);
/* Replaces a LIST key's value with the list at[n], or if n is 0 with the choice `word`. */
void ech_config_replace_list(ech_config_list *field, int word, const int64_t *at, int n);

/* Appends the configuration as YAML that reads back to the same struct; sections and keys in the
 * table's order, floats printed so that they read back to the same bits. Required keys without a
 * value and unread keys (ech_config_check_read) are omitted. */
void ech_config_print(const ech_config *config, ech_text *out);
/* Appends help for all keys: name, one line of meaning, type or choices, default. */
void ech_config_help(const ech_config *config, ech_text *out);
/* Appends words as lines of at most 90 columns. The first line of each paragraph is indented by
 * `indent`, the others by 6; '\n' ends a paragraph. */
void ech_config_append_wrapped(const char *words, int indent, ech_text *out);
/* Appends help for the key "section.name", which exists: as ech_config_help, with its full text. */
void ech_config_help_key(const ech_config *config, const char *key, ech_text *out);
/* Appends "section.name" of each key that is called `name`, with its section or without, separated
 * by blanks. Error: there is none; the nearest key is named. */
ech_status ech_config_match_keys(const char *name, ech_text *out);
/* Refuses a resume that changes keys: those that are FIXED in keys.def, and `also` (blank-separated
 * "section.key" words). Logs them in one line, with both values and where each was set. A changed
 * key with the default "auto" that `now` does not set depends on other keys: it is listed only if
 * no other key has changed. */
ech_status ech_config_check_resume(const ech_config *saved, const ech_config *now,
                                   const char *also);

#endif
