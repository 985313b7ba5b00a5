/* SPDX-License-Identifier: Apache-2.0
 *
 * `echelon help keys`: every key of the table, in lines that fit a page.
 */
#include <string.h>

#include "config/table.h"

enum { COLUMNS = 90, INDENT = 6 };

/* A paragraph: words moved to lines of at most COLUMNS, those after the first indented. */
static void append_wrapped(const char *words, int indent, ech_text *out)
{
    size_t column = (size_t)indent;
    ech_text_append(out, "%*s", indent, "");
    for (bool first = true; *words; first = false) {
        size_t n = strcspn(words, " ");
        bool fits = column + !first + n <= COLUMNS;
        if (!first && fits) ech_text_append(out, " ");
        if (!first && !fits) ech_text_append(out, "\n%*s", INDENT, "");
        column = (first || fits ? column + !first : INDENT) + n;
        ech_text_append_bytes(out, words, n);
        words += n + strspn(words + n, " ");
    }
    ech_text_append(out, "\n");
}

static void append_choices(const char *what, const char *choices, ech_text *out)
{
    size_t n = strlen(choices);
    while (n > 0 && choices[n - 1] == ' ') n--;
    ech_text_append(out, "%s: %.*s", what, (int)n, choices);
}

static void append_range(const ech_config_key *key, const char *what, ech_text *out)
{
    ech_text_append(out, "%s, ", what);
    ech_config_format_bounds(key, out);
}

static void append_type(const ech_config *config, const ech_config_key *key, ech_text *out)
{
    const char *choices = key->choices ? ech_config_choices(config, key) : "";
    switch (key->type) {
    case ECH_CONFIG_INT:
        append_range(key, "whole number", out);
        break;
    case ECH_CONFIG_SIZE:
        append_range(key, "bytes (units: KiB, MiB, GiB ...)", out);
        break;
    case ECH_CONFIG_REAL:
        append_range(key, "number", out);
        break;
    case ECH_CONFIG_TIME:
        append_range(key, "seconds (also 90m, 2h, 1:30:00, 1-12:00:00)", out);
        break;
    case ECH_CONFIG_BOOL:
        ech_text_append(out, "true or false");
        break;
    case ECH_CONFIG_TEXT:
        ech_text_append(out, "text");
        if (key->choices) append_choices(", such as", choices, out);
        break;
    case ECH_CONFIG_NAME:
        append_choices("one of", choices, out);
        break;
    case ECH_CONFIG_LIST:
        append_range(key, "list like [3, 1] of whole numbers", out);
        append_choices("; or one of", choices, out);
        break;
    }
}

static void append_key(const ech_config *config, const ech_config_key *key, ech_text *out)
{
    ECH_FREED_TEXT rules = {0};
    append_type(config, key, &rules);
    if (strcmp(key->initial, "required") == 0)
        ech_text_append(&rules, "; required");
    else
        ech_text_append(&rules, "; default %s", *key->initial ? key->initial : "\"\"");
    if (key->fixed) ech_text_append(&rules, "; may not change on resume");
    ech_text_append(out, "  %s.%s\n", key->section, key->name);
    append_wrapped(key->help, INDENT, out);
    append_wrapped(rules.at, INDENT, out);
}

void ech_config_help(const ech_config *config, ech_text *out)
{
    for (size_t s = 0; s < ECH_CONFIG_SECTIONS; s++) {
        const ech_config_section *section = &ech_config_sections[s];
        ECH_FREED_TEXT title = {0};
        ech_text_append(&title, "%s: %s", section->name, section->help);
        if (out->n) ech_text_append(out, "\n");
        append_wrapped(title.at, 0, out);
        for (size_t k = section->first; k < section->end; k++)
            append_key(config, &ech_config_keys[k], out);
    }
}
