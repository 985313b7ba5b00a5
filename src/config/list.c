/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of LIST keys: "[3, 1]" or a word.
 */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "config/table.h"

/* A value on its way into a key, with all that an error says about it. */
typedef struct attempt {
    const ech_config_key *key;
    const char *text, *place;
} attempt;

static ech_status refuse(const attempt *a, const char *why)
{
    ech_text reason = {0};
    ech_text_append(&reason, "%s; write it like [3, 1], with at most %d entries", why,
                    ECH_CONFIG_LONGEST_LIST);
    return ech_config_refuse_value(a->key, a->text, a->place, &reason);
}

/* A word without the blanks around it, which are overwritten. */
static char *trim(char *text)
{
    text += strspn(text, " ");
    size_t n = strlen(text);
    while (n > 0 && text[n - 1] == ' ') text[--n] = '\0';
    return text;
}

typedef ECH_LIST(int64_t) numbers;

/* `entries` is what follows the opening bracket, and is overwritten. */
static ech_status read_entries(const attempt *a, char *entries, numbers *out)
{
    size_t n = strlen(entries);
    if (n == 0 || entries[n - 1] != ']') return refuse(a, "a list without its closing bracket");
    entries[n - 1] = '\0';
    if (entries[strspn(entries, " ")] == '\0') return refuse(a, "an empty list");
    for (char *rest = entries; rest;) {
        int64_t value;
        const char *entry = trim(strsep(&rest, ","));
        ECH_TRY(ech_config_read_entry(a->key, entry, a->place, &value));
        if (out->n == ECH_CONFIG_LONGEST_LIST) return refuse(a, "too many entries");
        ECH_PUSH(*out, value);
    }
    return ECH_OK;
}

static ech_status read_word(const ech_config *config, const attempt *a, ech_config_list *out)
{
    const char *choices = ech_config_choices(config, a->key);
    int word = ech_config_find_choice(choices, a->text);
    if (word >= 0) {
        ech_config_replace_list(out, word, NULL, 0);
        return ECH_OK;
    }
    ech_text reason = {0};
    ech_text_append(&reason, "neither a list like [3, 1] nor one of: %s", choices);
    ech_config_suggest_choice(a->text, choices, &reason);
    return ech_config_refuse_value(a->key, a->text, a->place, &reason);
}

ech_status ech_config_read_list(const ech_config *config, const ech_config_key *key,
                                const char *text, const char *place, ech_config_list *out)
{
    const attempt a = {key, text, place};
    if (text[0] != '[') return read_word(config, &a, out);
    numbers read = {0};
    char *entries = ech_strdup(text + 1);
    ech_status st = read_entries(&a, entries, &read);
    if (st == ECH_OK) ech_config_replace_list(out, -1, read.at, (int)read.n);
    free(read.at);
    free(entries);
    return st;
}
