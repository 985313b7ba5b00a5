/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints values, the resolved run file, and help: every key of the table, in lines that fit a page.
 */
#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "base/utf8.h"
#include "config/table.h"

static void format_real(double value, ech_text *out)
{
    char digits[40];
    ech_text_from_real(value, 15, digits, sizeof digits);
    /* YAML 1.1 takes 1e-05 for text: a float has a point. */
    size_t mantissa = strcspn(digits, "e");
    const char *point = digits[mantissa] && !strchr(digits, '.') ? ".0" : "";
    ech_text_append(out, "%.*s%s%s", (int)mantissa, digits, point, digits + mantissa);
}

/* The largest binary unit that says the number exactly. */
static void format_size(int64_t bytes, ech_text *out)
{
    static const char *const units[] = {"", "KiB", "MiB", "GiB", "TiB", "PiB"};
    size_t u = 0;
    for (; bytes > 0 && bytes % 1024 == 0 && u + 1 < sizeof units / sizeof units[0]; u++)
        bytes /= 1024;
    ech_text_append(out, "%" PRId64 "%s", bytes, units[u]);
}

static void format_bound(const ech_config_key *key, double bound, ech_text *out)
{
    if (key->type == ECH_CONFIG_REAL || key->type == ECH_CONFIG_TIME)
        format_real(bound, out);
    else
        ech_text_append(out, "%" PRId64, (int64_t)bound);
}

void ech_config_format_bounds(const ech_config_key *key, ech_text *out)
{
    format_bound(key, key->low, out);
    ech_text_append(out, " to ");
    format_bound(key, key->high, out);
}

static void format_word(const char *choices, int64_t row, ech_text *out)
{
    for (; row > 0; row--) choices += strcspn(choices, " ") + 1;
    ech_text_append_bytes(out, choices, strcspn(choices, " "));
}

static void format_whole(const ech_config_key *key, int64_t value, ech_text *out)
{
    if (value == ECH_AUTO)
        ech_text_append(out, "auto");
    else if (key->type == ECH_CONFIG_INT && value <= ECH_WORD(0))
        format_word(key->choices, ECH_WORD(value), out);
    else if (key->type == ECH_CONFIG_SIZE)
        format_size(value, out);
    else
        ech_text_append(out, "%" PRId64, value);
}

/* Of NAME and LIST keys. */
static const char *name_of(const ech_config *config, const ech_config_key *key)
{
    const char *name = ech_config_origin_of(config, key)->names;
    const void *field = ech_config_field(config, key);
    int row =
        key->type == ECH_CONFIG_LIST ? ((const ech_config_list *)field)->word : *(const int *)field;
    if (row < 0) return strcmp(key->initial, "required") == 0 ? "" : key->initial;
    for (; row > 0; row--) name += strlen(name) + 1;
    return name;
}

const char *ech_config_name(const ech_config *config, const char *path)
{
    const ech_config_key *key = ech_config_find_path(path);
    ECH_ASSERT(key && key->type == ECH_CONFIG_NAME);
    return name_of(config, key);
}

void ech_config_format_value(const ech_config *config, const ech_config_key *key, ech_text *out)
{
    const void *field = ech_config_field(config, key);
    switch (key->type) {
    case ECH_CONFIG_INT:
    case ECH_CONFIG_SIZE:
        format_whole(key, *(const int64_t *)field, out);
        break;
    case ECH_CONFIG_REAL:
    case ECH_CONFIG_TIME:
        format_real(*(const double *)field, out);
        break;
    case ECH_CONFIG_BOOL: {
        int value = *(const int *)field;
        ech_text_append(out, value == ECH_AUTO ? "auto" : value ? "true" : "false");
        break;
    }
    case ECH_CONFIG_NAME:
        ech_text_append(out, "%s", name_of(config, key));
        break;
    case ECH_CONFIG_LIST: {
        const ech_config_list *list = field;
        if (list->n == 0) ech_text_append(out, "%s", name_of(config, key));
        for (int i = 0; i < list->n; i++)
            ech_text_append(out, "%s%" PRId64, i ? ", " : "[", list->at[i]);
        if (list->n) ech_text_append(out, "]");
        break;
    }
    case ECH_CONFIG_TEXT:
    case ECH_CONFIG_PATH:
    case ECH_CONFIG_PATHS:
        ech_text_append(out, "%s", *(char *const *)field);
        break;
    }
}

void ech_config_format(const ech_config *config, const char *path, ech_text *out)
{
    ech_config_format_value(config, ech_config_find_path(path), out);
}

