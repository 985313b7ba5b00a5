/* SPDX-License-Identifier: Apache-2.0
 *
 * Events of libyaml, with places in errors.
 */
#include "config/yaml_events.h"

#include <string.h>

enum { DEEPEST = 8 };

ech_status ech_yaml_begin(ech_yaml_events *r, const char *name, const char *text, size_t n,
                          const char *shape)
{
    *r = (ech_yaml_events){.name = name, .text = text, .n = n, .shape = shape};
    if (!yaml_parser_initialize(&r->parser))
        ECH_FAIL(ECH_ENOMEM, "%s: no memory to read it; end other programs that use memory", name);
    yaml_parser_set_input_string(&r->parser, (const unsigned char *)text, n);
    return ECH_OK;
}

void ech_yaml_end(ech_yaml_events *r)
{
    yaml_event_delete(&r->event);
    yaml_parser_delete(&r->parser);
}

/* Whether a line (from 0) of the text is indented with a tab: the commonest mistake. */
static bool has_leading_tab(const ech_yaml_events *r, size_t line)
{
    const char *at = r->text, *end = r->text + r->n;
    for (; at < end && line > 0; at++) line -= *at == '\n';
    while (at < end && *at == ' ') at++;
    return at < end && *at == '\t';
}

/* What would work, by libyaml's words for what is wrong. */
static const char *remedy(const char *problem)
{
    static const struct {
        const char *problem, *remedy;
    } rows[] = {
        {"control characters", "remove this byte"},
        {"UTF-8", "save the file as UTF-8"},
        {"expected ':'", "write \"key: value\", here and in the line before"},
        {"mapping values", "put a value that contains \": \" in quotes, and indent keys alike"},
        {"mapping keys", "put a value that begins with \"? \" in quotes"},
        {"sequence entries", "put a value that begins with \"- \" in quotes"},
        {"cannot start any token", "put a value that begins with %, @ or ` in quotes"},
        {"',' or ']'", "close the list with ], and put commas between its values"},
        {"',' or '}'", "close the mapping with }, and put commas between its entries"},
        {"node content", "write a value here, or put it in quotes"},
        {"end of stream", "close the quote"},
        {"unknown escape", "use single quotes, or write \\\\ for a backslash"},
        {"<document start>", "remove this and what follows: a file is one document"},
        {"expected key", "indent all keys of a section alike"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strstr(problem, rows[i].problem)) return rows[i].remedy;
    return "write \"key: value\" lines";
}

/* Logs libyaml's error. libyaml counts lines only after characters are decoded; before that it has
 * only a byte offset. */
static ech_status fail_yaml(ech_yaml_events *r)
{
    const yaml_parser_t *p = &r->parser;
    r->broken = true;
    const char *problem = p->problem ? p->problem : "unreadable";
    if (p->error == YAML_READER_ERROR) {
        size_t line = 1;
        for (size_t i = 0; i < p->problem_offset && i < r->n; i++) line += r->text[i] == '\n';
        ECH_FAIL(ECH_EUSAGE, "%s:%zu: byte %zu: not YAML text: %s; %s", r->name, line,
                 p->problem_offset, problem, remedy(problem));
    }
    bool tab = has_leading_tab(r, p->problem_mark.line);
    ECH_FAIL(ECH_EUSAGE, "%s:%zu:%zu: not YAML: %s%s%s; %s", r->name, p->problem_mark.line + 1,
             p->problem_mark.column + 1, p->context ? p->context : "", p->context ? ": " : "",
             problem, tab ? "indent with blanks, not with tabs" : remedy(problem));
}

ech_status ech_yaml_step(ech_yaml_events *r)
{
    yaml_event_delete(&r->event);
    if (!yaml_parser_parse(&r->parser, &r->event)) return fail_yaml(r);
    yaml_event_type_t type = r->event.type;
    r->depth += type == YAML_MAPPING_START_EVENT || type == YAML_SEQUENCE_START_EVENT;
    r->depth -= type == YAML_MAPPING_END_EVENT || type == YAML_SEQUENCE_END_EVENT;
    if (r->depth <= DEEPEST) return ECH_OK;
    r->broken = true; /* libyaml's time grows with the square of the depth */
    ECH_YAML_FAIL(r, "lists or mappings are nested too deep; %s", r->shape);
}

ech_status ech_yaml_advance(ech_yaml_events *r)
{
    ECH_TRY(ech_yaml_step(r));
    const yaml_event_t *e = &r->event;
    if (e->type == YAML_ALIAS_EVENT)
        ECH_YAML_FAIL(r, "alias *%.40s: not supported; write the value here instead",
                      (char *)e->data.alias.anchor);
    if (e->type != YAML_SCALAR_EVENT && e->type != YAML_SEQUENCE_START_EVENT &&
        e->type != YAML_MAPPING_START_EVENT)
        return ECH_OK;
    /* The data of these three begin with the same members. */
    const char *anchor = (char *)e->data.scalar.anchor, *tag = (char *)e->data.scalar.tag;
    if (anchor)
        ECH_YAML_FAIL(
            r, "anchor &%.40s: not supported; remove it, and repeat the value where it is used",
            anchor);
    if (tag) ECH_YAML_FAIL(r, "tag %.40s: not supported; remove it: each key has a type", tag);
    return ECH_OK;
}

const char *ech_yaml_describe(const ech_yaml_events *r)
{
    if (r->event.type == YAML_SEQUENCE_START_EVENT) return "a list";
    if (r->event.type == YAML_MAPPING_START_EVENT) return "a mapping";
    if (r->event.type != YAML_SCALAR_EVENT) return "the end";
    return r->event.data.scalar.length ? "a value" : "nothing";
}

ech_status ech_yaml_scalar(const ech_yaml_events *r, const char *what, const char *form,
                           const char **out)
{
    if (r->event.type != YAML_SCALAR_EVENT)
        ECH_YAML_FAIL(r, "%s: cannot be %s; write it like %s", what, ech_yaml_describe(r), form);
    const char *text = (const char *)r->event.data.scalar.value;
    if (strlen(text) != r->event.data.scalar.length)
        ECH_YAML_FAIL(r, "%s: contains a NUL character (\\0); remove it", what);
    *out = text;
    return ECH_OK;
}

bool ech_yaml_is_null(const ech_yaml_events *r)
{
    const char *text = (const char *)r->event.data.scalar.value;
    return r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (*text == '\0' || strcmp(text, "~") == 0 || strcasecmp(text, "null") == 0);
}
