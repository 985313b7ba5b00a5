/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks once all keys are read: required keys, keys that this run does not read, keys that a resume changes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "config/table.h"

/* All that are missing in one line: a new run file is then written in one go. */
static ech_status check_required(const ech_config *config)
{
    ech_text missing = {0};
    for (size_t k = 0; k < ECH_CONFIG_KEYS; k++) {
        const ech_config_key *key = &ech_config_keys[k];
        const ech_config_origin *origin = ech_config_origin_of(config, key);
        if (strcmp(key->initial, "required") == 0 && !origin->place && !origin->tried)
            ech_text_append(&missing, " %s.%s", key->section, key->name);
    }
    if (missing.n == 0) return ECH_OK;
    ech_status st = ech_fail_at(__FILE__, __LINE__, ECH_EUSAGE,
                                "required but not set:%s; set them in the run file or as "
                                "section.key=value on the command line",
                                missing.at);
    ech_text_free(&missing);
    return st;
}

/* Given names were checked when they were set; a default may name what this build lacks. */
static ech_status check_default_names(const ech_config *config)
{
    ech_status st = ECH_OK;
    for (size_t k = 0; k < ECH_CONFIG_KEYS; k++) {
        const ech_config_key *key = &ech_config_keys[k];
        if (key->type != ECH_CONFIG_NAME || ech_config_origin_of(config, key)->place) continue;
        int row;
        if (strcmp(key->initial, "required") != 0)
            ECH_ALSO(&st, ech_config_read_name(config, key, key->initial, "default", &row));
    }
    return st;
}

ech_status ech_config_check(const ech_config *config)
{
    ech_status st = check_required(config);
    ECH_ALSO(&st, check_default_names(config));
    return st;
}

ech_status ech_config_check_read(const ech_config *config, const char *owned, const char *read,
                                 const char *reader)
{
    ech_status st = ECH_OK;
    bool said[ECH_CONFIG_KEYS] = {false}; /* a key may be several rows' own */
    char *copy = ech_strdup(owned), *rest = NULL;
    for (char *path = strtok_r(copy, " ", &rest); path; path = strtok_r(NULL, " ", &rest)) {
        const ech_config_key *key = ech_config_find_path(path);
        ECH_ASSERT(key);
        ech_config_origin *origin = ech_config_origin_of(config, key);
        origin->unread = !ech_text_has_word(read, path);
        bool *is_said = &said[key - ech_config_keys];
        if (origin->unread && origin->place && !*is_said)
            ECH_ALSO(&st, ech_config_complain(config, path, "not read by %s; remove it", reader));
        *is_said = true;
    }
    free(copy);
    return st;
}

/* ---- resuming ---- */

static bool is_changed(const ech_config *saved, const ech_config *now, const ech_config_key *key)
{
    /* Values print so that they read back to the same bits: equal texts are equal values. */
    ech_text before = {0}, after = {0};
    ech_config_format_value(saved, key, &before);
    ech_config_format_value(now, key, &after);
    bool changed = strcmp(before.at, after.at) != 0;
    ech_text_free(&before);
    ech_text_free(&after);
    return changed;
}

/* "command line: training.seed = 2: 1 in the checkpoint". */
static void say_change(const ech_config *saved, const ech_config *now, const ech_config_key *key,
                       ech_text *out)
{
    const ech_config_origin *origin = ech_config_origin_of(now, key);
    ech_text before = {0}, after = {0};
    ech_config_format_value(saved, key, &before);
    ech_config_format_value(now, key, &after);
    if (origin->place) ech_text_append(out, "%s: ", origin->place);
    ech_text_append(out, "%s.%s = %.120s%s: %.120s in the checkpoint", key->section, key->name,
                    after.at, origin->place ? "" : " (default)", before.at);
    ech_text_free(&before);
    ech_text_free(&after);
}

/* A value that nobody has set follows from others: those are to blame, if there are any. */
static bool follows(const ech_config *now, const ech_config_key *key)
{
    return strcmp(key->initial, "auto") == 0 && !ech_config_origin_of(now, key)->place;
}

ech_status ech_config_check_resume(const ech_config *saved, const ech_config *now, const char *also)
{
    bool changed[ECH_CONFIG_KEYS] = {false};
    int n = 0, causes = 0, said = 0;
    for (size_t k = 0; k < ECH_CONFIG_KEYS; k++) {
        const ech_config_key *key = &ech_config_keys[k];
        char path[128];
        snprintf(path, sizeof path, "%s.%s", key->section, key->name);
        if (!key->fixed && !ech_text_has_word(also, path)) continue;
        changed[k] = is_changed(saved, now, key);
        n += changed[k];
        causes += changed[k] && !follows(now, key);
    }
    if (n == 0) return ECH_OK;
    ech_text text = {0};
    for (size_t k = 0; k < ECH_CONFIG_KEYS; k++) {
        if (!changed[k] || (causes > 0 && follows(now, &ech_config_keys[k]))) continue;
        if (said++) ech_text_append(&text, "; ");
        say_change(saved, now, &ech_config_keys[k], &text);
    }
    ech_status st = ech_fail_at(__FILE__, __LINE__, ECH_EUSAGE,
                                "%s, and may not change on resume; set %s back, or start a run in "
                                "another directory",
                                text.at, said == 1 ? "it" : "them");
    ech_text_free(&text);
    return st;
}
