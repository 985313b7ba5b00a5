/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses one key's value: types, units, bounds, choices, and their errors.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "config/table.h"
#include "config/unicode.h"

/* A value on its way into a key, with all that an error says about it. */
typedef struct attempt {
    const ech_config_key *key;
    const char *text, *place;
} attempt;

enum { SHOWN_BYTES = 60 };

ech_status ech_config_refuse_value(const ech_config_key *key, const char *text, const char *place,
                                   ech_text *reason)
{
    const char *more = strlen(text) > SHOWN_BYTES ? "..." : "";
    ech_status st = ech_fail_at(__FILE__, __LINE__, ECH_EUSAGE, "%s: %s.%s = %.*s%s: %s", place,
                                key->section, key->name, SHOWN_BYTES, text, more, reason->at);
    ech_text_free(reason);
    return st;
}

static ech_status refuse(const attempt *a, ech_text *reason)
{
    return ech_config_refuse_value(a->key, a->text, a->place, reason);
}

static bool may_be_auto(const ech_config_key *key)
{
    return strcmp(key->initial, "auto") == 0;
}

/* Not for a list, whose entries cannot be auto. */
static const char *or_auto(const ech_config_key *key)
{
    return may_be_auto(key) && key->type != ECH_CONFIG_LIST ? ", or auto" : "";
}

static ech_status refuse_bounds(const attempt *a)
{
    ech_text reason = {0};
    ech_text_append(&reason, "out of bounds; ");
    ech_config_format_bound(a->key, a->key->low, &reason);
    ech_text_append(&reason, " to ");
    ech_config_format_bound(a->key, a->key->high, &reason);
    ech_text_append(&reason, "%s", or_auto(a->key));
    return refuse(a, &reason);
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
    ech_text reason = {0};
    char without[SHOWN_BYTES];
    drop_underscores(a->text, without, sizeof without);
    double value;
    const double exact = 9007199254740992.0; /* 2^53: whole doubles below it are what they seem */
    ech_text_append(&reason, "not %s; ", what);
    if (*without)
        ech_text_append(&reason, "write it without underscores: %s", without);
    else if (a->key->type != ECH_CONFIG_REAL && a->key->type != ECH_CONFIG_TIME &&
             ech_text_to_real(a->text, &value) && fabs(value) <= exact &&
             fabs(value - trunc(value)) <= 0)
        ech_text_append(&reason, "write it out: %.0f", value);
    else
        ech_text_append(&reason, "write it like %s%s", example, or_auto(a->key));
    return refuse(a, &reason);
}

/* A whole number that no 64 bits hold is out of bounds, not malformed. */
static bool is_digits(const char *text)
{
    text += *text == '-';
    return *text && text[strspn(text, "0123456789")] == '\0';
}

static ech_status read_whole(const attempt *a, int64_t *out)
{
    bool size = a->key->type == ECH_CONFIG_SIZE;
    int64_t value;
    if (may_be_auto(a->key) && strcmp(a->text, "auto") == 0) {
        *out = ECH_AUTO;
        return ECH_OK;
    }
    if (size ? !ech_text_to_bytes(a->text, &value) : !ech_text_to_int(a->text, &value)) {
        if (is_digits(a->text)) return refuse_bounds(a);
        if (size) return refuse_number(a, "a number of bytes", "4096, 64KiB, 8GiB or 25MB");
        return refuse_number(a, "a whole number", "16");
    }
    if (value < (int64_t)a->key->low || value > (int64_t)a->key->high) return refuse_bounds(a);
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
    if (value < a->key->low || value > a->key->high) return refuse_bounds(a);
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
    else {
        ech_text reason = {0};
        ech_text_append(&reason, "neither true nor false; write true or false%s", or_auto(a->key));
        return refuse(a, &reason);
    }
    return ECH_OK;
}

static ech_status read_text(const attempt *a, char **out)
{
    if (ech_unicode_is_valid(a->text)) {
        ech_config_replace_text(out, a->text);
        return ECH_OK;
    }
    ech_text reason = {0};
    ech_text_append(&reason, "not valid UTF-8; rename it in UTF-8");
    return refuse(a, &reason);
}