/* Whether all YAML readers read the text without quotes as a string. */
static bool is_plain(const char *text)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    static const char *const taken[] = {"y",    "n",     "yes",  "no",   "on",  "off",
                                        "true", "false", "null", ".nan", ".inf"};
    if (*text == '\0' || strchr("-+%@=", *text)) return false;
    const char *at = text;
    bool has_letter = false;
    for (; *at; at++) {
        if (!strchr(letters, *at) && !strchr("0123456789_./+-%@=", *at)) return false;
        /* 1e5 and 0x1f are numbers; 1f1b, which starts with a digit too, is not. */
        has_letter |= *at == '/' || (strchr(letters, *at) && *at != 'e' && *at != 'E');
    }
    if (!has_letter || (text[0] == '0' && strchr("xXoObB", text[1]) && text[1])) return false;
    for (size_t t = 0; t < sizeof taken / sizeof taken[0]; t++)
        if (strcasecmp(text, taken[t]) == 0) return false;
    return true;
}

static void append_quoted(const char *text, ech_text *out)
{
    ech_text_append(out, "\"");
    while (*text) {
        uint32_t code;
        size_t length = ech_utf8_first(text, &code);
        ECH_ASSERT(length > 0);
        if (code == '"' || code == '\\')
            ech_text_append(out, "\\%c", (char)code);
        else if (ech_utf8_is_printable(code))
            ech_text_append_bytes(out, text, length);
        else
            ech_text_append(out, "\\u%04" PRIx32, code); /* none of these is above U+FFFF */
        text += length;
    }
    ech_text_append(out, "\"");
}

static void append_yaml_value(const ech_config *config, const ech_config_key *key, ech_text *out)
{
    ECH_FREED_TEXT value = {0};
    ech_config_format_value(config, key, &value);
    bool is_word = key->type != ECH_CONFIG_INT && (ech_config_is_text(key) || key->choices);
    bool is_list = key->type == ECH_CONFIG_LIST && value.at[0] == '[';
    /* Names among which are these two mean them. */
    bool is_truth = key->type == ECH_CONFIG_NAME &&
                    (strcmp(value.at, "true") == 0 || strcmp(value.at, "false") == 0);
    if (is_word && !is_list && !is_truth && !is_plain(value.at))
        append_quoted(value.at, out);
    else
        ech_text_append_bytes(out, value.at, value.n);
}

void ech_config_format_yaml(const ech_config *config, const char *path, ech_text *out)
{
    append_yaml_value(config, ech_config_find_path(path), out);
}

/* Left out are a required key that has not been set, since it has no value, and a key that this run
 * does not read, since a run file that sets it is refused. */
static bool is_printed(const ech_config *config, const ech_config_key *key)
{
    const ech_config_origin *origin = ech_config_origin_of(config, key);
    if (origin->hidden) return false;
    if (origin->place) return true;
    bool has_value = strcmp(key->initial, "required") != 0 || ech_config_is_chosen(config, key);
    return has_value && !origin->unread;
}

void ech_config_print(const ech_config *config, ech_text *out)
{
    for (size_t s = 0; s < ECH_CONFIG_SECTIONS; s++) {
        const ech_config_section *section = &ech_config_sections[s];
        bool opened = false;
        for (size_t k = section->first; k < section->end; k++) {
            const ech_config_key *key = &ech_config_keys[k];
            if (!is_printed(config, key)) continue;
            if (!opened) ech_text_append(out, "%s%s:\n", out->n ? "\n" : "", section->name);
            opened = true;
            ech_text_append(out, "  %s: ", key->name);
            append_yaml_value(config, key, out);
            ech_text_append(out, "\n");
        }
    }
}

/* ---- help ---- */

enum { COLUMNS = 90, INDENT = 6 };

/* Appends n bytes of words in lines of at most COLUMNS; those after the first are indented. */
static void append_paragraph(const char *words, size_t n, int indent, ech_text *out)
{
    size_t column = (size_t)indent;
    ech_text_append(out, "%*s", indent, "");
    for (bool first = true; n > 0; first = false) {
        size_t length = 0, blanks = 0;
        while (length < n && words[length] != ' ') length++;
        while (length + blanks < n && words[length + blanks] == ' ') blanks++;
        bool fits = column + !first + length <= COLUMNS;
        if (!first && fits) ech_text_append(out, " ");
        if (!first && !fits) ech_text_append(out, "\n%*s", INDENT, "");
        column = (first || fits ? column + !first : INDENT) + length;
        ech_text_append_bytes(out, words, length);
        words += length + blanks;
        n -= length + blanks;
    }
    ech_text_append(out, "\n");
}

void ech_config_append_wrapped(const char *words, int indent, ech_text *out)
{
    while (*words) {
        size_t n = strcspn(words, "\n");
        append_paragraph(words, n, indent, out);
        words += n + (words[n] == '\n');
    }
}

