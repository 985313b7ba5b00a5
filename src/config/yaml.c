/* SPDX-License-Identifier: Apache-2.0
 *
 * Run files: YAML of exactly two levels, sections and keys, with scalars below, or for some keys
 * sequences of scalars. The rest of YAML (anchors, tags, several documents) has no meaning here and
 * is refused where it stands.
 */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/path.h"
#include "config/table.h"
#include "config/yaml_events.h"
#include "config/yaml_tree.h"

static const char shape[] = "a run file has sections, keys and flat lists";

enum { LARGEST_FILE = 1 << 20, SHOWN_BYTES = 60, MOST_ERRORS = 20 };

typedef struct reader {
    ech_yaml_events yaml;
    /* a copy that takes over if all is well; what an error may have meant is `tried` in it */
    ech_config *config;
    /* Lines (from 1) where this text has given them; 0: not yet. */
    size_t key_line[ECH_CONFIG_KEYS], section_line[ECH_CONFIG_SECTIONS];
    int errors;
    const ech_config_replaced *replaced; /* the key that the file has; NULL: today's */
} reader;

#define FAIL_HERE(r, format, ...) ECH_YAML_FAIL(&(r)->yaml, format, __VA_ARGS__)

/* "run.yaml:3:5", of what is being looked at. */
static void append_place(const reader *r, ech_text *out)
{
    ech_text_append(out, "%s:%zu:%zu", r->yaml.name, r->yaml.event.start_mark.line + 1,
                    r->yaml.event.start_mark.column + 1);
}

/* A sequence becomes the text that the command line would have given. */
static ech_status read_sequence(reader *r, const ech_config_key *key, const char *what,
                                ech_text *list)
{
    for (int i = 0;; i++) {
        ECH_TRY(ech_yaml_advance(&r->yaml));
        if (r->yaml.event.type == YAML_SEQUENCE_END_EVENT) break;
        const char *text;
        ECH_TRY(ech_yaml_scalar(&r->yaml, what, "[3, 1]", &text));
        if (i == ECH_CONFIG_LONGEST_LIST)
            FAIL_HERE(r, "%s: more than %d entries; remove some", what, i);
        ECH_FREED_TEXT place = {0}; /* of this entry, for errors */
        append_place(r, &place);
        int64_t value;
        ECH_TRY(ech_config_read_entry(key, text, place.at, &value));
        ech_text_append(list, "%s%s", i ? ", " : "[", text);
    }
    ech_text_append(list, list->n ? "]" : "[]");
    return ECH_OK;
}

static ech_status read_scalar(const reader *r, const ech_config_key *key, const char *what,
                              ech_text *value)
{
    const char *text;
    char form[128];
    snprintf(form, sizeof form, "\"%s: VALUE\"", key->name);
    ECH_TRY(ech_yaml_scalar(&r->yaml, what, form, &text));
    if (ech_yaml_is_null(&r->yaml))
        FAIL_HERE(r, "%s: no value; set one%s or remove the key", what,
                  ech_config_is_text(key) ? ", \"\" for an empty text," : "");
    ech_text_append(value, "%s", text);
    return ECH_OK;
}

static ech_status read_value(reader *r, const ech_config_key *key)
{
    char what[128];
    snprintf(what, sizeof what, "%s.%s", key->section, key->name);
    ECH_TRY(ech_yaml_advance(&r->yaml));
    bool is_list = key->type == ECH_CONFIG_LIST && r->yaml.event.type == YAML_SEQUENCE_START_EVENT;
    ECH_FREED_TEXT place = {0}, value = {0};
    append_place(r, &place);
    ECH_TRY(is_list ? read_sequence(r, key, what, &value) : read_scalar(r, key, what, &value));
    if (!r->replaced) return ech_config_set_value(r->config, key, value.at, place.at);
    ECH_FREED_TEXT now = {0};
    ECH_TRY(r->replaced->translate(value.at, place.at, &now));
    return ech_config_set_value(r->config, key, now.at, place.at);
}

/* Continues after a logged error in an entry of a mapping at this depth, so that other errors are
 * logged, too. Skips the rest of the entry; returns an error if that is impossible. in_key: the
 * entry's value has not been read. */
static ech_status pass_over(reader *r, int depth, bool in_key, ech_status st)
{
    r->errors++;
    if (r->yaml.broken) return st;
    if (r->errors == MOST_ERRORS)
        ECH_FAIL(st, "%s: found %d errors; the rest of the file was not read", r->yaml.name,
                 MOST_ERRORS);
    while (r->yaml.depth > depth) ECH_TRY(ech_yaml_step(&r->yaml));
    if (in_key) ECH_TRY(ech_yaml_step(&r->yaml));
    while (r->yaml.depth > depth) ECH_TRY(ech_yaml_step(&r->yaml));
    return ECH_OK;
}

