/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses one key's value: types, units, bounds, choices, and their errors.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/path.h"
#include "base/utf8.h"
#include "config/alias.h"
#include "config/table.h"

/* A value on its way into a key, with all that an error says about it. */
typedef struct attempt {
    const ech_config_key *key;
    const char *text, *place;
    bool unbounded; /* numbers may be below and above what a user may ask for */
} attempt;

enum { SHOWN_BYTES = 60 };

static ech_status refuse(const attempt *a, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* "place: section.key = text: reason". */
static ech_status refuse(const attempt *a, const char *format, ...)
{
    char reason[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    ECH_FAIL(ECH_EUSAGE, "%s: %s.%s = %.*s%s: %s", a->place, a->key->section, a->key->name,
             SHOWN_BYTES, a->text, strlen(a->text) > SHOWN_BYTES ? "..." : "", reason);
}

/* The entries of a list cannot be auto. */
static bool may_be_auto(const ech_config_key *key)
{
    return strcmp(key->initial, "auto") == 0 && key->type != ECH_CONFIG_LIST;
}

/* The words that an INT key may be; "": none. */
static const char *words_of(const ech_config_key *key)
{
    return key->type == ECH_CONFIG_INT && key->choices ? key->choices : "";
}

/* What may be written in place of a number; no key has both. */
static void append_instead(const ech_config_key *key, ech_text *out)
{
    const char *words = may_be_auto(key) ? "auto" : words_of(key);
    if (*words) ech_text_append(out, ", or %s", words);
}

static ech_status refuse_bounds(const attempt *a)
{
    ECH_FREED_TEXT bounds = {0};
    ech_config_format_bounds(a->key, &bounds);
    append_instead(a->key, &bounds);
    return refuse(a, "out of bounds; %s", bounds.at);
}

/* "1_000" -> "1000": what a number means without the underscores, "" if that is none either. */
static void drop_underscores(const char *text, char *out, size_t size)
{
    size_t n = 0;
    for (const char *at = text; *at && n + 1 < size; at++)
        if (*at != '_') out[n++] = *at;
    out[n] = '\0';
    double value;
    if (n == strlen(text) || !ech_text_to_real(out, &value)) out[0] = '\0';
}

static ech_status refuse_number(const attempt *a, const char *what, const char *example)
{
    char without[SHOWN_BYTES];
    drop_underscores(a->text, without, sizeof without);
    double value;
    const double exact = 9007199254740992.0; /* 2^53: whole doubles below it are what they seem */
    if (*without) return refuse(a, "not %s; write it without underscores: %s", what, without);
    if (a->key->type != ECH_CONFIG_REAL && a->key->type != ECH_CONFIG_TIME &&
        ech_text_to_real(a->text, &value) && fabs(value) <= exact &&
        fabs(value - trunc(value)) <= 0)
        return refuse(a, "not %s; write it out: %.0f", what, value);
    ECH_FREED_TEXT instead = {0};
    ech_text_append(&instead, "%s", example);
    append_instead(a->key, &instead);
    return refuse(a, "not %s; write it like %s", what, instead.at);
}

/* A whole number that no 64 bits hold is out of bounds, not malformed. */
static bool is_digits(const char *text)
{
    text += *text == '-';
    return *text && text[strspn(text, "0123456789")] == '\0';
}

/* Of INT, SIZE, and an entry of LIST. */
static ech_status read_whole(const attempt *a, int64_t *out)
{
    ech_config_type type = a->key->type;
    bool size = type == ECH_CONFIG_SIZE;
    int64_t value;
    if (may_be_auto(a->key) && strcmp(a->text, "auto") == 0) {
        *out = ECH_AUTO;
        return ECH_OK;
    }
    int word = ech_text_find_word(words_of(a->key), a->text);
    if (word >= 0) {
        *out = ECH_WORD(word);
        return ECH_OK;
    }
    if (size ? !ech_text_to_bytes(a->text, &value) : !ech_text_to_int(a->text, &value)) {
        if (is_digits(a->text)) return refuse_bounds(a);
        if (size) return refuse_number(a, "a number of bytes", "4096, 64KiB, 8GiB or 25MB");
        return refuse_number(a, "a whole number", type == ECH_CONFIG_LIST ? "[3, 1]" : "16");
    }
    if (!a->unbounded && (value < (int64_t)a->key->low || value > (int64_t)a->key->high))
        return refuse_bounds(a);
    *out = value;
    return ECH_OK;
}

/* Of REAL and TIME. */
static ech_status read_real(const attempt *a, double *out)
{
    double value;
    bool time = a->key->type == ECH_CONFIG_TIME;
    if (time ? !ech_text_to_seconds(a->text, &value) : !ech_text_to_real(a->text, &value)) {
        if (time)
            return refuse_number(a, "a time", "3600 (seconds), 90m, 2h, 1:30:00 or 1-12:00:00");
        return refuse_number(a, "a number", "0.1 or 1e-5");
    }
    if (!a->unbounded && (value < a->key->low || value > a->key->high)) return refuse_bounds(a);
    *out = value;
    return ECH_OK;
}

static ech_status read_bool(const attempt *a, int *out)
{
    if (strcmp(a->text, "true") == 0)
        *out = 1;
    else if (strcmp(a->text, "false") == 0)
        *out = 0;
    else if (may_be_auto(a->key) && strcmp(a->text, "auto") == 0)
        *out = ECH_AUTO;
    else
        return refuse(a, "neither true nor false; write true or false%s",
                      may_be_auto(a->key) ? ", or auto" : "");
    return ECH_OK;
}

static ech_status read_text(const attempt *a, char **out)
{
    size_t n = strlen(a->text);
    if (ech_utf8_valid(a->text, n) != n) return refuse(a, "not valid UTF-8; rename it in UTF-8");
    ech_config_replace_text(out, a->text);
    return ECH_OK;
}

static ech_status read_path(const attempt *a, char **out)
{
    ECH_FREED_TEXT path = {0}, why = {0};
    if (!ech_path_expand(a->text, a->key->type == ECH_CONFIG_PATHS, &path, &why))
        return refuse(a, "%s", why.at);
    if (a->key->type == ECH_CONFIG_PATH && path.n && strchr(path.at, '\n'))
        return refuse(a, "has a line end in it; write it in one line, without | or >");
    return read_text(&(attempt){a->key, path.n ? path.at : "", a->place, false}, out);
}

const char *ech_config_choices(const ech_config *config, const ech_config_key *key)
{
    if (key->choices[0] != '@') return key->choices;
    for (size_t t = 0; t < config->source->n; t++)
        if (strcmp(config->source->names[t].table, key->choices + 1) == 0)
            return config->source->names[t].names;
    return NULL;
}

/* `expected`: "not one of". */
static ech_status refuse_choice(const attempt *a, const char *expected, const char *choices)
{
    ECH_LIST(const char *) words = {0};
    ECH_FREED_WORDS word = ech_words_in(choices);
    while (ech_words_next(&word)) ECH_PUSH(words, word.at);
    char path[128];
    snprintf(path, sizeof path, "%s.%s", a->key->section, a->key->name);
    const char *nearest = ech_alias_value(path, a->text);
    if (!nearest) nearest = ech_text_nearest(a->text, words.at, words.n);
    free(words.at);
    int n = (int)strlen(choices);
    while (n > 0 && choices[n - 1] == ' ') n--;
    return refuse(a, "%s: %.*s%s%s%s", expected, n, choices, nearest ? "; did you mean " : "",
                  nearest ? nearest : "", nearest ? "?" : "");
}

/* What a choice was called before: run files and checkpoints still say so. */
static const struct {
    const char *section, *name, *before, *now;
} renamed[] = {{"parallel", "reduction", "mpi", "library"}};

static const char *name_now(const ech_config_key *key, const char *text)
{
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++)
        if (strcmp(key->section, renamed[i].section) == 0 &&
            strcmp(key->name, renamed[i].name) == 0 && strcmp(text, renamed[i].before) == 0)
            return renamed[i].now;
    return text;
}

/* model.no_rope_layer_interval: every n-th layer had no rotary positions; 0: all had them. */
static ech_status translate_interval(const char *text, const char *place, ech_text *out)
{
    int64_t n;
    if (!ech_text_to_int(text, &n) || n < 0 || n > 4096)
        ECH_FAIL(ECH_EUSAGE,
                 "%s: model.no_rope_layer_interval = %.60s: must be an integer from 0 to 4096; "
                 "model.rotary_layers replaced this key",
                 place, text);
    for (int64_t i = 1; i < n; i++) ech_text_append(out, "R");
    ech_text_append(out, "%s", n ? "N" : "R");
    return ECH_OK;
}

static const ech_config_replaced replaced[] = {
    {"model", "no_rope_layer_interval", "rotary_layers", translate_interval}};

const ech_config_replaced *ech_config_find_replaced(const char *section, const char *name)
{
    for (size_t i = 0; i < sizeof replaced / sizeof *replaced; i++)
        if (strcmp(replaced[i].section, section) == 0 && strcmp(replaced[i].before, name) == 0)
            return &replaced[i];
    return NULL;
}

ech_status ech_config_read_name(const ech_config *config, const ech_config_key *key,
                                const char *text, const char *place, int *out)
{
    const char *choices = ech_config_choices(config, key);
    if (!choices)
        ECH_FAIL(ECH_EINTERNAL, "%s.%s: nobody handed in the names of %s", key->section, key->name,
                 key->choices + 1);
    int row = ech_text_find_word(choices, name_now(key, text));
    if (row < 0) return refuse_choice(&(attempt){key, text, place, false}, "not one of", choices);
    *out = row;
    return ECH_OK;
}

/* ---- lists ---- */

ech_status ech_config_read_entry(const ech_config_key *key, const char *text, const char *place,
                                 int64_t *out)
{
    return read_whole(&(attempt){key, text, place, false}, out);
}

static ech_status refuse_list(const attempt *a, const char *why)
{
    return refuse(a, "%s; write it like [3, 1], with at most %d entries", why,
                  ECH_CONFIG_LONGEST_LIST);
}

/* A word without the blanks around it, which are overwritten. */
static char *trim(char *text)
{
    text += strspn(text, " ");
    size_t n = strlen(text);
    while (n > 0 && text[n - 1] == ' ') text[--n] = '\0';
    return text;
}

static ech_status read_entries(const attempt *a, ech_config_list *out)
{
    int64_t value[ECH_CONFIG_LONGEST_LIST];
    int n = 0;
    ECH_FREED char *entries = ech_strdup(a->text + 1);
    size_t length = strlen(entries);
    if (length == 0 || entries[length - 1] != ']')
        return refuse_list(a, "a list without its closing bracket");
    entries[length - 1] = '\0';
    if (entries[strspn(entries, " ")] == '\0') return refuse_list(a, "an empty list");
    for (char *rest = entries; rest;) {
        int64_t entry;
        const char *text = trim(strsep(&rest, ","));
        ECH_TRY(ech_config_read_entry(a->key, text, a->place, &entry));
        if (n == ECH_CONFIG_LONGEST_LIST) return refuse_list(a, "too many entries");
        value[n++] = entry;
    }
    ech_config_replace_list(out, -1, value, n);
    return ECH_OK;
}

/* "[3, 1]" or a word. */
static ech_status read_list(const ech_config *config, const attempt *a, ech_config_list *out)
{
    if (a->text[0] == '[') return read_entries(a, out);
    const char *choices = ech_config_choices(config, a->key);
    int word = ech_text_find_word(choices, a->text);
    if (word < 0) return refuse_choice(a, "neither a list like [3, 1] nor one of", choices);
    ech_config_replace_list(out, word, NULL, 0);
    return ECH_OK;
}

/* ---- all types ---- */

static ech_status read_value(ech_config *config, const attempt *a)
{
    void *field = ech_config_field(config, a->key);
    switch (a->key->type) {
    case ECH_CONFIG_INT:
    case ECH_CONFIG_SIZE:
        return read_whole(a, field);
    case ECH_CONFIG_REAL:
    case ECH_CONFIG_TIME:
        return read_real(a, field);
    case ECH_CONFIG_BOOL:
        return read_bool(a, field);
    case ECH_CONFIG_TEXT:
        return read_text(a, field);
    case ECH_CONFIG_PATH:
    case ECH_CONFIG_PATHS:
        return config->source->raw_paths ? read_text(a, field) : read_path(a, field);
    case ECH_CONFIG_NAME:
        return ech_config_read_name(config, a->key, a->text, a->place, field);
    case ECH_CONFIG_LIST:
        return read_list(config, a, field);
    }
    ECH_FAIL(ECH_EINTERNAL, "%s.%s has no type", a->key->section, a->key->name);
}

ech_status ech_config_set_value(ech_config *config, const ech_config_key *key, const char *text,
                                const char *place)
{
    if (*text == '\0' && !ech_config_is_text(key))
        ECH_FAIL(ECH_EUSAGE, "%s: %s.%s: no value; set one or remove the key", place, key->section,
                 key->name);
    ECH_TRY(read_value(config, &(attempt){key, text, place, false}));
    ech_config_origin *origin = ech_config_origin_of(config, key);
    ech_config_replace_text(&origin->text, text);
    ech_config_replace_text(&origin->place, place);
    return ECH_OK;
}

/* Sets the key to a text of keys.def. */
static void set_from_table(ech_config *config, const ech_config_key *key, const char *text)
{
    void *field = ech_config_field(config, key);
    if (ech_config_is_text(key)) {
        ech_config_replace_text(field, text);
    } else if (key->type == ECH_CONFIG_NAME) { /* it may name what this build lacks */
        const char *choices = ech_config_choices(config, key);
        *(int *)field = choices ? ech_text_find_word(choices, text) : -1;
    } else {
        ech_status st = read_value(config, &(attempt){key, text, "keys.def", true});
        ECH_ASSERT(st == ECH_OK);
    }
}

void ech_config_set_default(ech_config *config, const ech_config_key *key)
{
    if (strcmp(key->initial, "required") != 0)
        set_from_table(config, key, key->initial);
    else if (key->type == ECH_CONFIG_NAME)
        *(int *)ech_config_field(config, key) = -1;
    else if (ech_config_is_text(key))
        set_from_table(config, key, ""); /* numbers are zero until they are set */
}

bool ech_config_is_chosen(const ech_config *config, const ech_config_key *key)
{
    bool is_number = strcmp(key->initial, "required") == 0 && key->type == ECH_CONFIG_INT;
    return is_number && *(const int64_t *)ech_config_field(config, key) > 0;
}

void ech_config_choose(ech_config *config, const char *path, const char *text)
{
    const ech_config_key *key = ech_config_find_path(path);
    ECH_FREED_TEXT value = {0};
    ech_config_format_value(config, key, &value);
    bool has_auto = strcmp(key->initial, "auto") == 0;
    const ech_config_origin *origin = ech_config_origin_of(config, key);
    bool is_open = has_auto ? ech_config_is_auto(value.at) : !origin->place && !origin->cause;
    if (is_open) set_from_table(config, key, text);
}

void ech_config_set_alone(ech_config *config)
{
    for (int k = 0; k < ECH_CONFIG_KEYS; k++) /* 0 servers, which nobody may ask for */
        if (ech_config_keys[k].alone)
            set_from_table(config, &ech_config_keys[k], ech_config_keys[k].alone);
}