/* What a value of each type is; what stands before the key's choices. */
static const struct {
    const char *is, *choices;
} types[] = {[ECH_CONFIG_INT] = {"whole number", "; or one of"},
             [ECH_CONFIG_SIZE] = {"bytes (units: KiB, MiB, GiB ...)", NULL},
             [ECH_CONFIG_REAL] = {"number", NULL},
             [ECH_CONFIG_TIME] = {"seconds (also 90m, 2h, 1:30:00, 1-12:00:00)", NULL},
             [ECH_CONFIG_BOOL] = {"true or false", NULL},
             [ECH_CONFIG_TEXT] = {"text", ", such as"},
             [ECH_CONFIG_PATH] = {"path", ", or"},
             [ECH_CONFIG_PATHS] = {"paths", NULL},
             [ECH_CONFIG_NAME] = {"", "one of"},
             [ECH_CONFIG_LIST] = {"list like [3, 1] of whole numbers", "; or one of"}};

static void append_type(const ech_config *config, const ech_config_key *key, ech_text *out)
{
    ech_text_append(out, "%s", types[key->type].is);
    if (key->high > key->low) {
        ech_text_append(out, ", ");
        ech_config_format_bounds(key, out);
    }
    if (!key->choices) return;
    const char *choices = ech_config_choices(config, key);
    size_t n = strlen(choices);
    while (n > 0 && choices[n - 1] == ' ') n--;
    ech_text_append(out, "%s: %.*s", types[key->type].choices, (int)n, choices);
}

static void append_key(const ech_config *config, const ech_config_key *key, bool in_full,
                       ech_text *out)
{
    ECH_FREED_TEXT rules = {0};
    append_type(config, key, &rules);
    if (strcmp(key->initial, "required") == 0)
        ech_text_append(&rules, "; required");
    else
        ech_text_append(&rules, "; default %s", *key->initial ? key->initial : "\"\"");
    if (key->fixed || in_full)
        ech_text_append(&rules, "; may %schange on resume", key->fixed ? "not " : "");
    ech_text_append(out, "  %s.%s\n", key->section, key->name);
    ech_config_append_wrapped(key->help, INDENT, out);
    if (in_full && key->more)
        ech_config_append_wrapped(key->more, INDENT, out);
    ech_config_append_wrapped(rules.at, INDENT, out);
}

void ech_config_help(const ech_config *config, ech_text *out)
{
    for (size_t s = 0; s < ECH_CONFIG_SECTIONS; s++) {
        const ech_config_section *section = &ech_config_sections[s];
        ECH_FREED_TEXT title = {0};
        ech_text_append(&title, "%s: %s", section->name, section->help);
        if (out->n) ech_text_append(out, "\n");
        ech_config_append_wrapped(title.at, 0, out);
        for (size_t k = section->first; k < section->end; k++)
            append_key(config, &ech_config_keys[k], false, out);
    }
}

void ech_config_help_key(const ech_config *config, const char *key, ech_text *out)
{
    append_key(config, ech_config_find_path(key), true, out);
}

static ech_status refuse_key(const char *name)
{
    const ech_config_section *section = ech_config_find_section(name);
    if (section)
        ECH_FAIL(ECH_EUSAGE,
                 "%s is a section of run files, not a key; `echelon help keys "
                 "%s` lists its keys",
                 name, name);
    ECH_FREED_TEXT paths = {0}; /* NUL-terminated, one after the other */
    const char *candidates[ECH_CONFIG_KEYS];
    size_t begin[ECH_CONFIG_KEYS];
    for (size_t k = 0; k < ECH_CONFIG_KEYS; k++) {
        begin[k] = paths.n;
        ech_text_append(&paths, "%s.%s", ech_config_keys[k].section, ech_config_keys[k].name);
        ech_text_append_bytes(&paths, "", 1);
    }
    bool has_section = strchr(name, '.') != NULL;
    for (size_t k = 0; k < ECH_CONFIG_KEYS; k++)
        candidates[k] = has_section ? paths.at + begin[k] : ech_config_keys[k].name;
    const char *nearest = ech_text_nearest(name, candidates, ECH_CONFIG_KEYS);
    for (size_t k = 0; nearest && k < ECH_CONFIG_KEYS; k++)
        if (candidates[k] == nearest)
            ECH_FAIL(ECH_EUSAGE, "no key %s; did you mean %s?", name, paths.at + begin[k]);
    ECH_FAIL(ECH_EUSAGE, "no key %s; `echelon help keys` lists all keys", name);
}

ech_status ech_config_match_keys(const char *name, ech_text *out)
{
    size_t before = out->n;
    const ech_config_key *whole = ech_config_find_path(name);
    for (size_t k = 0; k < ECH_CONFIG_KEYS; k++) {
        const ech_config_key *key = &ech_config_keys[k];
        if (key != whole && strcmp(key->name, name) != 0) continue;
        ech_text_append(out, "%s%s.%s", out->n > before ? " " : "", key->section, key->name);
    }
    return out->n > before ? ECH_OK : refuse_key(name);
}
