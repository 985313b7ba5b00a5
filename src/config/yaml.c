/* SPDX-License-Identifier: Apache-2.0
 *
 * Run files: YAML of exactly two levels, sections and keys, with scalars below, or for some keys
 * sequences of scalars. The rest of YAML (anchors, tags, several documents) has no meaning here and
 * is refused where it stands.
 */
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "base/file.h"
#include "config/table.h"

enum { LARGEST_FILE = 1 << 20, SHOWN_BYTES = 60, MOST_ERRORS = 20, DEEPEST = 8 };

typedef struct reader {
    yaml_parser_t parser;
    yaml_event_t event; /* the one being looked at */
    /* a copy that takes over if all is well; what an error may have meant is `tried` in it */
    ech_config *config;
    const char *name; /* of the file, for errors */
    const char *text;
    size_t n;
    /* Lines (from 1) where this text has given them; 0: not yet. */
    size_t key_line[ECH_CONFIG_KEYS], section_line[ECH_CONFIG_SECTIONS];
    int depth;   /* mappings and sequences around what comes next */
    bool broken; /* no YAML, or deeper than anything that could be meant: there is no reading on */
    int errors;
} reader;

#define FAIL_HERE(r, format, ...)                                                                  \
    ECH_FAIL(ECH_EUSAGE, "%s:%zu:%zu: " format, (r)->name, (r)->event.start_mark.line + 1,         \
             (r)->event.start_mark.column + 1, __VA_ARGS__)

/* Whether a line (from 0) of the text is indented with a tab: the commonest mistake. */
static bool has_leading_tab(const reader *r, size_t line)
{
    const char *at = r->text, *end = r->text + r->n;
    for (; at < end && line > 0; at++) line -= *at == '\n';
    while (at < end && *at == ' ') at++;
    return at < end && *at == '\t';
}

/* Logs libyaml's error. libyaml counts lines only after characters are decoded; before that it has
 * only a byte offset. */
static ech_status fail_yaml(reader *r)
{
    const yaml_parser_t *p = &r->parser;
    r->broken = true;
    const char *problem = p->problem ? p->problem : "unreadable";
    if (p->error == YAML_READER_ERROR) {
        size_t line = 1;
        for (size_t i = 0; i < p->problem_offset && i < r->n; i++) line += r->text[i] == '\n';
        ECH_FAIL(ECH_EUSAGE, "%s:%zu: byte %zu: not YAML text: %s", r->name, line,
                 p->problem_offset, problem);
    }
    bool tab = has_leading_tab(r, p->problem_mark.line);
    ECH_FAIL(ECH_EUSAGE, "%s:%zu:%zu: not YAML: %s%s%s%s", r->name, p->problem_mark.line + 1,
             p->problem_mark.column + 1, p->context ? p->context : "", p->context ? ": " : "",
             problem, tab ? "; indent with blanks, not with tabs" : "");
}

/* Goes on to the next event. */
static ech_status step(reader *r)
{
    yaml_event_delete(&r->event);
    if (!yaml_parser_parse(&r->parser, &r->event)) return fail_yaml(r);
    yaml_event_type_t type = r->event.type;
    r->depth += type == YAML_MAPPING_START_EVENT || type == YAML_SEQUENCE_START_EVENT;
    r->depth -= type == YAML_MAPPING_END_EVENT || type == YAML_SEQUENCE_END_EVENT;
    if (r->depth <= DEEPEST) return ECH_OK;
    r->broken = true; /* libyaml's time grows with the square of the depth */
    FAIL_HERE(r, "%s", "lists in lists, too deep; a run file has sections, keys and flat lists");
}

/* Likewise; anchors, aliases and tags are refused wherever they come. */
static ech_status advance(reader *r)
{
    ECH_TRY(step(r));
    const yaml_event_t *e = &r->event;
    if (e->type == YAML_ALIAS_EVENT)
        FAIL_HERE(r, "alias *%.40s: not supported; write values out", (char *)e->data.alias.anchor);
    if (e->type != YAML_SCALAR_EVENT && e->type != YAML_SEQUENCE_START_EVENT &&
        e->type != YAML_MAPPING_START_EVENT)
        return ECH_OK;
    /* The data of these three begin with the same members. */
    const char *anchor = (char *)e->data.scalar.anchor, *tag = (char *)e->data.scalar.tag;
    if (anchor) FAIL_HERE(r, "anchor &%.40s: not supported; write values out", anchor);
    if (tag) FAIL_HERE(r, "tag %.40s: not supported; types are known", tag);
    return ECH_OK;
}

static const char *describe_event(const reader *r)
{
    if (r->event.type == YAML_SEQUENCE_START_EVENT) return "a list";
    if (r->event.type == YAML_MAPPING_START_EVENT) return "a mapping";
    if (r->event.type != YAML_SCALAR_EVENT) return "the end";
    return r->event.data.scalar.length ? "a value" : "nothing";
}

/* The scalar being looked at, as a C string of the event's; `what` names it in errors. */
static ech_status look_at_scalar(const reader *r, const char *what, const char **out)
{
    if (r->event.type != YAML_SCALAR_EVENT)
        FAIL_HERE(r, "%s: %s where a single value is expected", what, describe_event(r));
    const char *text = (const char *)r->event.data.scalar.value;
    if (strlen(text) != r->event.data.scalar.length)
        FAIL_HERE(r, "%s: a NUL character; no value has one", what);
    *out = text;
    return ECH_OK;
}

static bool is_null(const reader *r)
{
    const char *text = (const char *)r->event.data.scalar.value;
    return r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (*text == '\0' || strcmp(text, "~") == 0 || strcasecmp(text, "null") == 0);
}

