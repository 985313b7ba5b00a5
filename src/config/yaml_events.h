/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to src/config. A text of YAML, event by event. What has no meaning in our files (anchors,
 * aliases, tags) is refused where it stands.
 */
#ifndef ECH_CONFIG_YAML_EVENTS_H
#define ECH_CONFIG_YAML_EVENTS_H

#include <stdbool.h>
#include <yaml.h>

#include "base/status.h"

typedef struct ech_yaml_events {
    yaml_parser_t parser;
    yaml_event_t event; /* the one being looked at */
    const char *name;   /* of the file, for errors; borrowed, as is the text */
    const char *text;
    size_t n;
    const char *shape; /* what such a file has, for errors: "a run file has sections and keys" */
    int depth;         /* mappings and sequences around what comes next */
    bool broken;       /* no YAML, or deeper than anything that could be meant: reading ends */
} ech_yaml_events;

/* Begins to read n bytes. After success, ech_yaml_end releases the parser. */
ech_status ech_yaml_begin(ech_yaml_events *r, const char *name, const char *text, size_t n,
                          const char *shape);
void ech_yaml_end(ech_yaml_events *r);

/* Goes on to the next event. */
ech_status ech_yaml_step(ech_yaml_events *r);
/* The same. Errors: an anchor, an alias or a tag. */
ech_status ech_yaml_advance(ech_yaml_events *r);
/* "a list", "a value": the kind of the event, for errors. */
const char *ech_yaml_describe(const ech_yaml_events *r);
/* The scalar being looked at, as a C string of the event's. In errors, `what` names it and `form`
 * shows how it is written. */
ech_status ech_yaml_scalar(const ech_yaml_events *r, const char *what, const char *form,
                           const char **out);
/* True if the scalar being looked at is null: empty, "~" or "null", without quotes. */
bool ech_yaml_is_null(const ech_yaml_events *r);

/* The form of an entry of a mapping, for ech_yaml_scalar. */
#define ECH_YAML_PAIR "\"key: value\""

/* Logs an error at the event, "FILE:LINE:COLUMN: ...", and returns ECH_EUSAGE. */
#define ECH_YAML_FAIL(r, format, ...)                                                              \
    ECH_FAIL(ECH_EUSAGE, "%s:%zu:%zu: " format, (r)->name, (r)->event.start_mark.line + 1,         \
             (r)->event.start_mark.column + 1, __VA_ARGS__)

#endif
