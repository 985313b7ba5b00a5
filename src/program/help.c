/* SPDX-License-Identifier: Apache-2.0
 *
 * `echelon help` about keys, features and techniques, from the tables that define them.
 */
#include "program/help.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/setup/setup.h"
#include "program/techniques.h"
#include "config/follow.h"
#include "config/alias.h"
#include "config/rules.h"

/* The tables that run files choose from, besides families. */
static const struct {
    const char *key, *name, *help;
} choices[] = {
#define X(name, help) {"optimizer.name", #name, help},
#include "optim/optimizers.def"
#undef X
#define X(name, help) {"optimizer.schedule", #name, help},
#include "optim/learning_rates.def"
#undef X
#define X(identifier, name, help) {"parallel.schedule", name, help},
#include "schedule/order/schedules.def"
#undef X
#define X(name, help, lacking) {"parallel.comm", #name, help},
#include "comm/comm.def"
#undef X
#define X(name, alignment, part, segment, loss_rows, loads, kernels, fused, lacking, help)         \
    {"parallel.device", #name, help},
#include "device/device.def"
#undef X
    {"parallel.device", "auto",
     "cuda where the build and the machine have it, otherwise cpu, and a line says why"},
#define X(name, text, help) {"parallel.reduction", text, help},
#include "comm/reduction.def"
#undef X
};

/* Presets of other keys. */
static const struct {
    const char *name, *sets;
} strategies[] = {
#define X(NAME, text, sets, protocol) {"parallel.strategy = " text, sets},
#include "config/strategies.def"
};

/* The choices that read keys which others do not: each with these keys, separated by blanks. */
typedef struct reader {
    const char *key, *name, *keys;
} reader;
typedef ECH_LIST(reader) reader_list;

static const char *keys_of_family(ech_pool *pool, const ech_family *family)
{
    ECH_FREED_TEXT keys = {0};
    ech_family_append_reads(family, &keys);
    return ech_pool_format(pool, "%s", keys.at);
}

/* `pool` holds their texts; release with free(out->at). */
static void find_readers(ech_pool *pool, reader_list *out)
{
    const ech_family *family;
    for (size_t i = 0; (family = ech_family_built_in(i)); i++)
        ECH_PUSH(*out, (reader){"model.architecture", family->name, keys_of_family(pool, family)});
#define X(name, help)                                                                              \
    ECH_PUSH(*out, (reader){"optimizer.name", #name, ech_optimizer_find(#name)->reads});
#include "optim/optimizers.def"
#undef X
#define X(name, help)                                                                              \
    ECH_PUSH(*out, (reader){"optimizer.schedule", #name, ech_curve_find(#name)->reads});
#include "optim/learning_rates.def"
#undef X
}

static void append_choice(const char *key, const char *name, const char *help, ech_text *out)
{
    ech_text_append(out, "  %s = %s\n      %s\n", key, name, help);
}

/* key: NULL: of all keys. */
static void append_choices(const char *key, ech_text *out)
{
    const ech_family *family;
    bool families = !key || strcmp(key, "model.architecture") == 0;
    for (size_t i = 0; families && (family = ech_family_built_in(i)); i++)
        append_choice("model.architecture", family->name, family->help, out);
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
        if (!key || strcmp(choices[i].key, key) == 0)
            append_choice(choices[i].key, choices[i].name, choices[i].help, out);
}

ech_status ech_help_keys(void)
{
    ECH_CLEANUP(ech_config_destroy_at) ech_config *config = NULL;
    ECH_FREED_TEXT text = {0};
    ECH_TRY(ech_setup_defaults(&config));
    ech_config_help(config, &text);
    ech_text_append(&text, "\n`echelon help key NAME` has all about one key.\n\n"
                           "Names that can be chosen:\n");
    append_choices(NULL, &text);
    fputs(text.at, stdout);
    return ECH_OK;
}

/* Whether a key is of a section with this name, or its help has the word, in any case. */
static bool is_about(const ech_config_about *about, const char *word, bool is_section)
{
    if (is_section) return strcmp(about->section, word) == 0;
    return strcasestr(about->name, word) || strcasestr(about->help, word) ||
           (about->more && strcasestr(about->more, word));
}

/* Refuses the name of an option, ours or another tool's; others are ECH_OK. */
static ech_status check_no_option(const char *name, const ech_alias *foreign)
{
    bool is_option = strcmp(name, "ranks") == 0 || (foreign && foreign->ours[0] == '-');
    if (is_option) ECH_FAIL(ECH_EUSAGE, "no key %s; that is the option --ranks N", name);
    return ECH_OK;
}

ech_status ech_help_keys_with(const char *word)
{
    ECH_CLEANUP(ech_config_destroy_at) ech_config *config = NULL;
    ECH_FREED_TEXT text = {0};
    ech_config_about about;
    bool is_section = false;
    ECH_TRY(ech_setup_defaults(&config));
    for (int k = 0; ech_config_about_key(k, &about); k++)
        is_section |= strcmp(about.section, word) == 0;
    for (int k = 0; ech_config_about_key(k, &about); k++) {
        ECH_FREED_TEXT key = {0};
        if (!is_about(&about, word, is_section)) continue;
        ech_text_append(&key, "%s.%s", about.section, about.name);
        ech_config_help_key(config, key.at, &text);
    }
    const ech_alias *foreign = ech_alias_find(word);
    if (!text.n) ECH_TRY(check_no_option(word, foreign));
    if (!text.n && foreign) return ech_help_key(foreign->ours);
    if (!text.n)
        ECH_FAIL(ECH_EUSAGE,
                 "no section is called %s, and the help of no key has this word; "
                 "`echelon help keys` lists all keys",
                 word);
    fputs(text.at, stdout);
    return ECH_OK;
}

ech_status ech_help_names(void)
{
    const ech_alias *foreign;
    const char *key, *theirs, *ours;
    printf("Other tools' names for keys. A name that is the same here is not listed.\n\n");
    for (int i = 0; (foreign = ech_alias_at(i)); i++) {
        ECH_FREED_TEXT text = {0};
        ech_alias_print(foreign, NULL, &text);
        printf("  %-38s %s\n", foreign->theirs, text.at);
    }
    printf("\nOther tools' names for values:\n\n");
    for (int i = 0; ech_alias_value_at(i, &key, &theirs, &ours); i++)
        printf("  %-38s %s=%s\n", theirs, key, ours);
    return ECH_OK;
}

/* Appends the names of all readers of the key that are values of `chosen`. */
static void append_readers(const reader_list *all, const char *chosen, const char *key,
                           ech_text *out)
{
    ECH_FREED_TEXT names = {0}, line = {0};
    for (size_t i = 0; i < all->n; i++)
        if (strcmp(all->at[i].key, chosen) == 0 && ech_text_has_word(all->at[i].keys, key))
            ech_text_append(&names, "%s%s", names.n ? ", " : "", all->at[i].name);
    if (!names.n) return;
    ech_text_append(&line, "Read with %s = %s only.", chosen, names.at);
    ech_text_append(out, "\n");
    ech_config_append_wrapped(line.at, 2, out);
}

/* Appends a preset that sets the key. `heading` precedes the first one, and is NULL afterwards. */
static void append_preset(const char **heading, const char *name, const char *assignments,
                          const char *key, ech_text *out)
{
    size_t n;
    ECH_FREED_TEXT line = {0};
    if (!ech_text_find_value(assignments, key, strlen(key), &n)) return;
    if (*heading) ech_text_append(out, "\n  %s:\n", *heading);
    *heading = NULL;
    ech_text_append(&line, "%s: %s", name, assignments);
    ech_config_append_wrapped(line.at, 4, out);
}

static void append_users(const char *key, ech_text *out)
{
    reader_list readers = {0};
    ech_pool *pool = ech_pool_create();
    find_readers(pool, &readers);
    append_readers(&readers, "model.architecture", key, out);
    append_readers(&readers, "optimizer.name", key, out);
    append_readers(&readers, "optimizer.schedule", key, out);
    free(readers.at);
    ech_pool_destroy(pool);
    const char *heading = "Presets";
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++)
        append_preset(&heading, strategies[i].name, strategies[i].sets, key, out);
    heading = "Techniques";
    for (int i = 0; i < ECH_TECHNIQUES; i++)
        append_preset(&heading, ech_techniques[i].name, ech_techniques[i].keys, key, out);
}

/* Whether a key has this name, with its section or without. */
static bool is_key(const char *name)
{
    ech_config_about about;
    bool found = ech_config_type_name(name) != NULL;
    for (int k = 0; !found && ech_config_about_key(k, &about); k++)
        found = strcmp(about.name, name) == 0;
    return found;
}

ech_status ech_help_key(const char *name)
{
    ECH_CLEANUP(ech_config_destroy_at) ech_config *config = NULL;
    ECH_FREED_TEXT paths = {0}, text = {0};
    const ech_alias *foreign = is_key(name) ? NULL : ech_alias_find(name);
    ECH_TRY(check_no_option(name, foreign));
    ECH_TRY(ech_config_match_keys(foreign ? foreign->ours : name, &paths));
    ECH_TRY(ech_setup_defaults(&config));
    char *rest = NULL;
    for (char *key = strtok_r(paths.at, " ", &rest); key; key = strtok_r(NULL, " ", &rest)) {
        ECH_FREED_TEXT named = {0}, rules = {0};
        if (text.n) ech_text_append(&text, "\n");
        ech_config_help_key(config, key, &text);
        append_choices(key, &named);
        if (named.n) ech_text_append(&text, "\n%s", named.at);
        ech_config_help_followed(key, &text);
        append_users(key, &text);
        ech_rules_help_key(key, &rules);
        if (rules.n) ech_text_append(&text, "\n  These cannot be combined:\n\n%s", rules.at);
    }
    fputs(text.at, stdout);
    return ECH_OK;
}

ech_status ech_help_together(void)
{
    ECH_FREED_TEXT forbidden = {0}, unbuilt = {0};
    reader_list readers = {0};
    ech_rules_help(ECH_RULE_FORBIDDEN, &forbidden);
    ech_rules_help(ECH_RULE_UNBUILT, &unbuilt);
    printf("Any two features can be combined, with these exceptions. One of the two rules the "
           "other out, or\nan option has nothing to act on:\n\n%s\n"
           "Nobody has built these combinations yet:\n\n%s",
           forbidden.at, unbuilt.at);
    printf("\nSome keys are read only with some choices:\n\n");
    ech_pool *pool = ech_pool_create();
    find_readers(pool, &readers);
    for (size_t i = 0; i < readers.n; i++)
        if (*readers.at[i].keys)
            printf("  %s = %s:\n      %s\n", readers.at[i].key, readers.at[i].name,
                   readers.at[i].keys);
    free(readers.at);
    ech_pool_destroy(pool);
    printf("\nDegrees and sizes must match:\n\n");
#define X(name, scope, meaning)                                                                    \
    if (strcmp(#name, "together") != 0) printf("  %s\n", meaning);
#include "layout/grid_rules.def"
#undef X
    return ECH_OK;
}

ech_status ech_help_techniques(void)
{
    ECH_FREED_TEXT text = {0};
    ech_techniques_print(&text);
    fputs(text.at, stdout);
    return ECH_OK;
}