/* The key that comes next; NULL: the section's end. */
static ech_status read_key(reader *r, const ech_config_section *section, const ech_config_key **out)
{
    const char *name;
    char what[64];
    snprintf(what, sizeof what, "key of %s", section->name);
    *out = NULL;
    ECH_TRY(ech_yaml_advance(&r->yaml));
    if (r->yaml.event.type == YAML_MAPPING_END_EVENT) return ECH_OK;
    ECH_TRY(ech_yaml_scalar(&r->yaml, what, ECH_YAML_PAIR, &name));
    r->replaced = ech_config_find_replaced(section->name, name);
    const ech_config_key *key = ech_config_find_key(section, r->replaced ? r->replaced->now : name);
    if (!key) {
        ECH_FREED_TEXT hint = {0};
        ech_config_hint_key(r->config, section, name, &hint);
        FAIL_HERE(r, "%s.%.*s: no such key; %s", section->name, SHOWN_BYTES, name, hint.at);
    }
    size_t *line = &r->key_line[key - ech_config_keys];
    if (*line)
        FAIL_HERE(r, "%s.%s: given twice, first in line %zu; remove one", key->section, key->name,
                  *line);
    *line = r->yaml.event.start_mark.line + 1;
    *out = key;
    return ECH_OK;
}

static ech_status read_keys(reader *r, const ech_config_section *section)
{
    for (int depth = r->yaml.depth;;) {
        const ech_config_key *key;
        ech_status st = read_key(r, section, &key);
        if (st == ECH_OK && !key) return ECH_OK;
        bool in_key = st != ECH_OK;
        if (st == ECH_OK) st = read_value(r, key);
        if (st != ECH_OK) ECH_TRY(pass_over(r, depth, in_key, st));
    }
}

/* A section that is not read may have any of its keys. */
static void give_up(reader *r, const ech_config_section *section)
{
    for (size_t k = section->first; k < section->end; k++) r->config->source->keys[k].tried = true;
}

/* The section that comes next; NULL: the end. */
static ech_status read_section(reader *r, const ech_config_section **out)
{
    const char *name;
    *out = NULL;
    ECH_TRY(ech_yaml_advance(&r->yaml));
    if (r->yaml.event.type == YAML_MAPPING_END_EVENT) return ECH_OK;
    ECH_TRY(ech_yaml_scalar(&r->yaml, "name of a section", "\"model:\"", &name));
    const ech_config_section *section = ech_config_find_section(name);
    if (!section) {
        ECH_FREED_TEXT hint = {0};
        ech_config_hint_section(r->config, name, &hint);
        FAIL_HERE(r, "%.*s: no such section; %s", SHOWN_BYTES, name, hint.at);
    }
    size_t *line = &r->section_line[section - ech_config_sections];
    if (*line) {
        give_up(r, section);
        FAIL_HERE(r, "%s: section given twice, first in line %zu; join them", section->name, *line);
    }
    *line = r->yaml.event.start_mark.line + 1;
    *out = section;
    return ECH_OK;
}

static ech_status open_section(reader *r, const ech_config_section *section)
{
    ech_status st = ech_yaml_advance(&r->yaml);
    if (st == ECH_OK && r->yaml.event.type == YAML_MAPPING_START_EVENT) return ECH_OK;
    give_up(r, section);
    ECH_TRY(st);
    FAIL_HERE(r, "%s: %s where keys are expected; indent \"key: value\" lines below it",
              section->name, ech_yaml_describe(&r->yaml));
}

static ech_status read_sections(reader *r)
{
    for (int depth = r->yaml.depth;;) {
        const ech_config_section *section;
        ech_status st = read_section(r, &section);
        if (st == ECH_OK && !section) return ECH_OK;
        bool in_key = st != ECH_OK;
        if (st == ECH_OK) st = open_section(r, section);
        ECH_TRY(st == ECH_OK ? read_keys(r, section) : pass_over(r, depth, in_key, st));
    }
}