/* "run.yaml:3:5", of what is being looked at. */
static void append_place(const reader *r, ech_text *out)
{
    ech_text_append(out, "%s:%zu:%zu", r->name, r->event.start_mark.line + 1,
                    r->event.start_mark.column + 1);
}

/* A sequence becomes the text that the command line would have given. */
static ech_status read_sequence(reader *r, const ech_config_key *key, const char *what,
                                ech_text *list)
{
    for (int i = 0;; i++) {
        ECH_TRY(advance(r));
        if (r->event.type == YAML_SEQUENCE_END_EVENT) break;
        const char *text;
        ECH_TRY(look_at_scalar(r, what, &text));
        if (i == ECH_CONFIG_LONGEST_LIST) FAIL_HERE(r, "%s: more than %d entries", what, i);
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
    ECH_TRY(look_at_scalar(r, what, &text));
    if (is_null(r))
        FAIL_HERE(r, "%s: no value; set one%s or remove the key", what,
                  ech_config_is_text(key) ? ", \"\" for an empty text," : "");
    ech_text_append(value, "%s", text);
    return ECH_OK;
}

static ech_status read_value(reader *r, const ech_config_key *key)
{
    char what[128];
    snprintf(what, sizeof what, "%s.%s", key->section, key->name);
    ECH_TRY(advance(r));
    bool is_list = key->type == ECH_CONFIG_LIST && r->event.type == YAML_SEQUENCE_START_EVENT;
    ECH_FREED_TEXT place = {0}, value = {0};
    append_place(r, &place);
    ECH_TRY(is_list ? read_sequence(r, key, what, &value) : read_scalar(r, key, what, &value));
    return ech_config_set_value(r->config, key, value.at, place.at);
}

/* Continues after a logged error in an entry of a mapping at this depth, so that other errors are
 * logged, too. Skips the rest of the entry; returns an error if that is impossible. in_key: the
 * entry's value has not been read. */
static ech_status pass_over(reader *r, int depth, bool in_key, ech_status st)
{
    r->errors++;
    if (r->broken) return st;
    if (r->errors == MOST_ERRORS)
        ECH_FAIL(st, "%s: found %d errors; the rest of the file was not read", r->name,
                 MOST_ERRORS);
    while (r->depth > depth) ECH_TRY(step(r));
    if (in_key) ECH_TRY(step(r));
    while (r->depth > depth) ECH_TRY(step(r));
    return ECH_OK;
}

/* The key that comes next; NULL: the section's end. */
static ech_status read_key(reader *r, const ech_config_section *section, const ech_config_key **out)
{
    const char *name;
    *out = NULL;
    ECH_TRY(advance(r));
    if (r->event.type == YAML_MAPPING_END_EVENT) return ECH_OK;
    ECH_TRY(look_at_scalar(r, section->name, &name));
    const ech_config_key *key = ech_config_find_key(section, name);
    if (!key) {
        ECH_FREED_TEXT hint = {0};
        ech_config_hint_key(r->config, section, name, &hint);
        FAIL_HERE(r, "%s.%.*s: no such key; %s", section->name, SHOWN_BYTES, name, hint.at);
    }
    size_t *line = &r->key_line[key - ech_config_keys];
    if (*line)
        FAIL_HERE(r, "%s.%s: given twice, first in line %zu; remove one", key->section, key->name,
                  *line);
    *line = r->event.start_mark.line + 1;
    *out = key;
    return ECH_OK;
}

static ech_status read_keys(reader *r, const ech_config_section *section)
{
    for (int depth = r->depth;;) {
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
    ECH_TRY(advance(r));
    if (r->event.type == YAML_MAPPING_END_EVENT) return ECH_OK;
    ECH_TRY(look_at_scalar(r, "name of a section", &name));
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
    *line = r->event.start_mark.line + 1;
    *out = section;
    return ECH_OK;
}

static ech_status open_section(reader *r, const ech_config_section *section)
{
    ech_status st = advance(r);
    if (st == ECH_OK && r->event.type == YAML_MAPPING_START_EVENT) return ECH_OK;
    give_up(r, section);
    ECH_TRY(st);
    FAIL_HERE(r, "%s: %s where keys are expected; indent \"key: value\" lines below it",
              section->name, describe_event(r));
}

static ech_status read_sections(reader *r)
{
    for (int depth = r->depth;;) {
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
    ECH_TRY(advance(r)); /* the stream's start */
    ECH_TRY(advance(r));
    if (r->event.type == YAML_STREAM_END_EVENT) return ECH_OK;
    ECH_TRY(advance(r));
    if (r->event.type == YAML_MAPPING_START_EVENT)
        ECH_TRY(read_sections(r));
    else if (r->event.type != YAML_SCALAR_EVENT || !is_null(r))
        FAIL_HERE(r, "%s where sections are expected; a run file is lines of \"section:\"",
                  describe_event(r));
    ECH_TRY(advance(r)); /* the document's end */
    ECH_TRY(advance(r));
    if (r->event.type != YAML_STREAM_END_EVENT)
        FAIL_HERE(r, "%s", "a second document; a run file is one");
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
        ECH_FAIL(ECH_EUSAGE, "%s: %zu bytes; a run file has at most %d", name, n, LARGEST_FILE);
    }
    reader r = {.name = name, .text = text, .n = n};
    if (!yaml_parser_initialize(&r.parser)) ECH_FAIL(ECH_ENOMEM, "%s: no memory to read it", name);
    r.config = ech_config_copy(config);
    r.config->source->raw_paths = raw_paths;
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, n);
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
    yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
    return st;
}

ech_status ech_config_read_text(ech_config *config, const char *text, size_t n, const char *name)
{
    return read_all(config, text, n, name, true);
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