const char *ech_config_choices(const ech_config *config, const ech_config_key *key)
{
    if (key->choices[0] != '@') return key->choices;
    for (size_t t = 0; t < config->source->n; t++)
        if (strcmp(config->source->names[t].table, key->choices + 1) == 0)
            return config->source->names[t].names;
    return NULL;
}

void ech_config_suggest_choice(const char *name, const char *choices, ech_text *out)
{
    ECH_LIST(const char *) words = {0};
    char *copy = ech_strdup(choices), *rest = NULL;
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        ECH_PUSH(words, word);
    const char *nearest = ech_text_nearest(name, words.at, words.n);
    if (nearest) ech_text_append(out, "; did you mean %s?", nearest);
    free(words.at);
    free(copy);
}

int ech_config_find_choice(const char *choices, const char *text)
{
    size_t length = strlen(text);
    for (int i = 0; *choices; i++) {
        size_t n = strcspn(choices, " ");
        if (n == length && memcmp(choices, text, n) == 0) return i;
        choices += n + strspn(choices + n, " ");
    }
    return -1;
}

ech_status ech_config_read_name(const ech_config *config, const ech_config_key *key,
                                const char *text, const char *place, int *out)
{
    const char *choices = ech_config_choices(config, key);
    if (!choices)
        ECH_FAIL(ECH_EINTERNAL, "%s.%s: nobody handed in the names of %s", key->section, key->name,
                 key->choices + 1);
    int row = ech_config_find_choice(choices, text);
    if (row >= 0) {
        *out = row;
        return ECH_OK;
    }
    ech_text reason = {0};
    ech_text_append(&reason, "not one of: %s", choices);
    ech_config_suggest_choice(text, choices, &reason);
    return refuse(&(attempt){key, text, place}, &reason);
}

ech_status ech_config_read_entry(const ech_config_key *key, const char *text, const char *place,
                                 int64_t *out)
{
    const attempt a = {key, text, place};
    int64_t value;
    if (!ech_text_to_int(text, &value))
        return is_digits(text) ? refuse_bounds(&a) : refuse_number(&a, "a whole number", "[3, 1]");
    if (value < (int64_t)key->low || value > (int64_t)key->high) return refuse_bounds(&a);
    *out = value;
    return ECH_OK;
}

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
    case ECH_CONFIG_NAME:
        return ech_config_read_name(config, a->key, a->text, a->place, field);
    case ECH_CONFIG_LIST:
        return ech_config_read_list(config, a->key, a->text, a->place, field);
    }
    ECH_FAIL(ECH_EINTERNAL, "%s.%s has no type", a->key->section, a->key->name);
}

ech_status ech_config_set_value(ech_config *config, const ech_config_key *key, const char *text,
                                const char *place)
{
    if (*text == '\0' && key->type != ECH_CONFIG_TEXT)
        ECH_FAIL(ECH_EUSAGE, "%s: %s.%s: no value; give one or leave the key out", place,
                 key->section, key->name);
    ECH_TRY(read_value(config, &(attempt){key, text, place}));
    ech_config_origin *origin = ech_config_origin_of(config, key);
    ech_config_replace_text(&origin->text, text);
    ech_config_replace_text(&origin->place, place);
    return ECH_OK;
}

void ech_config_set_default(ech_config *config, const ech_config_key *key)
{
    void *field = ech_config_field(config, key);
    bool required = strcmp(key->initial, "required") == 0;
    if (key->type == ECH_CONFIG_TEXT) {
        ech_config_replace_text(field, required ? "" : key->initial);
        return;
    }
    if (key->type == ECH_CONFIG_NAME) { /* it may name what this build lacks */
        const char *choices = ech_config_choices(config, key);
        *(int *)field = choices ? ech_config_find_choice(choices, key->initial) : -1;
        return;
    }
    if (required) return; /* zero until it is set */
    ech_status st = read_value(config, &(attempt){key, key->initial, "default"});
    ECH_ASSERT(st == ECH_OK);
}