/* A text without any content (blank, or comments alone) sets nothing. */
static ech_status read_stream(reader *r)
{
    ECH_TRY(ech_yaml_advance(&r->yaml)); /* the stream's start */
    ECH_TRY(ech_yaml_advance(&r->yaml));
    if (r->yaml.event.type == YAML_STREAM_END_EVENT) return ECH_OK;
    ECH_TRY(ech_yaml_advance(&r->yaml));
    if (r->yaml.event.type == YAML_MAPPING_START_EVENT)
        ECH_TRY(read_sections(r));
    else if (r->yaml.event.type != YAML_SCALAR_EVENT || !ech_yaml_is_null(&r->yaml))
        FAIL_HERE(r,
                  "%s where sections are expected; write lines of \"section:\" with \"key: value\" "
                  "lines below",
                  ech_yaml_describe(&r->yaml));
    ECH_TRY(ech_yaml_advance(&r->yaml)); /* the document's end */
    ECH_TRY(ech_yaml_advance(&r->yaml));
    if (r->yaml.event.type != YAML_STREAM_END_EVENT)
        FAIL_HERE(r, "%s", "a second document; remove it: a run file is one document");
    return ECH_OK;
}

/* A file that cannot be read may have any key: none is reported as missing. */
static void miss_nothing(ech_config *config)
{
    for (size_t k = 0; k < ECH_CONFIG_KEYS; k++) config->source->keys[k].tried = true;
}

static ech_status read_all(ech_config *config, const char *text, size_t n, const char *name,
                           bool raw_paths)
{
    if (n > LARGEST_FILE) {
        miss_nothing(config);
        ECH_FAIL(ECH_EUSAGE, "%s: %zu bytes, but a run file has at most %d; name a run file", name,
                 n, LARGEST_FILE);
    }
    reader r = {.config = NULL};
    ECH_TRY(ech_yaml_begin(&r.yaml, name, text, n, shape));
    r.config = ech_config_copy(config);
    r.config->source->raw_paths = raw_paths;
    ech_status st = read_stream(&r);
    if (st != ECH_OK) {
        miss_nothing(config);
    } else if (r.errors) {
        for (size_t k = 0; k < ECH_CONFIG_KEYS; k++)
            config->source->keys[k].tried |= r.config->source->keys[k].tried || r.key_line[k] > 0;
        st = ECH_EUSAGE;
    } else {
        ech_config filled = *r.config;
        *r.config = *config;
        *config = filled;
        config->source->raw_paths = false;
    }
    ech_config_destroy(r.config);
    ech_yaml_end(&r.yaml);
    return st;
}

ech_status ech_config_read_text(ech_config *config, const char *text, size_t n, const char *name)
{
    return read_all(config, text, n, name, true);
}

ech_status ech_config_read_own_text(ech_config *config, const char *text, size_t n,
                                    const char *name)
{
    return read_all(config, text, n, name, false);
}

ech_status ech_config_read_file(ech_config *config, const char *path)
{
    ECH_FREED char *text = NULL;
    size_t n;
    /* Whatever is wrong with a run file is wrong usage. */
    if (ech_file_read(path, LARGEST_FILE, &text, &n) != ECH_OK) {
        miss_nothing(config);
        return ECH_EUSAGE;
    }
    return read_all(config, text, n, path, false);
}

/* ---- one key, before the file is read ---- */

/* The key's text in the file, or in `given` if that is not NULL; NULL: none. It is the pool's. */
static const char *peek(const char *path, const char *given, const ech_config_key *key,
                        ech_pool *pool)
{
    ECH_FREED char *text = NULL;
    size_t n = given ? strlen(given) : 0;
    ech_yaml_node *root = NULL;
    if (!given && ech_file_read(path, LARGEST_FILE, &text, &n) != ECH_OK) return NULL;
    if (ech_yaml_read(path, given ? given : text, n, shape, pool, &root) != ECH_OK) return NULL;
    const ech_yaml_node *node = ech_yaml_find(ech_yaml_find(root, key->section), key->name);
    return node && !node->is_null ? node->text : NULL;
}

char *ech_config_peek_path(const char *path, const char *text, char *const *assignments, int n,
                           const char *key)
{
    bool quiet = ech_log_set_quiet(true);
    ech_pool *pool = ech_pool_create();
    const ech_config_key *known = ech_config_find_path(key);
    const char *found = peek(path, text, known, pool);
    size_t length = strlen(key);
    for (int i = 0; i < n; i++)
        if (strncmp(assignments[i], key, length) == 0 && assignments[i][length] == '=')
            found = assignments[i] + length + 1;
    ECH_FREED_TEXT expanded = {0}, why = {0};
    bool is_text = known->type == ECH_CONFIG_TEXT; /* no path, and may be a stranger's */
    if (found && is_text) ech_text_append(&expanded, "%s", found);
    bool is_found = found && (is_text || ech_path_expand(found, known->type == ECH_CONFIG_PATHS,
                                                         &expanded, &why));
    char *copy = ech_strdup(is_found && expanded.n ? expanded.at : "");
    ech_pool_destroy(pool);
    ech_clear_error();
    ech_log_set_quiet(quiet);
    return copy;
}
