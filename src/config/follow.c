/* SPDX-License-Identifier: Apache-2.0
 *
 * Applies the rows of follows.def.
 */
#include "config/follow.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/divisor.h"
#include "config/rules.h"
#include "config/table.h"

enum { MOST_STEPS = 64 }; /* between two meetings of replicas */

/* Steps between two averages over all replicas: the largest number up to 64 that divides all
 * cadences of the run. */
static const char *meeting_of(const ech_config *c, ech_text *text)
{
    const int64_t cadence[] = {c->training.steps, c->training.validate_every,
                               c->training.check_every, c->checkpoint.every};
    int64_t all = 0;
    for (size_t i = 0; i < sizeof cadence / sizeof *cadence; i++)
        if (cadence[i] > 0) all = ech_common_divisor(all, cadence[i]);
    int64_t steps = all > 0 ? ech_largest_divisor(all, MOST_STEPS) : 1;
    ech_text_append(text, "%" PRId64, steps > 1 ? steps : 2);
    return text->at;
}

/* The number of experts, which the family has chosen unless it is set or the family has none. */
static const char *all_experts(const ech_config *c, ech_text *text)
{
    if (c->model.num_local_experts == ECH_AUTO) return "8";
    ech_config_format(c, "model.num_local_experts", text);
    return text->at;
}

/* "optimizer.name = muon". */
static void name_cause(const ech_config *c, ech_feature feature, ech_text *out)
{
    const char *key = ech_feature_key(feature);
    ech_text_append(out, "%s = ", key);
    ech_config_format(c, key, out);
}

void ech_config_choose_for(ech_config *config, const char *path, const char *value,
                           const char *cause)
{
    const ech_config_key *key = ech_config_find_path(path);
    ech_config_origin *origin = ech_config_origin_of(config, key);
    ECH_FREED_TEXT before = {0}, after = {0};
    ECH_FREED char *follows = origin->cause;
    origin->cause = NULL;
    ech_config_format_value(config, key, &before);
    ech_config_choose(config, path, value);
    ech_config_format_value(config, key, &after);
    bool changes = strcmp(before.at, after.at) != 0;
    if (changes || follows) origin->cause = ech_strdup(changes ? cause : follows);
}

void ech_config_follow(ech_config *c)
{
#define FOLLOW(feature, key, value)                                                                \
    if (ech_feature_is_on(c, ECH_FEATURE_##feature)) {                                             \
        ech_text words = {0}, cause = {0}, *text = &words;                                         \
        name_cause(c, ECH_FEATURE_##feature, &cause);                                              \
        ech_config_choose_for(c, key, value, cause.at);                                            \
        ech_text_free(text);                                                                       \
        ech_text_free(&cause);                                                                     \
    }
#include "config/follows.def"
}

void ech_config_forget(ech_config *config, const char *kept)
{
    for (size_t k = 0; k < ECH_CONFIG_KEYS; k++) {
        const ech_config_key *key = &ech_config_keys[k];
        ech_config_origin *origin = ech_config_origin_of(config, key);
        char path[128];
        snprintf(path, sizeof path, "%s.%s", key->section, key->name);
        if (origin->place || ech_text_has_word(kept, path)) continue;
        ech_config_set_default(config, key);
        free(origin->cause);
        origin->cause = NULL;
    }
}

void ech_config_print_followed(const ech_config *config, const char *indent, ech_text *out)
{
    for (size_t k = 0; k < ECH_CONFIG_KEYS; k++) {
        const ech_config_key *key = &ech_config_keys[k];
        const ech_config_origin *origin = ech_config_origin_of(config, key);
        if (!origin->cause) continue;
        ech_text_append(out, "%s%s.%s = ", indent, key->section, key->name);
        ech_config_format_value(config, key, out);
        ech_text_append(out, " (%s)\n", origin->cause);
    }
}

static const struct {
    ech_feature feature;
    const char *key, *value;
} rows[] = {
#define FOLLOW(feature, key, value) {ECH_FEATURE_##feature, key, #value},
#include "config/follows.def"
};

void ech_config_help_followed(const char *key, ech_text *out)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(rows[i].key, key) != 0) continue;
        ech_text_append(out, "  With %s %s the default is ", ech_feature_key(rows[i].feature),
                        ech_feature_value(rows[i].feature));
        bool literal = rows[i].value[0] == '"';
        if (literal)
            ech_text_append_bytes(out, rows[i].value + 1, strlen(rows[i].value) - 2);
        else
            ech_text_append(out, "another, as above");
        ech_text_append(out, ".\n");
    }
}
